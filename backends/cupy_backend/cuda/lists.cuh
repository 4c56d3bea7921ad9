// Logits that are listed one by one in shared memory, because counters cannot distinguish them: after the
// counters if rows are listed and counted at once, else in their place. Shared memory is scarce, because
// the rest of it serves loads in flight.
#pragma once
#include "counts.cuh"

// Whether bfloat16 rows may hold some logits that differ from the model's.
constexpr bool LISTS_BESIDE = MOST_CHANGE == ANY_CHANGE && (ONLY_TYPE == BF16 || ONLY_TYPE == MIXED);
constexpr int MOST_BESIDE = 6144;
constexpr int MAX_LISTED = LISTS_BESIDE ? MOST_BESIDE : NUM_COUNTS - 8;
constexpr int LIST = LISTS_BESIDE ? NUM_COUNTS + 4 : 0;  // where a list begins, in words
constexpr int ROW_WORDS = NUM_COUNTS + 4 + MOST_BESIDE;  // of a row's counters, its list and the length

// It counts on when the list is full.
__device__ inline u32& list_length() { return asked_shared_memory()[NUM_COUNTS]; }

__device__ inline float* listed_logits() {
    return reinterpret_cast<float*>(asked_shared_memory() + LIST);
}

// Lists a lane's logits that have a bit in `wanted`: mostly few lanes have any.
__device__ inline void list_logits(u32 wanted, const float (&logits)[PER_LANE]) {
    u32 place = wanted ? atomicAdd(&list_length(), static_cast<u32>(__popc(wanted))) : 0;
#pragma unroll 1
    for (; wanted && place < MAX_LISTED; wanted &= wanted - 1)
        listed_logits()[place++] = chosen(logits, __ffs(static_cast<int>(wanted)) - 1);
}

// Removes listed logits from the counts, or counts them again. By a CTA, after a barrier.
__device__ inline void change_listed_counts(bool back_again) {
    for (u32 i = thread_id(); i < list_length(); i += CTA_THREADS)
        count_one(listed_logits()[i], back_again ? 1 : ~0u);
    __syncthreads();
}

// Appends this CTA's list to a row's list in global memory. By a CTA.
__device__ inline void append_list_to(u32* sums) {
    __shared__ u32 place;
    const u32 length = list_length();
    if (thread_id() == 0 && counts_are_coarse()) atomicOr(sums + NUM_COUNTS + 1, 1u);
    if (length == 0) return;
    if (thread_id() == 0) place = atomicAdd(sums + NUM_COUNTS, length);
    __syncthreads();
    for (u32 i = thread_id(); i < length && place + i < MAX_LISTED; i += CTA_THREADS)
        sums[LIST + place + i] = __float_as_uint(listed_logits()[i]);
}

// Takes a row's counts and its list, and leaves zeros. By a CTA; read them after a barrier.
__device__ inline void take_counts_from(u32* sums) {
    uint4* from = reinterpret_cast<uint4*>(sums);
    uint4* counts = reinterpret_cast<uint4*>(asked_shared_memory());
#pragma unroll 3
    for (int i = thread_id(); i <= NUM_COUNTS / 4; i += CTA_THREADS) {
        counts[i] = __ldcg(from + i);
        from[i] = uint4{0, 0, 0, 0};
    }
    if (!LISTS_BESIDE) return;
    __syncthreads();
    for (u32 i = thread_id(); i < list_length() && i < MAX_LISTED; i += CTA_THREADS) {
        listed_logits()[i] = __uint_as_float(__ldcg(sums + LIST + i));
        sums[LIST + i] = 0;
    }
}
