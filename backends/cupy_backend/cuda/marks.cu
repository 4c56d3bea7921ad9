// The launch before rows are read where some request has bias or penalties: once for all rows of a
// request, a few bits for each id say whether anything is done to it.
#include "request.cuh"

constexpr int BLOCKS_EACH = 4;  // of a warp

extern "C" __global__ void __launch_bounds__(CTA_THREADS, 1024 / CTA_THREADS)
    marks(const __grid_constant__ Params p) {
    const i64 index = blockIdx.x, slot = p.slots.data ? integer_at(p.slots, index) : index;
    const int num_blocks = static_cast<int>((p.vocab_size + BLOCK_SIZE - 1) / BLOCK_SIZE);
    const Adjustment a = changes_of(p, index, slot, static_cast<int>(p.max_spec_len));
    const int first = (static_cast<int>(blockIdx.y) * CTA_WARPS + warp_id()) * BLOCKS_EACH;
    u32* to = p.marks + (index * num_blocks + first) * LANES + lane_id();
#pragma unroll 2
    for (int i = 0; i < BLOCKS_EACH; ++i)
        if (first + i < num_blocks)
            to[i * LANES] = marks_in(a, first + i, static_cast<int>(p.vocab_size));
}
