// What a row's logits become: a law given by four numbers. Logarithms are to base 2.
#pragma once
#include "race.cuh"

constexpr float LOG2_E = 1.44269504088896340736f;
constexpr float LN_2 = 0.69314718055994530942f;

// p(v) = 2^((logit - max) * scale - log2_sum) where logit >= threshold, else 0.
struct Law {
    float max;
    float threshold;
    float scale;
    float log2_sum;
    int usable;  // the largest logit is finite: no NaN, no +inf, not only -inf
};

// Running (largest logit, sum of 2^((logit - largest) * scale)).
struct Mass {
    float max;
    float sum;
};

__device__ inline float logit_scale(float temperature) {
    return temperature == 0.0f ? LOG2_E : LOG2_E / temperature;
}

__device__ inline float log2_weight(float logit, float max, float scale) {
    return (logit - max) * scale;
}

__device__ inline float law_log2(const Law& law, float logit) {
    if (!(logit >= law.threshold) || logit == -INFINITY) return -INFINITY;
    return log2_weight(logit, law.max, law.scale) - law.log2_sum;
}

__device__ inline float law_p(const Law& law, float logit) {
    return logit >= law.threshold
               ? exp2_fast(log2_weight(logit, law.max, law.scale) - law.log2_sum)
               : 0.0f;
}

__device__ inline Mass load_mass(const Mass* address) {
    const float2 loaded = __ldcg(reinterpret_cast<const float2*>(address));
    return {loaded.x, loaded.y};
}

// NaN wins over everything, so that one bad logit marks its row.
__device__ inline Mass add_masses(const Mass& a, const Mass& b, float scale) {
    const float max = max_nan(a.max, b.max);
    if (max == -INFINITY) return {max, 0.0f};
    return {max, a.sum * exp2_fast(log2_weight(a.max, max, scale)) +
                     b.sum * exp2_fast(log2_weight(b.max, max, scale))};
}

__device__ inline float log2_mass(const Mass& block, float row_max, float scale) {
    if (block.max == -INFINITY) return -INFINITY;
    return log2_weight(block.max, row_max, scale) + log2f(block.sum);
}
