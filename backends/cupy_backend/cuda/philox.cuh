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

// Philox4x32-10 of one counter: the words of four neighbouring candidates.
__device__ COLD uint4 philox(u32 key_0, u32 key_1, uint4 word) {
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const u64 product_0 = static_cast<u64>(word.x) * 0xD2511F53u;
        const u64 product_2 = static_cast<u64>(word.z) * 0xCD9E8D57u;
        word.x = static_cast<u32>(product_2 >> 32) ^ word.y ^ key_0;
        word.z = static_cast<u32>(product_0 >> 32) ^ word.w ^ key_1;
        word.y = static_cast<u32>(product_2);
        word.w = static_cast<u32>(product_0);
        key_0 += 0x9E3779B9u;
        key_1 += 0xBB67AE85u;
    }
    return word;
}

// The words of candidates 4 * quad and on.
__device__ inline uint4 random_words(const DrawKey& key, u32 level, u32 quad) {
    return philox(static_cast<u32>(key.seed), static_cast<u32>(key.seed >> 32),
                  uint4{quad, key.position, 4 * key.stream + level, key.draft_index});
}

__device__ inline u32 word_of(const uint4& words, u32 candidate) {
    const u32 low = candidate & 1 ? words.y : words.x;
    const u32 high = candidate & 1 ? words.w : words.z;
    return candidate & 2 ? high : low;
}

__device__ inline u32 random_word(const DrawKey& key, u32 level, u32 candidate) {
    return word_of(random_words(key, level, candidate >> 2), candidate);
}

// -log1p(-u) for u = (word + 0.5) / 2^32, with full relative accuracy at both ends: log1p where u
// is small, the complement's bits where 1 - u is.
__device__ inline float exponential(u32 word) {
    constexpr float unit = 1.0f / 4294967296.0f;
    if (word < 0x80000000u) return -log1pf(-(static_cast<float>(word) + 0.5f) * unit);
    return -logf((static_cast<float>(~word) + 0.5f) * unit);
}

__device__ inline float acceptance_uniform(u32 word) {
    return (static_cast<float>(word >> 9) + 0.5f) * (1.0f / 8388608.0f);
}
