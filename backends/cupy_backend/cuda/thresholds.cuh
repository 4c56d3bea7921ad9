// A row's law under filters, from its blocks' statistics and the few blocks that are read again: by
// one warp where a few peaks decide, else by a team.
#pragma once
#include "bounds.cuh"
#include "digits.cuh"
#include "peaks.cuh"

// The row's mass. Lists the blocks that may matter to top-p's bound, if there is room.
template <typename TeamT>
__device__ COLD u64 survey_masses(Scratch& scratch, int num_blocks) {
    const TeamT team = my_team<TeamT>();
    const RowAtHand& at = scratch.at_hand;
    const Law& law = at.law;
    const float least = least_bound_of_top_p(num_blocks, 1.0f, at.filters.top_p);
    const bool lists = at.filters.top_p < 1.0f && num_blocks <= MAX_BLOCKS;
    const int end = (num_blocks + LANES - 1) / LANES * LANES;
    u64 sum = 0;
    for (int block = team.thread(); block < end; block += TeamT::THREADS) {
        const Mass mass = block < num_blocks ? at.stats[block] : Mass{-INFINITY, 0.0f};
        const float weight = log2_weight(mass.max, law.max, law.scale);
        const HeavyBlock here = {mass.sum * exp2_fast(weight), exp2_fast(weight)};
        sum += static_cast<u64>(here.mass * FIXED_ONE);
        const bool heavy = lists && weight >= least && mass.max > -INFINITY;
        const u32 place = take_place(&scratch.num_heavy, heavy);
        if (heavy) scratch.bounding.heavy[place] = here;
    }
    return team_sum(team, scratch, sum, TeamT::WARPS);
}

// Whether the listed candidates tell what is kept; false if more than can be listed reach the bound,
// which all that is kept does. `bound` is min-p's before.
template <typename TeamT, typename T>
__device__ COLD bool filter_listed(Scratch& scratch) {
    const TeamT team = my_team<TeamT>();
    RowAtHand& at = scratch.at_hand;
    const int num_blocks = row_of<T>(scratch).num_blocks();
    const float floor = at.bound;
    float bound = floor;
    if (at.filters.top_p < 1.0f)
        bound = fmaxf(floor, bound_of_top_p(team, scratch, num_blocks));
    // Top-p's bound may leave out some of what top-k and min-p leave; mostly that does not matter.
    bool complete = !cuts_before_top_p(at.filters) || bound == floor;
#pragma unroll 1
    for (;;) {
        const int top_k = at.filters.top_k;
        if (complete && top_k > 0) bound = fmaxf(floor, bound_of_top_k<TeamT>(scratch, num_blocks));
        list_blocks(team, scratch, at.stats, num_blocks, bound);
        const bool low =
            !complete && top_k > 0 && scratch.num_listed >= static_cast<u32>(top_k);
        if (!low) {
            list_candidates(team, scratch, row_of<T>(scratch), bound);
            const int count = static_cast<int>(scratch.num_candidates);
            const bool all = complete || (top_k > 0 && count >= top_k);
            Kept kept;
            if (count <= MAX_CANDIDATES && rank_candidates(team, scratch, all, kept)) {
                if (team.thread() == 0) at.kept = kept;
                return true;
            }
        }
        if (complete && team.thread() == 0) at.bound = bound;
        if (complete) return false;
        complete = true;
        bound = floor;
        team.sync();
        clear_lists(team, scratch);
        team.sync();
    }
}

// Masses of what a threshold keeps, by reading again all blocks that keep something.
template <typename TeamT, typename T>
__device__ COLD void store_masses(Scratch& scratch) {
    const TeamT team = my_team<TeamT>();
    const RowAtHand& at = scratch.at_hand;
    const auto store = [&](int block, const float(&logits)[PER_LANE]) {
        Mass& mass = at.stats[block];
        const float sum = block_sum(logits, mass.max, at.law.scale, at.law.threshold);
        if (lane_id() == 0) mass.sum = sum;
    };
    visit_blocks(team, row_of<T>(scratch), at.stats, at.law.threshold, store);
    team.sync();
    cut_blocks(team, at.stats, row_of<T>(scratch).num_blocks(), at.law.threshold);
}

// For rows of more blocks or candidates than there is room for: they are read again.
template <typename TeamT, typename T>
__device__ inline void filter_unlisted(const TeamT& team, Scratch& scratch) {
    constexpr int idle = ADJUSTED ? 0 : IDLE_KEY_BITS<T>;
    RowAtHand& at = scratch.at_hand;
    team.sync();
    const Kept kept = are_countable(at.bound, at.law.max, idle)
        ? filter_by_counts<TeamT, T>(scratch)
        : filter_by_digits<TeamT, T>(scratch);
    if (team.thread() == 0) at.kept = kept;
}

// A row that is not peaked, or a recipe that needs more than a row's peaks.
template <typename TeamT, typename T>
__device__ COLD void filter_by_team(Scratch& scratch) {
    const TeamT team = my_team<TeamT>();
    RowAtHand& at = scratch.at_hand;
    const int num_blocks = row_of<T>(scratch).num_blocks();
    if (team.thread() == 0) {
        scratch.num_heavy = 0;
        at.bound = bound_of_min_p(at.filters, at.law.max);
    }
    clear_lists(team, scratch);
    team.sync();
    const u64 sum = survey_masses<TeamT>(scratch, num_blocks);
    if (team.thread() == 0) at.sum = sum;
    team.sync();
    const bool listed = num_blocks <= MAX_BLOCKS && filter_listed<TeamT, T>(scratch);
    if (!listed) filter_unlisted<TeamT, T>(team, scratch);
    if (team.thread() == 0) at.law.threshold = at.kept.threshold;
    team.sync();
    if (listed)
        store_listed_masses(team, scratch, num_blocks);
    else
        store_masses<TeamT, T>(scratch);
}

template <typename TeamT, typename T>
__device__ COLD Law find_filtered_law(Scratch& scratch) {
    const TeamT team = my_team<TeamT>();
    RowAtHand& at = scratch.at_hand;
    if (team.warp() == 0) {
        const int num_blocks = row_of<T>(scratch).num_blocks();
        PeakedRow peaked = {};
        if (num_blocks <= MAX_BLOCKS)
            peaked = filter_peaks(at.stats, num_blocks, at.law.scale, at.filters);
        else
            peaked.max = row_mass(at.stats, num_blocks, at.law.scale).max;
        if (team.thread() == 0) {
            scratch.peaked = peaked;
            at.law.max = peaked.max;
            at.kept = peaked.kept;
        }
    }
    team.sync();
    if (at.law.is_usable() && !scratch.peaked.is_decided) {
        filter_by_team<TeamT, T>(scratch);
        team.sync();
    }
    Law law = at.law;
    if (law.is_usable()) {
        law.threshold = at.kept.threshold;
        law.log2_sum = log2f(from_fixed(at.kept.sum));
    }
    team.sync();
    return law;
}

// By a whole team; the law is the same in all its threads, and `stats` become those of what it
// keeps. Nothing depends on the team's size. Rows that are not usable stay as they are.
template <typename TeamT, typename T>
__device__ inline Law filtered_law(
    const TeamT& team, Scratch& scratch, const Row<T>& row, Mass* stats, const Filters& filters) {
    if (team.thread() == 0) set_row(scratch, row, stats, filters);
    team.sync();
    return find_filtered_law<TeamT, T>(scratch);
}
