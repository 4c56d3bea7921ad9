// The first launch: a cluster of CTAs a row, first rows of all requests first. Who completes a target row
// and the draft row beside it judges it; who completes a request finishes it.
#include "outputs.cuh"
#include "thresholds.cuh"

extern "C" __global__ void __launch_bounds__(CTA_THREADS, 4) rows(const __grid_constant__ Params p) {
    __shared__ Scratch scratch;
    __shared__ Best best;
    __shared__ RowFacts facts;
    let_next_launch_begin();
    const Team team = {static_cast<int>(p.cluster_size), cluster_rank()};
    const Request request = read_request(p, blockIdx.x / p.cluster_size);
    const int row = static_cast<int>(blockIdx.y) / (p.dense ? 2 : 1);
    const bool is_draft = p.dense && blockIdx.y % 2;
    const bool exists = row < request.num_rows && (!is_draft || request.has_draft_row(row));
    // Each CTA for itself: what one has seen, the leader sees at the latest when all are together.
    const bool read = exists && !(p.may_skip && __syncthreads_or(is_behind_end(p, request, row)));
    if (exists) {
        const TargetRow target(p, request, row);
        const Row logits = is_draft ? draft_row(p, request, row) : target.row;
        const Law law = law_by_cluster(
            scratch, p, team, logits, is_draft ? &p.draft : &p.target, request.index, !is_draft && request.greedy, read,
            is_draft ? draft_stats_of(p, request, row) : target_stats_of(p, request, row),
            [&] { return is_behind_end(p, request, row); });
        if (team.leads() && thread_id() == 0) told_law(p, request, row, is_draft) = law;
    }
    if (!team.leads()) return;
    if (exists) complete_pair(best, facts, p, request, row);
    if (!p.finishes) return;
    RowFacts* all = reinterpret_cast<RowFacts*>(asked_shared_memory());
    finish(best, p, request, gridDim.y, all, reinterpret_cast<float*>(all + p.max_spec_len + 1));
}
