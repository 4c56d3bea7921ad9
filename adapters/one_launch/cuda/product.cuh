// Products of a warp with 16 rows of a matrix, on tensor cores. Refuses to know what comes out.
#pragma once
#include "ring.cuh"

// Where a word of a unit of 16 bytes of tokens lies, see `Sums`.
__device__ __forceinline__ constexpr int place_in_unit(int word) { return word == 1 ? 2 : word == 2 ? 1 : word; }

// Of 16 rows with up to four tokens: lane 4 g + t has rows g and g + 8 with token t.
//
// `multiply_add` takes rows g and g + 8 of 16 columns. Here both are row g, with columns of their own:
// a unit of 16 bytes is all that a lane needs, words 0 and 2 for one of them, 1 and 3 for the other. So
// a token takes two of eight places, once with each of the columns, and half of the sums are dropped.
// Units of tokens are kept in the order 0, 2, 1, 3, so that a lane has its words side by side.
struct Sums {
    float low[2][4] = {}, high[2][4] = {};  // Two chains of additions, so that one need not wait for the other.

    __device__ __forceinline__ float first() const { return (low[0][0] + low[0][3]) + (low[1][0] + low[1][3]); }
    __device__ __forceinline__ float second() const { return (high[0][0] + high[0][3]) + (high[1][0] + high[1][3]); }

    // Add BLOCKS blocks of 64 columns. In memory rows 8 to 15 lie MORE bytes behind the others, and a block
    // APART bytes behind the one before. Of a line's units, see `copy`, a lane takes 2 t and 2 t + 1: rows
    // that are read at once then lie in different banks. While some are multiplied, the next are asked for.
    template <int BLOCKS, int APART, int MORE>
    __device__ __forceinline__ void add(const unsigned char* rows, const Half* tokens, int token_pitch) {
        constexpr int BATCH = 2, BATCHES = (BLOCKS + BATCH - 1) / BATCH;
        int lane = threadIdx.x % 32, group = lane / 4, quarter = lane % 4;
        unsigned even = shared_address(rows) + group * 128 + 16 * (2 * quarter ^ group), odd = even ^ 16;
        const Half* token = tokens + min(group / 2, TOKENS - 1) * token_pitch + 16 * quarter + group % 2 * 4;
        Line weights[2][BATCH][2][2];
        uint2 x[2][BATCH][2];
        auto each = [&](int batch, auto use) {
#pragma unroll
            for (int i = 0; i < BATCH; ++i)
#pragma unroll
                for (int which = 0; which < 2; ++which)
                    if (batch * BATCH + i < BLOCKS)
                        use(batch * BATCH + i, which, weights[batch % 2][i][which], x[batch % 2][i][which]);
        };
        auto load = [&](int block, int which, Line(&both)[2], uint2& words) {
            unsigned from = (which ? odd : even) + block * APART;
            both[0] = load_kept(from);
            both[1] = load_kept(from + MORE);
            words = *reinterpret_cast<const uint2*>(token + 64 * block + 8 * which);
        };
        auto multiply = [&](int, int which, Line(&both)[2], uint2& words) {
            const unsigned(&row)[4] = both[0].words, (&more)[4] = both[1].words;
            multiply_add(low[which], row[0], row[1], row[2], row[3], words.x, words.y);
            multiply_add(high[which], more[0], more[1], more[2], more[3], words.x, words.y);
        };
        each(0, load);
#pragma unroll
        for (int batch = 0; batch < BATCHES; ++batch) {
            if (batch + 1 < BATCHES) each(batch + 1, load);
            each(batch, multiply);
        }
    }
};
