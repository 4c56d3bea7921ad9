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
__device__ inline Task streaming_task(const Params& p, const Control& control, u32 ticket) {
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

// The scheduling warp's state, in shared memory: this turn's task, its neighbours in time, and one
// that was fetched but must wait.
struct Queue {
    Task turns[4];
    Task held;
};

// What that warp keeps in registers, the same in all of its lanes.
struct Ticket {
    u32 number;
    u32 epoch;
    bool holds;
};

__device__ inline void put_task(Task& place, const Task& task) {
    if (lane_id() == 0) place = task;
    __syncwarp();
}

// Whoever draws the last ticket knows that every CTA has read the epoch.
__device__ inline void close_queue(const Params& p, const Ticket& ticket) {
    if (lane_id() == 0 && ticket.number == num_tickets(p) + gridDim.x - 1) {
        p.control[0] = 0;
        p.control[1] = ticket.epoch + 1;
    }
}

// The next ticket is drawn while this one is looked at.
__device__ inline int take_ticket(
    const Params& p, const Control& control, Ticket& ticket, Task& place) {
    u32 drawn = 0;
    if (lane_id() == 0) drawn = atomicAdd(p.control, 1u);
    const u32 num_streams = num_streaming(p);
    int kind = RESIDUAL;
    if (ticket.number < num_streams) {
        const Task task = streaming_task(p, control, ticket.number);
        put_task(place, task);
        kind = task.kind;
    } else {
        put_task(place, residual_task(p, ticket.number - num_streams));
    }
    ticket.number = gridDim.x + __shfl_sync(ALL_LANES, drawn, 0);
    return kind;
}

__device__ inline int fetch_task(
    const Params& p, const Control& control, Ticket& ticket, Task& place) {
    int kind = NOTHING;
    while (kind == NOTHING && ticket.number < num_tickets(p))
        kind = take_ticket(p, control, ticket, place);
    if (kind != NOTHING) return kind;
    close_queue(p, ticket);
    put_task(place, Task{LEAVE});
    return LEAVE;
}

// The first task is not held up by control words: its ticket is the CTA's own number.
__device__ inline Ticket open_queue(const Params& p, Queue& queue) {
    Ticket ticket = {blockIdx.x, __ldcg(p.control + 1), false};
    take_ticket(p, Control{}, ticket, queue.turns[0]);
    return ticket;
}

// Counts a finished streaming task; true for the row's last.
__device__ inline bool arrive(const Params& p, const Control& control, const Task& task) {
    u32 before = 0;
    if (lane_id() == 0)
        before = add_acq_rel(
            control.row_tasks + task.request.index * (p.max_spec_len + 1) + task.row, 1u);
    return __shfl_sync(ALL_LANES, before, 0) == task.num_tasks - 1;
}

// Puts up what follows this turn's task while that runs and the one before is done. A finished row
// is judged first, and nothing that waits starts before its CTA's own rows are counted.
__device__ inline void put_next_task(
    const Params& p, const Control& control, Queue& queue, Ticket& ticket, int turn) {
    const Task& current = queue.turns[turn & 3];
    const Task& previous = queue.turns[(turn + 3) & 3];
    Task& next = queue.turns[(turn + 1) & 3];
    if (turn > 0 && previous.kind == STREAM && arrive(p, control, previous)) {
        put_task(next, previous);
        if (lane_id() == 0) next.kind = JUDGE;
        return;
    }
    if (!ticket.holds) fetch_task(p, control, ticket, queue.held);
    ticket.holds = queue.held.kind != STREAM && current.kind == STREAM;
    put_task(next, ticket.holds ? Task{NOTHING} : queue.held);
}
