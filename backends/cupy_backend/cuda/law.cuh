// The law of a row's logits, given by four numbers. Logarithms are to base 2. Rounding is explicit where
// kernels could differ in fusing a multiplication with an addition.
#pragma once
#include "philox.cuh"

constexpr float LOG2_E = 1.44269504088896340736f;
constexpr float LN_2 = 0.69314718055994530942f;
constexpr float LEAST_LOGIT = -3.402823466e38f;

// p(v) = 2^((logit - max) * scale - log2_sum) where logit >= threshold, else 0.
struct alignas(16) Law {
    float max;
    float threshold;
    float scale;
    float log2_sum;
    // No NaN, no +inf, not only -inf.
    __device__ bool is_usable() const { return max > -INFINITY && max < INFINITY; }
};

__device__ inline float logit_scale(float temperature) {
    return temperature == 0.0f ? LOG2_E : fminf(LOG2_E / temperature, 3e38f);
}

__device__ inline float log2_weight(float logit, float max, float scale) {
    return __fmul_rn(__fsub_rn(logit, max), scale);
}

__device__ inline float kept_log2_weight(const Law& law, float logit) {
    return logit >= law.threshold ? log2_weight(logit, law.max, law.scale) : -INFINITY;
}

__device__ inline float law_log2(const Law& law, float logit) {
    return __fsub_rn(kept_log2_weight(law, logit), law.log2_sum);
}

__device__ inline float law_p(const Law& law, float logit) {
    return exp2_fast(law_log2(law, logit));
}

// log2 of a block's mass, from its largest logit and the log2 of its sum.
__device__ inline float log2_mass(float max, float log2_sum, const Law& law) {
    return max == -INFINITY ? -INFINITY : __fadd_rn(log2_weight(max, law.max, law.scale), log2_sum);
}

// The same for the whole block, even if the law keeps only a part of it.
__device__ inline float log2_mass(const Mass& block, const Law& law) {
    if (!(block.max >= law.threshold)) return -INFINITY;
    return log2_mass(block.max, log2_fast(block.sum), law);
}

// The order of floats as the order of unsigned integers; no NaN.
__device__ inline u32 float_key(float value) {
    const u32 bits = __float_as_uint(value);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ inline u32 key_of(float logit) { return float_key(__fadd_rn(logit, 0.0f)); }  // -0 is 0

__device__ inline float key_float(u32 key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

// A candidate as one integer: a larger score is larger, and on a tie a lower id. 0 is none.
__device__ inline u64 racer(float score, u32 id) {
    if (score == -INFINITY) return 0;
    return static_cast<u64>(float_key(score)) << 32 | static_cast<u32>(~id);
}

__device__ inline int racer_id(u64 racer) { return static_cast<int>(~static_cast<u32>(racer)); }
