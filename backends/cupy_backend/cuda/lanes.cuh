// Sums, maxima and scans among the lanes of a warp and the warps of a CTA. Orders are fixed.
#pragma once
#include "params.cuh"

constexpr int CTA_WARPS = KERNEL_WARPS;
constexpr int CTA_THREADS = CTA_WARPS * LANES;
constexpr u32 ALL_LANES = 0xffffffffu;

// Threads of a multiprocessor that read rows. Changes need registers for what is in flight: at 64 requests with
// penalties this saves 15 %.
constexpr int READING_THREADS = MOST_CHANGE == ANY_CHANGE ? 768 : 1024;

__device__ inline int thread_id() { return static_cast<int>(threadIdx.x); }
__device__ inline int lane_id() { return thread_id() % LANES; }
__device__ inline int warp_id() { return thread_id() / LANES; }

// One of a lane's logits; without memory, which an index would need.
__device__ inline float chosen(const float (&logits)[PER_LANE], int at) {
    float left[PER_LANE / 2];
#pragma unroll
    for (int j = 0; j < PER_LANE / 2; ++j) left[j] = at & PER_LANE / 2 ? logits[j + PER_LANE / 2] : logits[j];
#pragma unroll
    for (int half = PER_LANE / 4; half; half /= 2)
#pragma unroll
        for (int j = 0; j < half; ++j) left[j] = at & half ? left[j + half] : left[j];
    return left[0];
}

__device__ inline void choose(float (&logits)[PER_LANE], int at, float logit) {
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) logits[j] = j == at ? logit : logits[j];
}

struct Add {
    template <typename T>
    __device__ T operator()(T a, T b) const { return a + b; }
};
struct Max {
    template <typename T>
    __device__ T operator()(T a, T b) const { return a > b ? a : b; }
};
struct Min {
    template <typename T>
    __device__ T operator()(T a, T b) const { return a < b ? a : b; }
};

template <typename T, typename Combine>
__device__ inline T warp_reduce(T value, Combine combine) {
#pragma unroll
    for (int distance = LANES / 2; distance; distance /= 2)
        value = combine(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}

// A NaN wins.
__device__ inline float warp_max(float value) {
    const int bits = static_cast<int>(__float_as_uint(value));
    const int largest = warp_max_signed(bits ^ ((bits >> 31) & 0x7fffffff));
    return __uint_as_float(static_cast<u32>(largest ^ ((largest >> 31) & 0x7fffffff)));
}

// Of all threads of a CTA, for all of them.
template <typename T, typename Combine>
__device__ inline T cta_reduce(T value, Combine combine) {
    __shared__ u64 slots[CTA_WARPS];
    value = warp_reduce(value, combine);
    if (lane_id() == 0) reinterpret_cast<T&>(slots[warp_id()]) = value;
    __syncthreads();
    T total = reinterpret_cast<T&>(slots[0]);
    for (int warp = 1; warp < CTA_WARPS; ++warp)
        total = combine(total, reinterpret_cast<T&>(slots[warp]));
    __syncthreads();
    return total;
}

// What the lanes up to this one have together.
__device__ inline u64 warp_sum_up_to(u64 mine) {
    for (int distance = 1; distance < LANES; distance *= 2) {
        const u64 other = __shfl_up_sync(ALL_LANES, mine, distance);
        if (lane_id() >= distance) mine += other;
    }
    return mine;
}

// What the threads before this one have together.
__device__ inline u64 cta_sum_before(u64 mine) {
    __shared__ u64 slots[CTA_WARPS];
    u64 end = warp_sum_up_to(mine);
    if (lane_id() == LANES - 1) slots[warp_id()] = end;
    __syncthreads();
    for (int warp = 0; warp < warp_id(); ++warp) end += slots[warp];
    __syncthreads();
    return end - mine;
}

// Whether this warp is the last of `expected` to come to a counter, which then is 0 again. What its first
// lane and others that it waited for stored before is visible to the last one.
__device__ inline bool is_last_warp(u32* counter, u32 expected) {
    const bool last = lane_id() == 0 && increment_acq_rel(counter, expected - 1) == expected - 1;
    const bool told = __shfl_sync(ALL_LANES, static_cast<int>(last), 0);
    __syncwarp();
    return told;
}

// Whether this CTA is the last of `expected` to come to a counter, which then is 0 again. What CTAs
// stored before they came is visible to the last one.
__device__ inline bool is_last_arrival(u32* counter, u32 expected) {
    __shared__ bool last;
    __syncthreads();
    if (thread_id() == 0) last = increment_acq_rel(counter, expected - 1) == expected - 1;
    __syncthreads();
    return last;
}
