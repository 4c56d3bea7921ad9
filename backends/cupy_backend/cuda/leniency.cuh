// Which tokens a lossy policy accepts at a row, given its law and its entropy.
#pragma once
#include "accept.cuh"

struct Leniency {
    float least_p;
    float least_log2;  // apart, because logits may differ where probabilities tie
    __device__ bool forgives(const Law& law, float logit) const {
        const float log2_p = law_log2(law, logit);
        // A kept token's probability may be too small for a float.
        return log2_p > -INFINITY && exp2_fast(log2_p) >= least_p && log2_p >= least_log2;
    }
};

// The least logit that is forgiven, or infinity. By a warp: no law rises where logits fall.
__device__ inline float least_forgiven(const Leniency& leniency, const Law& law) {
    u32 low = key_of(fmaxf(law.threshold, LEAST_LOGIT)), high = key_of(law.max) + 1;
    while (low < high) {
        const u32 step = (high - low + LANES - 1) / LANES, last = low + (lane_id() + 1) * step - 1;
        const u32 mine = last < high ? last : high - 1;
        const u32 forgiven = __ballot_sync(ALL_LANES, leniency.forgives(law, key_float(mine)));
        const int first = forgiven ? __ffs(static_cast<int>(forgiven)) - 1 : LANES;
        const u32 before = __shfl_sync(ALL_LANES, mine, (first + LANES - 1) % LANES);
        const u32 found = __shfl_sync(ALL_LANES, mine, first % LANES);
        if (first > 0) low = before + 1;
        if (first < LANES) high = found;
    }
    return high > key_of(law.max) ? INFINITY : key_float(high);
}

__device__ inline Leniency typical_leniency(const Params& p, float entropy) {
    const float threshold =
        fminf(static_cast<float>(p.delta) * expf(-entropy), static_cast<float>(p.epsilon));
    return {threshold > 0.0f ? nextafterf(threshold, INFINITY) : 0.0f, -INFINITY};
}
