// Verification in one launch: CTAs draw tasks from a queue until none is left. Rows are streamed in
// the order of their place in the draft, so that rows behind a rejection are mostly never read.
#include "tasks.cuh"

__device__ inline void stream(const Params& p, const Workspace& w, const Task& task) {
    const int warp = static_cast<int>(threadIdx.x) / LANES;
    const int num_blocks = num_blocks_of(p.vocab_size);
    int block = task.begin + warp;
    const int target_end = task.end < num_blocks ? task.end : num_blocks;
    const Adjustment adjustment =
        ADJUSTED ? adjustment_of(p, task.request.index, task.request.slot, task.row) : Adjustment{};
    const i64 row = task.request.start + task.row;
    stream_blocks(target_row(p, row, ADJUSTED ? &adjustment : nullptr), target_stats(p, w, row),
                  block, target_end, task.target_scale);
    if (!DENSE || task.end <= num_blocks) return;
    while (block < num_blocks) block += WARPS;
    stream_blocks(draft_row(p, task.request.slot, task.row),
                  draft_stats(p, w, task.request.index, task.row),
                  block - num_blocks, task.end - num_blocks, task.draft_scale);
}

__device__ inline void publish(
    const Params& p, const Workspace& w, const Control& control, const Request& request,
    const Decision& decision) {
    if (threadIdx.x == 0) {
        w.decisions[request.index] = decision;
        store_release(control.decided + request.index, 1u);
    }
}

__device__ COLD void judge(
    const Params& p, const Workspace& w, const Control& control, Shared& shared,
    const Task& task) {
    const Request& request = task.request;
    u64 before, after;
    judge_row(p, w, control, shared, request, task.row, &before, &after);
    if (is_decided(before, request.num_rows) || !is_decided(after, request.num_rows)) return;
    const Decision decision = decide(p, w, request, after);
    if (p.residual_chunks) publish(p, w, control, request, decision);
    if (decision.ending != FROM_RESIDUAL)
        finish_without_residual(p, w, shared, request, decision);
    else if (!p.residual_chunks)
        finish_from_residual(p, w, shared, request, decision, false);
}

// Waits for the request's decision. True if this CTA finished its last share of a residual.
__device__ inline bool compute_residual(
    const Params& p, const Workspace& w, const Control& control, Shared& shared,
    const Request& request, int share, Decision* decision) {
    if (threadIdx.x == 0)
        while (!load_acquire(control.decided + request.index)) pause();
    everyone().sync();
    *decision = load_fresh(w.decisions + request.index);
    if (decision->ending != FROM_RESIDUAL) return false;
    const int num_blocks = num_blocks_of(p.vocab_size);
    const i64 total = static_cast<i64>(num_blocks) * decision->num_rows;
    const i64 begin = total * share / p.residual_chunks;
    const i64 end = total * (share + 1) / p.residual_chunks;
    const float products = POLICY == BLOCK ? block_products(w, request, decision->kept) : 0.0f;
    for (int i = static_cast<int>(begin / num_blocks); i * static_cast<i64>(num_blocks) < end; ++i) {
        const i64 first = static_cast<i64>(i) * num_blocks;
        const int from = begin > first ? static_cast<int>(begin - first) : 0;
        const int to = end - first < num_blocks ? static_cast<int>(end - first) : num_blocks;
        const float product = POLICY == BLOCK ? product_of_row(products, i) : 0.0f;
        residual_of_row(p, w, request, decision->first_row + i, product, from, to);
    }
    everyone().sync();
    if (threadIdx.x == 0) shared.flag = add_acq_rel(control.residual_tasks + request.index, 1u);
    everyone().sync();
    const bool last = shared.flag == static_cast<u32>(p.residual_chunks) - 1;
    everyone().sync();
    return last;
}

__device__ COLD void run_residual(
    const Params& p, const Workspace& w, const Control& control, Shared& shared,
    const Task& task) {
    const Request request = read_request(p, task.request.index);
    Decision decision;
    if (compute_residual(p, w, control, shared, request, task.row, &decision))
        finish_from_residual(p, w, shared, request, decision, true);
}

// Functions that are not inlined would read the launch's argument from global memory.
__device__ inline void copy_params(const Params& from, Params& to) {
    constexpr int words = sizeof(Params) / sizeof(u64);
    for (int i = threadIdx.x; i < words; i += THREADS)
        reinterpret_cast<u64*>(&to)[i] = reinterpret_cast<const u64*>(&from)[i];
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS, CTAS_PER_MULTIPROCESSOR)
    verify(const __grid_constant__ Params p) {
    __shared__ Shared shared;
    __shared__ Params params;
    __shared__ Queue queue;
    __shared__ u32 epoch;
    __shared__ u64 scratch_bytes[SELECTS ? 2 * sizeof(Scratch) / sizeof(u64) : 1];
    const Workspace w = workspace_of(p);
    const bool schedules = threadIdx.x >= THREADS;
    Ticket ticket = {};
    if (threadIdx.x == 0) shared.scratch = reinterpret_cast<Scratch*>(scratch_bytes);
    if (schedules) {
        ticket = open_queue(p, queue);
        if (lane_id() == 0) epoch = ticket.epoch;
    } else {
        copy_params(p, params);
    }
    for (int turn = 0;; ++turn) {
        __syncthreads();
        const Task& task = queue.turns[turn & 3];
        if (task.kind == LEAVE) return;
        const Control control = control_of(p, epoch);
        if (schedules) {
            if (turn == 0) clear_other_set(p, epoch);
            put_next_task(p, control, queue, ticket, turn);
        } else if (task.kind == STREAM) {
            stream(p, w, task);
        } else if (task.kind == JUDGE) {
            judge(params, w, control, shared, task);
        } else if (task.kind == RESIDUAL) {
            run_residual(params, w, control, shared, task);
        }
    }
}
