// Stage 2: a row's law from its blocks' statistics and, where a filter cuts, its own logits. Few
// candidates are listed and compared all with all; more are counted by digits.
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

// The lowest listed logit, none below `floor`, that has less than `wanted` above it. By a CTA.
__device__ inline float select_listed(
    const Scratch& scratch, float floor, u64 before, bool by_number, u64 wanted) {
    const u32 count = scratch.num_listed;
    u32 lowest = float_key(INFINITY);
    for (u32 i = thread_id(); i < count; i += CTA_THREADS) {
        const float mine = scratch.logits[i];
        if (!(mine >= floor)) continue;
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

// A threshold and the mass from there on; by number only the threshold is meant.
struct Kept {
    float threshold;
    u64 mass;
};

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
                select_listed(scratch, -INFINITY, above, by_number, wanted);
            return {threshold, above + mass_listed(scratch, threshold)};
        }
        const float least = key_float(scratch.least_key), largest = key_float(scratch.largest_key);
        if (least == largest) return {least, above + scratch.found};
        bins = Bins::of(least, largest, 0);
        fill_bins(subject.row, subject.stats, subject.law.scale, bins, by_number);
        find_bin(scratch, subject, bins, by_number, least, above, [&](u64) { return wanted; });
    }
}

__device__ inline u64 share_of(float top_p, u64 mass) {
    return static_cast<u64>(ceil(static_cast<double>(top_p) * static_cast<double>(mass)));
}

// What filters keep of logits that are all listed.
__device__ inline Kept filter_listed(
    const Scratch& scratch, const Filters& filters, float floor, u64 row_mass) {
    if (filters.top_k > 0) floor = select_listed(scratch, floor, 0, true, filters.top_k);
    if (filters.top_p < 1.0f) {
        const u64 whole = filters.cuts_before_top_p() ? mass_listed(scratch, floor) : row_mass;
        floor = select_listed(scratch, floor, 0, false, share_of(filters.top_p, whole));
    }
    return {floor, mass_listed(scratch, floor)};
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

// How many blocks have logits from `floor` on. By a CTA.
__device__ inline int blocks_from(const Mass* stats, int num_blocks, float floor) {
    int mine = 0;
    for (int block = thread_id(); block < num_blocks; block += CTA_THREADS)
        mine += load_max(stats + block) >= floor;
    return cta_reduce(mine, Add{});
}

// What is known of a row's law before all its logits are counted.
struct FoundLaw {
    Law law;
    float low;   // nothing below is kept
    bool open;   // the law is still to be found
};

// The row's mass as all kernels add it, known to all of a CTA.
__device__ inline Mass shared_row_mass(const Mass* stats, int num_blocks, float scale) {
    __shared__ Mass whole;
    if (warp_id() == 0) {
        const Mass mass = row_mass(stats, num_blocks, scale);
        if (lane_id() == 0) whole = mass;
    }
    __syncthreads();
    const Mass mass = whole;
    __syncthreads();
    return mass;
}

__device__ inline u64 to_fixed(float mass) { return static_cast<u64>(mass * FIXED_ONE); }

__device__ inline void set_kept(Law& law, const Kept& kept) {
    law.threshold = kept.threshold;
    law.log2_sum = log2f(from_fixed(kept.mass));
}

// The law of a row of which few logits may be kept, or which has no filter. By a CTA.
__device__ COLD FoundLaw find_law_of_few(
    Scratch& scratch, Row row, const Mass* stats, Filters filters) {
    const int num_blocks = row.num_blocks();
    const float scale = logit_scale(filters.temperature);
    const Mass whole = shared_row_mass(stats, num_blocks, scale);
    FoundLaw found = {plain_law(whole, scale, filters.temperature == 0.0f), LEAST_LOGIT, false};
    if (!found.law.is_usable() || !filters.any()) return found;
    const float floor = floor_of_min_p(filters, found.law.max);
    found.low = fmaxf(floor, find_bound(stats, num_blocks, found.law, whole.sum, filters));
    found.open = true;
    if (blocks_from(stats, num_blocks, found.low) > MAX_LISTED / 2) return found;
    Bins all = {};
    all.low = found.low;
    all.high = found.law.max;
    all.first = 0x80000000u;
    list_logits(scratch, row, stats, found.law, all, 0);
    if (scratch.num_listed > MAX_LISTED) return found;
    set_kept(found.law, filter_listed(scratch, filters, floor, to_fixed(whole.sum)));
    found.open = false;
    return found;
}

// The law of any row that was left open. By a CTA.
__device__ COLD Law find_law_of_many(
    Scratch& scratch, Row row, const Mass* stats, Filters filters, float low) {
    const float scale = logit_scale(filters.temperature);
    const Mass whole = shared_row_mass(stats, row.num_blocks(), scale);
    Law law = plain_law(whole, scale, false);
    const Subject subject = {row, stats, law};
    set_kept(law, filter_counted(scratch, subject, filters, low, to_fixed(whole.sum)));
    return law;
}
