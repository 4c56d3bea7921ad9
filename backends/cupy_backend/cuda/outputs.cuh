// Stage 5: turns the decisions of a request's rows into its last token and its outputs. By a CTA.
#pragma once
#include "residual.cuh"

// The facts about a request's rows, in shared memory.
struct KnownRows {
    RowFacts of[MAX_ROWS];
    u32 end;
    // By a CTA, to be read behind a barrier.
    __device__ void load(const Params& p, const Request& request) {
        constexpr int words = sizeof(RowFacts) / sizeof(uint4);
        const uint4* from = reinterpret_cast<const uint4*>(p.facts + place_of(p, request, 0));
        for (int i = thread_id(); i < request.num_rows * words; i += CTA_THREADS)
            reinterpret_cast<uint4*>(of)[i] = __ldcg(from + i);
        if (thread_id() == 0) end = end_of(p, request);
    }
};

enum How { STOPPED, SAMPLED, FROM_TARGET, FROM_RESIDUAL };

struct Decision {
    int how;
    int num_accepted;
    int status;
    float log2_product;  // P of block verification
};

// A mismatch is forgiven where the target is undecided and the next `window` tokens match. By one
// warp; returns how many of `kept` tokens survive.
__device__ inline int accepted_by_fly(
    const Params& p, const Request& request, RowFacts* facts, int kept) {
    const float least = static_cast<float>(p.epsilon) * logf(static_cast<float>(p.vocab_size));
    const auto matches = [&](i64 row) {
        return facts[row].token == draft_of(p, request, static_cast<int>(row));
    };
    int failed = kept;
    for (int row = lane_id(); row < kept; row += LANES) {
        bool pardoned = row + p.window < kept && facts[row].entropy >= least;
        for (i64 next = row + 1; pardoned && next <= row + p.window; ++next) pardoned = matches(next);
        if (!pardoned) facts[row].variation = 0.0f;
        const bool survives = matches(row) || (pardoned && allows_draft(p, request, row));
        if (!survives && row < failed) failed = row;
    }
    return warp_reduce(failed, Min{});
}

// How many tokens block verification keeps of a draft that it does not keep whole. By one warp.
__device__ inline int accepted_by_block(
    const Params& p, const Request& request, int kept, const float* products) {
    const int num_blocks = num_blocks_of(p.vocab_size);
    for (int row = kept - 1; row > 0; --row) {
        if (!may_keep(request, row, products[row])) continue;
        const float* masses = p.residuals + (request.index * p.max_spec_len + row) * num_blocks;
        float mass = 0.0f;
        for (int block = lane_id(); block < num_blocks; block += LANES) mass += __ldcg(masses + block);
        mass = warp_reduce(mass, Add{});
        if (accepts(uniform_of(request, row - 1), log2_block_threshold(products[row], mass)))
            return row;
    }
    return 0;
}

// The status of a target row that has no largest logit.
__device__ inline int flaw_of(const Params& p, const Request& request, int row, float max) {
    const bool masked = max == -INFINITY && mask_of(p, request, row) != nullptr;
    return masked ? NOTHING_ALLOWED : static_cast<int>(p.invalid_status);
}

// By one warp.
__device__ inline Decision decide(
    const Params& p, const Request& request, KnownRows& rows, float* products) {
    const int end = rows.end;
    const int verdict = request.num_rows ? rows.of[end].verdict : TARGET_FLAWED;
    const bool samples = samples_rows(p, request);
    Decision d = {samples ? SAMPLED : FROM_TARGET, end, request.status, 0.0f};
    bool rejected = verdict == FAILS;
    if (p.policy == FLY && !request.strict) {
        d.num_accepted = accepted_by_fly(p, request, rows.of, end);
        rejected = d.num_accepted < end;
    }
    if (p.policy == BLOCK && !request.strict && end > 0)
        rejected = !accepts(uniform_of(request, end - 1), find_products(p, request, end, products));
    if (rejected) {
        if (request.strict || !has_residual(p)) return d;
        d.how = FROM_RESIDUAL;
        if (p.policy != BLOCK) return d;
        d.num_accepted = accepted_by_block(p, request, end, products);
        d.log2_product = products[d.num_accepted];
        return d;
    }
    if (verdict == TARGET_FLAWED)
        d.status |= flaw_of(p, request, end, request.num_rows ? rows.of[end].target.max : INFINITY);
    if (verdict == DRAFT_FLAWED) d.status |= DRAFT_INVALID;
    if (d.status != request.status) d.how = STOPPED;
    return d;
}

// `residual`: it may be drawn from one.
template <bool residual>
__device__ inline int last_token(
    Best& best, const Params& p, const Request& request, const KnownRows& rows,
    const Decision& decision) {
    const int row = decision.num_accepted;
    const Mass* stats = target_stats_of(p, request, row);
    if (decision.how == STOPPED) return NO_TOKEN;
    const RowFacts& facts = rows.of[row];
    if (decision.how == SAMPLED) return facts.token;
    if (decision.how == FROM_TARGET)
        return target_token(best, p, request, row, stats, facts.target);
    if constexpr (!residual) return NO_TOKEN;
    const Pair pair(p, request, row, facts, decision.log2_product);
    return draw_from_residual(best, pair, stats, recover_key(request, row));
}

// By the first threads of a CTA, this many. variation_of(row) is called for drafts that a law judged.
template <typename VariationOf>
__device__ inline void write_outputs(
    const Params& p, const Request& request, const Decision& decision, int token, int threads,
    VariationOf variation_of) {
    const i64 width = p.max_spec_len + 1;
    for (int place = thread_id(); place < width; place += threads) {
        i64 emitted = -1;
        if (place < decision.num_accepted) emitted = draft_of(p, request, place);
        if (place == decision.num_accepted) emitted = token;
        p.token_ids[request.index * width + place] = emitted;
        if (!p.total_variation) continue;
        const bool counts = emitted >= 0 && place < request.num_drafts && !request.strict;
        p.total_variation[request.index * width + place] = counts ? variation_of(place) : 0.0f;
    }
    if (thread_id() != 0) return;
    p.status[request.index] = decision.status;
    if (p.num_accepted) p.num_accepted[request.index] = decision.num_accepted;
    p.ends[request.index] = 0;
}

struct Ending {
    Best best;
    Decision decision;
    KnownRows rows;
    float products[MAX_ROWS];
};

// A request whose rows are judged. By a CTA.
template <bool residual>
__device__ inline void end_request(Ending& shared, const Params& p, const Request& request) {
    shared.rows.load(p, request);
    __syncthreads();
    if (warp_id() == 0) {
        const Decision decided = decide(p, request, shared.rows, shared.products);
        if (lane_id() == 0) shared.decision = decided;
    }
    __syncthreads();
    const int token = last_token<residual>(shared.best, p, request, shared.rows, shared.decision);
    write_outputs(p, request, shared.decision, token, CTA_THREADS,
                  [&](int row) { return shared.rows.of[row].variation; });
}
