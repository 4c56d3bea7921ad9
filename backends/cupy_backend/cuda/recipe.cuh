// Stage 2: a row's law from its blocks' statistics, as the request's recipe says.
#pragma once
#include "thresholds.cuh"

// By a whole team, the same in all its threads. Under filters `stats` become those of what is kept,
// and blocks that keep nothing have none.
template <typename TeamT, typename T>
__device__ inline Law row_law(
    const TeamT& team, u64*, Scratch& scratch, const Row<T>& row, Mass* stats,
    const Recipe& recipe, i64 request) {
    const Filters filters = filters_of(recipe, request);
    if (filters.temperature > 0.0f && has_filters(filters, row.vocab_size))
        return filtered_law(team, scratch, row, stats, filters);
    return plain_law(stats, row.num_blocks(), filters.temperature);
}

// The lowest logit, among those from `floor` on, with less than `target` above it; `weigh` gives
// each logit's share. Under filters `stats` may be those of what is kept from `floor` on.
template <typename TeamT, typename T, typename Weigh>
__device__ inline float radix_select(
    const TeamT& team, Scratch& scratch, const Row<T>& row, const Mass* stats, float floor,
    u64 target, Weigh weigh) {
    if (team.thread() == 0) {
        set_row(scratch, row, const_cast<Mass*>(stats), Filters{});
        scratch.at_hand.bound = fmaxf(floor, LEAST_LOGIT);
    }
    team.sync();
    return select_by_digits<TeamT, T>(scratch, -LEAST_LOGIT, target, weigh);
}
