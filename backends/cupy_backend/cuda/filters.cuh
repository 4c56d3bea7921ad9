// The filters of a recipe.
#pragma once
#include "law.cuh"

constexpr float SLACK = 1e-5f;  // more than the relative error of float sums

// The filters of one row.
struct Filters {
    float temperature;
    float min_p;  // 0: off
    int top_k;    // 0: off
    float top_p;  // 1: off

    __device__ bool any() const {
        return temperature > 0.0f && (min_p > 0.0f || top_k > 0 || top_p < 1.0f);
    }
    __device__ bool cuts_before_top_p() const { return top_k > 0 || min_p > 0.0f; }
    // How far below a row's largest logit they may keep any: all tokens further down together weigh half of what
    // top-p cuts off, if sums are exact enough to tell.
    __device__ float reach(i64 num_ids) const {
        const float rest = 1.0f - top_p;
        float share = 0.0f;
        if (!cuts_before_top_p() && rest > 4.0f * SLACK) share = 0.5f * rest / static_cast<float>(num_ids);
        share = fmaxf(share, 0.99f * min_p);
        return share > 0.0f ? -temperature * logf(share) : INFINITY;
    }
};

__device__ inline Filters filters_of(const Recipe& recipe, i64 entry, i64 vocab_size) {
    const int top_k = recipe.top_k[entry];
    return {recipe.temperature[entry], recipe.min_p[entry], top_k < vocab_size ? top_k : 0,
            recipe.top_p[entry]};
}

// The lowest logit that min-p keeps.
__device__ inline float floor_of_min_p(const Filters& filters, float max) {
    if (filters.min_p == 0.0f) return LEAST_LOGIT;
    const double reach =
        static_cast<double>(filters.temperature) * log(static_cast<double>(filters.min_p));
    return fmaxf(__double2float_ru(max + reach), LEAST_LOGIT);
}

constexpr float FIXED_ONE = 1099511627776.0f;  // 2^40, the largest logit's weight as an integer

constexpr u64 WEIGHT_OF_LARGEST = u64{1} << 40;

__device__ inline u64 fixed_weight(const Law& law, float logit) {
    return static_cast<u64>(exp2_fast(log2_weight(logit, law.max, law.scale)) * FIXED_ONE);
}

__device__ inline u64 to_fixed(float mass) { return static_cast<u64>(mass * FIXED_ONE); }

__device__ inline float from_fixed(u64 mass) {
    return static_cast<float>(static_cast<double>(mass) / FIXED_ONE);
}

// A logit below which they keep none.
__device__ inline float least_kept(const Filters& filters, float max, i64 num_ids) {
    return fmaxf(floor_of_min_p(filters, max), max - filters.reach(num_ids));
}

// The least mass that top-p keeps.
__device__ inline u64 share_of(float top_p, u64 mass) {
    return static_cast<u64>(ceil(static_cast<double>(top_p) * static_cast<double>(mass)));
}

// A threshold and the mass from there on; a search by number gives only the threshold.
struct Kept {
    float threshold;
    u64 mass;
};
