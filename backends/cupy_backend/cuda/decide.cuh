// Stage 4: how many draft tokens survive and what the last token is drawn from. Every warp comes to
// the same decision, a lane per row.
#pragma once
#include "judge.cuh"

__device__ inline RowResult result_of_lane(
    const Workspace& w, const Request& request, int num_rows) {
    return lane_id() < num_rows ? load_fresh(w.rows + request.start + lane_id()) : RowResult{};
}

// Why the request must end before `row`; STATUS_OK if it need not.
__device__ COLD int flaw_of_row(
    const Params& p, const Workspace& w, const Request& request, int row) {
    if (request.num_rows == 0) return static_cast<int>(p.invalid_status);
    const RowResult result = load_fresh(w.rows + request.start + row);
    if (!result.usable) return static_cast<int>(p.invalid_status);
    return result.draft_usable ? STATUS_OK : DRAFT_INVALID;
}

// log2 of P_i in lane i, i up to `kept`.
__device__ COLD float block_products(const Workspace& w, const Request& request, int kept) {
    const float ratio = result_of_lane(w, request, kept).evidence;
    float product = 0.0f, mine = 0.0f;
    for (int row = 0; row < kept; ++row) {
        product = next_log2_product(product, __shfl_sync(ALL_LANES, ratio, row));
        if (lane_id() == row + 1) mine = product;
    }
    return mine;
}

__device__ inline float product_of_row(float products, int row) {
    return __shfl_sync(ALL_LANES, products, row);
}

// A mismatch is forgiven where the target is undecided and the next `window` tokens match.
__device__ inline int accepted_by_fly(
    const Params& p, const Workspace& w, const Request& request, int kept, u32* forgiven) {
    const RowResult result = result_of_lane(w, request, kept);
    const int lane = lane_id();
    const bool inside = lane < kept;
    const bool matches = inside && result.token == integer_at(drafts_of(p, request.index), lane);
    const u32 matching = __ballot_sync(ALL_LANES, matches);
    const float least = static_cast<float>(p.epsilon) * logf(static_cast<float>(p.vocab_size));
    const u64 window = ((1ull << p.window) - 1) << (lane + 1);
    const bool pardoned =
        inside && result.evidence >= least && (matching & window) == window;
    *forgiven = __ballot_sync(ALL_LANES, pardoned);
    const u32 failed = __ballot_sync(ALL_LANES, inside && !matches && !pardoned);
    return failed ? __ffs(static_cast<int>(failed)) - 1 : kept;
}

__device__ COLD Decision decide(
    const Params& p, const Workspace& w, const Request& request, u64 verdicts) {
    const int first_final = __ffs(static_cast<int>(verdicts >> 32)) - 1;
    const bool ended = first_final >= 0;
    const int kept = ended ? first_final : request.num_drafts;
    const int flaw = ended ? flaw_of_row(p, w, request, kept) : STATUS_OK;
    Decision d = {FROM_TARGET, kept, request.status, kept, 0, kept, ~0u, 0};
    bool rejected = ended && flaw == STATUS_OK;
    if (!request.strict && POLICY == FLY) {
        d.num_accepted = accepted_by_fly(p, w, request, kept, &d.forgiven);
        rejected = d.num_accepted < kept;
    } else if (!request.strict && POLICY == BLOCK && kept > 0) {
        const float product = product_of_row(block_products(w, request, kept), kept);
        rejected = !accepts(uniform_of(p, request.index, kept - 1), product);
    }
    if (!rejected && flaw != STATUS_OK) {
        d.ending = STOPPED;
        d.status |= flaw;
    } else if (rejected && HAS_RESIDUAL && !request.strict) {
        d.ending = FROM_RESIDUAL;
        d.first_row = POLICY == BLOCK ? 0 : kept;
        d.num_rows = POLICY == BLOCK ? kept : 1;
    }
    return d;
}
