// The randomness contract of core/randomness.py: a random word is a pure function of what it
// decides. Nothing here holds state.
#pragma once
#include "params.cuh"

// Which draw of which request a word belongs to.
struct DrawKey {
    u64 seed;
    u32 position;
    u32 stream;
    u32 draft_index;
};

__device__ COLD u32 random_word(const DrawKey& key, u32 level, u32 candidate) {
    u32 word[4] = {candidate >> 2, key.position, 4 * key.stream + level, key.draft_index};
    u32 key_0 = static_cast<u32>(key.seed), key_1 = static_cast<u32>(key.seed >> 32);
#pragma unroll 2
    for (int round = 0; round < 10; ++round) {
        const u64 product_0 = static_cast<u64>(word[0]) * 0xD2511F53u;
        const u64 product_2 = static_cast<u64>(word[2]) * 0xCD9E8D57u;
        word[0] = static_cast<u32>(product_2 >> 32) ^ word[1] ^ key_0;
        word[2] = static_cast<u32>(product_0 >> 32) ^ word[3] ^ key_1;
        word[1] = static_cast<u32>(product_2);
        word[3] = static_cast<u32>(product_0);
        key_0 += 0x9E3779B9u;
        key_1 += 0xBB67AE85u;
    }
    const u32 low = candidate & 1 ? word[1] : word[0];
    const u32 high = candidate & 1 ? word[3] : word[2];
    return candidate & 2 ? high : low;
}

// -log1p(-u) for u = (word + 0.5) / 2^32, with full relative accuracy at both ends: log1p where u
// is small, the complement's bits where 1 - u is.
__device__ COLD float exponential(u32 word) {
    constexpr float unit = 1.0f / 4294967296.0f;
    if (word < 0x80000000u) return -log1pf(-(static_cast<float>(word) + 0.5f) * unit);
    return -logf((static_cast<float>(~word) + 0.5f) * unit);
}

__device__ inline float acceptance_uniform(u32 word) {
    return (static_cast<float>(word >> 9) + 0.5f) * (1.0f / 8388608.0f);
}
