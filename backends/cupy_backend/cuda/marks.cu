// The launch before rows are read if some request has bias or penalties: once for all rows of a request, a
// few bits for each id say whether its logit changes.
#include "request.cuh"

constexpr int MARKED_BLOCKS = 8;  // of a CTA: one per warp, because each is a chain of loads

extern "C" __global__ void __launch_bounds__(CTA_THREADS, 1024 / CTA_THREADS)
    marks(const __grid_constant__ Params p) {
    // One request leaves room for CTAs that read; with more requests these would only wait in the way.
    if (p.num_reqs == 1) let_next_launch_begin();
    const i64 index = blockIdx.x, slot = p.slot_ids.data ? integer_at(p.slot_ids, index) : index;
    const int num_blocks = static_cast<int>((p.vocab_size + BLOCK_SIZE - 1) / BLOCK_SIZE);
    const Adjustment a = changes_of(p, index, entry_of(p, index), slot, static_cast<int>(p.max_spec_len));
    const int first = static_cast<int>(blockIdx.y) * MARKED_BLOCKS;
    const int end = first + MARKED_BLOCKS < num_blocks ? first + MARKED_BLOCKS : num_blocks;
#pragma unroll 1
    for (int block = first + warp_id(); block < end; block += CTA_WARPS)
        mark_block(a, block, marks_at(p.marks, index * num_blocks + block));
}
