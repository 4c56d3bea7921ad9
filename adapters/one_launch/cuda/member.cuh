// What the CTAs of a cluster hand each other, and clusters each other. Refuses to multiply.
//
// Nobody waits for another's having read: what is overwritten was needed for what has come since. Of
// parts of sums there are two sets in turn, because a cluster without a key head may be a layer behind.
#pragma once
#include "product.cuh"

enum Exchange { HIDDEN_IN, HEADS_IN, PARTS_IN, HIDDEN_AGAIN, GATED_IN, EXCHANGES };

constexpr int TEAM = 2, TEAMS = WARPS / TEAM;  // The warps of a team share queries, and look at the same positions.
constexpr int QUERIES = GROUP / TEAM;          // of a token, that a warp has
constexpr int HEAD_ROWS = 32 + 16;             // of queries, and of keys and values, that a CTA projects
constexpr int PART = HEAD_DIM + 4;             // sums, the highest score, the total of weights

// All but the ring.
template <int TOKENS>
struct Beside {
    // Tokens as `Sums` takes them, eight numbers longer, to lie in different banks. Hidden states times the norm's weight.
    alignas(16) Half hidden[TOKENS][HIDDEN + 8];
    alignas(16) Half attended[TOKENS][GROUP * HEAD_DIM + 8];
    alignas(16) Half gated[TOKENS][64 * MOST_BLOCKS + 8];
    alignas(16) float heads[TOKENS][HEADS * HEAD_DIM];  // queries, keys, values
    alignas(16) float parts[RANKS][TOKENS * GROUP][PART];
    alignas(16) float team_parts[TEAMS][TOKENS * GROUP][PART];
    alignas(16) Half angles[TOKENS][2][HEAD_DIM];
    float head_sums[WARPS][HEAD_ROWS][TOKENS];
    float squares[TOKENS][RANKS * WARPS];
    long long positions[TOKENS];
    Layer layers[LAYERS];
    Bits exchange[EXCHANGES];
};

template <int STAGES>
struct Streamed {
    Ring<STAGES> ring;
};

// As many as there is room for.
template <int TOKENS>
constexpr int STAGES = (SHARED_BYTES - sizeof(Beside<TOKENS>) - 1024) / (STAGE_BYTES + 2 * sizeof(Bits));

template <int TOKENS>
struct Shared : Streamed<STAGES<TOKENS>>, Beside<TOKENS> {};

template <int TOKENS>
struct Member {
    static_assert(sizeof(Shared<TOKENS>) <= SHARED_BYTES, "as much as the host asks for");

    Shared<TOKENS>& shared;
    Share share;
    int warp, lane;
    float eps;
    unsigned stage = 0, known = 0;  // the ring's next one, and how many have been asked for

    __device__ __forceinline__ int column() const { return RANK_ROWS * share.rank + threadIdx.x; }

    __device__ __forceinline__ const unsigned char* wait(unsigned number) { return shared.ring.wait(number, known); }

    __device__ __forceinline__ unsigned bytes_of(Exchange which) const {
        if (which == HEADS_IN) return TOKENS * RANKS * HEAD_ROWS * 4;
        if (which == PARTS_IN) return TOKENS * RANKS * GROUP * (HEAD_DIM + 2) * 4;
        if (which == GATED_IN) return TOKENS * share.blocks * 128;
        return TOKENS * (2 * HIDDEN + RANKS * WARPS * 4);
    }

    __device__ void set_up() {
        shared.ring.set_up();
        for (int i = 0; i < EXCHANGES; ++i) {
            set_up_barrier(&shared.exchange[i]);
            expect(&shared.exchange[i], bytes_of(Exchange(i)));
        }
        show_barriers();
    }

    // For the how manieth time, counted from 0.
    __device__ __forceinline__ void await(Exchange which, int time) {
        wait_for(&shared.exchange[which], time % 2);
        if (threadIdx.x == 0) expect(&shared.exchange[which], bytes_of(which));
    }

    template <class... Words>
    __device__ __forceinline__ void send_to(int peer, const void* goal, Exchange which, Words... words) {
        send(place_of(goal, peer), words..., place_of(&shared.exchange[which], peer));
    }

    // Hidden states of this thread's column, to all CTAs of the cluster.
    __device__ __forceinline__ void share_hidden(const float (&hidden)[TOKENS], Half gamma, Exchange which) {
        Half* goal = &shared.hidden[0][RANK_ROWS * share.rank + 32 * warp + lane % 4 * 8];
#pragma unroll
        for (int token = 0; token < TOKENS; ++token) {
            unsigned scaled = half_of(hidden[token] * float_of(gamma));
            scaled |= __shfl_down_sync(~0u, scaled, 1) << 16;
            Line line;
#pragma unroll
            for (int i = 0; i < 4; ++i) line.words[place_in_unit(i)] = __shfl_sync(~0u, scaled, lane % 4 * 8 + 2 * i);
            send_to(lane / 4, goal + token * (HIDDEN + 8), which, line);
            float squares = sum_of_warp(hidden[token] * hidden[token]);
            if (lane < RANKS)
                send_to(lane, &shared.squares[token][WARPS * share.rank + warp], which, __float_as_uint(squares));
        }
    }

    // What a product of shared hidden states is still to be multiplied by.
    __device__ __forceinline__ float norm_of(int token) const {
        float squares = sum_of_warp(shared.squares[token][lane] + shared.squares[token][lane + 32]);
        return rsqrtf(squares / HIDDEN + eps);
    }

    // This cluster's part of 16 rows of a sum over COUNT clusters, [TOKENS, COUNT, HIDDEN].
    template <int COUNT>
    __device__ __forceinline__ void leave_part(uint2* parts, const Sums<TOKENS>& sums, int row, unsigned tag) const {
        int token = lane % 4;
        uint2* goal = parts + (token * COUNT + share.cluster) * HIDDEN + RANK_ROWS * share.rank + row + lane / 4;
        if (token < TOKENS) {
            store_tagged(goal, sums.first(), tag);
            store_tagged(goal + 8, sums.second(), tag);
        }
    }

    // Wait for all parts of this thread's column, and add them in their order.
    template <int COUNT>
    __device__ __forceinline__ void add_parts(float (&hidden)[TOKENS], const uint2* parts, unsigned tag) const {
#pragma unroll
        for (int token = 0; token < TOKENS; ++token, parts += COUNT * HIDDEN) {
            uint2 all[COUNT];
#pragma unroll
            for (int i = 0; i < COUNT; ++i) all[i] = load_tagged(parts + i * HIDDEN + column());
            for (;;) {
                bool there = true;
#pragma unroll
                for (int i = 0; i < COUNT; ++i) there = there && all[i].y == tag;
                if (__all_sync(~0u, there)) break;
#pragma unroll
                for (int i = 0; i < COUNT; ++i)
                    if (all[i].y != tag) all[i] = load_tagged(parts + i * HIDDEN + column());
            }
            float sum = 0.0f;
#pragma unroll
            for (int i = 0; i < COUNT; ++i) sum += __uint_as_float(all[i].x);
            hidden[token] = rounded(hidden[token] + sum);
        }
    }

    // Take this warp's first stage of tiles before the hidden states are there, so that another one may come.
    template <int APART, int MORE_ROWS>
    __device__ __forceinline__ void hold(Held<8>& held, int tiles) {
        if (warp >= tiles) return;
        held.template load<APART, MORE_ROWS>(wait(stage + warp));
        shared.ring.release(stage + warp);
    }

    // Tiles of 16 rows with hidden states, each warp's in turn: use(which tile, its sums). Begins with what `hold` took.
    template <bool HELD, int APART, int MORE_ROWS, class Use>
    __device__ __forceinline__ void multiply_tiles(const Held<8>& held, int tiles, Use use) {
        Sums<TOKENS> sums;
        if (HELD && warp < tiles) sums.add_held(held, shared.hidden[0], HIDDEN + 8);
        int quarter = HELD;
#pragma unroll 1
        for (int first = 0; first < tiles; first += WARPS) {
            int count = min(WARPS, tiles - first);
#pragma unroll 1
            for (; quarter < 4 && warp < count; ++quarter) {
                unsigned number = stage + quarter * count + warp;
                sums.template add<8, APART, MORE_ROWS>(wait(number), &shared.hidden[0][512 * quarter], HIDDEN + 8);
                shared.ring.release(number);
            }
            if (warp < count) use(first + warp, sums);
            sums = Sums<TOKENS>();
            quarter = 0;
            stage += 4 * count;
        }
    }
};
