// Stage 2: a row's law from its blocks' statistics and, where a filter cuts, its own logits, which a
// cluster counts by digits.
#pragma once
#include "digits.cuh"

// A threshold and the mass from there on; by number only the threshold is meant.
struct Kept {
    float threshold;
    u64 mass;
};

// The threshold in the bin that was found, which may hold different logits. By the leader.
__device__ COLD Kept select_in_bin(
    Scratch& scratch, const Search& search, Bins bins, bool by_number, u64 wanted) {
    for (;;) {
        const u32 bin = scratch.bin;
        if (bin >= NUM_BINS) return {bins.low, scratch.total};
        if (!scratch.mixed) return {bins.logit_of(bin), scratch.above + scratch.found};
        const u64 above = scratch.above;
        bins = refined(bins, bin);
        count(search, bins, by_number, !by_number);
        find_bin(scratch, search.team, bins, by_number, bins.low, above, [&](u64) { return wanted; });
    }
}

__device__ inline u64 share_of(float top_p, u64 mass) {
    return static_cast<u64>(ceil(static_cast<double>(top_p) * static_cast<double>(mass)));
}

// The k-th largest logit from `low` on. By the leader; its bins are left as they are if one is enough.
__device__ inline float select_by_number(
    Scratch& scratch, const Search& search, const Bins& bins, u64 number) {
    find_bin(scratch, search.team, bins, true, bins.low, 0, [&](u64) { return number; });
    return select_in_bin(scratch, search, bins, true, number).threshold;
}

// What filters keep; nothing below `low` is. By the leader.
__device__ COLD Kept filter_row(
    Scratch& scratch, const Search& search, const Filters& filters, float low, u64 row_mass) {
    Bins bins = Bins::of(low, search.law.max, IDLE_BITS);
    float floor = low;
    count(search, bins, filters.top_k > 0, true);
    if (filters.top_k > 0) {
        find_bin(scratch, search.team, bins, true, low, 0, [&](u64) { return filters.top_k; });
        const bool again = scratch.bin < NUM_BINS && scratch.mixed;
        floor = select_in_bin(scratch, search, bins, true, filters.top_k).threshold;
        if (again) {
            bins = Bins::of(floor, search.law.max, IDLE_BITS);
            count(search, bins, false, true);
        }
    }
    const bool cut = filters.cuts_before_top_p(), shares = filters.top_p < 1.0f;
    u64 limit = ~0ull;
    find_bin(scratch, search.team, bins, false, floor, 0, [&](u64 total) {
        return limit = shares ? share_of(filters.top_p, cut ? total : row_mass) : ~0ull;
    });
    if (!shares) return {floor, scratch.total};
    return select_in_bin(scratch, search, bins, false, limit);
}

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

// How many blocks have logits from `floor` on. By a CTA.
__device__ inline int blocks_from(const Mass* stats, int num_blocks, float floor) {
    int mine = 0;
    for (int block = thread_id(); block < num_blocks; block += CTA_THREADS)
        mine += load_max(stats + block) >= floor;
    return cta_reduce(mine, Add{});
}

constexpr int FEW_BLOCKS = 4 * CTA_WARPS;  // that one CTA looks at as fast as a cluster, which then is free

// The law of a row from the statistics of all its blocks. By the leader.
__device__ COLD Law find_law(
    Scratch& scratch, Team team, Row global, Piece piece, const Mass* stats, Filters filters,
    bool greedy) {
    const int num_blocks = piece.row.num_blocks();
    const float scale = logit_scale(filters.temperature);
    const Mass whole = shared_row_mass(stats, num_blocks, scale);
    Law law = plain_law(whole, scale, greedy);
    if (!filters.any()) return law;
    if (!law.is_usable()) {
        end_cluster(team);
        return law;
    }
    const float bound = find_bound(stats, num_blocks, law, whole.sum, filters);
    const float low = fmaxf(floor_of_min_p(filters, law.max), bound);
    Search search = {team, piece, stats, law};
    const bool alone = blocks_from(stats, num_blocks, low) <= FEW_BLOCKS;
    if (alone) {
        end_cluster(team);
        search.team = {1, 0};
        search.piece = whole_row(global);
    }
    const Kept kept = filter_row(scratch, search, filters, low, to_fixed(whole.sum));
    if (!alone) end_cluster(team);
    law.threshold = kept.threshold;
    law.log2_sum = log2f(from_fixed(kept.mass));
    return law;
}

// The CTAs of a cluster find a row's law; the leader gets it, and is then alone. `told`: statistics in
// global memory. A CTA that is not to `read` knows that is_idle() will be true for the leader.
template <typename IsIdle>
__device__ inline Law law_by_cluster(
    Scratch& scratch, const Params& p, const Team& team, const Row& row, const Recipe* recipe,
    i64 request, bool greedy, bool read, Mass* told, IsIdle is_idle) {
    const int num_blocks = row.num_blocks();
    Piece piece = team.piece_of(row);
    Mass* stats = reinterpret_cast<Mass*>(asked_place(p.stats_place));
    char* room = p.piece_room ? asked_place(p.piece_place) : nullptr;
    Copy copy = {};
    if (read) copy = begin_piece(piece, room, cta_head().copy_barriers);
    Filters filters = {0.0f, 0.0f, 0, 1.0f};
    if (recipe) filters = filters_of(*recipe, request, row.num_ids);
    if (read) open_piece(piece, copy, room, logit_scale(filters.temperature), greedy, stats, told);
    cluster_sync();
    if (!team.leads()) {
        if (filters.any()) follow(team, piece, stats);
        return {};
    }
    if (__syncthreads_or(is_idle())) {
        if (filters.any()) end_cluster(team);
        return {};
    }
#pragma unroll 4
    for (int block = thread_id(); block < num_blocks; block += CTA_THREADS)
        if (block < piece.begin || block >= piece.end) stats[block] = load_mass(told + block);
    __syncthreads();
    const Law law = find_law(scratch, team, row, piece, stats, filters, greedy);
    return law;
}
