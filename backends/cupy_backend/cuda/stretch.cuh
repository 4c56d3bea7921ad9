// Where the blocks of a request's rows are. Its rows lie one behind the other, a draft row behind its
// target row; blocks are numbered through. Loads nothing.
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

// Of a request's blocks, those in [begin, end).
struct Stretch {
    int begin;
    int end;
};

// A target row and the draft row beside it.
__device__ inline Stretch stretch_of_row(const Params& p, const Request& request, int row) {
    const int begin = row * length_of_pair(p, request), total = length_of_request(p, request);
    const int end = begin + length_of_pair(p, request);
    return {begin, end < total ? end : total};
}

__device__ inline u32 inverse_of(int pair_blocks) { return ~0u / static_cast<u32>(pair_blocks); }

// Where a block is.
struct Spot {
    int row;
    int place;  // among the row's blocks
    bool draft;
};

// What finding a request's blocks takes, statistics included.
struct Rows {
    const char* target;  // the first row
    const char* draft;
    Mass* target_stats;
    Mass* draft_stats;
    int pair_blocks;
    u32 inverse;  // 2^32 / pair_blocks, rounded down
    float scale;
    float draft_scale;
    bool target_whole;  // whole vectors can be read
    bool draft_whole;
    int kept;  // rows have statistics of their own as far as these bits of their number differ

    template <typename Places>
    __device__ static Rows of(
        const Params& p, const Request& request, const Places& places, u32 inverse, int kept) {
        Rows rows = {};
        const Row<TargetLogit> first = target_row(p, request, 0);
        rows.target = reinterpret_cast<const char*>(first.data);
        rows.target_stats = places.target_stats(0);
        rows.kept = kept;
        rows.pair_blocks = length_of_pair(p, request);
        rows.inverse = inverse;
        rows.scale = request.scale;
        rows.target_whole =
            !ADJUSTED && is_direct(first) && static_cast<u32>(p.target_stride) % PER_VECTOR<TargetLogit> == 0;
        if (!DENSE) return rows;
        const Row<DraftLogit> beside = draft_row(p, request, 0);
        rows.draft = reinterpret_cast<const char*>(beside.data);
        rows.draft_stats = places.draft_stats(0);
        rows.draft_scale = request.draft_scale;
        rows.draft_whole = is_direct(beside) && static_cast<u32>(p.draft_row_stride) % PER_VECTOR<DraftLogit> == 0;
        return rows;
    }

    __device__ bool whole() const { return target_whole && (!DENSE || draft_whole); }
    __device__ bool whole(bool in_draft) const { return in_draft ? draft_whole : target_whole; }

    __device__ Spot spot_of(const Params& p, int block) const {
        int row = static_cast<int>(__umulhi(static_cast<u32>(block), inverse));
        int place = block - row * pair_blocks;
        if (place >= pair_blocks) {  // the inverse was rounded
            ++row;
            place -= pair_blocks;
        }
        const int target_blocks = num_blocks_of(p.vocab_size);
        const bool beside = DENSE && place >= target_blocks;
        return {row, beside ? place - target_blocks : place, beside};
    }

    __device__ Mass* stats_of(const Params& p, const Spot& spot) const {
        const int row = spot.row & kept;
        return spot.draft ? draft_stats + row * num_blocks_of(p.draft_vocab_size) + spot.place
                          : target_stats + row * num_blocks_of(p.vocab_size) + spot.place;
    }

    __device__ const char* data_of(const Params& p, const Spot& spot) const {
        const u64 row = static_cast<u32>(spot.row), place = static_cast<u32>(spot.place) * BLOCK_SIZE;
        return spot.draft
            ? draft + (row * static_cast<u64>(p.draft_row_stride) + place) * sizeof(DraftLogit)
            : target + (row * static_cast<u64>(p.target_stride) + place) * sizeof(TargetLogit);
    }
};

// Where a warp is, in shared memory: asked for only when a row ends.
struct Cursor {
    Rows rows;
    int next;  // block
    int end;
};
