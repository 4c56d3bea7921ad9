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
__device__ inline uint4 philox_here(u32 key_0, u32 key_1, uint4 word) {
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

__device__ COLD uint4 philox(u32 key_0, u32 key_1, uint4 word) {
    return philox_here(key_0, key_1, word);
}

// The words of candidates 4 * quad and on.
__device__ inline uint4 random_words(const DrawKey& key, u32 level, u32 quad) {
    return philox(static_cast<u32>(key.seed), static_cast<u32>(key.seed >> 32),
                  uint4{quad, key.position, 4 * key.stream + level, key.draft_index});
}

// The same without a call, which what is on its way would be waited for.
__device__ inline uint4 random_words_here(const DrawKey& key, u32 level, u32 quad) {
    return philox_here(static_cast<u32>(key.seed), static_cast<u32>(key.seed >> 32),
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

// -log1p(-u) for u = (word + 0.5) / 2^32, with full relative accuracy at both ends: a polynomial where u
// is small, for the least of them decide races, elsewhere the logarithm of the complement. Relative
// errors are below 10^-6.
__device__ inline float exponential(u32 word) {
    constexpr float unit = 1.0f / 4294967296.0f;
    constexpr float ln_2 = 0.69314718055994530942f;
    const float part = (static_cast<float>(word) + 0.5f) * unit;
    const float rest = (static_cast<float>(~word) + 0.5f) * unit;
    // The best of degree 6 for -log1p(-u) / u up to 1/4.
    float ratio = 0.333775282f;
    ratio = __fmaf_rn(ratio, part, 0.0896206945f);
    ratio = __fmaf_rn(ratio, part, 0.214224264f);
    ratio = __fmaf_rn(ratio, part, 0.248693839f);
    ratio = __fmaf_rn(ratio, part, 0.33338955f);
    ratio = __fmaf_rn(ratio, part, 0.499999106f);
    ratio = __fmaf_rn(ratio, part, 1.0f);
    const float of_small = __fmul_rn(part, ratio);
    const float of_large = __fmul_rn(-ln_2, log2_fast(rest));
    return word < 0x40000000u ? of_small : of_large;
}

__device__ inline float acceptance_uniform(u32 word) {
    return (static_cast<float>(word >> 9) + 0.5f) * (1.0f / 8388608.0f);
}
