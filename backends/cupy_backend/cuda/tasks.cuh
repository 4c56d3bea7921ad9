// The queue: what one CTA does next. Tickets are drawn in order and a task waits only for tasks
// with earlier tickets, which running CTAs hold, so waiting always ends.
#pragma once
#include "finish.cuh"

enum TaskKind { STREAM, JUDGE, RESIDUAL, NOTHING, LEAVE };

struct Task {
    int kind;
    int row;  // of the request; under RESIDUAL the task's share
    int begin;
    int end;  // blocks of the target row, then of the draft row
    Request request;
    float target_scale;
    float draft_scale;
    u32 num_tasks;  // of this row
};

__device__ inline u32 num_streaming(const Params& p) {
    return static_cast<u32>(p.num_reqs * (p.max_spec_len * p.pair_chunks + p.last_chunks));
}

__device__ inline u32 num_tickets(const Params& p) {
    return num_streaming(p) + static_cast<u32>(p.num_reqs * p.residual_chunks);
}

// The task of a ticket, by a whole warp; NOTHING if its row does not exist or cannot matter, which
// is not asked without control words.
__device__ COLD Task streaming_task(const Params& p, const Control& control, u32 ticket) {
    const u32 num_reqs = static_cast<u32>(p.num_reqs);
    const u32 in_pairs = static_cast<u32>(p.num_reqs * p.max_spec_len * p.pair_chunks);
    const bool last = ticket >= in_pairs;
    const u32 chunks = static_cast<u32>(last ? p.last_chunks : p.pair_chunks);
    const u32 place = last ? ticket - in_pairs : ticket;
    const u32 group = place / chunks, chunk = place % chunks, index = group % num_reqs;
    Task task = {NOTHING};
    task.row = static_cast<int>(last ? p.max_spec_len : group / num_reqs);
    // One lane asks: others might be answered differently a moment later.
    u64 verdicts = 0;
    if (control.verdicts && lane_id() == 0) verdicts = load_relaxed(control.verdicts + index);
    task.request = read_request(p, index);
    const u32 final = __shfl_sync(ALL_LANES, static_cast<u32>(verdicts >> 32), 0);
    if (task.request.num_rows == 0 && task.row == 0 && chunk == 0) task.kind = JUDGE;
    if (task.row >= task.request.num_rows || (final & ((1u << task.row) - 1))) return task;
    const bool dense = task.request.dense && task.row < task.request.num_drafts;
    const int blocks =
        num_blocks_of(p.vocab_size) + (dense ? num_blocks_of(p.draft_vocab_size) : 0);
    const int size = static_cast<int>(p.chunk);
    task.begin = static_cast<int>(chunk) * size;
    if (task.begin >= blocks) return task;
    task.end = task.begin + size < blocks ? task.begin + size : blocks;
    task.kind = STREAM;
    task.target_scale = target_scale(p, index);
    task.draft_scale = draft_scale(p, index);
    task.num_tasks = static_cast<u32>(blocks + size - 1) / size;
    return task;
}

__device__ inline Task residual_task(const Params& p, u32 place) {
    Task task = {RESIDUAL};
    const u32 chunks = static_cast<u32>(p.residual_chunks);
    task.request.index = place / chunks;  // the rest is read once it is decided
    task.row = static_cast<int>(place % chunks);
    return task;
}

// The scheduling warp's state, the same in all of its lanes.
struct Queue {
    u32 ticket;
    Task held;   // fetched but not yet handed out
    bool holds;
    u32 epoch;
};

// Whoever draws the last ticket knows that every CTA has read the epoch.
__device__ inline void close_queue(const Params& p, const Queue& queue) {
    if (lane_id() == 0 && queue.ticket == num_tickets(p) + gridDim.x - 1) {
        p.control[0] = 0;
        p.control[1] = queue.epoch + 1;
    }
}

// The next ticket is drawn while this one is looked at.
__device__ inline Task take_ticket(const Params& p, const Control& control, Queue& queue) {
    u32 drawn = 0;
    if (lane_id() == 0) drawn = atomicAdd(p.control, 1u);
    const u32 num_streams = num_streaming(p);
    Task task;
    if (queue.ticket < num_streams)
        task = streaming_task(p, control, queue.ticket);
    else
        task = residual_task(p, queue.ticket - num_streams);
    queue.ticket = gridDim.x + __shfl_sync(ALL_LANES, drawn, 0);
    return task;
}

__device__ inline Task fetch_task(const Params& p, const Control& control, Queue& queue) {
    for (;;) {
        if (queue.ticket >= num_tickets(p)) {
            close_queue(p, queue);
            return {LEAVE};
        }
        const Task task = take_ticket(p, control, queue);
        if (task.kind != NOTHING) return task;
    }
}

// The first task is not held up by control words: its ticket is the CTA's own number.
__device__ inline Task open_queue(const Params& p, Queue& queue) {
    queue.ticket = blockIdx.x;
    queue.epoch = __ldcg(p.control + 1);
    return take_ticket(p, Control{}, queue);
}

// Counts a finished streaming task; true for the row's last.
__device__ inline bool arrive(const Params& p, const Control& control, const Task& task) {
    u32 before = 0;
    if (lane_id() == 0)
        before = add_acq_rel(
            control.row_tasks + task.request.index * (p.max_spec_len + 1) + task.row, 1u);
    return __shfl_sync(ALL_LANES, before, 0) == task.num_tasks - 1;
}

// What follows while `current` runs and `previous` is done. A finished row is judged first, and
// nothing that waits starts before its CTA's own rows are counted.
__device__ inline Task next_task(
    const Params& p, const Control& control, Queue& queue, const Task& previous,
    const Task& current) {
    if (previous.kind == STREAM && arrive(p, control, previous)) {
        Task judge = previous;
        judge.kind = JUDGE;
        return judge;
    }
    if (!queue.holds) queue.held = fetch_task(p, control, queue);
    queue.holds = queue.held.kind != STREAM && current.kind == STREAM;
    if (queue.holds) return {NOTHING};
    return queue.held;
}
