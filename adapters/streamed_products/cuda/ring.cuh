// A ring of stages through which one thread streams weights, and one tokens. Refuses to multiply.
#pragma once
#include "arguments.cuh"

// At a multiple of 1024 bytes, as its stages are then.
struct Ring {
    unsigned char rows[STAGES][BLOCKS * ROW_BYTES];
    unsigned char tokens[TOKEN_STAGES][BLOCKS][TOKEN_BYTES];
    Bits full[STAGES], empty[STAGES], tokens_full[TOKEN_STAGES], tokens_empty[TOKEN_STAGES];

    __device__ void set_up() {
        for (int i = 0; i < STAGES; ++i) {
            set_up_barrier(&full[i], 1);
            set_up_barrier(&empty[i], WARPS);
        }
        for (int i = 0; i < TOKEN_STAGES; ++i) {
            set_up_barrier(&tokens_full[i], 1);
            set_up_barrier(&tokens_empty[i], WARPS);
        }
    }
};

// A stage of a ring, and whether it comes for an even or odd time.
template <int NUMBER>
struct Turn {
    int stage = 0;
    unsigned parity = 0;

    __device__ __forceinline__ void pass() {
        if (++stage == NUMBER) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// By one thread. Weights do not wait for kernels before this one. With more than AHEAD stages on their way tokens, which
// come through the same queue, would be late.
__device__ __forceinline__ void stream_rows(Ring& ring, const Work& work) {
    const Arguments& a = work.arguments;
    Bits policy = read_once();
    Turn<STAGES> turn, come;
    int on_their_way = 0;
    for (int tile = work.first_tile; tile < a.num_tiles; tile += work.num_clusters) {
#pragma unroll 1
        for (int unit = 0; unit < a.tile_units; ++unit, turn.pass()) {
            wait_for(&ring.empty[turn.stage], turn.parity ^ 1);
            if (on_their_way++ >= AHEAD) {
                wait_for(&ring.full[come.stage], come.parity);
                come.pass();
            }
            expect(&ring.full[turn.stage], BLOCKS * ROW_BYTES);
            copy_rows(ring.rows[turn.stage], &a.rows, tile * SIXTEENS, work.first_block() + unit * BLOCKS,
                      &ring.full[turn.stage], policy);
        }
    }
}

// By one thread.
__device__ __forceinline__ void stream_tokens(Ring& ring, const Work& work) {
    const Arguments& a = work.arguments;
    Turn<TOKEN_STAGES> turn;
    await_kernels_before();
    for (int tile = work.first_tile; tile < a.num_tiles; tile += work.num_clusters) {
#pragma unroll 1
        for (int unit = 0; unit < a.tile_units; ++unit, turn.pass()) {
            wait_for(&ring.tokens_empty[turn.stage], turn.parity ^ 1);
            expect(&ring.tokens_full[turn.stage], BLOCKS * TOKEN_BYTES);
            copy_tokens(ring.tokens[turn.stage], &a.tokens, work.first_block() + unit * BLOCKS,
                        &ring.tokens_full[turn.stage]);
        }
    }
}
