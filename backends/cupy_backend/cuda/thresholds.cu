// The launch behind the statistics where some request has a filter: a CTA a row finds its law, if few of
// its logits may be kept.
#include "judge_pair.cuh"
#include "thresholds.cuh"

extern "C" __global__ void __launch_bounds__(CTA_THREADS, 1024 / CTA_THREADS)
    thresholds(const __grid_constant__ Params p) {
    __shared__ Scratch scratch;
    __shared__ PairInHand hand;
    let_next_launch_begin();
    const int row = static_cast<int>(blockIdx.y) / (p.dense ? 2 : 1);
    const bool is_draft = p.dense && blockIdx.y % 2;
    const Request request = read_request(p, blockIdx.x);
    wait_for_launch_before();
    if (row >= request.num_rows || (is_draft && !request.has_draft_row(row))) return;
    RowFacts& told = p.facts[place_of(p, request, row)];
    if (thread_id() == 0) told.low_keys[is_draft] = CLOSED;
    if (!is_behind_end(p, request, row)) {
        const TargetRow target(p, request, row);
        const Row logits = logits_of(p, request, target, row, is_draft);
        const Mass* stats = hand.kept.keep(stats_of(p, request, row, is_draft), logits.num_blocks());
        __syncthreads();
        const FoundLaw found = find_law_of_few(
            scratch, logits, stats,
            filters_of(is_draft ? p.draft : p.target, request.index, logits.num_ids));
        if (thread_id() == 0) {
            told_law(p, request, row, is_draft) = found.law;
            if (found.open) told.low_keys[is_draft] = float_key(found.low);
        }
        if (found.open) return;
    }
    complete_pair(hand, p, request, row);
}
