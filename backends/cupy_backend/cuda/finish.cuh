// Stage 5: the last token is drawn and the request's outputs are written.
#pragma once
#include "decide.cuh"

__device__ COLD void write_outputs(
    const Params& p, const Workspace& w, const Request& request, const Decision& decision,
    i64 token) {
    const int place = threadIdx.x;
    const i64 width = p.max_spec_len + 1;
    if (place >= width) return;
    const bool accepted = place < decision.num_accepted;
    const bool last = place == decision.num_accepted;
    i64 emitted = -1;
    if (accepted) emitted = integer_at(drafts_of(p, request.index), place);
    if (last) emitted = token;
    p.token_ids[request.index * width + place] = emitted;
    if (p.variation) {
        const bool counts = emitted >= 0 && (decision.forgiven >> place & 1);
        p.variation[request.index * width + place] =
            counts ? load_fresh(w.rows + request.start + place).variation : 0.0f;
    }
    if (place > 0) return;
    p.status[request.index] = decision.status;
    if (p.num_accepted) p.num_accepted[request.index] = decision.num_accepted;
}

// The target's own sample at the first row that is not accepted.
__device__ inline i64 last_token_from_target(
    const Params& p, const Workspace& w, Shared& shared, const Request& request, int row) {
    const RowResult result = load_fresh(w.rows + request.start + row);
    if (result.token >= 0) return result.token;
    const Adjustment adjustment =
        ADJUSTED ? adjustment_of(p, request.index, request.slot, row) : Adjustment{};
    const Row<TargetLogit> target =
        target_row(p, request.start + row, ADJUSTED ? &adjustment : nullptr);
    const Law law = law_of(result, target_scale(p, request.index));
    return target_token(p, w, shared.slots, request, row, target, law);
}

__device__ inline float* residuals_of(
    const Params& p, const Workspace& w, const Request& request, int row) {
    return w.residuals +
           (request.index * p.max_spec_len + row) * num_blocks_of(p.vocab_size);
}

// A pair whose rows were judged; `adjustment` must outlive it.
__device__ COLD Pair judged_pair(
    const Params& p, const Workspace& w, const Request& request, int row, float log2_product,
    Adjustment& adjustment) {
    if (ADJUSTED) adjustment = adjustment_of(p, request.index, request.slot, row);
    const Row<TargetLogit> target =
        target_row(p, request.start + row, ADJUSTED ? &adjustment : nullptr);
    const Law law = law_of(load_fresh(w.rows + request.start + row), target_scale(p, request.index));
    Law draft_law = {};
    if (request.dense)
        draft_law = law_of(load_fresh(w.drafts + request.index * p.max_spec_len + row),
                           draft_scale(p, request.index));
    Pair pair = pair_of(p, request, row, target, law, draft_law);
    pair.log2_product = log2_product;
    return pair;
}

__device__ COLD void residual_of_row(
    const Params& p, const Workspace& w, const Request& request, int row, float log2_product,
    int begin, int end) {
    Adjustment adjustment;
    const Pair pair = judged_pair(p, w, request, row, log2_product, adjustment);
    residual_masses(pair, target_stats(p, w, request.start + row),
                    residuals_of(p, w, request, row), begin, end);
}

// Block verification's largest i with u_i < h_i, but for the whole draft, which failed before.
// `complete`: all residuals are known; otherwise each is computed when it is asked for.
__device__ inline int accepted_by_block(
    const Params& p, const Workspace& w, Shared& shared, const Request& request, float products,
    int kept, bool complete) {
    const int num_blocks = num_blocks_of(p.vocab_size);
    for (int row = kept - 1; row >= 0; --row) {
        const float product = product_of_row(products, row);
        if (!complete) {
            residual_of_row(p, w, request, row, product, 0, num_blocks);
            everyone().sync();
        }
        if (row == 0) break;
        const float mass =
            residual_sum(shared.slots, residuals_of(p, w, request, row), num_blocks);
        const float threshold = log2_block_threshold(product, mass);
        if (accepts(uniform_of(p, request.index, row - 1), threshold)) return row;
    }
    return 0;
}

__device__ COLD void finish_from_residual(
    const Params& p, const Workspace& w, Shared& shared, const Request& request,
    Decision decision, bool complete) {
    float product = 0.0f;
    if (POLICY == BLOCK) {
        const float products = block_products(w, request, decision.kept);
        decision.num_accepted =
            accepted_by_block(p, w, shared, request, products, decision.kept, complete);
        product = product_of_row(products, decision.num_accepted);
    } else if (!complete) {
        residual_of_row(p, w, request, decision.first_row, 0.0f, 0, num_blocks_of(p.vocab_size));
        everyone().sync();
    }
    const int row = decision.num_accepted;
    Adjustment adjustment;
    const Pair pair = judged_pair(p, w, request, row, product, adjustment);
    const DrawKey key = draw_key(p, request.index, row, RECOVER_STREAM, row + 1);
    const i64 token = draw_residual(shared.slots, pair, target_stats(p, w, request.start + row),
                                    residuals_of(p, w, request, row), key);
    write_outputs(p, w, request, decision, token);
}

__device__ COLD void finish_without_residual(
    const Params& p, const Workspace& w, Shared& shared, const Request& request,
    const Decision& decision) {
    i64 token = NO_TOKEN;
    if (decision.ending == FROM_TARGET)
        token = last_token_from_target(p, w, shared, request, decision.num_accepted);
    write_outputs(p, w, request, decision, token);
}
