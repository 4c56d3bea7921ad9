// A row's law under filters, from its blocks' statistics and the few blocks that are read again: by
// one warp where a few peaks decide, else by a team.
#pragma once
#include "bounds.cuh"
#include "digits.cuh"
#include "peaks.cuh"

// The row's mass. Lists the blocks that may matter to top-p's bound, if there is room.
template <typename TeamT>
__device__ inline u64 survey_masses(
    const TeamT& team, Scratch& scratch, const Mass* stats, int num_blocks, const Law& law,
    float top_p) {
    const float least = least_bound_of_top_p(num_blocks, 1.0f, top_p);
    const bool lists = top_p < 1.0f && num_blocks <= MAX_BLOCKS;
    const int end = (num_blocks + LANES - 1) / LANES * LANES;
    u64 sum = 0;
    for (int block = team.thread(); block < end; block += TeamT::THREADS) {
        const Mass mass = block < num_blocks ? stats[block] : Mass{-INFINITY, 0.0f};
        const float weight = log2_weight(mass.max, law.max, law.scale);
        const HeavyBlock here = {mass.sum * exp2_fast(weight), exp2_fast(weight)};
        sum += static_cast<u64>(here.mass * FIXED_ONE);
        const bool heavy = lists && weight >= least && mass.max > -INFINITY;
        const u32 place = take_place(&scratch.num_heavy, heavy);
        if (heavy) scratch.bounding.heavy[place] = here;
    }
    return team_sum(team, scratch, sum, TeamT::WARPS);
}

// False if more candidates than can be listed reach `bound`, which all that is kept does.
template <typename TeamT, typename T>
__device__ inline bool filter_listed(
    const TeamT& team, Scratch& scratch, const Row<T>& row, const Mass* stats, const Law& law,
    const Filters& filters, u64 row_sum, float& bound, Kept& kept) {
    const int num_blocks = row.num_blocks();
    const bool cut = filters.top_k > 0 || filters.min_p > 0.0f;
    const float floor = bound;
    if (filters.top_p < 1.0f)
        bound = fmaxf(floor, bound_of_top_p(team, scratch, law, num_blocks, from_fixed(row_sum),
                                            filters.top_p));
    // Top-p's bound may leave out some of what top-k and min-p leave; mostly that does not matter.
    bool complete = !cut || bound == floor;
#pragma unroll 1
    for (;;) {
        if (complete && filters.top_k > 0)
            bound = fmaxf(floor, bound_of_top_k(team, scratch, stats, num_blocks, law.max,
                                                filters.top_k));
        list_blocks(team, scratch, stats, num_blocks, bound);
        const bool low = !complete && filters.top_k > 0 &&
                         scratch.num_listed >= static_cast<u32>(filters.top_k);
        if (!low) {
            list_candidates(team, scratch, row, bound);
            const int count = static_cast<int>(scratch.num_candidates);
            const bool all = complete || (filters.top_k > 0 && count >= filters.top_k);
            if (count <= MAX_CANDIDATES &&
                rank_candidates(team, scratch, law, filters, row_sum, cut, all, kept))
                return true;
            if (complete) return false;
        }
        complete = true;
        bound = floor;
        team.sync();
        clear_lists(team, scratch);
        team.sync();
    }
}

// Masses of what a threshold keeps, by reading again all blocks that keep something.
template <typename TeamT, typename T>
__device__ COLD void store_masses(TeamT team, Row<T> row, Mass* stats, Law law) {
    visit_blocks(team, row, stats, law.threshold, [&](int block, const float(&logits)[PER_LANE]) {
        const float sum = block_sum(logits, stats[block].max, law.scale, law.threshold);
        if (lane_id() == 0) stats[block].sum = sum;
    });
    team.sync();
    cut_blocks(team, stats, row.num_blocks(), law.threshold);
}

// For rows of more blocks or candidates than there is room for: they are read again.
template <typename TeamT, typename T>
__device__ COLD Kept filter_unlisted(
    TeamT team, Scratch& scratch, Row<T> row, const Mass* stats, Law law, Filters filters,
    u64 row_sum, float bound) {
    constexpr int idle = ADJUSTED ? 0 : IDLE_KEY_BITS<T>;
    const bool cut = filters.top_k > 0 || filters.min_p > 0.0f;
    const Survivors<T> logits = {row, stats, bound};
    team.sync();
    if (are_countable(bound, law.max, idle))
        return filter_by_counts(team, scratch, logits, idle, law, filters, row_sum, cut);
    return filter_by_digits(team, scratch, logits, idle, law, filters, row_sum, cut);
}

// The law of a row that is not peaked, or of recipes that need more than a row's peaks.
template <typename TeamT, typename T>
__device__ COLD Kept filter_by_team(
    TeamT team, Scratch& scratch, Row<T> row, Mass* stats, Law law, Filters filters) {
    const int num_blocks = row.num_blocks();
    if (team.thread() == 0) scratch.num_heavy = 0;
    clear_lists(team, scratch);
    team.sync();
    const u64 sum = survey_masses(team, scratch, stats, num_blocks, law, filters.top_p);
    float bound = bound_of_min_p(filters, law.max);
    Kept kept;
    if (num_blocks <= MAX_BLOCKS &&
        filter_listed(team, scratch, row, stats, law, filters, sum, bound, kept)) {
        law.threshold = kept.threshold;
        store_listed_masses(team, scratch, stats, num_blocks, law);
        return kept;
    }
    kept = filter_unlisted(team, scratch, row, stats, law, filters, sum, bound);
    law.threshold = kept.threshold;
    store_masses(team, row, stats, law);
    return kept;
}

// By a whole team; the law is the same in all its threads, and `stats` become those of what it
// keeps. Nothing depends on the team's size. Rows that are not usable stay as they are.
template <typename TeamT, typename T>
__device__ inline Law filtered_law(
    const TeamT& team, Scratch& scratch, const Row<T>& row, Mass* stats, Filters filters) {
    if (filters.top_k >= row.vocab_size) filters.top_k = 0;
    Law law = {-INFINITY, -INFINITY, logit_scale(filters.temperature), 0.0f};
    const int num_blocks = row.num_blocks();
    if (team.warp() == 0) {
        PeakedRow peaked = {};
        if (num_blocks <= MAX_BLOCKS)
            peaked = filter_peaks(stats, num_blocks, law.scale, filters);
        else
            peaked.max = row_mass(stats, num_blocks, law.scale).max;
        if (team.thread() == 0) scratch.peaked = peaked;
    }
    team.sync();
    law.max = scratch.peaked.max;
    if (!law.is_usable()) return law;
    Kept kept = scratch.peaked.kept;
    if (!scratch.peaked.is_decided) {
        kept = filter_by_team(team, scratch, row, stats, law, filters);
        team.sync();
    }
    law.threshold = kept.threshold;
    law.log2_sum = log2f(from_fixed(kept.sum));
    return law;
}
