// Sums, maxima and barriers among lanes, warps and teams. Orders are fixed: every result is a
// function of the inputs alone.
#pragma once
#include "params.cuh"

constexpr u32 ALL_LANES = 0xffffffffu;
constexpr int COMPUTE_BARRIER = 1;

// A group of warps that works on one row.
struct Team {
    int first_warp;
    int num_warps;
    int barrier;
    __device__ int warp() const { return static_cast<int>(threadIdx.x) / LANES - first_warp; }
    __device__ int thread() const { return static_cast<int>(threadIdx.x) - first_warp * LANES; }
    __device__ int threads() const { return num_warps * LANES; }
    __device__ void sync() const {
        __syncwarp();  // a warp must come to a named barrier whole
        named_barrier(barrier, num_warps * LANES);
    }
};

__device__ inline int lane_id() { return threadIdx.x % LANES; }
__device__ inline Team everyone() { return {0, WARPS, COMPUTE_BARRIER}; }

template <typename T, typename Combine>
__device__ inline T warp_reduce(T value, Combine combine) {
#pragma unroll
    for (int distance = LANES / 2; distance; distance /= 2)
        value = combine(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}

struct Add {
    template <typename T>
    __device__ T operator()(T a, T b) const { return a + b; }
};
struct Max {
    __device__ u64 operator()(u64 a, u64 b) const { return a > b ? a : b; }
    __device__ float operator()(float a, float b) const { return max_nan(a, b); }
};
struct Min {
    __device__ float operator()(float a, float b) const { return fminf(a, b); }
};

// One slot per warp; every caller gets the result, and the slots may be used again at once.
template <typename T, typename Combine>
__device__ inline T team_reduce(const Team& team, u64* slots, T value, Combine combine) {
    u64* mine = slots + team.first_warp;
    value = warp_reduce(value, combine);
    if (lane_id() == 0) reinterpret_cast<T&>(mine[team.warp()]) = value;
    team.sync();
    T total = reinterpret_cast<T&>(mine[0]);
    for (int warp = 1; warp < team.num_warps; ++warp)
        total = combine(total, reinterpret_cast<T&>(mine[warp]));
    team.sync();
    return total;
}
