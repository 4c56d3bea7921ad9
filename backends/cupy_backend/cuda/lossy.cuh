// What the lossy policies ask of a row beyond its law: entropy, near-best tokens, and how far they
// move the law of what is emitted.
#pragma once
#include "finish.cuh"
#include "recipe.cuh"

// The tokens that a lossy policy accepts at a row.
struct Leniency {
    float least_p;
    float least_logit;
};

__device__ inline bool forgives(const Leniency& leniency, const Law& law, float logit) {
    const float p = law_p(law, logit);
    return p > 0.0f && p >= leniency.least_p && logit >= leniency.least_logit;
}

// In nats.
__device__ COLD float entropy_of(
    u64* slots, const Row<TargetLogit>& row, const Mass* stats, const Law& law) {
    float sum = 0.0f;
    visit_blocks(whole_cta(), row, stats, law.threshold, [&](int, const float(&logits)[PER_LANE]) {
        float terms[PER_LANE];
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j) {
            const float log2_p = law_log2(law, logits[j]);
            terms[j] = log2_p == -INFINITY ? 0.0f : -exp2_fast(log2_p) * log2_p;
        }
        sum += lane_sum(terms);
    });
    return LN_2 * team_reduce(my_team<WholeCta>(), slots, sum, Add{});
}

// The n-th largest logit that the law keeps, -inf if it keeps fewer.
__device__ inline float nth_largest(
    Scratch& scratch, const Row<TargetLogit>& row, const Mass* stats, const Law& law, i64 n) {
    if (n >= row.vocab_size) return -INFINITY;
    return radix_select(scratch, row, stats, law.threshold, static_cast<u64>(n));
}

__device__ COLD Leniency leniency_of(
    const Params& p, u64* slots, Scratch* scratch, const Row<TargetLogit>& row, const Mass* stats,
    const Law& law) {
    if constexpr (POLICY == TYPICAL) {
        const float threshold =
            typical_threshold(entropy_of(slots, row, stats, law), p.epsilon, p.delta);
        return {nextafterf(threshold, INFINITY), -INFINITY};
    }
    if constexpr (POLICY == RELAXED)
        return {exp2_fast(-law.log2_sum) - static_cast<float>(p.delta),
                nth_largest(*scratch, row, stats, law, p.top_n)};
    return {0.0f, -INFINITY};
}

// Sums term(p, q, a) over the vocabulary, a = whether the token would survive.
template <typename Term>
__device__ inline float sum_over_pair(
    u64* slots, const Pair& pair, const Leniency& leniency, bool always, Term term) {
    float sum = 0.0f;
    const int num_blocks = pair.target.num_blocks();
    for (int block = warp_id(); block < num_blocks; block += CTA_WARPS) {
        float target[PER_LANE], draft[PER_LANE];
        load_block(pair.target, block, target);
        load_block(pair.draft, block, draft);
        float terms[PER_LANE];
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j) {
            const bool survives = always || forgives(leniency, pair.target_law, target[j]);
            terms[j] = term(law_p(pair.target_law, target[j]), law_p(pair.draft_law, draft[j]),
                            survives ? 1.0f : 0.0f);
        }
        sum += lane_sum(terms);
    }
    return team_reduce(my_team<WholeCta>(), slots, sum, Add{});
}

// Between p and q a + p (1 - sum(q a)), the law of what the row emits.
__device__ COLD float variation_of(
    u64* slots, const Pair& pair, const Leniency& leniency, bool always) {
    if (!pair.is_dense()) {
        const float logit = load_logit(pair.target, pair.drafted);
        const bool survives = always || forgives(leniency, pair.target_law, logit);
        return survives ? 1.0f - law_p(pair.target_law, logit) : 0.0f;
    }
    const float survived = sum_over_pair(
        slots, pair, leniency, always, [](float, float q, float a) { return q * a; });
    return 0.5f * sum_over_pair(slots, pair, leniency, always, [=](float p, float q, float a) {
               return fabsf(q * a - p * survived);
           });
}

// Judges a row's draft token by the policy's own rule, by all threads of a CTA; notes what
// `finish` and `accept_by_fly` ask for.
__device__ inline bool forgives_draft(
    const Params& p, Shared& shared, Scratch* scratch, int row, const Mass* stats) {
    Adjustment adjustment;
    const Pair pair = pair_of(shared, row, stats, &adjustment);
    const Law& law = pair.target_law;
    if (POLICY == FLY) {
        const float entropy = entropy_of(shared.slots, pair.target, stats, law);
        if (thread_id() == 0) shared.entropies[row] = entropy;
    }
    const Leniency leniency = leniency_of(p, shared.slots, scratch, pair.target, stats, law);
    const float variation = variation_of(shared.slots, pair, leniency, POLICY == FLY);
    if (thread_id() == 0) shared.variations[row] = variation;
    return POLICY == FLY || forgives(leniency, law, load_logit(pair.target, pair.drafted));
}

// A mismatch is forgiven where the target is undecided and the next `window` tokens match. By one
// warp; returns how many tokens survive.
__device__ inline int accepted_by_fly(const Params& p, Shared& shared, int kept) {
    const float least = static_cast<float>(p.epsilon) * logf(static_cast<float>(p.vocab_size));
    const auto matches = [&](i64 row) { return shared.tokens[row] == shared.drafts[row]; };
    int failed = kept;
    for (int row = lane_id(); row < kept; row += LANES) {
        bool pardoned = row + p.window < kept && shared.entropies[row] >= least;
        for (i64 next = row + 1; pardoned && next <= row + p.window; ++next)
            pardoned = matches(next);
        if (!pardoned) shared.variations[row] = 0.0f;
        if (!pardoned && !matches(row) && row < failed) failed = row;
    }
    for (int distance = LANES / 2; distance; distance /= 2) {
        const int other = __shfl_xor_sync(ALL_LANES, failed, distance);
        failed = other < failed ? other : failed;
    }
    return failed;
}
