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

__device__ COLD float log2_exponential(u32 word) { return log2f(exponential(word)); }

__device__ inline u64 enter_race(u32 word, u32 id, float log2_weight) {
    if (log2_weight == -INFINITY) return 0;
    return racer(__fsub_rn(log2_weight, log2_exponential(word)), id);
}

// The best of four candidates, those of a quad that are below `count`; `first_id` is a multiple of
// four.
template <typename Weight>
__device__ inline u64 race_quad(
    const DrawKey& key, u32 level, u32 first_id, u32 count, u32 quad, Weight log2_weight) {
    u64 best = 0;
    float weights[4];
#pragma unroll
    for (u32 i = 0; i < 4; ++i)
        weights[i] = 4 * quad + i < count ? log2_weight(first_id + 4 * quad + i) : -INFINITY;
    const uint4 words = random_words(key, level, first_id / 4 + quad);
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        const u64 entered = enter_race(word_of(words, i), first_id + 4 * quad + i, weights[i]);
        best = entered > best ? entered : best;
    }
    return best;
}

// The best of one level: threads `place`, `place` + `step`, ... take a quad each.
template <typename Weight>
__device__ inline u64 race_quads(
    const DrawKey& key, u32 level, u32 first_id, u32 count, u32 place, u32 step, Weight log2_weight) {
    u64 best = 0;
    for (u32 quad = place; 4 * quad < count; quad += step) {
        const u64 entered = race_quad(key, level, first_id, count, quad, log2_weight);
        best = entered > best ? entered : best;
    }
    return best;
}
