// The launch before the last, for policies that look at rows again: block verification asks for what
// residuals weigh, lossy policies for entropies, near-best tokens and what they change.
#include "lossy.cuh"

// Masses of a piece of a row's residual, if block verification may keep the tokens before the row.
__device__ COLD void weigh_residual(const Params& p, const Request& request, int row, int part) {
    __shared__ float products[MAX_ROWS];
    const int kept = end_of(p, request);
    if (row >= kept || request.strict) return;
    if (warp_id() == 0) find_products(p, request, kept, products);
    __syncthreads();
    if (accepts(uniform_of(request, kept - 1), products[kept])) return;
    if (!may_keep(request, row, products[row])) return;
    const Pair pair(p, request, row, p.facts[place_of(p, request, row)], products[row]);
    const Residual residual = pair.residual;
    const int num_blocks = num_blocks_of(p.vocab_size), size = static_cast<int>(p.residual_blocks);
    const int end = (part + 1) * size < num_blocks ? (part + 1) * size : num_blocks;
    float* masses = p.residuals + (request.index * p.max_spec_len + row) * num_blocks;
    const Mass* stats = target_stats_of(p, request, row);
    for (int block = part * size + warp_id(); block < end; block += CTA_WARPS) {
        const bool is_kept = load_max(stats + block) >= residual.target_law.threshold;
        const float mass = is_kept ? residual_mass(pair, residual, block) : 0.0f;
        if (lane_id() == 0) masses[block] = mass;
    }
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS, 1024 / CTA_THREADS)
    accept(const __grid_constant__ Params p) {
    __shared__ Finding finding;
    __shared__ bool behind;
    let_next_launch_begin();
    const int size = static_cast<int>(p.residual_blocks);
    const int pieces = p.policy == BLOCK ? (num_blocks_of(p.vocab_size) + size - 1) / size : 1;
    const int part = static_cast<int>(blockIdx.x) % pieces, index = static_cast<int>(blockIdx.x) / pieces;
    const int row = static_cast<int>(blockIdx.y) + (p.policy == BLOCK);
    const Request request = read_request(p, index);
    wait_for_launch_before();
    if (p.policy == BLOCK) {
        weigh_residual(p, request, row, part);
        return;
    }
    if (row >= request.num_drafts || request.strict) return;
    // Other rows publish their ends meanwhile, but all threads must find the same.
    if (thread_id() == 0) behind = is_behind_end(p, request, row);
    __syncthreads();
    if (behind) return;
    if (p.facts[place_of(p, request, row)].verdict == PASSES)
        judge_leniently(p, finding, request, row);
}
