// What becomes of the sums of a tile: they are normalised, gated or added to what is there, and stored. Refuses to
// multiply.
#pragma once
#include "sums.cuh"

enum Way { PLAIN, GATE, ADD };

// Of a CTA.
struct Shared {
    Ring ring;
    union {
        alignas(16) unsigned char lines[OWN_TOKENS][LINE_BYTES];  // of what is stored
        struct {
            Inbox inbox;  // of what is added
            float squares[WARPS][OWN_TOKENS];
        };
    };
    Bits come, found;
    float norms[TOKENS];

    __device__ void set_up() {
        ring.set_up();
        set_up_barrier(&found, FINDERS);
        set_up_barrier(&come, 1);
        if (SPLITS > 1) expect(&come, INBOX_BYTES);
        show_barriers();
    }
};
static_assert(sizeof(Shared) <= SHARED_BYTES, "shared memory");

// Reciprocal root mean squares of the tokens that are multiplied. By FINDERS threads.
__device__ __forceinline__ void find_norms(const Arguments& a, Shared& shared) {
    constexpr int SHARE = FINDERS / TOKENS;
    int thread = threadIdx.x - (THREADS - FINDERS), token = thread / SHARE;
    await_kernels_before();
    float sum = 0;
    if (token < a.num_tokens) {
        const float* of_token = a.squares + (token + 1) * a.every - 1;
#pragma unroll 16
        for (int part = thread % SHARE; part < a.num_squares; part += SHARE)
            sum += __ldcg(of_token + part * a.squares_stride);
    }
#pragma unroll
    for (int far = SHARE / 2; far > 0; far /= 2) sum += __shfl_xor_sync(~0u, sum, far);
    if (thread % SHARE == 0) shared.norms[token] = rsqrtf(sum / a.size + a.eps);
    arrive(&shared.found);
}

// Of the first two rows that lie side by side; with GATE the only one.
template <Way CHOSEN>
__device__ __forceinline__ int row_in_tile() {
    int sixteen = threadIdx.x / 32, row = threadIdx.x % 32 / 4;
    return CHOSEN == GATE ? 8 * sixteen + row : 16 * sixteen + 2 * row;
}

__device__ __forceinline__ int token_of(int i) { return 8 * (i / 4) + threadIdx.x % 4 * 2 + i % 2; }

// Of a pair of sums of two rows.
__device__ __forceinline__ int sum_of(int pair) { return pair / 2 * 4 + pair % 2; }

// Whether the tile has the rows of a warp.
__device__ __forceinline__ bool has_rows() { return threadIdx.x / 32 < SIXTEENS; }

template <Way CHOSEN>
struct Finish {
    const Arguments& a;
    Shared& shared;
    int tile, rank;

    static constexpr int HEIGHT = CHOSEN == GATE ? ROWS / 2 : ROWS, UNITS = HEIGHT / 8;  // of 16 bytes

    __device__ __forceinline__ void run(Sums& sums) {
        meet(CONSUMERS);  // Lines of the tile before have been stored.
        if (has_rows()) keep(sums);
        meet(CONSUMERS);
        store();
    }

    __device__ __forceinline__ void keep(Sums& sums) {
        int row = row_in_tile<CHOSEN>();
        float first = 0, second = 0;
        if (a.bias != nullptr) {
            const Half* bias = a.bias + tile * HEIGHT + row;
            first = float_of(bias[0]), second = float_of(bias[CHOSEN == GATE ? a.num_rows : 1]);
        }
#pragma unroll
        for (int i = 0; i < OWN / 2; ++i) {
            int at = sum_of(i), token = token_of(at);
            float norm = shared.norms[rank * OWN_TOKENS + token];
            float one = sums.of[at] * norm + first, other = sums.of[at + 2] * norm + second;
            unsigned char* goal = shared.lines[token] + 2 * row;
            if (CHOSEN == GATE) *reinterpret_cast<Half*>(goal) = Half(word_of(gated(one, other), 0));
            else *reinterpret_cast<unsigned*>(goal) = word_of(one, other);
        }
    }

    __device__ __forceinline__ static float gated(float gate, float up) { return __fdividef(gate, 1 + __expf(-gate)) * up; }

    __device__ __forceinline__ void store() const {
        int first = rank * OWN_TOKENS, num_tokens = min(OWN_TOKENS, a.num_tokens - first);
        for (int i = threadIdx.x; i < num_tokens * UNITS; i += CONSUMERS) {
            int token = i / UNITS, unit = i % UNITS;
            uint4* goal = reinterpret_cast<uint4*>(a.out + (first + token) * a.out_stride + tile * HEIGHT) + unit;
            *goal = *reinterpret_cast<const uint4*>(shared.lines[token] + 16 * unit);
        }
    }
};

// What sums are added to, asked for before they are found.
struct Old {
    unsigned of[OWN / 2], gamma;

    __device__ __forceinline__ static int token(int i, int rank) { return rank * OWN_TOKENS + token_of(sum_of(i)); }

    __device__ __forceinline__ void ask(const Arguments& a, int tile, int rank) {
        if (!has_rows()) return;
        int row = tile * ROWS + row_in_tile<ADD>();
        gamma = *reinterpret_cast<const unsigned*>(a.gamma + row);
#pragma unroll
        for (int i = 0; i < OWN / 2; ++i)
            of[i] = token(i, rank) < a.num_tokens
                        ? __ldcg(reinterpret_cast<unsigned*>(a.out + token(i, rank) * a.out_stride + row)) : 0;
    }
};

template <>
struct Finish<ADD> {
    const Arguments& a;
    Shared& shared;
    int tile, rank;

    __device__ __forceinline__ void run(const Sums& sums, const Old& old) {
        float squares[OWN / 2];
#pragma unroll
        for (int i = 0; i < OWN / 2; ++i) squares[i] = 0;
        if (has_rows()) add(sums, old, squares);
        meet(CONSUMERS);  // Squares of the tile before have been told.
        keep(squares);
        meet(CONSUMERS);
        tell();
    }

    __device__ __forceinline__ void add(const Sums& sums, const Old& old, float (&squares)[OWN / 2]) {
        int row = tile * ROWS + row_in_tile<ADD>();
        float first = 0, second = 0;
        if (a.bias != nullptr) first = float_of(a.bias[row]), second = float_of(a.bias[row + 1]);
#pragma unroll
        for (int i = 0; i < OWN / 2; ++i) {
            int at = sum_of(i), token = Old::token(i, rank);
            unsigned word = word_of(sums.of[at] + first + low_of(old.of[i]), sums.of[at + 2] + second + high_of(old.of[i]));
            float low = low_of(word), high = high_of(word);
            squares[i] = low * low + high * high;
            if (token < a.num_tokens) {
                long long goal = token * a.out_stride + row;
                *reinterpret_cast<unsigned*>(a.out + goal) = word;
                *reinterpret_cast<unsigned*>(a.scaled + goal) = word_of(low * low_of(old.gamma), high * high_of(old.gamma));
            }
        }
    }

    // A warp's rows' squares of each token.
    __device__ __forceinline__ void keep(float (&squares)[OWN / 2]) const {
#pragma unroll
        for (int i = 0; i < OWN / 2; ++i) {
#pragma unroll
            for (int far = 4; far < 32; far *= 2) squares[i] += __shfl_xor_sync(~0u, squares[i], far);
            if (threadIdx.x % 32 < 4) shared.squares[threadIdx.x / 32][token_of(sum_of(i))] = squares[i];
        }
    }

    // All rows'.
    __device__ __forceinline__ void tell() const {
        int token = rank * OWN_TOKENS + threadIdx.x;
        if (threadIdx.x >= OWN_TOKENS || token >= a.num_tokens) return;
        float sum = 0;
#pragma unroll
        for (int i = 0; i < WARPS; ++i) sum += shared.squares[i][threadIdx.x];
        a.new_squares[tile * a.squares_stride + token] = sum;
    }
};
