// Which blocks of a request a CTA reads, and which of those a warp: every sixteenth. Loads nothing.
#pragma once
#include "workspace.cuh"

__device__ inline int length_of_pair(const Params& p, const Request& request) {
    return num_blocks_of(p.vocab_size) +
           (DENSE && request.dense ? num_blocks_of(p.draft_vocab_size) : 0);
}

__device__ inline int length_of_request(const Params& p, const Request& request) {
    if (request.num_rows == 0) return 0;
    return request.num_drafts * length_of_pair(p, request) + num_blocks_of(p.vocab_size);
}

// Parts are rows: 2 * i is the request's i-th target row, 2 * i + 1 the draft row beside it.
__device__ inline bool is_draft(int part) { return DENSE && part % 2; }

__device__ inline int next_part(const Request& request, int part) {
    return part % 2 == 0 && request.has_draft_row(part / 2) ? part + 1 : part / 2 * 2 + 2;
}

__device__ inline int begin_of_part(const Params& p, const Request& request, int part) {
    return part / 2 * length_of_pair(p, request) +
           (is_draft(part) ? num_blocks_of(p.vocab_size) : 0);
}

// Of a request's blocks, rows one behind the other, those in [begin, end), which lie in parts up to
// `end_part`.
struct Stretch {
    int begin;
    int end;
    int end_part;
};

// The target row that a block, or the draft row beside it, belongs to.
__device__ inline int row_of_block(const Params& p, const Request& request, int block) {
    const int row = block / length_of_pair(p, request);
    return row < request.num_drafts ? row : request.num_drafts;
}

__device__ inline Stretch stretch(const Params& p, const Request& request, int begin, int end) {
    if (begin >= end) return {0, 0, 0};
    return {begin, end, 2 * row_of_block(p, request, end - 1) + 2};
}

// A target row and the draft row beside it.
__device__ inline Stretch stretch_of_row(const Params& p, const Request& request, int row) {
    const int begin = row * length_of_pair(p, request);
    return {begin, 0x7fffffff, row < request.num_rows ? 2 * row + 2 : 2 * row};
}

__device__ inline int first_part(const Params& p, const Request& request, const Stretch& stretch) {
    return 2 * row_of_block(p, request, stretch.begin);
}

// Where a warp is, in shared memory: asked for only when a row ends.
struct Cursor {
    Stretch stretch;
    int part;
};

// A warp's blocks of a part, every sixteenth from the first.
struct Place {
    int part;
    int first;
    int left;  // blocks
    int rest;  // elements of the last of them
};

__device__ inline Place place_in(
    const Params& p, const Request& request, const Stretch& stretch, int part, int warp) {
    const i64 vocab_size = is_draft(part) ? p.draft_vocab_size : p.vocab_size;
    const int begin = begin_of_part(p, request, part), length = num_blocks_of(vocab_size);
    int low = stretch.begin - begin, high = stretch.end - begin;
    if (low < 0) low = 0;
    if (high > length) high = length;
    // Warps take turns from the stretch's first block on, not from each part's.
    const int first = low + ((warp - (begin + low - stretch.begin)) & (CTA_WARPS - 1));
    const int left = high > first ? (high - first + CTA_WARPS - 1) / CTA_WARPS : 0;
    const int last = first + (left - 1) * CTA_WARPS;
    const i64 rest = vocab_size - static_cast<i64>(last) * BLOCK_SIZE;
    return {part, first, left, rest < BLOCK_SIZE ? static_cast<int>(rest) : BLOCK_SIZE};
}

__device__ inline bool is_direct_part(const Params& p, const Request& request, int part) {
    if (is_draft(part)) return is_direct(draft_row(p, request, part / 2));
    return !ADJUSTED && is_direct(target_row(p, request, part / 2));
}

// The first part from `part` on that has a block for this warp and can be read by whole vectors, or
// cannot, if so asked; nothing is left if there is none.
__device__ inline Place find_part(
    const Params& p, const Request& request, const Stretch& stretch, int part, int warp,
    bool direct) {
    for (; part < stretch.end_part; part = next_part(request, part)) {
        const Place place = place_in(p, request, stretch, part, warp);
        if (place.left > 0 && is_direct_part(p, request, part) == direct) return place;
    }
    return {part, 0, 0, 0};
}
