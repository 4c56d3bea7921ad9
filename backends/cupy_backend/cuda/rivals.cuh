// At which rows a draft certainly ends, by the words of pieces: each says what the best of its blocks scores in
// the race of its row, and what the draft token's block does if it has that. What decides are other numbers,
// found later.
#pragma once
#include "row_piece.cuh"

// Of a piece, a word that is 0 until it has come: the best block's key, above it the draft token's, or 0.
__device__ inline u64 rival_word(u32 best, u32 own) { return static_cast<u64>(own) << 32 | best; }

constexpr u64 BEHIND_END = 1ull << 32 | 0xffffffffull;

// Whether a row certainly ends the draft, given its pieces' words by lanes.
__device__ inline bool is_end(u64 word) {
    const u32 best = __reduce_max_sync(ALL_LANES, static_cast<u32>(word));
    const u32 own = __reduce_max_sync(ALL_LANES, static_cast<u32>(word >> 32));
    return own > 0 && own < best;
}

// Whether some row before one is known to. By a warp.
__device__ inline bool is_behind_end(const Params& p, int request, int row) {
    u64 words[LOOKS_BACK];
    load_rivals_before(p, request, row, words);
    bool behind = false;
#pragma unroll
    for (int i = 0; i < LOOKS_BACK; ++i) behind |= is_end(words[i]);
    return behind;
}

// About what a block scores in its row's race: relative to no largest logit, so rounded otherwise.
__device__ inline float rival_score(
    const Request& request, const DrawKey& key, const Mass& block, u32 index) {
    if (request.greedy) return block.max;
    const uint4 words = random_words_here(key, BLOCK_LEVEL, index / 4);
    return block.max * request.scale + log2_fast(block.sum) - log2_exponential(word_of(words, index));
}

// More than rounding changes.
__device__ inline float rival_slack(float score) {
    return 0.01f + 1e-5f * fminf(fabsf(score), 1e30f);
}

// Of a piece whose statistics are at hand, its first block being `first`. By a warp.
__device__ inline u64 rival_of(
    const Request& request, const DrawKey& key, const Mass* stats, int first, int count, int drafted) {
    u32 best = 1, own = 0;
    for (int i = lane_id(); i < count; i += LANES) {
        const float score = rival_score(request, key, stats[i], first + i);
        if (!(score == score)) continue;
        const u32 rank = float_key(score);
        best = rank > best ? rank : best;
        if (first + i == drafted / BLOCK_SIZE) own = float_key(score + rival_slack(score));
    }
    best = __reduce_max_sync(ALL_LANES, best);
    return rival_word(best, __reduce_max_sync(ALL_LANES, own));
}
