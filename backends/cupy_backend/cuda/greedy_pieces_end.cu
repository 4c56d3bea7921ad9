// The second launch behind greedy_pieces.cu: a CTA a request takes the words of its rows as they come, reads the
// best block of each row, and decides. It may begin when all CTAs of the first have begun, so that those go on
// whatever it waits for.
#include "bests.cuh"
#include "finish_announced.cuh"

// The best word of a row, when all have come. By a warp.
__device__ inline u64 take_best(const Params& p, u64* words) {
    const bool mine = lane_id() < p.group;
    u64 word = mine ? 0 : LEFT_OUT;
    do load_relaxed_if(mine, words + lane_id(), word);
    while (!__all_sync(ALL_LANES, word != 0));
    if (mine) store_relaxed(words + lane_id(), 0);
    return warp_reduce(word, Max{});
}

// The first token of a block that has its largest logit. By a warp.
__device__ inline u32 first_token(int block, float max, const float (&logits)[PER_LANE]) {
    u32 token = ~0u;
#pragma unroll
    for (int j = PER_LANE - 1; j >= 0; --j)
        if (logits[j] == max) token = static_cast<u32>(id_of(block, lane_id(), j));
    return __reduce_min_sync(ALL_LANES, token);
}

// A row's largest logit and its first token. By a warp; a row that was left out has neither.
__device__ inline void find_token(const Params& p, Shared& shared, int row) {
    const u64 best = take_best(p, rivals_of(p, shared.request.index, row));
    Law law = {-INFINITY, -INFINITY, shared.request.scale, 0.0f};
    u32 token = ~0u;
    if (has_block(best)) {
        const int block = block_of_best(best);
        float logits[PER_LANE];
        load_block(target_row(p, shared.request, row), block, logits);
        law.max = law.threshold = block_max(logits);
        token = first_token(block, law.max, logits);
    }
    if (lane_id() > 0) return;
    shared.target_laws[row] = law;
    shared.tokens[row] = static_cast<int>(token);
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
#pragma unroll 1
    for (int row = warp_id(); row < num_rows; row += CTA_WARPS) find_token(p, shared, row);
    meet_in_cta();
    if (warp_id() == 0) {
        Verdict verdict = PASSES;
        const int failed = first_failure(p, shared, 0, num_rows, verdict);
        end_with(shared, decide(p, shared, failed, verdict));
    }
    // What follows in the stream may overwrite what CTAs without a word to tell still read.
    if (thread_id() == 0) wait_for_launch_before();
}
