// Which tokens a lossy policy accepts at a row, given its law and its entropy.
#pragma once
#include "accept.cuh"

__device__ inline bool is_likely(float least_p, const Law& law, float logit) {
    const float log2_p = law_log2(law, logit);
    // A kept token's probability may be too small for a float.
    return log2_p > -INFINITY && exp2_fast(log2_p) >= least_p;
}

// The least logit that is likely enough, or infinity. By a warp: no law rises where logits fall.
__device__ inline float least_likely(float least_p, const Law& law) {
    u32 low = key_of(fmaxf(law.threshold, LEAST_LOGIT)), high = key_of(law.max) + 1;
    while (low < high) {
        const u32 step = (high - low + LANES - 1) / LANES, last = low + (lane_id() + 1) * step - 1;
        const u32 mine = last < high ? last : high - 1;
        const u32 likely = __ballot_sync(ALL_LANES, is_likely(least_p, law, key_float(mine)));
        const int first = likely ? __ffs(static_cast<int>(likely)) - 1 : LANES;
        const u32 before = __shfl_sync(ALL_LANES, mine, (first + LANES - 1) % LANES);
        const u32 found = __shfl_sync(ALL_LANES, mine, first % LANES);
        if (first > 0) low = before + 1;
        if (first < LANES) high = found;
    }
    return high > key_of(law.max) ? INFINITY : key_float(high);
}

// Typical acceptance needs more than the smaller of two thresholds.
__device__ inline float typical_least_p(const Params& p, float entropy) {
    const float threshold =
        fminf(static_cast<float>(p.delta) * expf(-entropy), static_cast<float>(p.epsilon));
    return threshold > 0.0f ? nextafterf(threshold, INFINITY) : 0.0f;
}
