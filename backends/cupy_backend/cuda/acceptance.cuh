// Verdicts on draft tokens, one small function per rule; log2 of probabilities come in.
#pragma once
#include "law.cuh"

__device__ inline float log2_ratio(float log2_p, float log2_q) {
    return log2_p == -INFINITY ? log2_p : log2_p - log2_q;
}

__device__ inline bool accepts(float uniform, float log2_threshold) {
    return log2f(uniform) < log2_threshold;
}

// P_i of block verification from P_{i-1}: cut at 1, and once 0 it stays 0.
__device__ inline float next_log2_product(float log2_product, float log2_ratio) {
    if (log2_product == -INFINITY) return log2_product;
    return fminf(log2_product + log2_ratio, 0.0f);
}

// h_i = Z / (Z + 1 - P), 0 / 0 = 1, as a base-2 logarithm.
__device__ inline float log2_block_threshold(float log2_product, float residual_mass) {
    const float rest = -expm1f(log2_product * LN_2);
    if (residual_mass + rest == 0.0f) return 0.0f;
    return log2f(residual_mass) - log2f(residual_mass + rest);
}

__device__ inline float typical_threshold(float entropy, double epsilon, double delta) {
    return fminf(static_cast<float>(delta) * expf(-entropy), static_cast<float>(epsilon));
}
