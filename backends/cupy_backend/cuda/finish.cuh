// Stage 4: the last token is drawn and the request's outputs are written. By one team.
#pragma once
#include "judge.cuh"

__device__ inline void write_outputs(
    const Shared& shared, const Decision& decision, i64 token) {
    const Params& p = shared.params;
    const int place = static_cast<int>(threadIdx.x) % DrawTeam::THREADS;
    const i64 width = p.max_spec_len + 1, request = shared.request.index;
    if (place >= width) return;
    i64 emitted = -1;
    if (place < decision.num_accepted) emitted = shared.drafts[place];
    if (place == decision.num_accepted) emitted = token;
    p.token_ids[request * width + place] = emitted;
    if (LOSSY_IN_Q && p.variation) {
        const bool counts = emitted >= 0 && place < shared.request.num_drafts;
        p.variation[request * width + place] =
            counts && !shared.request.strict ? shared.variations[place] : 0.0f;
    }
    if (place > 0) return;
    p.status[request] = decision.status;
    if (p.num_accepted) p.num_accepted[request] = decision.num_accepted;
}

// The target's own sample at a row.
__device__ COLD i64 target_token(
    DrawTeam team, Shared& shared, int row, const Mass* stats, Law law) {
    const Params& p = shared.params;
    const Request& request = shared.request;
    const AdjustedRow target(p, request, row);
    if (request.greedy) return greedy_token(team, shared.slots, target.row, stats, law);
    return draw_from_law(
        team, shared.slots, target.row, stats, law, target_key(p, request, row));
}

// After a decision that leaves no residual. `stats` are of the row behind what was accepted.
__device__ inline void finish_from_target(
    const DrawTeam& team, Shared& shared, const Decision& decision, const Mass* stats) {
    i64 token = NO_TOKEN;
    const int row = decision.num_accepted;
    if (decision.ending == FROM_TARGET) {
        if (SAMPLES_EVERY_ROW || (shared.request.strict && POLICY != SYNTHETIC))
            token = shared.tokens[row];
        else
            token = target_token(team, shared, row, stats, shared.target_laws[row]);
    }
    write_outputs(shared, decision, token);
}

// Of a row whose laws are known. `adjustment` must outlive it; `stats` may be null.
__device__ inline Pair pair_of(
    const Shared& shared, int row, const Mass* stats, Adjustment* adjustment) {
    const Params& p = shared.params;
    Pair pair = {};
    pair.target = target_row(p, shared.request, row);
    if (ADJUSTED) {
        *adjustment = adjustment_of(p, shared.request, row);
        pair.target.adjustment = adjustment;
    }
    pair.target_law = shared.target_laws[row];
    pair.dense = shared.request.dense;
    if (pair.is_dense()) {
        pair.draft = draft_row_in_target_ids(p, shared.request, row);
        pair.draft_law = shared.draft_laws[row];
    }
    pair.drafted = shared.drafts[row];
    if (POLICY == BLOCK) pair.log2_product = shared.products[row];
    pair.stats = stats;
    return pair;
}

// By one thread, between barriers.
__device__ inline void set_pair(Shared& shared, int row, const Mass* stats) {
    shared.pair = pair_of(shared, row, stats, &shared.pair_adjustment);
}

__device__ inline DrawKey recover_key(const Request& request, int row) {
    return draw_key(request, row, RECOVER_STREAM, row + 1);
}

// `best` won the race among the blocks of the pair that is set.
__device__ COLD void finish_from_residual(
    DrawTeam team, Shared& shared, Decision decision, u64 best) {
    const DrawKey key = recover_key(shared.request, decision.num_accepted);
    const i64 token = draw_residual(team, shared.slots, shared.pair, best, key);
    write_outputs(shared, decision, token);
}

// Whether block verification, which refused the whole draft, keeps `row` of its tokens, given the
// residual masses of that row.
__device__ inline bool block_keeps(
    const DrawTeam& team, Shared& shared, const float* masses, int num_blocks, int row) {
    if (row == 0) return true;
    const float mass = residual_sum(team, shared.slots, masses, num_blocks);
    return accepts(shared.uniforms[row - 1], log2_block_threshold(shared.products[row], mass));
}
