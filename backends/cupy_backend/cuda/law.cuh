// What a row's logits become: a law given by four numbers. Logarithms are to base 2.
#pragma once
#include "race.cuh"

constexpr float LOG2_E = 1.44269504088896340736f;
constexpr float LN_2 = 0.69314718055994530942f;

// p(v) = 2^((logit - max) * scale - log2_sum) where logit >= threshold, else 0.
struct alignas(16) Law {
    float max;
    float threshold;
    float scale;
    float log2_sum;
    // No NaN, no +inf, not only -inf.
    __device__ bool is_usable() const { return max > -INFINITY && max < INFINITY; }
};

// What one row's recipe says.
struct Filters {
    float temperature;
    float min_p;  // 0: off
    int top_k;    // 0: off
    float top_p;  // 1: off
};

__device__ inline Filters filters_of(const Recipe& recipe, i64 request, i64 vocab_size) {
    const int top_k = recipe.top_k[request];
    return {recipe.temperature[request], recipe.min_p[request], top_k < vocab_size ? top_k : 0,
            recipe.top_p[request]};
}

// Of a block or a row: the largest logit and the sum of 2^((logit - largest) * scale).
struct alignas(8) Mass {
    float max;
    float sum;
};

__device__ inline float logit_scale(float temperature) {
    return temperature == 0.0f ? LOG2_E : fminf(LOG2_E / temperature, 3e38f);
}

// Spelled out, here and where scores are made: no compiler may fuse it in one kernel and not in
// another.
__device__ inline float log2_weight(float logit, float max, float scale) {
    return __fmul_rn(__fsub_rn(logit, max), scale);
}

__device__ inline float law_log2(const Law& law, float logit) {
    if (FILTERED && !(logit >= law.threshold)) return -INFINITY;
    return __fsub_rn(log2_weight(logit, law.max, law.scale), law.log2_sum);
}

__device__ inline float law_p(const Law& law, float logit) {
    return exp2_fast(law_log2(law, logit));
}

// What a law keeps of a block, or more where that must be read first. `is_lone`: its largest logit at
// most.
__device__ inline Mass kept_of(const Mass& block, const Law& law, bool is_lone) {
    if (!FILTERED) return block;
    if (!(block.max >= law.threshold)) return {-INFINITY, 0.0f};
    return {block.max, is_lone ? 1.0f : block.sum};
}

__device__ inline float log2_mass(float max, float log2_sum, const Law& law) {
    return max == -INFINITY ? -INFINITY : __fadd_rn(log2_weight(max, law.max, law.scale), log2_sum);
}

__device__ inline float log2_mass(const Mass& block, const Law& law) {
    if (block.max == -INFINITY) return -INFINITY;
    return log2_mass(block.max, log2_fast(block.sum), law);
}
