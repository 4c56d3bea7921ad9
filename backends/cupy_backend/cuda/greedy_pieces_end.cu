// The second launch behind greedy_pieces.cu: a CTA a request takes the words of its rows as they come, and
// decides. It may begin when all CTAs of the first have begun, so that those go on whatever it waits for.
#include "bests.cuh"
#include "finish_announced.cuh"

// The best word of a row, when all have come. By a warp.
__device__ inline u64 take_best(const Params& p, u64* words) {
    const bool mine = lane_id() < p.group;
    u64 word = mine ? 0 : LEFT_OUT;
    do load_relaxed_if(mine, words + lane_id(), word);
    while (!__all_sync(ALL_LANES, word != 0));
    const u64 best = warp_reduce(word, Max{});
    if (mine) store_relaxed(words + lane_id(), 0);
    return best;
}

// A row's largest logit and its first token, unless the row was left out. By a warp.
__device__ inline void take_token(const Params& p, Shared& shared, int row) {
    const u64 best = take_best(p, rivals_of(p, shared.request.index, row));
    if (lane_id() > 0) return;
    const float max = has_token(best) ? logit_of_best(best) : -INFINITY;
    shared.target_laws[row] = {max, max, shared.request.scale, 0.0f};
    shared.tokens[row] = token_of_best(best);
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS, CTAS_PER_MULTIPROCESSOR)
    greedy_pieces_end(const __grid_constant__ Params p) {
    __shared__ Shared shared;
    if (warp_id() == 0) {
        const Request request = read_request(p, blockIdx.x, shared.drafts);
        if (lane_id() == 0) shared.request = request;
    }
    copy_params(p, shared);
    meet_in_cta();
    const int num_rows = shared.request.num_rows;
    const Emission emission = Emission::of(shared);
#pragma unroll 1
    for (int row = warp_id(); row < num_rows; row += CTA_WARPS) take_token(p, shared, row);
    meet_in_cta();
    if (warp_id() == 0 && Emission::has_room(p)) {
        emission.write(shared, num_rows);
    } else if (warp_id() == 0) {
        Verdict verdict = PASSES;
        const int failed = first_failure(shared, 0, num_rows, verdict);
        end_with(shared, decide(p, shared, failed, verdict));
    }
    // What follows in the stream may overwrite what CTAs without a word to tell still read.
    if (thread_id() == 0) wait_for_launch_before();
}
