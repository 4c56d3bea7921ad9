// Stage 4: the last token is drawn and the request's outputs are written. By one team.
#pragma once
#include "judge.cuh"

// A thread's part of the outputs.
__device__ inline void write_outputs(
    const Shared& shared, const Decision& decision, i64 token, int place) {
    const Params& p = shared.params;
    const i64 width = p.max_spec_len + 1, request = shared.request.index;
    if (place >= width) return;
    i64 emitted = -1;
    if (place < decision.num_accepted) emitted = shared.drafts[place];
    if (place == decision.num_accepted) emitted = token;
    p.token_ids[request * width + place] = emitted;
    if (p.variation) {
        const bool counts = LOSSY_IN_Q && emitted >= 0 && place < shared.request.num_drafts;
        p.variation[request * width + place] =
            counts && !shared.request.strict ? shared.variations[place] : 0.0f;
    }
    if (place > 0) return;
    p.status[request] = decision.status;
    if (p.num_accepted) p.num_accepted[request] = decision.num_accepted;
}

// By a team.
__device__ inline void write_outputs(const Shared& shared, i64 token) {
    static_assert(MAX_ROWS <= DrawTeam::THREADS);
    const int place = static_cast<int>(thread_id()) % DrawTeam::THREADS;
    write_outputs(shared, shared.decision, token, place);
}

// The target's own sample at a row whose law is known, to be read behind a barrier of the team.
// `noise` is that of the row's blocks or null.
__device__ COLD void target_token(
    Shared& shared, int row, const Mass* stats, const Noise* noise = nullptr) {
    const DrawTeam team = my_team<DrawTeam>();
    u64* slots = shared.slots;
    const AdjustedRow target(shared.params, shared.request, row);
    const Law& law = shared.target_laws[row];
    const i64 token = shared.request.greedy
        ? greedy_token(team, slots, target.row, stats, law)
        : draw_from_law(team, slots, target.row, stats, law, FILTERED && shared.is_lone[row],
                        target_key(shared.params, shared.request, row), noise);
    if (team.thread() == 0) shared.tokens[row] = static_cast<int>(token);
}

// After a decision that leaves no residual. `stats` and `noise` are of the row behind what was accepted.
__device__ inline void finish_from_target(
    Shared& shared, const Mass* stats, const Noise* noise = nullptr) {
    const Decision& decision = shared.decision;
    const bool known = SAMPLES_EVERY_ROW || (shared.request.strict && POLICY != SYNTHETIC);
    if (decision.ending == FROM_TARGET && !known) {
        target_token(shared, decision.num_accepted, stats, noise);
        my_team<DrawTeam>().sync();
    }
    write_outputs(shared, decision.ending == FROM_TARGET
                              ? static_cast<i64>(shared.tokens[decision.num_accepted])
                              : NO_TOKEN);
}

// Whether blocks have statistics that say more than what the law keeps of them.
__device__ inline bool is_kept_in_part(const Shared& shared, int row) {
    return JUDGES_OPEN_ROWS && !shared.request.strict && !shared.is_lone[row] &&
           shared.target_laws[row].threshold > -INFINITY;
}

// Draws from the law of a row that is kept in part. By a whole CTA; `shared.best` is 0, and the decision to
// be read behind a barrier.
__device__ COLD void finish_kept(Shared& shared, int row, const Mass* stats) {
    const AdjustedRow target(shared.params, shared.request, row);
    const auto key = [&] { return target_key(shared.params, shared.request, row); };
    race_kept(target.row, stats, shared.target_laws[row], key, &shared.best);
    meet_in_cta();
    if (warp_id() >= DrawTeam::WARPS) return;
    write_outputs(shared, draw_from_block(my_team<DrawTeam>(), shared.slots, target.row,
                                          shared.target_laws[row], shared.best, key()));
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

__device__ inline DrawKey recover_key(const Request& request, int row) {
    return draw_key(request, row, RECOVER_STREAM, row + 1);
}

// By one thread.
__device__ inline void set_pair(Shared& shared, int row, const Mass* stats) {
    Adjustment* adjustment = reinterpret_cast<Adjustment*>(shared.pair_adjustment);
    shared.pair = pair_of(shared, row, stats, adjustment);
    shared.pair_row = row;
    shared.recover_key = recover_key(shared.request, row);
}

// The pair is set, and its best block known.
__device__ COLD void finish_from_residual(Shared& shared) {
    i64 token = draw_in_residual(shared.slots, shared.pair, shared.best, shared.recover_key);
    if (token == NO_TOKEN)
        token = draw_without_residual(shared.slots, shared.pair, shared.recover_key);
    write_outputs(shared, token);
}

// Draws from the residual of a row that was rejected, whose statistics are at hand. By a whole CTA, all
// of whose threads know the row; `shared.best` is 0, and the decision to be read behind a barrier.
__device__ COLD void finish_row(Shared& shared, int row, const Mass* stats) {
    if (thread_id() == 0) set_pair(shared, row, stats);
    meet_in_cta();
    race_any_residual(&shared.pair, shared.recover_key, &shared.best);
    meet_in_cta();
    if (warp_id() < DrawTeam::WARPS) finish_from_residual(shared);
}

// The same with the noise of the row's blocks. Each warp makes its own pair, so that none is waited for;
// no function is called while it is there.
__device__ inline void finish_row(Shared& shared, int row, const Mass* stats, const Noise* noise) {
    const bool quick = !ADJUSTED && noise != nullptr && is_direct(pair_of(shared, row, stats, nullptr));
    if (!quick) return finish_row(shared, row, stats);
    {
        const Pair pair = pair_of(shared, row, stats, nullptr);
        if (thread_id() == 0) {
            shared.pair = pair;
            shared.recover_key = recover_key(shared.request, row);
        }
        race_residual(
            pair, num_blocks_of(shared.params.vocab_size), &shared.best,
            [&](int block) { return noise[block / 4].of[block % 4]; },
            [&](int block) { return direct_residual(pair, block); });
    }
    meet_in_cta();
    if (warp_id() < DrawTeam::WARPS) finish_from_residual(shared);
}

// Of the pair that is set, from its blocks' masses. To be read behind a barrier of the team.
__device__ inline void find_best_residual(
    Shared& shared, const float* masses, int num_blocks, const Noise* noise = nullptr) {
    const DrawTeam team = my_team<DrawTeam>();
    team.sync();
    const u64 best = best_residual(
        team, shared.slots, masses, num_blocks, shared.recover_key, noise);
    if (team.thread() == 0) shared.best = best;
}

// The last of the rows before `end` that block verification may keep, known without a residual's mass. h_i
// is never above P_i, for no residual weighs more than that, so larger uniforms refuse at once.
__device__ inline int last_candidate(const Shared& shared, int end) {
    int row = end - 1;
    while (row > 0 && !(log2f(shared.uniforms[row - 1]) < shared.products[row] + RESIDUAL_SLACK)) --row;
    return row;
}

// Whether block verification, which refused the whole draft, keeps `row` of its tokens, given the
// residual masses of that row.
__device__ inline bool block_keeps(
    const DrawTeam& team, Shared& shared, const float* masses, int num_blocks, int row) {
    if (row == 0) return true;
    const float mass = residual_sum(team, shared.slots, masses, num_blocks);
    return accepts(shared.uniforms[row - 1], log2_block_threshold(shared.products[row], mass));
}
