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

__device__ inline u64 enter_race(const DrawKey& key, u32 level, u32 id, float log2_weight) {
    if (log2_weight == -INFINITY) return 0;
    return racer(log2_weight - log2f(exponential(random_word(key, level, id))), id);
}
