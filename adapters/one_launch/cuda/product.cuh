// Products of a warp with 16 rows of a matrix, on tensor cores. Refuses to know what comes out.
#pragma once
#include "ring.cuh"

// Where a word of a unit of 16 bytes of tokens lies, see `Sums`.
__device__ __forceinline__ constexpr int place_in_unit(int word) { return word == 1 ? 2 : word == 2 ? 1 : word; }

// Of 16 rows. Of a line's units, see `copy`, a lane takes 2 t and 2 t + 1: rows that are read at once then lie
// in different banks.
__device__ __forceinline__ unsigned first_unit(const unsigned char* rows) {
    int group = threadIdx.x % 32 / 4, quarter = threadIdx.x % 4;
    return shared_address(rows) + group * 128 + 16 * (2 * quarter ^ group);
}

// In memory rows 8 to 15 lie MORE bytes behind the others, and a block APART bytes behind the one before.
template <int APART, int MORE>
__device__ __forceinline__ void load_rows(unsigned first, int block, int which, Line (&both)[2]) {
    unsigned from = (which ? first ^ 16 : first) + block * APART;
    both[0] = load_kept(from);
    both[1] = load_kept(from + MORE);
}

// A lane's weights of 16 rows of BLOCKS blocks.
template <int BLOCKS>
struct Held {
    Line lines[BLOCKS][2][2];

    template <int APART, int MORE>
    __device__ __forceinline__ void load(const unsigned char* rows) {
        unsigned first = first_unit(rows);
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block)
#pragma unroll
            for (int which = 0; which < 2; ++which) load_rows<APART, MORE>(first, block, which, lines[block][which]);
    }
};

// Of 16 rows with up to four tokens: lane 4 g + t has rows g and g + 8 with token t.
//
// `multiply_add` takes rows g and g + 8 of 16 columns. Here both are row g, with columns of their own:
// a unit of 16 bytes is all that a lane needs, words 0 and 2 for one of them, 1 and 3 for the other. So
// a token takes two of eight places, once with each of the columns, and half of the sums are dropped.
// Units of tokens are kept in the order 0, 2, 1, 3, so that a lane has its words side by side.
template <int TOKENS>
struct Sums {
    float low[2][4] = {}, high[2][4] = {};  // Two chains of additions, so that one need not wait for the other.

    __device__ __forceinline__ float first() const { return (low[0][0] + low[0][3]) + (low[1][0] + low[1][3]); }
    __device__ __forceinline__ float second() const { return (high[0][0] + high[0][3]) + (high[1][0] + high[1][3]); }

    // What `add` would add, of weights that `hold` has taken from memory before tokens were there.
    template <int BLOCKS>
    __device__ __forceinline__ void add_held(const Held<BLOCKS>& held, const Half* tokens, int token_pitch) {
        const Half* token = token_of_lane(tokens, token_pitch);
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block)
#pragma unroll
            for (int which = 0; which < 2; ++which)
                multiply(which, held.lines[block][which], *reinterpret_cast<const uint2*>(token + 64 * block + 8 * which));
    }

    __device__ __forceinline__ static const Half* token_of_lane(const Half* tokens, int token_pitch) {
        int group = threadIdx.x % 32 / 4, quarter = threadIdx.x % 4;
        return tokens + min(group / 2, TOKENS - 1) * token_pitch + 16 * quarter + group % 2 * 4;
    }

    __device__ __forceinline__ void multiply(int which, const Line (&both)[2], const uint2& words) {
        const unsigned(&row)[4] = both[0].words, (&more)[4] = both[1].words;
        multiply_add(low[which], row[0], row[1], row[2], row[3], words.x, words.y);
        multiply_add(high[which], more[0], more[1], more[2], more[3], words.x, words.y);
    }

    // Add BLOCKS blocks of 64 columns, see `load_rows`. While some are multiplied, the next are asked for.
    template <int BLOCKS, int APART, int MORE>
    __device__ __forceinline__ void add(const unsigned char* rows, const Half* tokens, int token_pitch) {
        constexpr int BATCH = 2, BATCHES = (BLOCKS + BATCH - 1) / BATCH;
        unsigned first = first_unit(rows);
        const Half* token = token_of_lane(tokens, token_pitch);
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
            load_rows<APART, MORE>(first, block, which, both);
            words = *reinterpret_cast<const uint2*>(token + 64 * block + 8 * which);
        };
        each(0, load);
#pragma unroll
        for (int batch = 0; batch < BATCHES; ++batch) {
            if (batch + 1 < BATCHES) each(batch + 1, load);
            each(batch, [&](int, int which, Line(&both)[2], uint2& words) { multiply(which, both, words); });
        }
    }
};
