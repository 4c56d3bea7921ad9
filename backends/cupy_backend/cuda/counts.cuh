// Counts of a row's logits by the upper halves of their float32 bits, in shared memory. A bin of bfloat16
// logits holds equal ones, so that thresholds and masses follow from counts, whatever the row is
// like. Only magnitudes in (0, 2^-15) and above 2^7 share bins.
#pragma once
#include "params.cuh"
#include "lanes.cuh"

constexpr u32 BELOW_WINDOW = 0x37fe;  // bin 2 is of the upper half of 2^-15
constexpr int SIGN_BINS = 22 * 128 + 4;  // of one sign: of 0, small magnitudes, each of the window's, large ones
constexpr int NUM_COUNTS = 2 * SIGN_BINS;
// Ranks are bins in the order of falling logits; zeros of both signs share one.
constexpr int NUM_RANKS = NUM_COUNTS - 1;
constexpr int ZERO_RANK = SIGN_BINS - 1;  // its neighbours are of small magnitudes

// Clears counts and lists. By a CTA, to be followed by a barrier.
__device__ inline void clear_counts() {
    uint4* words = reinterpret_cast<uint4*>(asked_shared_memory());
    for (int i = thread_id(); i <= NUM_COUNTS / 4; i += CTA_THREADS) words[i] = uint4{0, 0, 0, 0};
}

// Counts two logits whose upper halves a word holds. There is no branch, and the old value is not read:
// so hardware combines what a warp adds at one place.
__device__ inline void count_pair(u32 pair) {
    const u32 in_sign = window_of_pair(pair & 0x7fff7fffu, BELOW_WINDOW, SIGN_BINS - 1);
    const u32 bytes = 4 * in_sign + (signs_of_pair(pair) & 4 * SIGN_BINS * 0x00010001u);
    char* counts = reinterpret_cast<char*>(asked_shared_memory());
    atomicAdd(reinterpret_cast<u32*>(counts + (bytes & 0xffffu)), 1u);
    atomicAdd(reinterpret_cast<u32*>(counts + (bytes >> 16)), 1u);
}

// The upper halves of two floats.
__device__ inline u32 pair_of(float low, float high) {
    return upper_halves(__float_as_uint(low), __float_as_uint(high));
}

// Whether some counted logit has more bits than its bin.
__device__ inline u32& counts_are_coarse() { return asked_shared_memory()[NUM_COUNTS + 1]; }

// Looks for such logits. By a warp.
__device__ inline void tell_coarse(const float (&logits)[PER_LANE]) {
    u32 bits = 0;
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) bits |= __float_as_uint(logits[j]);
    const bool coarse = __any_sync(ALL_LANES, (bits & 0xffffu) != 0);
    if (coarse && lane_id() == 0) atomicOr(&counts_are_coarse(), 1u);
}

__device__ inline void count_logits(const float (&logits)[PER_LANE]) {
#pragma unroll
    for (int j = 0; j < PER_LANE; j += 2) count_pair(pair_of(logits[j], logits[j + 1]));
}

__device__ inline u32 count_at(int rank) {
    const u32* counts = asked_shared_memory();
    const u32 other_zeros = counts[SIGN_BINS];
    return counts[rank <= ZERO_RANK ? ZERO_RANK - rank : rank + 1] + (rank == ZERO_RANK ? other_zeros : 0);
}

// The least magnitude of a bin.
__device__ inline float edge_of(int in_sign) {
    return __uint_as_float((in_sign > 1 ? BELOW_WINDOW + in_sign : in_sign) << 16);
}

__device__ inline float below_edge(int in_sign) {
    return __uint_as_float(__float_as_uint(edge_of(in_sign)) - 1);
}

__device__ inline bool is_small(int rank) { return rank == ZERO_RANK - 1 || rank == ZERO_RANK + 1; }

// Whether a rank's logits are equal, if all are bfloat16.
__device__ inline bool is_inner(int rank) {
    return rank != 0 && !is_small(rank) && rank != NUM_RANKS - 1;
}

// Without branches: the least logit that a rank may hold or, if it is `single`, the one bfloat16.
__device__ inline float least_of(int rank, bool single) {
    const int in_sign = rank < ZERO_RANK ? ZERO_RANK - rank : rank - ZERO_RANK;
    const bool is_negative = rank >= ZERO_RANK;
    const u32 rest = is_negative && !single ? 0xffffu : 0u;
    const u32 upper = in_sign > !is_negative ? BELOW_WINDOW + in_sign : in_sign;
    const u32 bits = upper << 16 | (is_negative ? 0x80000000u : 0u) | rest;
    return rank == NUM_RANKS - 1 ? -INFINITY : __uint_as_float(bits);
}

// The least and the largest logit that a rank may hold.
__device__ inline float bottom_of(int rank) { return least_of(rank, false); }

__device__ inline float top_of(int rank) {
    if (rank == 0) return INFINITY;
    return rank <= ZERO_RANK ? below_edge(ZERO_RANK - rank + 1) : -edge_of(rank - ZERO_RANK);
}

// The one bfloat16 that an inner rank holds.
__device__ inline float logit_of(int rank) {
    return rank < ZERO_RANK ? bottom_of(rank) : -edge_of(rank - ZERO_RANK);
}

__device__ inline int rank_of(float logit) {
    const u32 bits = __float_as_uint(logit);
    const u32 in_sign = window_of_pair(bits >> 16 & 0x7fffu, BELOW_WINDOW, SIGN_BINS - 1) & 0xffffu;
    return bits >> 31 ? ZERO_RANK + static_cast<int>(in_sign) : ZERO_RANK - static_cast<int>(in_sign);
}

__device__ inline u32* counter_of(float logit) {
    const u32 bits = __float_as_uint(logit);
    const u32 in_sign = window_of_pair(bits >> 16 & 0x7fffu, BELOW_WINDOW, SIGN_BINS - 1) & 0xffffu;
    return asked_shared_memory() + in_sign + (bits >> 31) * SIGN_BINS;
}

__device__ inline void count_one(float logit, u32 number) { atomicAdd(counter_of(logit), number); }

// Adds the first `number` counts of this CTA to a row's counts in global memory.
__device__ inline void add_counts_to(u32* sums, int number) {
    const u32* counts = asked_shared_memory();
#pragma unroll 4
    for (int i = thread_id(); i < number; i += CTA_THREADS)
        if (counts[i]) add_relaxed(sums + i, counts[i]);
}
