// The residual, what remains of the target's law after subtracting the draft's: max(P p - q, 0).
#pragma once
#include "accept.cuh"

// Weights of tokens in it. Copy this where many tokens are weighed: through a pointer its fields would be
// loaded anew for each.
struct Residual {
    Law target_law;
    Law draft_law;       // unused if the draft's law is one-hot
    int one_hot;         // the draft token if it is one-hot, else NO_TOKEN
    float log2_product;  // P

    // The weight of a token: P p minus q.
    __device__ float weight(int id, float target_logit, float draft_logit) const {
        const float log2_p = __fadd_rn(law_log2(target_law, target_logit), log2_product);
        const float q = law_p(draft_law, draft_logit);  // always computed: a branch takes longer
        return fmaxf(__fsub_rn(exp2_fast(log2_p), id == one_hot ? 1.0f : q), 0.0f);
    }
};

// A target row and the draft row beside it, in target ids.
struct Pair {
    TargetRow target;
    Row draft;  // without logits if its law is one-hot
    Residual residual;
    bool dense;
    int drafted;  // the draft token

    __device__ Pair(
        const Params& p, const Request& request, int row, const RowFacts& facts, float log2_product)
        : target(p, request, row),
          draft(draft_row_in_target_ids(p, request, row)),
          dense(request.has_draft_row(row)),
          drafted(draft_of(p, request, row)) {
        if (!dense) draft.num_ids = 0;
        const Law nothing = {0.0f, INFINITY, 0.0f, 0.0f};
        residual = {facts.target, dense ? facts.draft : nothing, dense ? NO_TOKEN : drafted, log2_product};
    }
};

// Of one block, by a warp.
__device__ inline float residual_mass(
    const Residual& residual, int block, const float (&target)[PER_LANE], const float (&draft)[PER_LANE]) {
    float terms[PER_LANE];
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) terms[j] = residual.weight(id_of(block, j), target[j], draft[j]);
    return warp_reduce(lane_sum(terms), Add{});
}

// A draw from the residual. Where p and q agree, rounding can leave no mass: then draw from the target's
// law without the rejected token, or with it if nothing else is left. By a CTA.
__device__ COLD int draw_from_residual(
    Best& best, const Pair& pair, const Mass* stats, DrawKey key) {
    const Residual residual = pair.residual;
    const Law law = residual.target_law;
    const u64 block = race_blocks(
        best, stats, pair.target.row.num_blocks(), key, false,
        [&](const Mass& mass) {
            const float share = __fsub_rn(log2_mass(mass, law), law.log2_sum);
            return __fadd_rn(__fadd_rn(share, BOUND_SLACK), residual.log2_product);
        },
        [&](int at) {
            float target[PER_LANE], draft[PER_LANE];
            load_both(pair.target.row, unchanged(pair.draft), at, target, draft);
            return log2f(residual_mass(residual, at, target, draft));
        });
    int token = NO_TOKEN;
    if (block != 0)
        token = race_tokens(best, racer_id(block), key, [&](int id) {
            const float draft_logit = load_logit(unchanged(pair.draft), id);
            return log2f(residual.weight(id, load_logit(pair.target.row, id), draft_logit));
        });
    if (token != NO_TOKEN) return token;
    token = draw_from_law(best, pair.target.row, stats, law, key, pair.drafted);
    if (token != NO_TOKEN) return token;
    return draw_from_law(best, pair.target.row, stats, law, key, NO_TOKEN);
}
