// Of each piece of a greedy row the best token alone is told, by the piece's word. The best of a row's words is
// its token; the same words tell at which row a draft certainly ends.
#pragma once
#include "row_piece.cuh"

constexpr u64 LEFT_OUT = 1;    // below every word of a piece that was read, and not 0
constexpr u64 NO_BLOCKS = 2;  // the same of a piece without blocks

// 0 until it has come; of equal logits the first token's is the larger.
__device__ inline u64 best_word(float max, u32 token) {
    return static_cast<u64>(float_key(max + 0.0f)) << 32 | ~token;
}

__device__ inline u32 key_of_best(u64 word) { return static_cast<u32>(word >> 32); }
__device__ inline bool has_token(u64 word) { return key_of_best(word) > 0; }
__device__ inline float logit_of_best(u64 word) { return key_float(key_of_best(word)); }
__device__ inline int token_of_best(u64 word) { return static_cast<int>(~static_cast<u32>(word)); }

// Whether a row certainly ends the draft, given its pieces' words by lanes, its draft token and the piece that
// has it.
__device__ inline bool is_end(u64 word, int drafted, int holder) {
    const u64 best = warp_reduce(word, Max{});
    const u64 own = __shfl_sync(ALL_LANES, word, holder & (LANES - 1));
    const bool lost = own > 0 && (best != own || token_of_best(own) != drafted);
    return lost || __any_sync(ALL_LANES, word == LEFT_OUT);
}

// Whether some row before one is known to. By a warp.
__device__ inline bool is_behind_end(const Params& p, int request, int row) {
    u64 words[LOOKS_BACK];
    load_rivals_before(p, request, row, words);
    const int first = row > LOOKS_BACK ? row - LOOKS_BACK : 0;
    const u32 id = static_cast<u32>(load_draft(p, request, first));
    const int drafted = static_cast<int>(id);
    const int holder = static_cast<int>(id / BLOCK_SIZE / static_cast<u32>(p.share));
    bool behind = false;
#pragma unroll
    for (int i = 0; i < LOOKS_BACK; ++i) {
        const int before = row - 1 - i, lane = (before - first) & (LANES - 1);
        const bool ends = is_end(words[i], __shfl_sync(ALL_LANES, drafted, lane),
                                 __shfl_sync(ALL_LANES, holder, lane));
        behind |= before >= 0 && ends;
    }
    return behind;
}
