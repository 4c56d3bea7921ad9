// Stage 1: turns every block of a row into (largest logit, sum of exponentials relative to it), and blocks
// into the row's law without filters. Sums have one order in every launch.
#pragma once
#include "lists.cuh"
#include "request.cuh"

__device__ inline float lane_sum(const float (&terms)[PER_LANE]) {
    float sums[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
        sums[i] = (terms[i] + terms[i + 4]) + (terms[i + 8] + terms[i + 12]);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// By a warp; a tree, because max_nan of three is one instruction on some devices.
__device__ inline float block_max(const float (&logits)[PER_LANE]) {
    float largest = max_nan(logits[0], logits[1]);
#pragma unroll
    for (int j = 2; j < PER_LANE; ++j) largest = max_nan(largest, logits[j]);
    return warp_max(largest);
}

constexpr float LARGE_OFFSET = 1048576.0f;  // 2^20, below which fused exponents are exact enough

// A lane's share of a block's mass, without the correction for its offset's rounding.
__device__ inline float lane_mass(const float (&logits)[PER_LANE], float max, float scale) {
    float terms[PER_LANE];
    const float offset = __fmul_rn(max, scale);
    if (fabsf(offset) < LARGE_OFFSET) {
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j)
            terms[j] = exp2_fast(__fmaf_rn(logits[j], scale, -offset));
    } else {
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j) terms[j] = exp2_fast(log2_weight(logits[j], max, scale));
    }
    return lane_sum(terms);
}

// The factor by which the offset's rounding has changed every exponential.
__device__ inline float correction_of(float max, float scale) {
    const float offset = __fmul_rn(max, scale);
    return fabsf(offset) < LARGE_OFFSET ? exp2_fast(-__fmaf_rn(max, scale, -offset)) : 1.0f;
}

// By a warp, of a block whose largest logit is `max`. `greedy`: nobody asks for the sum.
__device__ inline Mass block_mass(
    const float (&logits)[PER_LANE], float max, float scale, bool greedy) {
    if (greedy || !(max > -INFINITY)) return {max, 0.0f};
    const float sum = warp_reduce(lane_mass(logits, max, scale), Add{});
    return {max, __fmul_rn(sum, correction_of(max, scale))};
}

constexpr float LEAST_EXPONENT = -150.0f;  // below this a weight counts as 0

// A block's moment for the entropy: the sum of 2^e e over its logits, e = (logit - max) * scale. By a warp.
__device__ inline float block_moment(const float (&logits)[PER_LANE], float max, float scale) {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) {
        const float exponent = fmaxf(log2_weight(logits[j], max, scale), LEAST_EXPONENT);
        sum = __fmaf_rn(exp2_fast(exponent), exponent, sum);
    }
    return warp_reduce(sum, Add{});
}

// A value that another CTA may have stored.
__device__ inline Mass load_mass(const Mass* place) {
    const u64 bits = *reinterpret_cast<const volatile u64*>(place);
    return {__uint_as_float(static_cast<u32>(bits)), __uint_as_float(static_cast<u32>(bits >> 32))};
}

__device__ inline float load_max(const Mass* place) {
    return *static_cast<const volatile float*>(&place->max);
}

// Statistics of a row that are read again and again.
constexpr int MAX_KEPT = 512;  // blocks; those of longer rows stay in global memory
struct KeptStats {
    Mass of[MAX_KEPT];
    // By a CTA, to be read behind a barrier.
    __device__ const Mass* keep(const Mass* stats, int num_blocks) {
        if (num_blocks > MAX_KEPT) return stats;
#pragma unroll 4
        for (int block = thread_id(); block < num_blocks; block += CTA_THREADS)
            of[block] = load_mass(stats + block);
        return of;
    }
};

// A row's statistics from its blocks', by one warp.
__device__ inline Mass row_mass(const Mass* stats, int num_blocks, float scale) {
    float largest = -INFINITY, sum = 0.0f;
#pragma unroll 4
    for (int block = lane_id(); block < num_blocks; block += LANES)
        largest = max_nan(largest, load_max(stats + block));
    largest = warp_max(largest);
    if (!(fabsf(largest) < INFINITY)) return {largest, 0.0f};
#pragma unroll 4
    for (int block = lane_id(); block < num_blocks; block += LANES) {
        const Mass mass = load_mass(stats + block);
        sum = __fmaf_rn(mass.sum, exp2_fast(log2_weight(mass.max, largest, scale)), sum);
    }
    return {largest, warp_reduce(sum, Add{})};
}

// A row's entropy in nats from its blocks' moments, by one warp.
__device__ inline float row_entropy(
    const Mass* stats, const float* moments, int num_blocks, const Law& law) {
    float sum = 0.0f;
#pragma unroll 4
    for (int block = lane_id(); block < num_blocks; block += LANES) {
        const Mass mass = load_mass(stats + block);
        const float below = fmaxf(log2_weight(mass.max, law.max, law.scale), LEAST_EXPONENT);
        sum = __fmaf_rn(exp2_fast(below), __fmaf_rn(below, mass.sum, __ldcg(moments + block)), sum);
    }
    return LN_2 * __fmaf_rn(-warp_reduce(sum, Add{}), exp2_fast(-law.log2_sum), law.log2_sum);
}

__device__ inline Law plain_law(const Mass& mass, float scale, bool greedy) {
    return {mass.max, greedy ? mass.max : -INFINITY, scale, greedy ? 0.0f : log2f(mass.sum)};
}
