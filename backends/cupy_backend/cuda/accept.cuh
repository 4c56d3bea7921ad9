// Stage 3: turns laws of rows into verdicts on draft tokens. The CTA that completes a row judges it, and
// publishes where the draft certainly ends, so that later rows need not be read.
#pragma once
#include "draw.cuh"

// The sums over a row's blocks that lossy policies need, one launch after the other.
enum Step { ENTROPIES, SURVIVALS, MOVES, KNOWN };

enum Verdict { PASSES, FAILS, TARGET_FLAWED, DRAFT_FLAWED };

// The facts about a target row and its draft row.
struct alignas(16) RowFacts {
    Law target;
    Law draft;
    float target_logit;  // of the draft token, as the next one
    float draft_logit;
    int token;  // the target's own sample
    int verdict;
    float entropy;  // of the target's law, in nats; this and what follows is of lossy policies
    float variation;
    int step;          // which sum is asked for next
    float least_logit;  // that is forgiven
    float survived_q;  // sums over the tokens that would survive
    float survived_p;
};

__device__ inline int num_blocks_of(i64 vocab_size) {
    return static_cast<int>((static_cast<u32>(vocab_size) + BLOCK_SIZE - 1) / BLOCK_SIZE);
}

// Of a request and a row of it.
__device__ inline i64 place_of(const Params& p, const Request& request, int row) {
    return request.index * (p.max_spec_len + 1) + row;
}

__device__ inline Mass* target_stats_of(const Params& p, const Request& request, int row) {
    return p.target_stats + place_of(p, request, row) * num_blocks_of(p.vocab_size);
}

__device__ inline Mass* draft_stats_of(const Params& p, const Request& request, int row) {
    return p.draft_stats +
           (request.index * p.max_spec_len + row) * num_blocks_of(p.draft_vocab_size);
}

// Two numbers per block: those of `accept` or, before it, moments for the entropy.
__device__ inline float* residuals_of(const Params& p, const Request& request, int row) {
    return p.residuals + 2 * (request.index * p.max_spec_len + row) * num_blocks_of(p.vocab_size);
}

// A draft ends at the first row that does not pass. 0 means that nothing is known.
__device__ inline void publish_end(const Params& p, const Request& request, int row) {
    atomicMax(p.ends + request.index, static_cast<u32>(MAX_ROWS - row));
}

__device__ inline bool is_behind_end(const Params& p, const Request& request, int row) {
    return static_cast<u32>(MAX_ROWS - row) < load_relaxed(p.ends + request.index);
}

__device__ inline bool samples_rows(const Params& p, const Request& request) {
    return request.strict || p.policy == FLY;
}

__device__ inline bool has_residual(const Params& p) {
    return p.policy == PROBABILISTIC || p.policy == BLOCK;
}

__device__ inline float log2_ratio(const RowFacts& facts, bool dense) {
    const float log2_p = law_log2(facts.target, facts.target_logit);
    if (log2_p == -INFINITY) return log2_p;
    return dense ? log2_p - law_log2(facts.draft, facts.draft_logit) : log2_p;
}

__device__ inline bool accepts(float uniform, float log2_threshold) {
    return log2f(uniform) < log2_threshold;
}

// Whether a row may end the draft, judged by itself; lossy policies need more.
__device__ inline Verdict verdict_of(
    const Params& p, const Request& request, int row, const RowFacts& facts) {
    if (!facts.target.is_usable()) return TARGET_FLAWED;
    if (row == request.num_drafts) return PASSES;
    if (request.has_draft_row(row) && !facts.draft.is_usable()) return DRAFT_FLAWED;
    bool passes = true;
    if (request.strict)
        passes = facts.token == draft_of(p, request, row);
    else if (p.policy == PROBABILISTIC)
        passes = accepts(uniform_of(request, row), log2_ratio(facts, request.has_draft_row(row)));
    else if (p.tells_entropies)
        passes = facts.target_logit >= facts.least_logit;
    return passes ? PASSES : FAILS;
}

// Loads the draft token's logits, by one thread while others find laws.
__device__ inline void gather_evidence(
    const Params& p, const Request& request, int row, RowFacts& facts) {
    if (row >= request.num_drafts || request.strict) return;
    const int id = draft_of(p, request, row);
    const TargetRow target(p, request, row);
    facts.target_logit = load_logit(target.row, id);
    if (request.has_draft_row(row))
        facts.draft_logit = load_logit(draft_row_in_target_ids(p, request, row), id);
}

// Judges a row whose laws and evidence are known. By a CTA.
__device__ inline void judge_row(
    Best& best, const Params& p, const Request& request, int row, const Mass* stats,
    RowFacts& facts) {
    const bool samples = samples_rows(p, request) && facts.target.is_usable();
    const int token =
        samples ? target_token(best, p, request, row, stats, facts.target) : NO_TOKEN;
    if (thread_id() != 0) return;
    facts.token = token;
    facts.verdict = verdict_of(p, request, row, facts);
    const bool passes = facts.verdict == PASSES, told = p.tells_entropies;
    facts.variation = passes && told ? 1.0f - law_p(facts.target, facts.target_logit) : 0.0f;
    facts.step = passes && !told ? ENTROPIES : KNOWN;
    // The variation is needed for a refused token, too.
    if (told && (passes || facts.verdict == FAILS) && request.has_draft_row(row)) facts.step = SURVIVALS;
    p.facts[place_of(p, request, row)] = facts;
    if (facts.verdict != PASSES) publish_end(p, request, row);
}

// The row from which a request's draft is not judged, or that follows it.
__device__ inline int end_of(const Params& p, const Request& request) {
    const u32 published = load_relaxed(p.ends + request.index);
    return published ? MAX_ROWS - static_cast<int>(published) : request.num_drafts;
}

// P_i of block verification from P_{i-1}, as a base-2 logarithm: at most 1, and 0 stays 0.
__device__ inline float next_log2_product(float log2_product, float ratio) {
    return log2_product == -INFINITY ? log2_product : fminf(log2_product + ratio, 0.0f);
}

// log2 of P_i for i up to `kept`, in `products`, whose last one is returned. By a warp.
__device__ inline float find_products(
    const Params& p, const Request& request, int kept, float* products) {
    float product = 0.0f;
    if (lane_id() == 0) products[0] = product;
    for (int first = 0; first < kept; first += LANES) {
        const int row = first + lane_id();
        float ratio = 0.0f;
        if (row < kept)
            ratio = log2_ratio(p.facts[place_of(p, request, row)], request.has_draft_row(row));
        for (int i = 0; i < LANES && first + i < kept; ++i) {
            product = next_log2_product(product, __shfl_sync(ALL_LANES, ratio, i));
            if (lane_id() == 0) products[first + i + 1] = product;
        }
    }
    __syncwarp();
    return product;
}

// h_i = Z / (Z + 1 - P), 0 / 0 = 1, as a base-2 logarithm.
__device__ inline float log2_block_threshold(float log2_product, float residual_mass) {
    const float rest = -expm1f(log2_product * LN_2);
    if (residual_mass + rest == 0.0f) return 0.0f;
    return log2f(residual_mass) - log2f(residual_mass + rest);
}

// Whether block verification may keep `row` tokens: h_i is never above P_i.
__device__ inline bool may_keep(const Request& request, int row, float log2_product) {
    return log2f(uniform_of(request, row - 1)) < log2_product + BOUND_SLACK;
}
