// The randomness contract of core/randomness.py: a random word is a pure function of the decision that
// it is used for.
#pragma once
#include "lanes.cuh"

// Which draw of which request a word belongs to.
struct DrawKey {
    u64 seed;
    u32 position;
    u32 stream;
    u32 draft_index;
};

// Philox4x32-10: the words of candidates 4 * quad and on.
__device__ COLD uint4 random_words(DrawKey key, u32 level, u32 quad) {
    u32 key_0 = static_cast<u32>(key.seed), key_1 = static_cast<u32>(key.seed >> 32);
    uint4 word = {quad, key.position, 4 * key.stream + level, key.draft_index};
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

__device__ inline u32 word_at(const uint4& words, u32 i) {
    const u32 low = i & 1 ? words.y : words.x;
    const u32 high = i & 1 ? words.w : words.z;
    return i & 2 ? high : low;
}

__device__ inline u32 random_word(DrawKey key, u32 level, u32 candidate) {
    return word_at(random_words(key, level, candidate >> 2), candidate & 3);
}

// -log1p(-u) for u = (word + 0.5) / 2^32, with full relative accuracy at both ends: a polynomial where u
// is small, because the smallest exponentials decide races; elsewhere the logarithm of 1 - u. Relative
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
