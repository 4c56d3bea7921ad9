// Stage 2: a row's law from its blocks' statistics, as the request's recipe says.
#pragma once
#include "thresholds.cuh"

// By a CTA, the same in all its threads. What the law keeps of a block is kept_of(stats, law, is_lone),
// for which `stats` are changed.
__device__ inline FoundLaw row_law(
    Scratch& scratch, const Row<TargetLogit>& row, Mass* stats, const Filters& filters) {
    FoundLaw found = find_row_law(stats, row.num_blocks(), filters);
    if (!found.is_open) return found;
    meet_in_cta();
    OpenRow& open = scratch.rows[0];
    if (thread_id() == 0) {
        set_row(open, row, stats, filters, found.law.max, found.sum);
        scratch.num_rows = 1;
    }
    clear_counts(scratch, 1);
    meet_in_cta();
    if (warp_id() == 0) bound_row<TargetLogit>(open);
    meet_in_cta();
    count_rows(scratch, {0, 1});
    filter_rows(scratch);
    found.law = open.known.law;
    keep_masses(scratch, 0, whole_cta());
    meet_in_cta();
    return found;
}

// The lowest logit, among those from `floor` on, with less than `number` above it.
__device__ inline float radix_select(
    Scratch& scratch, const Row<TargetLogit>& row, const Mass* stats, float floor, u64 number) {
    OpenRow& open = scratch.rows[0];
    if (thread_id() == 0) {
        set_row(open, row, const_cast<Mass*>(stats), Filters{}, -LEAST_LOGIT, 0.0f);
        open.known.bound = fmaxf(floor, LEAST_LOGIT);
        scratch.row = 0;
    }
    meet_in_cta();
    return select_by_digits<TargetLogit>(scratch, -LEAST_LOGIT, number, true);
}
