// Pieces of rows, a CTA each, first rows of all requests first; and the word that each of them leaves for CTAs
// that have not begun to read later rows. Nobody waits for one: who comes too early reads in vain.
#pragma once
#include "announced.cuh"
#include "stretch.cuh"

constexpr int MOST_PIECES = LANES;  // of a row, as in workspace.py
constexpr int LOOKS_BACK = 3;       // rows; what lies behind an end is told to be one

// The words of a row's pieces.
__device__ inline u64* rivals_of(const Params& p, int request, int row) {
    return p.rivals + (request * (p.max_spec_len + 1) + row) * p.group;
}

// A lane's words of the rows before one; 0 where there is none.
__device__ inline void load_rivals_before(
    const Params& p, int request, int row, u64 (&words)[LOOKS_BACK]) {
#pragma unroll
    for (int i = 0; i < LOOKS_BACK; ++i) {
        const int before = row - 1 - i;
        words[i] = 0;
        load_relaxed_if(before >= 0 && lane_id() < p.group,
                        rivals_of(p, request, before) + lane_id(), words[i]);
    }
}

// What of which row is read by this CTA.
struct RowPiece {
    int request;
    int row;
    int part;
    __device__ static RowPiece of(const Params& p) {
        const u32 group = static_cast<u32>(p.group), requests = static_cast<u32>(p.num_reqs);
        const u32 place = blockIdx.x / group, row = place / requests;
        return {static_cast<int>(place - row * requests), static_cast<int>(row),
                static_cast<int>(blockIdx.x - place * group)};
    }
    // Among the row's.
    __device__ Stretch blocks(const Params& p) const {
        const int all = num_blocks_of(p.vocab_size), share = static_cast<int>(p.share);
        const int begin = part * share, end = begin + share;
        return {begin < all ? begin : all, end < all ? end : all};
    }
    __device__ u64* rival(const Params& p) const { return rivals_of(p, request, row) + part; }
};
