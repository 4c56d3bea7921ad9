// Reading a piece of a row for the first token that has its largest logit. Each lane keeps the best block that it has
// seen itself, so that a warp compares its lanes, and looks for a token, once and not at every block.
#pragma once
#include "bests.cuh"

// Blocks of a warp on their way: registers have room for so many, given how many warps there are (greedy_pieces.cu).
template <typename T>
constexpr int AHEAD = sizeof(T) == 2 ? 3 : 2;

__device__ inline void take_if(bool wanted, const uint4& from, uint4& to) {
    to.x = wanted ? from.x : to.x;
    to.y = wanted ? from.y : to.y;
    to.z = wanted ? from.z : to.z;
    to.w = wanted ? from.w : to.w;
}

// The word of a warp's largest logit, given the largest of each lane and the first block that it saw that in. A NaN has
// no token: no logit is equal to it.
template <typename LogitAt>
__device__ inline u64 best_of_warp(u32 key, int block, LogitAt logit_at) {
    const u32 highest = __reduce_max_sync(ALL_LANES, key);
    const float max = key_float(highest);
    u32 token = ~0u;
    if (key == highest) {
#pragma unroll
        for (int j = PER_LANE - 1; j >= 0; --j)
            if (logit_at(j) == max) token = static_cast<u32>(id_of(block, lane_id(), j));
    }
    return best_word(max, __reduce_min_sync(ALL_LANES, token));
}

// Equal logits of either sign are of one key.
__device__ inline u32 key_of(float max) { return float_key(max + 0.0f); }

// A warp's blocks of a piece, the CTA's warps taking one each in turn; it asks for as many at once as are on their way.
template <typename T>
struct BestFlow {
    static constexpr int BLOCKS = AHEAD<T> * CTA_WARPS;  // from one turn to the next
    const T* data;  // the lane's first logit of the turn that is asked for next
    int reach;      // the lane's elements from there on, gaps between blocks among them
    int left;       // blocks of the CTA from the turn that is looked at on, this warp's first among them
    int block;      // the first of that turn
    u32 best_key;   // the lane's, 0 before it has seen any
    int best_block;
    RawBlock<T> best;
    RawBlock<T> ring[AHEAD<T>];

    // What there is no block for stays as it is.
    __device__ void fetch(int i) {
        constexpr int apart = CTA_WARPS * BLOCK_SIZE;
        load_raw_if<T>(reach - i * apart, reinterpret_cast<const char*>(data + i * apart), ring[i].words);
    }

    __device__ void step() {
        data += BLOCKS * BLOCK_SIZE;
        reach -= BLOCKS * BLOCK_SIZE;
    }

    __device__ void begin(const Row<T>& row, const Stretch& blocks) {
        block = blocks.begin + warp_id();
        left = blocks.end - block;
        const int first = block * BLOCK_SIZE + lane_id() * 8;
        const int behind = blocks.end * BLOCK_SIZE, all = static_cast<int>(row.vocab_size);
        reach = (behind < all ? behind : all) - first;
        data = row.data + first;
        best_key = 0;
        constexpr u32 word = NOTHING<T>;
#pragma unroll
        for (int i = 0; i < AHEAD<T>; ++i) {
#pragma unroll
            for (uint4& words : ring[i].words) words = uint4{word, word, word, word};
            fetch(i);
        }
        step();
    }

    // Where nothing was loaded there is what was looked at a turn ago, or nothing: neither is better than the best.
    __device__ void look(int i) {
        const u32 key = key_of(lane_max(ring[i]));
        const bool better = key > best_key;
        best_key = better ? key : best_key;
        best_block = better ? block + i * CTA_WARPS : best_block;
#pragma unroll
        for (int word = 0; word < PER_LANE / PER_VECTOR<T>; ++word)
            take_if(better, ring[i].words[word], best.words[word]);
    }

    // All that was begun; 0 without blocks.
    __device__ u64 drain() {
        if (left <= 0) return 0;
#pragma unroll 1
        while (true) {
#pragma unroll
            for (int i = 0; i < AHEAD<T>; ++i) {
                look(i);
                fetch(i);
            }
            left -= BLOCKS;
            if (left <= 0) break;
            step();
            block += BLOCKS;
        }
        return best_of_warp(best_key, best_block, [&](int j) { return unpack(best, j); });
    }
};
