// The exponential race of core/race.py: scores and their order. Where weights come from is not
// known here.
#pragma once
#include "philox.cuh"

// The order of floats as the order of unsigned integers; no NaN.
__device__ inline u32 float_key(float value) {
    const u32 bits = __float_as_uint(value);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ inline float key_float(u32 key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

// A racer as one integer: the larger score is larger, on a tie the lower id. 0 is nobody.
__device__ inline u64 racer(float score, u32 id) {
    if (score == -INFINITY) return 0;
    return static_cast<u64>(float_key(score)) << 32 | static_cast<u32>(~id);
}

__device__ inline u32 racer_id(u64 racer) { return ~static_cast<u32>(racer); }

__device__ inline float log2_exponential(u32 word) { return log2_fast(exponential(word)); }

// Of four neighbouring candidates.
struct alignas(16) Noise {
    float of[4];
};

// The four side by side: one is a long chain.
__device__ inline Noise noise_from(const uint4& words) {
    Noise noise;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) noise.of[i] = log2_exponential(word_of(words, i));
    return noise;
}

__device__ inline Noise noise_of(const DrawKey& key, u32 level, u32 quad) {
    return noise_from(random_words(key, level, quad));
}

// Without a call.
__device__ inline Noise noise_here(const DrawKey& key, u32 level, u32 quad) {
    return noise_from(random_words_here(key, level, quad));
}

__device__ inline u64 racer_with(float noise, u32 id, float log2_weight) {
    return log2_weight == -INFINITY ? 0 : racer(__fsub_rn(log2_weight, noise), id);
}

__device__ inline u64 enter_race(u32 word, u32 id, float log2_weight) {
    if (log2_weight == -INFINITY) return 0;
    return racer_with(log2_exponential(word), id, log2_weight);
}

// The best of four candidates.
__device__ inline u64 race_four(
    const Noise& noise, const float (&log2_weights)[4], u32 first_id) {
    float best = __fsub_rn(log2_weights[0], noise.of[0]);
    u32 id = first_id;
#pragma unroll
    for (u32 i = 1; i < 4; ++i) {
        const float score = __fsub_rn(log2_weights[i], noise.of[i]);
        id = score > best ? first_id + i : id;
        best = score > best ? score : best;
    }
    return racer(best, id);
}

// The best of one level: threads `place`, `place` + `step`, ... take a quad each. `known` is all
// quads' noise or null.
template <typename Weight>
__device__ inline u64 race_quads(
    const DrawKey& key, u32 level, u32 first_id, u32 count, u32 place, u32 step, Weight log2_weight,
    const Noise* known = nullptr) {
    u64 best = 0;
    for (u32 quad = place; 4 * quad < count; quad += step) {
        const Noise noise = known ? known[quad] : noise_of(key, level, first_id / 4 + quad);
        float weights[4];
#pragma unroll
        for (u32 i = 0; i < 4; ++i)
            weights[i] = 4 * quad + i < count ? log2_weight(first_id + 4 * quad + i) : -INFINITY;
        const u64 entered = race_four(noise, weights, first_id + 4 * quad);
        best = entered > best ? entered : best;
    }
    return best;
}
