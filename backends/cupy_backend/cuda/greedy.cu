// The launch that reads rows if all requests are greedy, in place of `statistics`: only the first of a row's
// largest logits matters. The code is short, because code that runs once comes from memory: one request takes
// 30 % less time.
#include "pieces.cuh"

// The largest logit of a row.
__device__ inline float logit_of_top(u64 top) {
    return top ? key_float(static_cast<u32>(top >> 32)) : -INFINITY;
}

__device__ inline bool is_usable(u64 top) { return fabsf(logit_of_top(top)) < INFINITY; }

// Whether all rows of the request are judged now. By a warp, that knows a piece's top.
__device__ inline bool judge_piece(const Params& p, const Request& request, const Work& work, u64 piece_top) {
    const i64 place = place_of(p, request, work.row);
    if (lane_id() == 0 && piece_top) atomicMax(p.tops + place, piece_top);
    if (!is_last_warp(p.arrivals + place, work.num_pieces)) return false;
    const u64 top = __ldcg(p.tops + place);
    const bool follows = work.row == request.num_drafts;
    const bool passes = is_usable(top) && (follows || racer_id(top) == draft_of(p, request, work.row));
    if (!passes && lane_id() == 0) publish_end(p, request, work.row);
    return is_last_warp(p.judged + request.index, request.num_rows);
}

// By a warp.
__device__ inline void end_greedily(const Params& p, const Request& request) {
    const int end = end_of(p, request);
    u64* tops = p.tops + place_of(p, request, 0);
    const u64 top = request.num_rows ? __ldcg(tops + end) : 0;
    Decision decision = {SAMPLED, end, request.status, 0.0f};
    if (!is_usable(top)) {
        const float max = request.num_rows ? logit_of_top(top) : INFINITY;
        decision.status |= flaw_of(p, request, end, max);
    }
    __syncwarp();
    for (int row = lane_id(); row < request.num_rows; row += LANES) tops[row] = 0;
    const int token = is_usable(top) ? racer_id(top) : NO_TOKEN;
    write_outputs(p, request, decision, token, LANES, [](int) { return 0.0f; });
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS, READING_THREADS / CTA_THREADS)
    greedy(const __grid_constant__ Params p) {
    let_next_launch_begin();
    visit_work(
        p, true,
        [&](const Request& request, const Work& work, bool reads) {
            u64 leader = 0;
            const TargetRow target(p, request, work.row);
            read_all(target.row, work.piece, {1.0f, true, Counting{}, nullptr, &leader, nullptr}, reads);
            leader = cta_reduce(leader, Max{});
            return warp_id() == 0 && judge_piece(p, request, work, leader);
        },
        [&](const Request& request) {
            if (warp_id() == 0) end_greedily(p, request);
        });
}
