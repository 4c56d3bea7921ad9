// Sums of a tile: how they are found, and added up across a cluster. Refuses to know what becomes of them.
#pragma once
#include "ring.cuh"

// Of a thread's sums those that the CTAs of the cluster have found.
typedef float4 Inbox[SPLITS][SPLITS > 1 ? OWN / 4 : 1][CONSUMERS];
constexpr int INBOX_BYTES = (SPLITS - 1) * (OWN / 4) * CONSUMERS * 16;

struct Sums {
    float of[SUMS];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < SUMS; ++i) of[i] = 0;
    }

    // Products of a stage that has come.
    __device__ __forceinline__ void add(const Ring& ring, int stage, int token_stage) {
        constexpr int EIGHT = BLOCKS * 1024;  // lines of rows, and of all blocks
        unsigned first = shared_address(ring.rows[stage]) + threadIdx.x / 128 * 8 * EIGHT;
        begin_products();
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) {
            Bits rows = lines_at(first + block * 1024, EIGHT);
            Bits tokens = lines_at(shared_address(ring.tokens[token_stage][block]), 1024);
#pragma unroll
            for (int step = 0; step < COLUMNS / 16; ++step) multiply_add(of, rows + 2 * step, tokens + 2 * step);
        }
        end_products();
        await_products();
    }

    // To each CTA what it ends, if it ends any.
    __device__ __forceinline__ void send_others(Inbox& inbox, const Bits* come, int rank) const {
#pragma unroll
        for (int to = 0; to < ENDERS; ++to) {
            if (to == rank) continue;
            unsigned barrier = place_of(come, to);
#pragma unroll
            for (int i = 0; i < OWN; i += 4) {
                const float* four = of + to * OWN + i;
                send(place_of(&inbox[rank][i / 4][threadIdx.x], to), four[0], four[1], four[2], four[3], barrier);
            }
        }
    }

    // What this CTA ends, added up in the order of ranks, to the front.
    __device__ __forceinline__ void gather(const Inbox& inbox, int rank) {
        float own[OWN];
#pragma unroll
        for (int i = 0; i < OWN; ++i) own[i] = 0;
#pragma unroll
        for (int from = 0; from < SPLITS; ++from)
#pragma unroll
            for (int i = 0; i < OWN; i += 4) {
                const float* mine = of + from % ENDERS * OWN + i;  // where from is this rank
                float4 four = make_float4(mine[0], mine[1], mine[2], mine[3]);
                if (from != rank) four = inbox[from][i / 4][threadIdx.x];
                own[i] += four.x, own[i + 1] += four.y, own[i + 2] += four.z, own[i + 3] += four.w;
            }
#pragma unroll
        for (int i = 0; i < OWN; ++i) of[i] = own[i];
    }
};
