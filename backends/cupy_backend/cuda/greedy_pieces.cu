// Greedy verification of many requests: each CTA reads a piece of a row and tells its best token, unless the row
// lies behind a known end of its draft. greedy_pieces_end.cu takes what is told here.
#include "best_flow.cuh"

constexpr int WARPS_TOGETHER = sizeof(TargetLogit) == 2 ? 36 : 32;  // on a multiprocessor
static_assert(CTA_WARPS >= 2);  // the second looks around

struct PieceShared {
    i64 start;     // the request's first row
    int num_rows;  // and how many it has
    bool is_behind_end;
    int drafts[MAX_DRAFTS];
    u64 bests[CTA_WARPS];
};

// By the grid's dimensions: that nothing is divided is seen where there are many short-lived CTAs.
__device__ inline RowPiece piece_of_cta() {
    return {static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.z), static_cast<int>(blockIdx.x)};
}

// Of a piece that cannot be read by whole vectors.
__device__ COLD u64 best_by_elements(const Row<TargetLogit> row, const Stretch blocks) {
    u64 best = 0;
#pragma unroll 1
    for (int block = blocks.begin + warp_id(); block < blocks.end; block += CTA_WARPS) {
        float logits[PER_LANE];
        load_block(row, block, logits);
        const u32 key = key_of(block_max(logits));
        best = Max{}(best, best_of_warp(key, block, [&](int j) { return logits[j]; }));
    }
    return best;
}

// Where the request's rows are. By one warp.
__device__ inline void look_up(const Params& p, PieceShared& shared, int index) {
    Request request = {};
    request.index = index;
    const i64 loaded = load_draft(p, index, 0);
    enter_rows(p, load_extent(p, index), loaded, shared.drafts, request);
    if (lane_id() > 0) return;
    shared.start = request.start;
    shared.num_rows = request.num_rows;
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

__device__ inline Row<TargetLogit> row_of(const Params& p, i64 start, int row) {
    Request request = {};
    request.start = start;
    return target_row(p, request, row);
}

// What a warp found; nothing if the piece is left out. First rows are fetched from where they most likely are
// while that is looked up.
__device__ inline u64 best_of_piece(const Params& p, PieceShared& shared, const RowPiece& piece) {
    BestFlow<TargetLogit> flow;
    const i64 guess = guess_request(p, piece.request).start;
    const Row<TargetLogit> likely = row_of(p, guess, piece.row);
    const bool guesses = piece.row == 0 && is_guessable(p) && is_direct(likely);
    if (guesses) flow.begin(likely, piece.blocks(p));
    look_around(p, shared, piece);
    meet_in_cta();
    if (piece.row >= shared.num_rows || shared.is_behind_end) return LEFT_OUT;
    if (!guesses || shared.start != guess) {
        const Row<TargetLogit> row = row_of(p, shared.start, piece.row);
        if (!is_direct(row)) return best_by_elements(row, piece.blocks(p));
        flow.begin(row, piece.blocks(p));
    }
    return flow.drain();
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS, WARPS_TOGETHER / CTA_WARPS)
    greedy_pieces(const __grid_constant__ Params p) {
    __shared__ PieceShared shared;
    const RowPiece piece = piece_of_cta();
    let_next_launch_begin();
    u64 best = best_of_piece(p, shared, piece);
    if (lane_id() == 0) shared.bests[warp_id()] = best;
    meet_in_cta();
    if (thread_id() > 0 || piece.row >= shared.num_rows) return;
#pragma unroll
    for (int warp = 1; warp < CTA_WARPS; ++warp) best = Max{}(best, shared.bests[warp]);
    store_relaxed(piece.rival(p), best == 0 ? NO_BLOCKS : best);
}
