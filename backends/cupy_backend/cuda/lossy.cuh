// What the lossy policies need from a row beyond its law: entropy, near-best tokens, and how far they
// move the emitted token's law. By a CTA.
#pragma once
#include "closer.cuh"
#include "leniency.cuh"
#include "residual.cuh"

// How far a row moves the law: from p to q a + p (1 - sum(q a)), the emitted token's law, where `a` says
// which tokens survive.
struct Two {
    float first;
    float second;
};

// Whether all tokens survive that a mask allows; under other policies only the lenient rule's do.
__device__ inline bool spares_all(const Params& p) { return p.policy == FLY; }

// log2 of the probability of a kept logit, fused, for use in sums.
__device__ inline float fused_log2(const Law& law, float logit) {
    return __fmaf_rn(__fsub_rn(logit, law.max), law.scale, -law.log2_sum);
}

// The terms of blocks' sums at a step.
struct Terms {
    Law law;
    Law draft_law;
    float least;  // the least logit that survives
    float survived_q;

    // Of one token. Without branches, of the step `taken`.
    template <Step taken, bool beside>
    __device__ void add(float target, float draft, bool allowed, Two& sums) const {
        const float log2_p = fused_log2(law, target);
        const float p = target >= law.threshold ? exp2_fast(log2_p) : 0.0f;
        float q = 0.0f;
        if (beside && draft >= draft_law.threshold) q = exp2_fast(fused_log2(draft_law, draft));
        const bool counts = target >= least && allowed;
        if (taken == ENTROPIES) {
            if (p > 0.0f) sums.first = __fmaf_rn(-p, log2_p, sums.first);
            if (beside) sums.second += fabsf(q - p);
        } else if (taken == SURVIVALS) {
            if (counts) sums.first += q;
            if (counts) sums.second += p;
        } else if (counts) {
            sums.first += fabsf(__fmaf_rn(-p, survived_q, q));
        }
    }
};

__device__ inline Two* sums_of(const Params& p, const Request& request, int row) {
    return reinterpret_cast<Two*>(residuals_of(p, request, row));
}

__device__ inline bool moves_with_entropies(const Params& p, const Pair& pair) {
    return spares_all(p) && pair.dense && !pair.target.row.is_masked();
}

// Of the blocks of a piece. By a CTA.
template <Step taken, bool beside>
__device__ inline void sum_blocks(
    const Terms& asked, const Pair& pair, const Mass* stats, const Piece& piece, Two* sums) {
    const Terms terms = asked;  // copies of these three, so that each is loaded once
    const Row row = pair.target.row, other = unchanged(pair.draft);
    for (int block = piece.begin + thread_id(); block < piece.end; block += CTA_THREADS)
        sums[block] = {0.0f, 0.0f};
    __syncthreads();
    visit_beside<beside>(
        row, other, stats, piece, terms.least,
        [&](int block, const float(&target)[PER_LANE], const float(&draft)[PER_LANE]) {
            const u32 allowed = row.allowed_in(block);
            Two both = {0.0f, 0.0f};
#pragma unroll
            for (int j = 0; j < PER_LANE; ++j)
                terms.add<taken, beside>(target[j], draft[j], allowed >> j & 1, both);
            both = {warp_reduce(both.first, Add{}), warp_reduce(both.second, Add{})};
            if (lane_id() == 0) sums[block] = both;
        });
}

// Of the blocks of a piece. By a CTA.
__device__ inline void sum_piece(
    const Params& p, const Request& request, int row, const Pair& pair, const Piece& piece) {
    const RowFacts& facts = p.facts[place_of(p, request, row)];
    const Residual& laws = pair.residual;
    Terms terms = {laws.target_law, laws.draft_law, facts.least_logit, facts.survived_q};
    const Mass* stats = target_stats_of(p, request, row);
    Two* sums = sums_of(p, request, row);
    if (facts.step == SURVIVALS) return sum_blocks<SURVIVALS, true>(terms, pair, stats, piece, sums);
    if (facts.step == MOVES) return sum_blocks<MOVES, true>(terms, pair, stats, piece, sums);
    terms.least = -INFINITY;
    if (moves_with_entropies(p, pair)) return sum_blocks<ENTROPIES, true>(terms, pair, stats, piece, sums);
    terms.least = fmaxf(terms.law.threshold, LEAST_LOGIT);
    sum_blocks<ENTROPIES, false>(terms, pair, stats, piece, sums);
}

// Of all blocks, in one order. By a CTA.
__device__ inline Two sum_row(const Two* sums, int num_blocks) {
    Two mine = {0.0f, 0.0f};
    for (int block = thread_id(); block < num_blocks; block += CTA_THREADS) {
        const u64 bits = __ldcg(reinterpret_cast<const u64*>(sums + block));
        mine.first += __uint_as_float(static_cast<u32>(bits));
        mine.second += __uint_as_float(static_cast<u32>(bits >> 32));
    }
    return {cta_reduce(mine.first, Add{}), cta_reduce(mine.second, Add{})};
}

// A logit that at least `n` logits reach, judged by block maxima. By a CTA.
__device__ inline float bound_of_nth(
    Finding& shared, const Row& row, const Mass* stats, const Law& law, u64 n) {
    const float least = fmaxf(law.threshold, LEAST_LOGIT);
    const Digits digits = Digits::of(least, law.max, idle_bits_of(row));
    clear_counts();
    __syncthreads();
    for (int block = thread_id(); block < row.num_blocks(); block += CTA_THREADS) {
        const float max = load_max(stats + block);
        if (max >= least) atomicAdd(asked_shared_memory() + digits.rank_of(max), 1u);
    }
    __syncthreads();
    find_cut(
        shared.cut, digits, NUM_DIGITS - 1, 0, [](int, u32 count) { return Amounts{count, count}; },
        [=](const Cut&) { return Amounts{n, n}; });
    const float bound = shared.cut.most < n ? least : digits.bottom(shared.cut.low);
    __syncthreads();
    return bound;
}

// The n-th largest logit that the law keeps, or the least one if it keeps fewer; -inf if it keeps all.
__device__ inline float nth_largest(
    Finding& shared, const Row& row, const Mass* stats, const Law& law, i64 n) {
    if (n >= row.num_ids) return -INFINITY;
    const float bound = bound_of_nth(shared, row, stats, law, n);
    if (thread_id() == 0) {
        shared.search = {law, 0, 0.0f, 0.0f, 0.0f, 0.0f, LEAST_LOGIT, FOUND, 0, 0};
        shared.search.look(LISTS, bound, law.max);
    }
    __syncthreads();
    look_closer(shared.search, row, stats, {0, row.num_blocks()}, false);
    if (list_length() <= MAX_LISTED) {
        const u64 wanted = static_cast<u64>(n);
        select(shared.selection, {law, true, false, bound, law.max, 0, wanted, 1.0f});
        return shared.selection.logit;
    }
    __syncthreads();
    if (thread_id() == 0) shared.search.look(NUMBERS, bound, law.max);
    __syncthreads();
    search_alone(shared, row, stats, {0.0f, 0.0f, static_cast<int>(n), 1.0f});
    return shared.search.law.threshold;
}

// The least logit that survives under the typical or the relaxed policy, or infinity; in warp 0.
// By a CTA.
__device__ inline float least_surviving(
    const Params& p, Finding& shared, const Pair& pair, const Mass* stats, float entropy) {
    const Law law = pair.residual.target_law;
    if (p.policy == TYPICAL)
        return warp_id() == 0 ? least_likely(typical_least_p(p, entropy), law) : -INFINITY;
    // Logits rank tokens: they may differ where probabilities tie.
    const i64 n = p.delta > 0.0 ? p.top_n : 1;
    const float ranked = nth_largest(shared, pair.target.row, stats, law, n);
    const float least_p = exp2_fast(-law.log2_sum) - static_cast<float>(p.delta);
    return warp_id() == 0 ? fmaxf(least_likely(least_p, law), ranked) : -INFINITY;
}

// The variation that a one-hot draft causes.
__device__ inline float variation_of_one_hot(const Pair& pair, bool forgiven, float logit) {
    const bool survives = forgiven && pair.target.row.allows(pair.drafted);
    return survives ? 1.0f - law_p(pair.residual.target_law, logit) : 0.0f;
}

__device__ inline float variation_of(const Two& survived, float moved) {
    return 0.5f * (moved + survived.first * fmaxf(1.0f - survived.second, 0.0f));
}

// Continues when all of a row's blocks have their sums. By a CTA.
__device__ COLD void take_step(
    const Params& p, Finding& shared, const Request& request, int row, const Pair& pair) {
    RowFacts& facts = p.facts[place_of(p, request, row)];
    const int step = facts.step;
    const Two sums = sum_row(sums_of(p, request, row), num_blocks_of(p.vocab_size));
    const float entropy = LN_2 * sums.first;
    float least = -INFINITY;
    if (step == ENTROPIES && !spares_all(p))
        least = least_surviving(p, shared, pair, target_stats_of(p, request, row), entropy);
    if (thread_id() != 0) return;
    facts.step = step + 1;
    if (step == SURVIVALS) {
        facts.survived_q = sums.first;
        facts.survived_p = sums.second;
        return;
    }
    if (step == MOVES) {
        facts.variation = variation_of({facts.survived_q, facts.survived_p}, sums.first);
        return;
    }
    facts.entropy = entropy;
    facts.least_logit = least;
    const bool forgiven = facts.target_logit >= least;
    if (!pair.dense || moves_with_entropies(p, pair)) {
        facts.step = KNOWN;
        facts.variation = pair.dense ? variation_of({1.0f, 1.0f}, sums.second)
                                     : variation_of_one_hot(pair, forgiven, facts.target_logit);
    }
    if (forgiven) return;
    facts.verdict = FAILS;
    publish_end(p, request, row);
}

// Reads a piece of a row for a lossy policy's own rule; FLY's verdicts are known later. By a CTA.
__device__ COLD void look_leniently(
    const Params& p, Finding& shared, const Request& request, int row, const Piece& piece, int num_pieces) {
    __shared__ bool behind;
    const i64 place = place_of(p, request, row);
    if (p.facts[place].step == KNOWN) return;
    const Pair pair(p, request, row, p.facts[place], 0.0f);
    // Other rows may publish ends meanwhile, but all threads must see the same one.
    if (thread_id() == 0) behind = is_behind_end(p, request, row);
    __syncthreads();
    if (!behind) sum_piece(p, request, row, pair, piece);
    if (!is_last_arrival(p.arrivals + place, num_pieces)) return;
    if (thread_id() == 0) behind = is_behind_end(p, request, row);
    __syncthreads();
    if (!behind) take_step(p, shared, request, row, pair);
    else if (thread_id() == 0) p.facts[place].step = KNOWN;
}
