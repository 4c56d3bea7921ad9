// Thresholds of rows whose counts leave them open, found between two logits by digits, and among few by
// comparing all with all.
#pragma once
#include "digits.cuh"

__device__ inline void list_logit(Scratch& scratch, const Law& law, float logit) {
    u32 place = MAX_LISTED;  // where there are too many already, nobody counts them
    if (*static_cast<volatile u32*>(&scratch.num_listed) <= MAX_LISTED)
        place = atomicAdd(&scratch.num_listed, 1u);
    if (place < MAX_LISTED) {
        scratch.logits[place] = logit;
        scratch.weights[place] = fixed_weight(law, logit);
    }
    const u32 key = float_key(logit);
    if (key < scratch.least_key) atomicMin(&scratch.least_key, key);
    if (key > scratch.largest_key) atomicMax(&scratch.largest_key, key);
}

// Lists logits of a bin, and finds the least and the largest of them. By a CTA.
__device__ COLD void list_logits(
    Scratch& scratch, Row row, const Mass* stats, Law law, Bins bins, u32 bin) {
    if (thread_id() == 0) {
        scratch.num_listed = scratch.largest_key = 0;
        scratch.least_key = ~0u;
    }
    __syncthreads();
    const auto is_here = [&](float logit) {
        return logit >= bins.low && logit <= bins.high && bins.bin_of(logit) == bin;
    };
    visit_blocks(row, stats, bins.low, [&](int, const float(&logits)[PER_LANE]) {
        bool some = false;
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j) some |= is_here(logits[j]);
        if (!__any_sync(ALL_LANES, some)) return;
        one_by_one(logits, [&](float logit) {
            if (is_here(logit)) list_logit(scratch, law, __fadd_rn(logit, 0.0f));
        });
    });
    __syncthreads();
}

// The lowest listed logit that has less than `wanted` above it. By a CTA.
__device__ inline float select_listed(
    const Scratch& scratch, u64 before, bool by_number, u64 wanted) {
    const u32 count = scratch.num_listed;
    u32 lowest = float_key(INFINITY);
    for (u32 i = thread_id(); i < count; i += CTA_THREADS) {
        const float mine = scratch.logits[i];
        u64 above = before;
#pragma unroll 8
        for (u32 j = 0; j < count; ++j)
            if (scratch.logits[j] > mine) above += by_number ? 1 : scratch.weights[j];
        if (above < wanted) lowest = Min{}(lowest, float_key(mine));
    }
    return key_float(cta_reduce(lowest, Min{}));
}

__device__ inline u64 mass_listed(const Scratch& scratch, float floor) {
    u64 mine = 0;
    for (u32 i = thread_id(); i < scratch.num_listed; i += CTA_THREADS)
        if (scratch.logits[i] >= floor) mine += scratch.weights[i];
    return cta_reduce(mine, Add{});
}

constexpr int IDLE_BITS = 16;  // of the first digits, for most logits are bfloat16

// The threshold in a bin that was found, which may hold different logits.
__device__ COLD Kept select_in_bin(
    Scratch& scratch, const Subject& subject, Bins bins, bool by_number, u64 wanted) {
    for (;;) {
        const u32 bin = scratch.bin;
        if (bin >= NUM_BINS) return {bins.low, scratch.total};
        const u64 above = scratch.above;
        if (is_single(bins, bin, by_number))
            return {bins.logit_of(bin), above + scratch.found};
        list_logits(scratch, subject.row, subject.stats, subject.law, bins, bin);
        if (scratch.num_listed <= MAX_LISTED) {
            const float threshold =
                select_listed(scratch, above, by_number, wanted);
            return {threshold, above + mass_listed(scratch, threshold)};
        }
        const float least = key_float(scratch.least_key), largest = key_float(scratch.largest_key);
        if (least == largest) return {least, above + scratch.found};
        bins = Bins::of(least, largest, 0);
        fill_bins(subject.row, subject.stats, subject.law.scale, bins, by_number);
        find_bin(scratch, subject, bins, by_number, least, above, [&](u64) { return wanted; });
    }
}

// The k-th largest logit from `low` on.
__device__ inline float select_by_number(
    Scratch& scratch, const Subject& subject, const Bins& bins, u64 number) {
    find_bin(scratch, subject, bins, true, bins.low, 0, [&](u64) { return number; });
    return select_in_bin(scratch, subject, bins, true, number).threshold;
}

// What filters keep of logits that are counted; nothing below `low` is.
__device__ COLD Kept filter_counted(
    Scratch& scratch, const Subject& subject, const Filters& filters, float low, u64 row_mass) {
    Bins bins = Bins::of(low, subject.law.max, IDLE_BITS);
    float floor = low;
    if (filters.top_k > 0) {
        fill_bins(subject.row, subject.stats, subject.law.scale, bins, true);
        floor = select_by_number(scratch, subject, bins, filters.top_k);
        bins = Bins::of(floor, subject.law.max, IDLE_BITS);
    }
    fill_bins(subject.row, subject.stats, subject.law.scale, bins, false);
    const bool cut = filters.cuts_before_top_p(), shares = filters.top_p < 1.0f;
    u64 limit = ~0ull;
    find_bin(scratch, subject, bins, false, floor, 0, [&](u64 total) {
        return limit = shares ? share_of(filters.top_p, cut ? total : row_mass) : ~0ull;
    });
    if (!shares) return {floor, scratch.total};
    return select_in_bin(scratch, subject, bins, false, limit);
}
