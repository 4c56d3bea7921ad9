// Greedy verification of many requests: each CTA reads a piece of a row and tells its best block, unless the row
// lies behind a known end of its draft. greedy_pieces_end.cu takes what is told here.
#include "bests.cuh"
#include "stream.cuh"

constexpr int WARPS_TOGETHER = 40;  // on a multiprocessor

// Of what a lane is told, the best.
struct KeepBest {
    const Mass* row;
    u64* best;
    __device__ void operator()(const Mass* place, const Mass& mass) const {
        const u64 word = best_word(mass.max, static_cast<int>(place - row));
        if (word > *best) *best = word;
    }
};

struct PieceShared {
    Request request;
    bool is_behind_end;
    Cursor cursors[CTA_WARPS];
    int drafts[MAX_DRAFTS];
    u64 bests[CTA_WARPS];
};

// By one warp.
__device__ inline void look_up(const Params& p, PieceShared& shared, int index) {
    Request request = {};
    request.index = index;
    const i64 loaded = load_draft(p, index, 0);
    enter_rows(p, load_extent(p, index), loaded, shared.drafts, request);
    if (lane_id() == 0) shared.request = request;
}

__device__ inline void begin_piece(
    const Params& p, PieceShared& shared, Flow<>& flow, const Request& request, const Stretch& stretch) {
    const WrittenPlaces places = {{p, request}};
    const Rows rows = Rows::of(p, request, places, static_cast<u32>(p.inverse), ~0);
    flow.open(p, rows, stretch, shared.cursors);
    flow.fetch_all();
}

// What is asked for about a row before anything is read, side by side.
__device__ inline void look_around(const Params& p, PieceShared& shared, const RowPiece& piece) {
    if (warp_id() == 0) {
        look_up(p, shared, piece.request);
    } else if (warp_id() == 1) {
        const bool behind = piece.row > 0 && is_behind_end(p, piece.request, piece.row);
        if (lane_id() == 0) shared.is_behind_end = behind;
    }
}

// What a lane found; nothing if the piece is left out. First rows are fetched from where they most likely are
// while that is looked up.
__device__ inline u64 best_of_piece(const Params& p, PieceShared& shared, const RowPiece& piece) {
    Flow<> flow = {};
    const bool is_first = piece.row == 0, guesses = is_first && is_guessable(p);
    const Request guess = guess_request(p, piece.request);
    if (guesses) {
        begin_piece(p, shared, flow, guess, piece.blocks(p));
        if (warp_id() == 0) look_up(p, shared, piece.request);
    } else {
        look_around(p, shared, piece);
    }
    meet_in_cta();
    const Request& request = shared.request;
    if (piece.row >= request.num_rows || (!is_first && shared.is_behind_end)) return LEFT_OUT;
    if (!guesses || request.start != guess.start) begin_piece(p, shared, flow, request, piece.stretch(p));
    u64 best = 0;
    const KeepBest put = {GlobalPlaces{p, shared.request}.announced(piece.row), &best};
    flow.drain(p, shared.cursors, Never{}, put);
    const Rows& rows = shared.cursors[warp_id()].rows;
    if (!rows.whole()) read_piecewise(p, shared.request, rows, piece.stretch(p), put);
    return best;
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS, WARPS_TOGETHER / CTA_WARPS)
    greedy_pieces(const __grid_constant__ Params p) {
    __shared__ PieceShared shared;
    const RowPiece piece = RowPiece::of(p);
    let_next_launch_begin();
    u64 best = warp_reduce(best_of_piece(p, shared, piece), Max{});
    if (lane_id() == 0) shared.bests[warp_id()] = best;
    meet_in_cta();
    if (thread_id() > 0 || piece.row >= shared.request.num_rows) return;
#pragma unroll
    for (int warp = 1; warp < CTA_WARPS; ++warp) best = Max{}(best, shared.bests[warp]);
    store_relaxed(piece.rival(p), best == 0 ? NO_BLOCKS : best);
}
