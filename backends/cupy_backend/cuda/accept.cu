// The launches before the last, for policies that read rows again: block verification needs the masses of
// residuals; lossy policies need entropies, near-best tokens and what they change, one after the other.
#include "lossy.cuh"

// Masses of a piece of a row's residual, if block verification may keep the tokens before the row.
__device__ COLD void weigh_residual(
    const Params& p, const Request& request, int row, const Piece& piece) {
    __shared__ float products[MAX_ROWS];
    const int kept = end_of(p, request);
    if (row >= kept || request.strict) return;
    if (warp_id() == 0) find_products(p, request, kept, products);
    __syncthreads();
    if (accepts(uniform_of(request, kept - 1), products[kept])) return;
    if (!may_keep(request, row, products[row])) return;
    const Pair pair(p, request, row, p.facts[place_of(p, request, row)], products[row]);
    const Residual residual = pair.residual;
    const Row target = pair.target.row, draft = unchanged(pair.draft);
    float* masses = p.residuals + (request.index * p.max_spec_len + row) * num_blocks_of(p.vocab_size);
    const Mass* stats = target_stats_of(p, request, row);
    for (int block = piece.begin + thread_id(); block < piece.end; block += CTA_THREADS) masses[block] = 0.0f;
    __syncthreads();
    const auto weigh = [&](int block, const float(&ours)[PER_LANE], const float(&theirs)[PER_LANE]) {
        const float mass = residual_mass(residual, block, ours, theirs);
        if (lane_id() == 0) masses[block] = mass;
    };
    const float threshold = residual.target_law.threshold;
    if (pair.dense) visit_beside<true>(target, draft, stats, piece, threshold, weigh);
    else visit_beside<false>(target, draft, stats, piece, threshold, weigh);
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS, 1024 / CTA_THREADS)
    accept(const __grid_constant__ Params p) {
    __shared__ Finding finding;
    let_next_launch_begin();
    const int num_blocks = num_blocks_of(p.vocab_size), size = static_cast<int>(p.residual_blocks);
    const int pieces = (num_blocks + size - 1) / size;
    const int part = static_cast<int>(blockIdx.x) % pieces, index = static_cast<int>(blockIdx.x) / pieces;
    const int row = static_cast<int>(blockIdx.y) + (p.policy == BLOCK);
    const Piece piece = {part * size, (part + 1) * size < num_blocks ? (part + 1) * size : num_blocks};
    const Request request = read_request(p, index);
    wait_for_launch_before();
    if (p.policy == BLOCK) weigh_residual(p, request, row, piece);
    else if (row < request.num_drafts && !request.strict)
        look_leniently(p, finding, request, row, piece, pieces);
}
