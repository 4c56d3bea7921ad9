// What the lossy policies ask of a row beyond its law: entropy, near-best tokens, and how far they
// move the law of what is emitted. By a CTA.
#pragma once
#include "residual.cuh"
#include "closer.cuh"

// The tokens that a lossy policy accepts at a row.
struct Leniency {
    float least_p;
    float least_log2;  // apart, because logits may differ where probabilities tie
    __device__ bool forgives(const Law& law, float logit) const {
        const float log2_p = law_log2(law, logit), p = exp2_fast(log2_p);
        // What the law keeps may weigh less than any float.
        return log2_p > -INFINITY && p >= least_p && log2_p >= least_log2;
    }
    // Whether some token of a block may be one of them.
    __device__ bool may_forgive(const Law& law, float block_max) const {
        const float log2_p = law_log2(law, block_max);
        return exp2_fast(log2_p) >= least_p * (1.0f - SLACK) && log2_p >= least_log2;
    }
};

// In nats.
__device__ inline float entropy_of(const Row& row, const Mass* stats, Law law) {
    float sum = 0.0f;
    visit_blocks(row, stats, law.threshold, [&](int, const float(&logits)[PER_LANE]) {
        float terms[PER_LANE];
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j) {
            const float log2_p = law_log2(law, logits[j]);
            const float p = exp2_fast(log2_p);
            terms[j] = log2_p == -INFINITY ? 0.0f : -p * log2_p;
        }
        sum += lane_sum(terms);
    });
    return LN_2 * cta_reduce(sum, Add{});
}

// The n-th largest logit that the law keeps, -inf if it keeps fewer.
__device__ inline float nth_largest(
    Finding& shared, const Row& row, const Mass* stats, const Law& law, i64 n) {
    if (n >= row.num_ids) return -INFINITY;
    if (thread_id() == 0) {
        shared.search = {law, 0, 0.0f, 0.0f, 0.0f, LEAST_LOGIT, FOUND, 0, 0};
        shared.search.look(NUMBERS, fmaxf(law.threshold, LEAST_LOGIT), law.max);
    }
    __syncthreads();
    search_alone(shared, row, stats, {0.0f, 0.0f, static_cast<int>(n), 1.0f});
    return shared.search.law.threshold;
}

__device__ COLD Leniency leniency_of(
    const Params& p, Finding& shared, const Row& row, const Mass* stats, Law law) {
    if (p.policy == TYPICAL) {
        const float entropy = entropy_of(row, stats, law);
        const float threshold =
            fminf(static_cast<float>(p.delta) * expf(-entropy), static_cast<float>(p.epsilon));
        return {threshold > 0.0f ? nextafterf(threshold, INFINITY) : 0.0f, -INFINITY};
    }
    if (p.policy == RELAXED)
        return {exp2_fast(-law.log2_sum) - static_cast<float>(p.delta),
                law_log2(law, nth_largest(shared, row, stats, law, p.top_n))};
    return {0.0f, -INFINITY};
}

struct Two {
    float first;
    float second;
};

// Sums terms_of(p, q) over the tokens that would survive.
template <typename TermsOf>
__device__ inline Two sum_over_pair(
    const Pair& pair, const Mass* stats, Leniency leniency, bool all, TermsOf terms_of) {
    const Law target_law = pair.residual.target_law, draft_law = pair.residual.draft_law;
    Two sums = {0.0f, 0.0f};
    for (int block = warp_id(); block < pair.target.row.num_blocks(); block += CTA_WARPS) {
        if (!all && !leniency.may_forgive(target_law, load_max(stats + block))) continue;
        float target[PER_LANE], draft[PER_LANE], firsts[PER_LANE], seconds[PER_LANE];
        pair.load(block, target, draft);
        const u32 allowed = pair.target.allowed(block);
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j) {
            const bool survives =
                all ? allowed >> j & 1 : leniency.forgives(target_law, target[j]);
            const Two terms = terms_of(law_p(target_law, target[j]), law_p(draft_law, draft[j]));
            firsts[j] = survives ? terms.first : 0.0f;
            seconds[j] = survives ? terms.second : 0.0f;
        }
        sums.first += lane_sum(firsts);
        sums.second += lane_sum(seconds);
    }
    sums.first = cta_reduce(sums.first, Add{});
    sums.second = cta_reduce(sums.second, Add{});
    return sums;
}

// Between p and q a + p (1 - sum(q a)), the law of what the row emits, `a` being which tokens survive.
__device__ COLD float variation_of(
    const Pair& pair, const Mass* stats, Leniency leniency, bool all) {
    if (!pair.dense) {
        const float logit = load_logit(pair.target.row, pair.drafted);
        const bool survives = all ? pair.target.allows(pair.drafted)
                                  : leniency.forgives(pair.residual.target_law, logit);
        return survives ? 1.0f - law_p(pair.residual.target_law, logit) : 0.0f;
    }
    Two survived = {1.0f, 1.0f};  // of q and of p
    if (!all || pair.target.is_masked())
        survived = sum_over_pair(
            pair, stats, leniency, all, [](float p, float q) { return Two{q, p}; });
    const Two moved = sum_over_pair(pair, stats, leniency, all, [=](float p, float q) {
        return Two{fabsf(q - p * survived.first), 0.0f};
    });
    return 0.5f * (moved.first + survived.first * fmaxf(1.0f - survived.second, 0.0f));
}

// Judges a row's draft token by the policy's own rule; what FLY decides is known later.
__device__ COLD void judge_leniently(
    const Params& p, Finding& shared, const Request& request, int row) {
    const Pair pair(p, request, row, p.facts[place_of(p, request, row)], 0.0f);
    const Mass* stats = target_stats_of(p, request, row);
    const Law law = pair.residual.target_law;
    RowFacts& facts = p.facts[place_of(p, request, row)];
    const bool all = p.policy == FLY;
    const float entropy = all ? entropy_of(pair.target.row, stats, law) : 0.0f;
    const Leniency leniency = leniency_of(p, shared, pair.target.row, stats, law);
    const float variation = variation_of(pair, stats, leniency, all);
    if (thread_id() != 0) return;
    facts.entropy = entropy;
    facts.variation = variation;
    if (all || leniency.forgives(law, facts.target_logit)) return;
    facts.verdict = FAILS;
    publish_end(p, request, row);
}
