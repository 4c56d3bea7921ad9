// Who completes a target row and the draft row beside it judges it.
#pragma once
#include "accept.cuh"

struct PairInHand {
    Best best;
    RowFacts facts;
    KeptStats kept;
};

__device__ inline Row logits_of(
    const Params& p, const Request& request, const TargetRow& target, int row, bool is_draft) {
    return is_draft ? draft_row(p, request, row) : target.row;
}

__device__ inline const Mass* stats_of(const Params& p, const Request& request, int row, bool is_draft) {
    return is_draft ? draft_stats_of(p, request, row) : target_stats_of(p, request, row);
}

__device__ inline Law& told_law(const Params& p, const Request& request, int row, bool is_draft) {
    RowFacts& told = p.facts[place_of(p, request, row)];
    return is_draft ? told.draft : told.target;
}

// By a CTA that knows the law of one of the two, or that neither is asked for.
__device__ inline void complete_pair(
    PairInHand& hand, const Params& p, const Request& request, int row) {
    const u32 expected = request.has_draft_row(row) ? 2 : 1;
    if (!is_last_arrival(p.arrivals + place_of(p, request, row), expected)) return;
    if (is_behind_end(p, request, row)) return;
    const u32* told = reinterpret_cast<const u32*>(p.facts + place_of(p, request, row));
    if (thread_id() < static_cast<int>(2 * sizeof(Law) / sizeof(u32)))
        reinterpret_cast<u32*>(&hand.facts)[thread_id()] = __ldcg(told + thread_id());
    if (thread_id() == 2 * LANES) gather_evidence(p, request, row, hand.facts);
    __syncthreads();
    judge_row(hand.best, p, request, row, target_stats_of(p, request, row), hand.facts);
}
