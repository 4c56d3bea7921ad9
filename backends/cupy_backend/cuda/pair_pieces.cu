// Probabilistic verification of many requests: each CTA reads a piece of a row, first rows of all requests first, a
// target row and then the draft row beside it, and leaves a row alone that lies behind a known end of its draft.
// pair_pieces_end.cu takes what is announced here.
#include "pair_rivals.cuh"
#include "stream.cuh"

constexpr int MOST_PIECE_BLOCKS = 128;  // as in shape.py
constexpr int WARPS_TOGETHER = 36;      // on a multiprocessor
static_assert(CTA_WARPS >= 2);  // the second looks around

// Statistics are announced, and kept for who adds them up.
struct TellAndKeep {
    Mass* first;
    Mass* kept;
    __device__ void operator()(Mass* place, const Mass& mass) const {
        store_relaxed(word_of(place), word_with(mass));
        kept[place - first] = mass;
    }
};

// What is known of the piece lies here: with so few registers nothing else lives while it is read.
struct PieceShared {
    PairPiece piece;
    Request request;
    bool is_behind_end;
    int drafts[MAX_DRAFTS];
    Mass kept[MOST_PIECE_BLOCKS];
};

// What is asked for before anything is read, side by side.
__device__ inline void look_around(const Params& p, PieceShared& shared, const PairPiece& piece) {
    if (warp_id() == 0) {
        const Request request = read_request(p, piece.request, shared.drafts);
        if (lane_id() == 0) {
            shared.request = request;
            shared.piece = piece;
        }
    } else if (warp_id() == 1) {
        const bool behind = is_behind_end(p, piece.request, piece.row);
        if (lane_id() == 0) shared.is_behind_end = behind;
    }
}

__device__ inline void stream_piece(const Params& p, PieceShared& shared, const PairPiece& piece) {
    const Request& request = shared.request;
    const Stretch blocks = piece.blocks(p);
    const float scale = piece.draft ? request.draft_scale : request.scale;
    Mass* const places = piece.announced(p, request);
    const TellAndKeep put = {places, shared.kept};
    Row<TargetLogit> row = target_row(p, request, piece.row);
    if (piece.draft) {
        const Row<DraftLogit> draft = draft_row(p, request, piece.row);
        if (!SAME_LOGITS) return read_part(draft, blocks, scale, places, put);
        row.data = reinterpret_cast<const TargetLogit*>(draft.data);
        row.num_elements = row.vocab_size = draft.vocab_size;
    }
    read_part(row, blocks, scale, places, put);
}

// Who takes the words of a row must find them all.
__device__ inline void leave_out(const Params& p, const Request& request, const PairPiece& piece) {
    const Stretch blocks = piece.blocks(p);
    u64* words = word_of(piece.announced(p, request));
    for (int block = static_cast<int>(thread_id()); block < blocks.end - blocks.begin; block += CTA_THREADS)
        store_relaxed(words + block, NO_BLOCK);
}

// Whether the draft token's block is the piece's, or nobody's and it is the first.
__device__ inline bool has_token(const Params& p, const Request& request, const PairPiece& piece, int token) {
    const i64 element = piece.draft ? draft_row_in_target_ids(p, request, piece.row).element_of(token)
                                    : target_row(p, request, piece.row).element_of(token);
    const int block = element < 0 ? 0 : static_cast<int>(static_cast<u32>(element) / BLOCK_SIZE);
    return block / static_cast<u32>(p.share) == static_cast<u32>(piece.part);
}

// By a warp. Whoever finds that all words of both rows have come tells whether they end the draft.
__device__ inline void tell_words(const Params& p, const PieceShared& shared) {
    const Request& request = shared.request;
    const PairPiece piece = shared.piece;
    const Stretch blocks = piece.blocks(p);
    const int token = shared.drafts[piece.row];
    const float scale = piece.draft ? request.draft_scale : request.scale;
    const u64 word = piece_word(shared.kept, blocks.end - blocks.begin, scale);
    u64* const words = pair_words_of(p, piece.request, piece.row);
    u64* const mine = words + (piece.draft ? HALF : 0);
    if (lane_id() == 0) {
        if (has_token(p, request, piece, token))
            store_relaxed(mine + TOKEN_WORD, word_with({piece.logit_of(p, request, token), 0.0f}));
        store_relaxed(mine + piece.part, word);
    }
    if (piece.draft != request.dense) return;
    __syncwarp();
    if (is_pair_end(p, request, piece.row, words) && lane_id() == 0)
        store_relaxed(words + END_WORD, HAS_COME);
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS, WARPS_TOGETHER / CTA_WARPS)
    pair_pieces(const __grid_constant__ Params p) {
    __shared__ PieceShared shared;
    const PairPiece piece = PairPiece::of(p);
    let_next_launch_begin();
    look_around(p, shared, piece);
    meet_in_cta();
    if (!piece.is_there(shared.request)) return;
    if (shared.is_behind_end) return leave_out(p, shared.request, piece);
    stream_piece(p, shared, piece);
    meet_in_cta();
    if (warp_id() == 0 && shared.piece.row < shared.request.num_drafts) tell_words(p, shared);
}
