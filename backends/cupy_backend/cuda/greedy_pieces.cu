// Greedy verification of many requests: each CTA reads a piece of a row and tells its best token, unless the row
// lies behind a known end of its draft. greedy_pieces_end.cu takes what is told here.
#include "bests.cuh"
#include "stream.cuh"

constexpr int WARPS_TOGETHER = 40;  // on a multiprocessor
static_assert(CTA_WARPS >= 2);  // the second looks around

// The first token of a block that has its largest logit. By a warp.
template <typename LogitAt>
__device__ inline u32 first_token(int block, float max, LogitAt logit_at) {
    u32 token = ~0u;
#pragma unroll
    for (int j = PER_LANE - 1; j >= 0; --j)
        if (logit_at(j) == max) token = static_cast<u32>(id_of(block, lane_id(), j));
    return __reduce_min_sync(ALL_LANES, token);
}

// A warp's best word, the same in all lanes; its blocks come in their order.
template <typename LogitAt>
__device__ inline void look_into(int block, float max, LogitAt logit_at, u64& best) {
    if (key_of_best(best) < float_key(max + 0.0f)) best = best_word(max, first_token(block, max, logit_at));
}

// All that was opened and fetched, as Flow::drain has it; `row` is where it would put the row's statistics.
__device__ inline u64 drain_best(const Params& p, Flow<>& flow, Cursor* cursors, const Mass* row) {
    u64 best = 0;
    row += lane_id() / 16 * CTA_WARPS;
    while (flow.left > 0) {
        const Batch come = flow.batch();
        flow.advance(p, cursors);
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
            const auto logit_at = [&](int j) { return unpack_at<TargetLogit>(flow.ring[i].words, j); };
            const int block = static_cast<int>(come.stats - row) + i * CTA_WARPS;
            if (i == 0 || come.left > 1) look_into(block, partial_of(come, flow.ring[i]).max, logit_at, best);
            flow.fetch(i);
        }
    }
    return best;
}

// Of a piece that cannot be read by whole vectors.
__device__ COLD u64 best_by_elements(const Row<TargetLogit> row, const Stretch blocks) {
    u64 best = 0;
#pragma unroll 1
    for (int block = blocks.begin + warp_id(); block < blocks.end; block += CTA_WARPS) {
        float logits[PER_LANE];
        load_block(row, block, logits);
        look_into(block, block_max(logits), [&](int j) { return logits[j]; }, best);
    }
    return best;
}

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

// What a warp found; nothing if the piece is left out. First rows are fetched from where they most likely are
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
    if (!shared.cursors[warp_id()].rows.whole())
        return best_by_elements(target_row(p, request, piece.row), piece.blocks(p));
    return drain_best(p, flow, shared.cursors, GlobalPlaces{p, shared.request}.announced(piece.row));
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS, WARPS_TOGETHER / CTA_WARPS)
    greedy_pieces(const __grid_constant__ Params p) {
    __shared__ PieceShared shared;
    const RowPiece piece = RowPiece::of(p);
    let_next_launch_begin();
    u64 best = best_of_piece(p, shared, piece);
    if (lane_id() == 0) shared.bests[warp_id()] = best;
    meet_in_cta();
    if (thread_id() > 0 || piece.row >= shared.request.num_rows) return;
#pragma unroll
    for (int warp = 1; warp < CTA_WARPS; ++warp) best = Max{}(best, shared.bests[warp]);
    store_relaxed(piece.rival(p), best == 0 ? NO_BLOCKS : best);
}
