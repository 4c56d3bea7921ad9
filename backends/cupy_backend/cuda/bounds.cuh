// What a recipe cuts off, and a proven lower bound of its threshold from blocks' statistics.
#pragma once
#include "statistics.cuh"

// What one row's recipe says.
struct Filters {
    float temperature;
    float min_p;  // 0: off
    int top_k;    // 0: off
    float top_p;  // 1: off

    __device__ bool any() const {
        return temperature > 0.0f && (min_p > 0.0f || top_k > 0 || top_p < 1.0f);
    }
    __device__ bool cuts_before_top_p() const { return top_k > 0 || min_p > 0.0f; }
};

__device__ inline Filters filters_of(const Recipe& recipe, i64 request, i64 vocab_size) {
    const int top_k = recipe.top_k[request];
    return {recipe.temperature[request], recipe.min_p[request], top_k < vocab_size ? top_k : 0,
            recipe.top_p[request]};
}

// The lowest logit that min-p keeps.
__device__ inline float floor_of_min_p(const Filters& filters, float max) {
    if (filters.min_p == 0.0f) return LEAST_LOGIT;
    const double reach =
        static_cast<double>(filters.temperature) * log(static_cast<double>(filters.min_p));
    return fmaxf(__double2float_ru(max + reach), LEAST_LOGIT);
}

constexpr float SLACK = 1e-5f;  // relative: more than sums of floats are wrong by
constexpr int BOUND_ROUNDS = 4;  // of a search that divides by how many warps a CTA has

// How many of a block's logits are surely not below `pivot`: what they weigh beyond 512 logits there
// is of others, none heavier than the largest.
__device__ inline float surely_above(const Mass& block, float pivot, float scale) {
    const float below = BLOCK_SIZE * exp2_fast(log2_weight(fminf(pivot, block.max), block.max, scale));
    const float least = block.max >= pivot ? 1.0f : 0.0f;
    return fmaxf(least, floorf(block.sum * (1.0f - SLACK) - below));
}

// The most that a block's logits below `pivot` weigh, relative to the row's largest.
__device__ inline float most_below(const Mass& block, float pivot, const Law& law) {
    const float of_max = exp2_fast(log2_weight(block.max, law.max, law.scale));
    const float rest = block.max >= pivot ? block.sum - 1.0f : block.sum;
    const float each = exp2_fast(log2_weight(pivot, law.max, law.scale));
    return fminf(fmaxf(rest, 0.0f) * of_max, BLOCK_SIZE * each);
}

// Whether top-k, or else top-p, surely keeps nothing below `pivot`. By a warp.
__device__ inline bool is_bound(
    const Mass* stats, int num_blocks, const Law& law, float sum, const Filters& filters, float pivot) {
    float total = 0.0f;
#pragma unroll 4
    for (int block = lane_id(); block < num_blocks; block += LANES) {
        const Mass mass = stats[block];
        if (mass.max == -INFINITY) continue;
        total += filters.top_k > 0 ? surely_above(mass, pivot, law.scale)
                                   : most_below(mass, pivot, law);
    }
    total = warp_reduce(total, Add{});
    if (filters.top_k > 0) return total >= filters.top_k;
    return total <= (1.0f - filters.top_p) * sum - SLACK * sum;
}

// The least of the blocks' largest logits, -inf set aside. By a CTA.
__device__ inline float least_of_maxima(const Mass* stats, int num_blocks, float max) {
    float least = max;
    for (int block = thread_id(); block < num_blocks; block += CTA_THREADS) {
        const float mine = load_max(stats + block);
        if (mine > -INFINITY) least = fminf(least, mine);
    }
    return cta_reduce(least, Min{});
}

// A logit below which top-k, or else top-p, keeps nothing; LEAST_LOGIT if none is known. By a CTA.
__device__ COLD float find_bound(
    const Mass* stats, int num_blocks, Law law, float sum, Filters filters) {
    const bool by_number = filters.top_k > 0;
    // What top-p takes a share of must be counted down to where min-p cuts.
    if (!by_number && (filters.min_p > 0.0f || !(filters.top_p < 1.0f))) return LEAST_LOGIT;
    // All logits below weigh less than top-p may cut; or are not among those that blocks tell of.
    const float depth = by_number ? log2f(4.0f * BLOCK_SIZE)
                                  : log2f(static_cast<float>(num_blocks) * BLOCK_SIZE) -
                                        log2f(1.0f - filters.top_p) + 0.01f;
    const float top = by_number ? least_of_maxima(stats, num_blocks, law.max) : law.max;
    const float bottom = fmaxf(__fsub_rn(top, __fdiv_rn(depth, law.scale)), LEAST_LOGIT);
    __shared__ float holding[CTA_WARPS];
    float low = bottom, high = law.max;
    for (int round = 0; round < BOUND_ROUNDS; ++round) {
        const float part = static_cast<float>(warp_id()) / static_cast<float>(CTA_WARPS);
        const float pivot = __fadd_rn(__fmul_rn(low, 1.0f - part), __fmul_rn(high, part));
        const bool holds = is_bound(stats, num_blocks, law, sum, filters, pivot);
        if (lane_id() == 0) holding[warp_id()] = holds ? pivot : -INFINITY;
        __syncthreads();
        float best = by_number ? -INFINITY : low;
        for (int warp = 0; warp < CTA_WARPS; ++warp) best = fmaxf(best, holding[warp]);
        __syncthreads();
        if (best == -INFINITY) return LEAST_LOGIT;
        const float step = __fsub_rn(high * (1.0f / CTA_WARPS), low * (1.0f / CTA_WARPS));
        low = best;
        high = fminf(high, __fadd_rn(low, step));
    }
    return fmaxf(low, LEAST_LOGIT);
}
