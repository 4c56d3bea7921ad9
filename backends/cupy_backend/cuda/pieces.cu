// Strict verification of many requests: each CTA reads a piece of a row, first rows of all requests first, and
// leaves a row alone that lies behind a known end of its draft. pieces_end.cu takes what is announced here.
#include "rivals.cuh"
#include "stream.cuh"

constexpr int MOST_PIECE_BLOCKS = 128;  // as in shape.py
constexpr int WARPS_TOGETHER = 36;      // on a multiprocessor
static_assert(CTA_WARPS >= 2);  // the second looks around

// Statistics are announced, and kept for who is to score them.
struct AnnounceAndKeep {
    Mass* first;
    Mass* kept;
    __device__ void operator()(Mass* place, const Mass& mass) const {
        Announce{}(place, mass);
        kept[place - first] = mass;
    }
};

struct PieceShared {
    Request request;
    bool is_behind_end;
    int drafts[MAX_DRAFTS];
    Mass kept[MOST_PIECE_BLOCKS];
};

// What is asked for before anything is read, side by side.
__device__ inline void look_around(const Params& p, PieceShared& shared, const RowPiece& piece) {
    if (warp_id() == 0) {
        const Request request = read_request(p, piece.request, shared.drafts);
        if (lane_id() == 0) shared.request = request;
    } else if (warp_id() == 1) {
        const bool behind = piece.row > 0 && is_behind_end(p, piece.request, piece.row);
        if (lane_id() == 0) shared.is_behind_end = behind;
    }
}

__device__ inline void stream_piece(
    const Params& p, PieceShared& shared, const RowPiece& piece) {
    const Request& request = shared.request;
    const Row<TargetLogit> row = target_row(p, request, piece.row);
    const Stretch blocks = piece.blocks(p);
    Mass* const places = GlobalPlaces{p, request}.announced(piece.row) + blocks.begin;
    read_part(row, blocks, request.scale, places, AnnounceAndKeep{places, shared.kept});
}

// Who takes the words of a row must find them all.
__device__ inline void leave_out(const Params& p, const Request& request, const RowPiece& piece) {
    const Stretch blocks = piece.blocks(p);
    u64* words = word_of(GlobalPlaces{p, request}.announced(piece.row));
    for (int block = blocks.begin + static_cast<int>(thread_id()); block < blocks.end; block += CTA_THREADS)
        store_relaxed(words + block, NO_BLOCK);
}

// By a warp.
__device__ inline void tell_rival(
    const Params& p, const PieceShared& shared, const RowPiece& piece) {
    const Stretch blocks = piece.blocks(p);
    u64 word = BEHIND_END;
    if (!shared.is_behind_end)
        word = rival_of(shared.request, target_key(p, shared.request, piece.row), shared.kept, blocks.begin,
                        blocks.end - blocks.begin, shared.drafts[piece.row]);
    if (lane_id() == 0) store_relaxed(piece.rival(p), word);
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS, WARPS_TOGETHER / CTA_WARPS)
    pieces(const __grid_constant__ Params p) {
    __shared__ PieceShared shared;
    const RowPiece piece = RowPiece::of(p);
    let_next_launch_begin();
    look_around(p, shared, piece);
    meet_in_cta();
    const bool is_there = piece.row < shared.request.num_rows;
    if (is_there && shared.is_behind_end)
        leave_out(p, shared.request, piece);
    else if (is_there)
        stream_piece(p, shared, piece);
    meet_in_cta();
    if (piece.row < shared.request.num_drafts && warp_id() == 0) tell_rival(p, shared, piece);
}
