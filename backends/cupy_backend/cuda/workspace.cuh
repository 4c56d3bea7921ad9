// Where the CTAs of a launch meet in device memory. Control words are 0 before a launch, and the
// last who needs one puts it back to 0.
#pragma once
#include "request.cuh"

// Of one request.
struct Control {
    u64* best;     // racer for the recovered token's block
    u32* arrived;  // CTAs that have read their share
    u32* left;     // CTAs that know the decision and have done their share of the residual
    u32* rows;     // [2 * max_spec_len + 1], CTAs that have read their share of a row
};

constexpr int CONTROL_HEAD = 2;  // words: the next request

__device__ inline Control control_of(const Params& p, i64 request) {
    u32* words = p.control + CONTROL_HEAD;
    u32* counters = words + 2 * p.num_reqs + request * (2 * p.max_spec_len + 3);
    return {reinterpret_cast<u64*>(words) + request, counters, counters + 1, counters + 2};
}
