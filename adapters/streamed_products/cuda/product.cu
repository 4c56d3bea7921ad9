// A matrix times up to TOKENS tokens, and what lies before and behind. All CTAs have even shares of the matrix; one
// thread of each streams its share through shared memory, and begins to before the kernel before has ended.
#include "finish.cuh"

struct Turns {
    Turn<STAGES> rows;
    Turn<TOKEN_STAGES> tokens;
};

__device__ __forceinline__ void multiply(Sums& sums, Ring& ring, Turns& turns, int units) {
    sums.clear();
#pragma unroll 1
    for (int i = 0; i < units; ++i) {
        wait_for(&ring.tokens_full[turns.tokens.stage], turns.tokens.parity);
        wait_for(&ring.full[turns.rows.stage], turns.rows.parity);
        sums.add(ring, turns.rows.stage, turns.tokens.stage);
        if (threadIdx.x % 32 == 0) {
            arrive(&ring.empty[turns.rows.stage]);
            arrive(&ring.tokens_empty[turns.tokens.stage]);
        }
        turns.rows.pass();
        turns.tokens.pass();
    }
}

// Of a split tile, which is the cluster's only one. Whether this CTA ends some of its tokens.
__device__ __forceinline__ bool exchange(Sums& sums, Shared& shared, int rank) {
    await_cluster();
    sums.send_others(shared.inbox, &shared.come, rank);
    if (rank >= ENDERS) return false;
    wait_for(&shared.come, 0);
    sums.gather(shared.inbox, rank);
    return true;
}

template <Way CHOSEN>
__device__ __forceinline__ void consume(const Work& work, Shared& shared) {
    const Arguments& a = work.arguments;
    await_kernels_before();
    Turns turns;
    Sums sums;
#pragma unroll 1
    for (int tile = work.first_tile; tile < a.num_tiles; tile += work.num_clusters) {
        multiply(sums, shared.ring, turns, a.tile_units);
        if (SPLITS > 1 && !exchange(sums, shared, work.rank)) return;
        wait_for(&shared.found, 0);
        Finish<CHOSEN>{a, shared, tile, work.rank}.run(sums);
    }
}

template <>
__device__ __forceinline__ void consume<ADD>(const Work& work, Shared& shared) {
    const Arguments& a = work.arguments;
    await_kernels_before();
    Turns turns;
    Sums sums;
#pragma unroll 1
    for (int tile = work.first_tile; tile < a.num_tiles; tile += work.num_clusters) {
        Old old;
        old.ask(a, tile, work.rank);
        multiply(sums, shared.ring, turns, a.tile_units);
        if (SPLITS > 1 && !exchange(sums, shared, work.rank)) return;
        Finish<ADD>{a, shared, tile, work.rank}.run(sums, old);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) product(const __grid_constant__ Arguments arguments) {
    DYNAMIC_SHARED(memory)
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    let_next_begin();
    Work work(arguments);
    if (threadIdx.x == CONSUMERS) {
        expect_map(&arguments.rows);
        expect_map(&arguments.tokens);
        shared.set_up();
    }
    __syncthreads();
    if (SPLITS > 1) arrive_in_cluster();
    if (threadIdx.x < CONSUMERS) {
        consume<WAY>(work, shared);
    } else if (threadIdx.x == CONSUMERS) {
        stream_rows(shared.ring, work);
    } else if (threadIdx.x == CONSUMERS + 32) {
        stream_tokens(shared.ring, work);
    } else if (WAY != ADD && threadIdx.x >= THREADS - FINDERS) {
        find_norms(arguments, shared);
    }
}
