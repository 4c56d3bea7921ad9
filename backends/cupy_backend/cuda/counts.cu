// The launch behind the thresholds: a CTA a row that was left open counts its logits.
#include "judge_pair.cuh"
#include "thresholds.cuh"

extern "C" __global__ void __launch_bounds__(CTA_THREADS, 1024 / CTA_THREADS)
    counts(const __grid_constant__ Params p) {
    __shared__ Scratch scratch;
    __shared__ PairInHand hand;
    let_next_launch_begin();
    const int row = static_cast<int>(blockIdx.y) / (p.dense ? 2 : 1);
    const bool is_draft = p.dense && blockIdx.y % 2;
    const Request request = read_request(p, blockIdx.x);
    wait_for_launch_before();
    if (row >= request.num_rows || (is_draft && !request.has_draft_row(row))) return;
    const u32 low_key = p.facts[place_of(p, request, row)].low_keys[is_draft];
    if (low_key == CLOSED) return;
    if (!is_behind_end(p, request, row)) {
        const TargetRow target(p, request, row);
        const Row logits = logits_of(p, request, target, row, is_draft);
        const Mass* stats = hand.kept.keep(stats_of(p, request, row, is_draft), logits.num_blocks());
        __syncthreads();
        const Law law = find_law_of_many(
            scratch, logits, stats,
            filters_of(is_draft ? p.draft : p.target, request.index, logits.num_ids),
            key_float(low_key));
        if (thread_id() == 0) told_law(p, request, row, is_draft) = law;
    }
    complete_pair(hand, p, request, row);
}
