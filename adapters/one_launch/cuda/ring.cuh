// A ring of stages through which one thread streams all weights to the warps that multiply, in the
// order in which they need them. A stage is one warp's. Refuses to multiply.
#pragma once
#include "sizes.cuh"

constexpr int STAGE_BYTES = 16 * 1024;
static_assert(MOST_BLOCKS <= 16, "half of the blocks of down fit a stage");

// How each matrix of a layer is cut; `down` in boxes of one block, of two, and so on.
enum MapOf { QKV, OUTPUT, GATE_UP, DOWN, MAPS = DOWN + 8 };

template <int STAGES>
struct Ring {
    alignas(1024) unsigned char stages[STAGES][STAGE_BYTES];
    Bits full[STAGES], empty[STAGES];
    unsigned asked;  // how many stages have been asked for

    __device__ void set_up() {
        asked = 0;
        for (int i = 0; i < STAGES; ++i) {
            set_up_barrier(&full[i]);
            set_up_barrier(&empty[i]);
        }
    }

    // A barrier tells phases by being odd or even, so nobody may look more than a phase ahead.
    __device__ __forceinline__ const unsigned char* wait(unsigned number, unsigned& known) {
        while (known <= number) known = load_anew(&asked);
        wait_for(&full[number % STAGES], number / STAGES % 2);
        return stages[number % STAGES];
    }

    __device__ __forceinline__ void release(unsigned number) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(&empty[number % STAGES]);
    }

};

// A stage of the ring, and whether it comes for an even or odd time.
template <int STAGES>
struct Turn {
    unsigned stage = 0, parity = 0;

    __device__ __forceinline__ void pass() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

template <int STAGES>
struct Stream {
    Ring<STAGES>& ring;
    const Share& share;
    Bits policy;
    unsigned number = 0;
    Turn<STAGES> next, last;  // to be filled, and to have come before that is

    // Have the next stage filled, with so many bytes, by copy_to(goal, barrier).
    template <class CopyTo>
    __device__ __forceinline__ void fill(int bytes, CopyTo copy_to) {
        if (number >= STAGES_AHEAD) {
            wait_for(&ring.full[last.stage], last.parity);
            last.pass();
        }
        wait_for(&ring.empty[next.stage], next.parity ^ 1);
        expect(&ring.full[next.stage], bytes);
        store_at_once(&ring.asked, ++number);
        copy_to(ring.stages[next.stage], &ring.full[next.stage]);
        next.pass();
    }

    // 256 columns of 16 rows and of 16 others, in boxes of 8 rows.
    __device__ __forceinline__ void fill_boxes(const Map* map, int row, int others, int block) {
        fill(STAGE_BYTES, [&](unsigned char* goal, const Bits* barrier) {
            for (int i = 0; i < 4; ++i)
                copy(goal + i * STAGE_BYTES / 4, map, (i < 2 ? row : others) + i % 2 * 8, block, barrier, policy);
        });
    }

    __device__ __forceinline__ void fill_heads(const Map* maps) {
        // Of half a head, dimensions that are rotated together.
        int queries = (GROUP * share.cluster + share.rank / 2) * HEAD_DIM + share.rank % 2 * 16;
        int keys = (QUERY_HEADS + share.cluster) * HEAD_DIM + 8 * share.rank, out = RANK_ROWS * share.rank;
        // Loops stay loops: this thread has few registers.
#pragma unroll 1
        for (int warp = 0; warp < WARPS; ++warp) fill_boxes(maps + QKV, queries, queries + HEAD_DIM / 2, 4 * warp);
        // Two warps' keys and values are one stage: more of what is projected at once is there at once.
#pragma unroll 1
        for (int warp = 0; warp < WARPS; warp += 2)
            fill(STAGE_BYTES, [&](unsigned char* goal, const Bits* barrier) {
                for (int i = 0; i < 4; ++i)
                    copy(goal + i * STAGE_BYTES / 4, maps + QKV, keys + i % 2 * KEY_HEADS * HEAD_DIM, 4 * (warp + i / 2),
                         barrier, policy);
            });
#pragma unroll 1
        for (int row = out; row < out + RANK_ROWS; row += 32) fill_boxes(maps + OUTPUT, row, row + 16, GROUP * share.cluster);
    }

    // Quarters of the columns of so many tiles, each warp's in turn: copy_of(tile, quarter, goal, barrier).
    template <class CopyOf>
    __device__ __forceinline__ void fill_tiles(int tiles, CopyOf copy_of) {
#pragma unroll 1
        for (int first = 0; first < tiles; first += WARPS)
#pragma unroll 1
            for (int quarter = 0; quarter < 4; ++quarter)
#pragma unroll 1
                for (int tile = first; tile < min(first + WARPS, tiles); ++tile)
                    fill(STAGE_BYTES, [&](unsigned char* goal, const Bits* barrier) {
                        copy_of(tile, quarter, goal, barrier);
                    });
    }

    __device__ __forceinline__ void fill_gate_up(const Map* map) {
        int row = 64 * share.first_block + 8 * share.blocks * share.rank;
        fill_tiles(share.blocks, [&](int tile, int quarter, unsigned char* goal, const Bits* barrier) {
            copy(goal, map, row + 8 * tile, 8 * quarter, barrier, policy);
            copy(goal + STAGE_BYTES / 2, map, INNER + row + 8 * tile, 8 * quarter, barrier, policy);
        });
    }

    __device__ __forceinline__ void fill_down(const Map* maps) {
        int first_half = (share.blocks + 1) / 2;
#pragma unroll 1
        for (int first = 0; first < RANK_ROWS / 16; first += WARPS)
#pragma unroll 1
            for (int half = 0; half < 2; ++half)
#pragma unroll 1
                for (int tile = first; tile < first + WARPS; ++tile) {
                    int blocks = half ? share.blocks - first_half : first_half;
                    fill(blocks * 2048, [&](unsigned char* goal, const Bits* barrier) {
                        copy(goal, maps + DOWN + blocks - 1, RANK_ROWS * share.rank + 16 * tile,
                             share.first_block + half * first_half, barrier, policy);
                    });
                }
    }
};

// By one thread. maps: [LAYERS, MAPS], and the LM head's.
template <int STAGES>
__device__ __forceinline__ void stream(Ring<STAGES>& ring, const Share& share, const Map* maps) {
    Stream<STAGES> out{ring, share, read_once()};
    for (int layer = 0; layer < LAYERS; ++layer, maps += MAPS) {
        expect_map(maps + OUTPUT);
        expect_map(maps + DOWN + share.blocks / 2 - 1);
        expect_map(maps + DOWN + (share.blocks + 1) / 2 - 1);
        if (share.has_head()) out.fill_heads(maps);
        out.fill_gate_up(maps + GATE_UP);
        expect_map(maps + MAPS);
        if (layer + 1 < LAYERS) expect_map(maps + MAPS + GATE_UP);
        out.fill_down(maps);
    }
    out.fill_tiles(share.tiles, [&](int tile, int quarter, unsigned char* goal, const Bits* barrier) {
        copy(goal, maps, 16 * (share.first_tile + tile), 8 * quarter, barrier, out.policy);
    });
}
