// Pieces of target rows and of the draft rows beside them, a CTA each: first rows of all requests first, each
// followed by its draft row. And the words they leave for CTAs that have not begun to read later rows: a pair has as
// many as a warp has lanes, the target's pieces in the first half, the draft's in the second, and at the end of each
// half the draft token's logit. Nobody waits for one: who comes too early reads in vain.
#pragma once
#include "announced.cuh"
#include "stretch.cuh"

constexpr int HALF = LANES / 2;
constexpr int TOKEN_WORD = HALF - 1;
constexpr int END_WORD = HALF - 2;  // of the first half: 0, unless the pair certainly ends the draft

__device__ inline u64* pair_words_of(const Params& p, int request, int row) {
    return p.rivals + (request * (p.max_spec_len + 1) + row) * LANES;
}

__device__ inline u64 word_with(const Mass& mass) {
    const u64 sum = __float_as_uint(mass.sum) & 0x7fffffffu;
    return HAS_COME | sum << 32 | __float_as_uint(mass.max);
}

// What of which row is read by this CTA.
struct PairPiece {
    int request;
    int row;
    int part;
    bool draft;
    __device__ static PairPiece of(const Params& p) {
        const u32 group = static_cast<u32>(p.group), requests = static_cast<u32>(p.num_reqs);
        const u32 place = blockIdx.x / group, slot = place / requests;
        return {static_cast<int>(place - slot * requests), static_cast<int>(slot / 2),
                static_cast<int>(blockIdx.x - place * group), slot % 2 != 0};
    }
    __device__ bool is_there(const Request& known) const {
        return draft ? known.has_draft_row(row) : row < known.num_rows;
    }
    // Among the row's.
    __device__ Stretch blocks(const Params& p) const {
        const int all = num_blocks_of(draft ? p.draft_vocab_size : p.vocab_size);
        const int share = static_cast<int>(p.share), begin = part * share, end = begin + share;
        return {begin < all ? begin : all, end < all ? end : all};
    }
    __device__ Mass* announced(const Params& p, const Request& known) const {
        const GlobalPlaces places = {p, known};
        return (draft ? places.announced_draft(row) : places.announced(row)) + blocks(p).begin;
    }
    __device__ float logit_of(const Params& p, const Request& known, int token) const {
        if (draft) return load_logit(draft_row_in_target_ids(p, known, row), token);
        return load_logit(target_row(p, known, row), token);
    }
};

// Whether some row before one is known to end the draft. By a warp.
__device__ inline bool is_behind_end(const Params& p, int request, int row) {
    u64 word = 0;
    load_relaxed_if(lane_id() < row, pair_words_of(p, request, lane_id()) + END_WORD, word);
    return __any_sync(ALL_LANES, word != 0);
}
