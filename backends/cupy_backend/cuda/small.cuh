// Small magnitudes, below 2^-15, share counters. If their masses matter, they are weighed one by one.
#pragma once
#include "digits.cuh"

// Other kernels do not need it, or have too few registers.
constexpr bool WEIGHS_SMALL = ONLY_TYPE == BF16 && MOST_CHANGE != ANY_CHANGE;

// The masses of small magnitudes, if they were weighed one by one.
struct SmallMasses {
    bool known;
    u64 positive;
    u64 negative;
};

// Weighs small magnitudes. Only blocks whose largest logit is about 0 or more have any: mostly few. By a CTA.
__device__ COLD SmallMasses weigh_small(Law law, Row row, const Mass* stats) {
    __shared__ u64 masses[2];
    if (thread_id() < 2) masses[thread_id()] = 0;
    __syncthreads();
    u64 positive = 0, negative = 0;
    visit_blocks(row, stats, -below_edge(2), [&](int, const float(&logits)[PER_LANE]) {
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j) {
            const bool small = logits[j] != 0.0f && fabsf(logits[j]) < edge_of(2);
            const u64 weight = small ? fixed_weight(law, logits[j]) : 0;
            positive += logits[j] > 0.0f ? weight : 0;
            negative += logits[j] < 0.0f ? weight : 0;
        }
    });
    if (positive) atomicAdd(masses, positive);
    if (negative) atomicAdd(masses + 1, negative);
    __syncthreads();
    return {true, masses[0], masses[1]};
}
