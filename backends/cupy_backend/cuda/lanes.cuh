// Sums, maxima and barriers among lanes, warps and teams. Orders are fixed: every result is a
// function of the inputs alone.
#pragma once
#include "params.cuh"

constexpr u32 ALL_LANES = 0xffffffffu;

// Asked for anew each time: a register that holds it would be missing elsewhere.
__device__ inline int lane_id() { return static_cast<int>(lane_of_warp()); }
__device__ inline int warp_id() { return static_cast<int>(thread_id() / LANES); }

// All warps of a CTA meet, in a kernel whose teams also meet at barriers of their own twice: after those
// racecheck takes the first meeting to be over before the last warps have come. Between the two nobody
// does anything, and at the second all come.
__device__ inline void meet_in_cta() {
    __syncthreads();
    if (MEETS_TWICE) __syncthreads();
}

// Halves and quarters of a CTA meet in places of their own, one for each warp that a part can begin with.
__device__ inline u64* meetings() {
    __shared__ u64 words[CTA_WARPS];
    return words;
}

__device__ COLD void make_places_ready() {
    const int place = static_cast<int>(thread_id());
    if (place < CTA_WARPS) make_ready(meetings() + place, CTA_THREADS / (place % 2 ? 2 : 4));
}

// Before the first barrier of all.
__device__ inline void make_meetings_ready() {
    if (MEETS_IN_MEMORY) make_places_ready();
}

// A barrier of so many warps: all of a CTA, a half or a quarter of them.
__device__ inline void meet_in_part(int first_warp, int warps) {
    __syncwarp();  // a warp must come whole
    const int place = first_warp + (2 * warps == CTA_WARPS);
    if (warps == CTA_WARPS)
        meet_in_cta();
    else if (MEETS_IN_MEMORY)
        meet_at(meetings() + place, 1 + place, warps * LANES);
    else
        named_barrier(1 + place, warps * LANES);
}

// A group of warps that works on one row.
template <int NUM_WARPS>
struct Team {
    static constexpr int WARPS = NUM_WARPS;
    static constexpr int THREADS = NUM_WARPS * LANES;
    int first_warp;
    __device__ int warp() const { return warp_id() - first_warp; }
    __device__ int thread() const { return static_cast<int>(thread_id()) - first_warp * LANES; }
    __device__ void sync() const { meet_in_part(first_warp, NUM_WARPS); }
};

using WholeCta = Team<CTA_WARPS>;
using DrawTeam = Team<4>;  // a thread per four tokens of a block

template <typename TeamT>
__device__ inline TeamT my_team() {
    return {warp_id() / TeamT::WARPS * TeamT::WARPS};
}

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
    __device__ u32 operator()(u32 a, u32 b) const { return a < b ? a : b; }
};

// A NaN wins, if it came out of max_nan.
__device__ inline float warp_max(float value) {
    const int bits = static_cast<int>(__float_as_uint(value));
    const int largest = warp_max_signed(bits ^ ((bits >> 31) & 0x7fffffff));
    return __uint_as_float(static_cast<u32>(largest ^ ((largest >> 31) & 0x7fffffff)));
}

// By halves, which the hardware compares among lanes.
__device__ inline u64 warp_reduce(u64 value, Max) {
    const u32 high = static_cast<u32>(value >> 32);
    const u32 highest = __reduce_max_sync(ALL_LANES, high);
    const u32 low = high == highest ? static_cast<u32>(value) : 0;
    return static_cast<u64>(highest) << 32 | __reduce_max_sync(ALL_LANES, low);
}

// One slot per warp; every caller gets the result, and the slots may be used again at once.
template <typename TeamT, typename T, typename Combine>
__device__ inline T team_reduce(const TeamT& team, u64* slots, T value, Combine combine) {
    u64* mine = slots + team.first_warp;
    value = warp_reduce(value, combine);
    if (lane_id() == 0) reinterpret_cast<T&>(mine[team.warp()]) = value;
    team.sync();
    T total = reinterpret_cast<T&>(mine[0]);
#pragma unroll
    for (int warp = 1; warp < TeamT::WARPS; ++warp)
        total = combine(total, reinterpret_cast<T&>(mine[warp]));
    team.sync();
    return total;
}
