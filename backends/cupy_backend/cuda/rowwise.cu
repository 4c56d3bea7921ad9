// Verification by a CTA for every part of every row, where that is faster than a CTA a request. First rows
// of all requests come first: what lies behind a rejection is mostly known not to be needed before it is
// begun. Whoever reads the last part of a row judges it, and whoever makes a request's end known draws its
// token. Under block verification whoever leaves a request last does both.
#include "finish.cuh"
#include "noise.cuh"
#include "residual_bounds.cuh"
#include "row_parts.cuh"

constexpr int NOT_KNOWN = -1;
constexpr int ALL_BLOCKS = 1 << 30;

// What was known of a request before this CTA left it.
struct Left {
    Fate before;
    bool is_last;
};

// Adds to what is known of a request, of which this CTA asks nothing more. By one thread.
__device__ inline Left leave(const Shared& shared, u32 news = 0) {
    const Control& control = shared.control;
    const int all = static_cast<int>(shared.params.max_spec_len + 1) * shared.member.count;
    const u32 added = Fate::ONE_LEFT + news;
    const Fate before = {add_acq_rel(control.arrived, added)};
    const bool is_last = Fate{before.bits + added}.left() == all;
    if (is_last) {
        *control.arrived = 0;
        *control.counted = 0;
    }
    return {before, is_last};
}

// Whether the request's rows are judged together, by whoever leaves it last.
__device__ inline bool judges_rows_together(const Shared& shared) {
    return POLICY == BLOCK && !shared.request.strict;
}

// Whether all parts of the row have been read. By one thread, behind a barrier.
__device__ inline bool completes(const Shared& shared, int row) {
    const int parts = shared.member.count, shift = 4 * row;
    if (parts == 1) return true;
    const u32 before = add_acq_rel(shared.control.counted, 1u << shift);
    return static_cast<int>(before >> shift & 15) + 1 == parts;
}

// Strict requests are judged by the first team alone: no other warp is left.
__device__ inline void meet_rest(const Shared& shared) {
    if (shared.request.strict)
        my_team<DrawTeam>().sync();
    else
        meet_in_cta();
}

// The first row that does not pass, if this verdict makes it known.
__device__ inline int publish(Shared& shared, int row, Verdict verdict) {
    if (thread_id() == 0) {
        const u32 mine = Fate::of(row, verdict);
        const Fate before = leave(shared, mine).before, after = {before.bits | mine};
        const int num_rows = shared.request.num_rows;
        const bool news = after.is_known(num_rows) && !before.is_known(num_rows);
        shared.pair_row = num_rows == 0 ? 0 : news ? after.first() : NOT_KNOWN;
    }
    meet_rest(shared);
    return shared.pair_row;
}

// The verdict on a strict request's row. By the first team. `noise` may be null.
__device__ inline Verdict judge(const Params& p, Shared& shared, int row, const Noise* noise) {
    if (shared.request.num_rows == 0) return PASSES;
    const DrawTeam team = my_team<DrawTeam>();
    const Mass* stats = GlobalPlaces{p, shared.request}.target_stats(row);
    const Law law = sampling_law(team, shared.slots, stats, num_blocks_of(p.vocab_size),
                                 shared.request.scale, shared.request.greedy);
    if (team.thread() == 0) shared.target_laws[row] = law;
    team.sync();
    if (law.is_usable()) target_token(shared, row, stats, noise);
    team.sync();
    return verdict_of(shared, row);
}

// Laws of all rows of a draft, a warp a law, to be read behind a barrier.
__device__ inline void find_laws(const Params& p, Shared& shared) {
    const Request& request = shared.request;
    const GlobalPlaces places = {p, request};
    const Parts parts(request);
#pragma unroll 1
    for (int part = warp_id(); part < parts.count; part += CTA_WARPS) {
        const int row = parts.row(part);
        const bool draft = parts.draft(part);
        const Law law = draft
            ? plain_law<true>(places.draft_stats(row), num_blocks_of(p.draft_vocab_size),
                              request.draft_scale, request.draft_temperature == 0.0f)
            : plain_law<true>(places.target_stats(row), num_blocks_of(p.vocab_size), request.scale,
                              request.greedy);
        if (lane_id() == 0) law_of(shared, row, draft) = law;
    }
}

__device__ inline void decide_for_all(
    const Params& p, Shared& shared, int first, Verdict verdict) {
    if (warp_id() == 0) {
        const Decision decision = decide(p, shared, first, verdict);
        if (lane_id() == 0) shared.decision = decision;
    }
    meet_rest(shared);
}

// Whether block verification keeps the pair's row of its tokens, from the masses of all blocks.
__device__ inline bool keeps_by_masses(Shared& shared) {
    const int num_blocks = num_blocks_of(shared.params.vocab_size);
    const auto end = [=] { return num_blocks; };
    visit_residual(&shared.pair, warp_id(), CTA_WARPS, end, [&](int block, float mass) {
        GlobalPlaces{shared.params, shared.request}.residuals(shared.pair_row)[block] = mass;
    });
    meet_in_cta();
    if (warp_id() < DrawTeam::WARPS) {
        const float* masses = GlobalPlaces{shared.params, shared.request}.residuals(shared.pair_row);
        const bool kept =
            block_keeps(my_team<DrawTeam>(), shared, masses, num_blocks, shared.pair_row);
        if (thread_id() == 0) shared.flags[2] = kept;
    }
    meet_in_cta();
    return shared.flags[2];
}

// The last row that block verification keeps tokens before, and its residual, from which a token is drawn.
__device__ COLD void finish_block(Shared& shared) {
    const GlobalPlaces places = {shared.params, shared.request};
    int row = shared.decision.kept;
    for (bool kept = false; !kept;) {
        row = last_candidate(shared, row);
        meet_in_cta();
        if (thread_id() == 0) set_pair(shared, row, places.target_stats(row));
        meet_in_cta();
        const Answer answer = answer_by_bounds(shared, row, places.draft_stats(row), ALL_BLOCKS);
        kept = answer == OPEN_ANSWER ? keeps_by_masses(shared) : answer == KEPT;
        row = shared.pair_row;
    }
    if (thread_id() == 0) shared.decision.num_accepted = row;
    race_any_residual(&shared.pair, shared.recover_key,
                      &shared.best);
    meet_in_cta();
    if (warp_id() < DrawTeam::WARPS) finish_from_residual(shared);
}

// All rows of a draft have been read.
__device__ inline void finish_whole_draft(const Params& p, Shared& shared, const Noise* noise) {
    find_laws(p, shared);
    meet_in_cta();
    Verdict verdict;
    const int first = first_failure(shared, 0, shared.request.num_rows, verdict);
    decide_for_all(p, shared, first, verdict);
    if (shared.decision.ending == FROM_RESIDUAL) return finish_block(shared);
    if (warp_id() >= DrawTeam::WARPS) return;
    const int row = shared.decision.num_accepted;
    finish_from_target(shared, GlobalPlaces{p, shared.request}.target_stats(row), noise);
}

// All of a row has been read, whose blocks' noise is known, or null.
__device__ inline void judge_and_finish(
    const Params& p, Shared& shared, int row, const Noise* noise) {
    const bool strict = shared.request.strict;
    Verdict verdict = strict ? judge(p, shared, row, noise) : PASSES;
    const int first = publish(shared, row, verdict);
    if (first == NOT_KNOWN) return;
    const int num_rows = shared.request.num_rows, last = first < num_rows ? first : num_rows - 1;
    if (last != row) noise = nullptr;
    if (num_rows > 0 && last != row) verdict = judge(p, shared, last, noise);
    decide_for_all(p, shared, first, verdict);
    finish_from_target(shared, GlobalPlaces{p, shared.request}.target_stats(last), noise);
}

// Noise of the row's blocks, if it is few and the row's token may be drawn from its law; by the last team.
__device__ inline bool find_noise(const Params& p, const Shared& shared, int row, Noise* noise) {
    const Request& request = shared.request;
    const int num_blocks = num_blocks_of(p.vocab_size);
    if (GREEDY || request.greedy || num_blocks > NOISE_BLOCKS) return false;
    if (!request.strict && row < request.num_drafts) return false;
    const int quad = static_cast<int>(thread_id()) - (CTA_THREADS - DrawTeam::THREADS);
    if (quad >= 0 && 4 * quad < num_blocks)
        noise[quad] = noise_of(target_key(p, request, row), BLOCK_LEVEL, quad);
    return true;
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS, CTAS_PER_MULTIPROCESSOR)
    rowwise(const __grid_constant__ Params p) {
    __shared__ Shared shared;
    __shared__ Noise noise[NOISE_BLOCKS / 4];
    __shared__ Piece piece;
    static_assert(sizeof(shared) + sizeof(noise) + sizeof(piece) <= STATIC_SHARED_BYTES);
    copy_params(p, shared);
    const bool has_piece = read_piece(p, shared, piece), together = judges_rows_together(shared);
    if (!has_piece && !together) {
        if (thread_id() == 0) leave(shared);
        return;
    }
    meet_in_cta();
    if (thread_id() == 0)
        shared.flags[1] = together ? leave(shared).is_last : completes(shared, piece.row);
    else if (POLICY == BLOCK && warp_id() == 1)
        gather_evidence(p, shared);
    const bool known = find_noise(p, shared, piece.row, noise);
    meet_in_cta();
    if (!shared.flags[1]) {
        if (!together && thread_id() == 0) leave(shared);
        return;
    }
    if (together) {
        const bool is_bonus = piece.row == shared.request.num_drafts;
        return finish_whole_draft(p, shared, known && is_bonus ? noise : nullptr);
    }
    if (shared.request.strict && warp_id() >= DrawTeam::WARPS) return;
    judge_and_finish(p, shared, piece.row, known ? noise : nullptr);
}
