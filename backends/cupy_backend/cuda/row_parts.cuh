// Parts of rows, dealt out to CTAs one by one, first rows of all requests first, and what is known of a
// request while they are read.
#pragma once
#include "judge.cuh"
#include "meeting.cuh"
#include "stream.cuh"

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
        meet_in_cta();
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
