// What the lossy policies ask of a row beyond its law: entropy, near-best tokens, and how far they
// move the law of what is emitted. By a CTA.
#pragma once
#include "residual.cuh"
#include "closer.cuh"

// The tokens that a lossy policy accepts at a row.
struct Leniency {
    float least_p;
    float least_log2;  // apart, because logits may differ where probabilities tie
    __device__ bool forgives(float log2_p, float p) const {
        // What the law keeps may weigh less than any float.
        return log2_p > -INFINITY && p >= least_p && log2_p >= least_log2;
    }
    __device__ bool forgives(const Law& law, float logit) const {
        const float log2_p = law_log2(law, logit);
        return forgives(log2_p, exp2_fast(log2_p));
    }
    // Whether some token of a block may be one of them.
    __device__ bool may_forgive(const Law& law, float block_max) const {
        const float log2_p = law_log2(law, block_max);
        return exp2_fast(log2_p) >= least_p * (1.0f - SLACK) && log2_p >= least_log2;
    }
};

// How far a row moves the law: between p and q a + p (1 - sum(q a)), the law of what it emits, `a` being
// which tokens survive.
struct Two {
    float first;
    float second;
};

// Whether all tokens survive that a mask allows; under other rules those do that are forgiven.
__device__ inline bool spares_all(const Params& p) { return p.policy == FLY; }

// Of one token.
struct Terms {
    Law law;
    Law draft_law;
    Leniency leniency;
    float survived_q;
    int step;
    bool all;
    bool moves_too;  // with entropies, for no others are needed

    // Without branches, of the step `taken`.
    template <Step taken>
    __device__ Two of(float target, float draft, bool allowed) const {
        const float log2_p = law_log2(law, target), p = exp2_fast(log2_p);
        const float q = law_p(draft_law, draft);
        if (taken == ENTROPIES) return {log2_p == -INFINITY ? 0.0f : -p * log2_p, fabsf(q - p)};
        const bool survives = all ? allowed : leniency.forgives(log2_p, p);
        const float first = taken == SURVIVALS ? q : fabsf(q - p * survived_q);
        return {survives ? first : 0.0f, survives && taken == SURVIVALS ? p : 0.0f};
    }
    __device__ bool is_wanted(float block_max) const {
        if (step == ENTROPIES) return moves_too || block_max >= law.threshold;
        return all || leniency.may_forgive(law, block_max);
    }
};

// Of a block, by a warp.
template <Step taken>
__device__ inline Two sum_terms(const Pair& pair, const Terms& terms, int block) {
    float target[PER_LANE], draft[PER_LANE], firsts[PER_LANE], seconds[PER_LANE];
    load_block(pair.target.row, block, target);
    load_block(pair.draft, block, draft);
    const u32 allowed = pair.target.row.allowed_in(block);
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) {
        const Two both = terms.of<taken>(target[j], draft[j], allowed >> j & 1);
        firsts[j] = both.first;
        seconds[j] = both.second;
    }
    return {warp_reduce(lane_sum(firsts), Add{}), warp_reduce(lane_sum(seconds), Add{})};
}

__device__ inline Two* sums_of(const Params& p, const Request& request, int row) {
    return reinterpret_cast<Two*>(p.residuals) +
           (request.index * p.max_spec_len + row) * num_blocks_of(p.vocab_size);
}

__device__ inline bool moves_with_entropies(const Params& p, const Pair& pair) {
    return spares_all(p) && pair.dense && !pair.target.row.is_masked();
}

// Of the blocks of a piece, for which only the target is read. By a CTA.
__device__ inline void sum_entropies(
    const Terms& terms, const Pair& pair, const Mass* stats, const Piece& piece, Two* sums) {
    for (int block = piece.begin + thread_id(); block < piece.end; block += CTA_THREADS)
        sums[block] = {0.0f, 0.0f};
    __syncthreads();
    const auto sum_block = [&](int block, const float(&logits)[PER_LANE]) {
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j)
            sum = __fadd_rn(sum, terms.of<ENTROPIES>(logits[j], 0.0f, true).first);
        sum = warp_reduce(sum, Add{});
        if (lane_id() == 0) sums[block] = {sum, 0.0f};
    };
    visit_piece(pair.target.row, stats, piece, terms.law.threshold, sum_block);
}

// Of the blocks of a piece, for which both rows are read. By a CTA.
template <Step taken>
__device__ inline void sum_blocks(
    const Terms& asked, const Pair& pair, const Mass* stats, const Piece& piece, Two* sums) {
    const Terms terms = asked;  // to be loaded once
    for (int block = piece.begin + warp_id(); block < piece.end; block += CTA_WARPS) {
        Two both = {0.0f, 0.0f};
        if (terms.is_wanted(load_max(stats + block))) both = sum_terms<taken>(pair, terms, block);
        if (lane_id() == 0) sums[block] = both;
    }
}

// Of the blocks of a piece. By a CTA.
__device__ inline void sum_piece(
    const Params& p, const Request& request, int row, const Pair& pair, const Piece& piece) {
    const RowFacts& facts = p.facts[place_of(p, request, row)];
    const Terms terms = {pair.residual.target_law, pair.residual.draft_law,
                         {facts.least_p, facts.least_log2}, facts.survived_q, facts.step,
                         spares_all(p), moves_with_entropies(p, pair)};
    const Mass* stats = target_stats_of(p, request, row);
    Two* sums = sums_of(p, request, row);
    if (terms.step == SURVIVALS) return sum_blocks<SURVIVALS>(terms, pair, stats, piece, sums);
    if (terms.step == MOVES) return sum_blocks<MOVES>(terms, pair, stats, piece, sums);
    if (terms.moves_too) return sum_blocks<ENTROPIES>(terms, pair, stats, piece, sums);
    sum_entropies(terms, pair, stats, piece, sums);
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

// A logit that at least `n` reach, as far as the largest of blocks tell. By a CTA.
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

// The n-th largest logit that the law keeps, or the least that it keeps; -inf if that is all of them.
__device__ inline float nth_largest(
    Finding& shared, const Row& row, const Mass* stats, const Law& law, i64 n) {
    if (n >= row.num_ids) return -INFINITY;
    const float bound = bound_of_nth(shared, row, stats, law, n);
    if (thread_id() == 0) {
        shared.search = {law, 0, 0.0f, 0.0f, 0.0f, LEAST_LOGIT, FOUND, 0, 0};
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

__device__ inline Leniency leniency_of(
    const Params& p, Finding& shared, const Pair& pair, const Mass* stats, float entropy) {
    const Law law = pair.residual.target_law;
    if (p.policy == TYPICAL) {
        const float threshold =
            fminf(static_cast<float>(p.delta) * expf(-entropy), static_cast<float>(p.epsilon));
        return {threshold > 0.0f ? nextafterf(threshold, INFINITY) : 0.0f, -INFINITY};
    }
    if (p.policy == RELAXEDTOPN)
        return {exp2_fast(-law.log2_sum) - static_cast<float>(p.delta),
                law_log2(law, nth_largest(shared, pair.target.row, stats, law, p.top_n))};
    return {0.0f, -INFINITY};
}

// What a draft token moves that has no distribution beside it.
__device__ inline float variation_of_one_hot(
    const Pair& pair, const Leniency& leniency, bool all, float logit) {
    const Law law = pair.residual.target_law;
    const bool survives = all ? pair.target.row.allows(pair.drafted) : leniency.forgives(law, logit);
    return survives ? 1.0f - law_p(law, logit) : 0.0f;
}

__device__ inline float variation_of(const Two& survived, float moved) {
    return 0.5f * (moved + survived.first * fmaxf(1.0f - survived.second, 0.0f));
}

// Goes on where all of a row's blocks have their sums. By a CTA.
__device__ COLD void take_step(
    const Params& p, Finding& shared, const Request& request, int row, const Pair& pair) {
    RowFacts& facts = p.facts[place_of(p, request, row)];
    const int step = facts.step;
    const Two sums = sum_row(sums_of(p, request, row), num_blocks_of(p.vocab_size));
    const float entropy = LN_2 * sums.first;
    Leniency leniency = {facts.least_p, facts.least_log2};
    if (step == ENTROPIES)
        leniency = leniency_of(p, shared, pair, target_stats_of(p, request, row), entropy);
    if (thread_id() != 0) return;
    const bool all = spares_all(p), forgiven = all || leniency.forgives(facts.target, facts.target_logit);
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
    facts.least_p = leniency.least_p;
    facts.least_log2 = leniency.least_log2;
    if (!pair.dense || moves_with_entropies(p, pair)) {
        facts.step = KNOWN;
        facts.variation = pair.dense ? variation_of({1.0f, 1.0f}, sums.second)
                                     : variation_of_one_hot(pair, leniency, all, facts.target_logit);
    }
    if (forgiven) return;
    facts.verdict = FAILS;
    publish_end(p, request, row);
}

// Looks at a piece of a row for a lossy policy's own rule; what FLY decides is known later. By a CTA.
__device__ COLD void look_leniently(
    const Params& p, Finding& shared, const Request& request, int row, const Piece& piece, int num_pieces) {
    __shared__ bool behind;
    const i64 place = place_of(p, request, row);
    if (p.facts[place].step == KNOWN) return;
    const Pair pair(p, request, row, p.facts[place], 0.0f);
    // Other rows publish their ends meanwhile, but all threads must find the same.
    if (thread_id() == 0) behind = is_behind_end(p, request, row);
    __syncthreads();
    if (!behind) sum_piece(p, request, row, pair, piece);
    if (!is_last_arrival(p.arrivals + place, num_pieces)) return;
    if (thread_id() == 0) behind = is_behind_end(p, request, row);
    __syncthreads();
    if (!behind) take_step(p, shared, request, row, pair);
    else if (thread_id() == 0) p.facts[place].step = KNOWN;
}
