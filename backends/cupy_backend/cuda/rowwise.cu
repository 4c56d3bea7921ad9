// Verification by a CTA for every part of every row, where that is faster than a CTA a request. First rows
// of all requests come first: what lies behind a rejection is mostly known not to be needed before it is
// begun. Whoever reads the last part of a row judges it, and whoever makes a request's end known draws its
// token.
#include "finish.cuh"
#include "meeting.cuh"
#include "noise.cuh"
#include "residual_bounds.cuh"
#include "stream.cuh"

constexpr int NOT_KNOWN = -1;

// What is known of a request's rows: a bit for each that passes, one for each that does not, and how many
// of the request's CTAs need nothing more.
struct Fate {
    static constexpr int MOST_ROWS = 8;  // as in shape.py
    static constexpr int LEFT = 2 * MOST_ROWS;
    static constexpr u32 ONE_LEFT = 1u << LEFT;
    u32 bits;
    // The first that is not known to pass.
    __device__ int first() const {
        return __ffs(static_cast<int>(~(bits & ((1u << MOST_ROWS) - 1)))) - 1;
    }
    __device__ bool is_known(int num_rows) const {
        return first() >= num_rows || bits >> (MOST_ROWS + first()) & 1;
    }
    __device__ bool rules_out(int row) const { return bits >> MOST_ROWS & ((1u << row) - 1); }
    __device__ int left() const { return static_cast<int>(bits >> LEFT); }
    __device__ static u32 of(int row, Verdict verdict) {
        return 1u << (row + (verdict == PASSES ? 0 : MOST_ROWS));
    }
};

// The part of a row that is this CTA's.
struct Piece {
    int request;
    int row;
    Member member;  // of the row's parts
    __device__ static Piece of(const Params& p, u32 place) {
        const u32 num_reqs = static_cast<u32>(p.num_reqs), parts = static_cast<u32>(p.group);
        const u32 slice = place / num_reqs, row = slice / parts;
        return {static_cast<int>(place - slice * num_reqs), static_cast<int>(row),
                {static_cast<int>(slice - row * parts), static_cast<int>(parts)}};
    }
    __device__ Stretch stretch(const Params& p, const Request& known) const {
        const Stretch all = stretch_of_row(p, known, row);
        const int total = all.end - all.begin;
        const Stretch part = member.stretch(member.share(total), total);
        return {all.begin + part.begin, all.begin + part.end};
    }
};

// Whether the row has to be read, as far as is known by now. By a warp.
__device__ inline bool is_wanted(const Params& p, const Piece& piece) {
    const Fate fate = {load_acquire(control_of(p, piece.request).arrived)};
    return __all_sync(ALL_LANES, !fate.rules_out(piece.row));
}

// By one warp.
__device__ inline void learn(const Params& p, Shared& shared, const Piece& piece) {
    const bool wanted = is_wanted(p, piece);
    const Request request = read_request(p, piece.request, shared.drafts);
    if (lane_id() > 0) return;
    shared.request = request;
    shared.member = piece.member;
    shared.best = 0;
    shared.control = control_of(p, request.index);
    const bool has_row = piece.row < request.num_rows || (request.num_rows == 0 && piece.row == 0);
    shared.flags[0] = has_row && wanted;
}

// Statistics of this CTA's piece. The request is guessed, so that logits are on their way while it is
// read. False if the row need not be read.
__device__ inline bool read_piece(const Params& p, Shared& shared, Piece& kept) {
    Piece piece = Piece::of(p, blockIdx.x);
    const bool learns = warp_id() == CTA_WARPS - 1;
    if (learns && lane_id() == 0) kept = piece;
    Request request = guess_request(p, piece.request);
    u32 inverse = static_cast<u32>(p.inverse);
    Flow flow = {};
    const bool guessed = is_guessable(p) && is_wanted(p, piece);
#pragma unroll 1
    for (bool known = false;; known = true) {
        if (guessed || known) {
            flow.open(p, Rows::of(p, request, GlobalPlaces{p, request}, inverse, ~0),
                      piece.stretch(p, request), shared.cursors);
            flow.fetch_all();
        }
        if (known) break;
        __syncwarp();
        if (learns) learn(p, shared, kept);
        __syncthreads();
        if (!shared.flags[0]) return false;
        if (shared.request.num_rows == 0) return true;
        if (guessed && has_rows_of(request, shared.request)) break;
        piece = kept;
        request = shared.request;
        inverse = inverse_of(length_of_pair(p, request));
    }
    flow.weigh(p, shared.cursors, shared.request.scale, shared.request.draft_scale);
    flow.drain(p, shared.cursors);
    if (!shared.cursors[warp_id()].rows.whole())
        read_piecewise(p, shared.request, shared.cursors[warp_id()].rows,
                       kept.stretch(p, shared.request));
    return true;
}

// Adds to what is known of a request, of which this CTA asks nothing more. By one thread.
__device__ inline Fate leave(const Shared& shared, u32 news) {
    const Control& control = shared.control;
    const int all = static_cast<int>(shared.params.max_spec_len + 1) * shared.member.count;
    const u32 added = Fate::ONE_LEFT + news;
    const Fate before = {add_acq_rel(control.arrived, added)};
    if (Fate{before.bits + added}.left() == all) {
        *control.arrived = 0;
        *control.counted = 0;
    }
    return before;
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
        __syncthreads();
}

// The first row that does not pass, if this verdict makes it known.
__device__ inline int publish(Shared& shared, int row, Verdict verdict) {
    if (thread_id() == 0) {
        const u32 mine = Fate::of(row, verdict);
        const Fate before = leave(shared, mine), after = {before.bits | mine};
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
    return verdict_of(p, shared, row);
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

// Whether block verification, which refused the whole draft, keeps the pair's row of its tokens, as far as
// bounds tell. By all threads.
__device__ inline Answer answer_by_bounds(Shared& shared) {
    const int row = shared.pair_row;
    if (row == 0) return KEPT;
    if (!is_direct(shared.pair) || !shared.pair.is_dense()) return OPEN_ANSWER;
    const GlobalPlaces places = {shared.params, shared.request};
    const Bounds mine = bounds_of_share(shared.pair, places.draft_stats(row),
                                        num_blocks_of(shared.params.vocab_size));
    if (lane_id() == 0) reinterpret_cast<Bounds&>(shared.slots[warp_id()]) = mine;
    __syncthreads();
    Bounds mass = {0.0f, 0.0f};
    for (int warp = 0; warp < CTA_WARPS; ++warp) {
        const Bounds& part = reinterpret_cast<const Bounds&>(shared.slots[warp]);
        mass = {mass.least + part.least, mass.most + part.most};
    }
    return answer_of(shared.uniforms[row - 1], shared.products[row], mass);
}

// The same from the masses of all blocks.
__device__ inline bool keeps_by_masses(Shared& shared) {
    const int num_blocks = num_blocks_of(shared.params.vocab_size);
    visit_residual(&shared.pair, warp_id(), CTA_WARPS, num_blocks, [&](int block, float mass) {
        GlobalPlaces{shared.params, shared.request}.residuals(shared.pair_row)[block] = mass;
    });
    __syncthreads();
    if (warp_id() < DrawTeam::WARPS) {
        const float* masses = GlobalPlaces{shared.params, shared.request}.residuals(shared.pair_row);
        const bool kept =
            block_keeps(my_team<DrawTeam>(), shared, masses, num_blocks, shared.pair_row);
        if (thread_id() == 0) shared.flags[2] = kept;
    }
    __syncthreads();
    return shared.flags[2];
}

// The last row that block verification keeps tokens before, and its residual, from which a token is drawn.
__device__ COLD void finish_block(Shared& shared) {
    int row = shared.decision.kept;
    for (bool kept = false; !kept;) {
        --row;
        __syncthreads();
        if (thread_id() == 0)
            set_pair(shared, row, GlobalPlaces{shared.params, shared.request}.target_stats(row));
        __syncthreads();
        const Answer answer = answer_by_bounds(shared);
        __syncthreads();
        kept = answer == OPEN_ANSWER ? keeps_by_masses(shared) : answer == KEPT;
        row = shared.pair_row;
    }
    if (thread_id() == 0) shared.decision.num_accepted = row;
    finish_row(shared, row, GlobalPlaces{shared.params, shared.request}.target_stats(row));
}

// All rows of a draft have been read.
__device__ inline void finish_whole_draft(const Params& p, Shared& shared, const Noise* noise) {
    find_laws(p, shared);
    __syncthreads();
    Verdict verdict;
    const int first = first_failure(p, shared, 0, shared.request.num_rows, verdict);
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
    if (POLICY == BLOCK && !strict) return finish_whole_draft(p, shared, noise);
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
    if (!read_piece(p, shared, piece)) {
        if (thread_id() == 0) leave(shared, 0);
        return;
    }
    __syncthreads();
    if (thread_id() == 0)
        shared.flags[1] = completes(shared, piece.row);
    else if (POLICY == BLOCK && warp_id() == 1)
        gather_evidence(p, shared);
    const bool known = find_noise(p, shared, piece.row, noise);
    __syncthreads();
    if (!shared.flags[1]) {
        if (thread_id() == 0) leave(shared, 0);
        return;
    }
    if (shared.request.strict && warp_id() >= DrawTeam::WARPS) return;
    judge_and_finish(p, shared, piece.row, known ? noise : nullptr);
}
