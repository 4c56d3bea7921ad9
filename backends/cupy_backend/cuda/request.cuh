// One request of a batch: its rows, its draft up to the first bad id, its keys. Decides nothing.
#pragma once
#include "rows.cuh"
#include "statistics.cuh"

struct Request {
    i64 start;
    i64 slot;
    u64 seed;
    u32 position;
    int index;
    int num_drafts;  // up to the first bad id, or to where synthetic acceptance ends
    int num_rows;    // num_drafts + 1, or 0 for a request without rows
    int status;
    float temperature;
    float scale;
    float draft_temperature;
    float draft_scale;
    bool greedy;  // the target's law is one-hot
    bool strict;  // so drafts are judged by equality
    bool dense;   // draft rows are read

    __device__ bool has_draft_row(int row) const { return DENSE && dense && row < num_drafts; }
};

__device__ inline int num_blocks_of(i64 vocab_size) {
    return static_cast<int>((static_cast<u32>(vocab_size) + BLOCK_SIZE - 1) / BLOCK_SIZE);
}

// A request's draft ids.
__device__ inline Integers drafts_of(const Params& p, i64 request) {
    return {address_of(p.draft_ids, request), p.draft_ids_step, p.draft_ids.wide};
}

// Loads of what a request is are behind no branch, which would be waited for: where there is nothing to be
// loaded, its position is.

// A lane's draft of 32 from `first` on, whether or not the request has so many.
__device__ inline i64 load_draft(const Params& p, i64 request, int first) {
    const int place = first + lane_id(), count = static_cast<int>(p.max_spec_len);
    const bool there = place < count;
    const Integers from = count > 0 ? drafts_of(p, request) : p.positions;
    const i64 id = integer_at(from, there ? place : count > 0 ? count - 1 : static_cast<int>(request));
    return there ? id : 0;
}

// A request's rows: the first, and the next request's.
struct Extent {
    i64 start;
    i64 end;
};

__device__ inline Extent load_extent(const Params& p, i64 index) {
    const bool one_row = p.row_starts.data == nullptr;
    const Integers from = one_row ? p.positions : p.row_starts;
    const i64 start = integer_at(from, index), end = integer_at(from, one_row ? index : index + 1);
    return {one_row ? index : start, one_row ? index + 1 : end};
}

// Its first drafts, up to the first that is no id of the vocabulary, go to `ids`; `loaded` are those
// of load_draft from 0 on. By a warp.
__device__ inline void read_drafts(
    const Params& p, i64 room, i64 loaded, int* ids, Request& request) {
    if (room > p.max_spec_len) room = p.max_spec_len;
    for (int first = 0; first < room; first += LANES) {
        const int place = first + lane_id();
        const i64 here = first == 0 ? loaded : load_draft(p, request.index, first);
        const i64 id = place < room ? here : 0;
        const bool bad = id < 0 || id >= p.vocab_size;
        if (place < room) ids[place] = static_cast<int>(id);
        const u32 all_bad = __ballot_sync(ALL_LANES, bad);
        const int lane = __ffs(static_cast<int>(all_bad)) - 1;
        if (lane < 0) continue;
        request.num_drafts = first + lane;
        const bool padding = __shfl_sync(ALL_LANES, static_cast<int>(id == -1), lane);
        request.status = padding ? STATUS_OK : DRAFT_TOKEN_INVALID;
        return;
    }
    request.num_drafts = room > 0 ? static_cast<int>(room) : 0;
}

__device__ inline DrawKey draw_key(const Request& request, int row, u32 stream, u32 draft_index) {
    return {request.seed, request.position + static_cast<u32>(row), stream, draft_index};
}

__device__ inline float uniform_of(const Request& request, int row) {
    const DrawKey key = draw_key(request, row, ACCEPT_STREAM, row + 1);
    return acceptance_uniform(random_word(key, BLOCK_LEVEL, 0));
}

// A draft that synthetic acceptance ends is like one that has no more tokens: the target's own sample follows, and no
// row behind it is asked for. By a warp.
__device__ inline void end_by_rates(const Params& p, Request& request) {
#pragma unroll 1
    for (int first = 0; first < request.num_drafts; first += LANES) {
        const int row = first + lane_id();
        const bool falls = row < request.num_drafts && !(uniform_of(request, row) < p.rates[row]);
        const u32 all_falling = __ballot_sync(ALL_LANES, falls);
        if (all_falling) request.num_drafts = first + __ffs(static_cast<int>(all_falling)) - 1;
    }
}

// Its rows, of which there are no more than its drafts allow; `loaded` as there. By a warp.
__device__ inline void enter_rows(
    const Params& p, const Extent& extent, i64 loaded, int* ids, Request& request) {
    const i64 room = extent.end - extent.start - 1;
    request.start = extent.start;
    read_drafts(p, room, loaded, ids, request);
    if (POLICY == SYNTHETIC) end_by_rates(p, request);
    request.num_rows = room < 0 ? 0 : request.num_drafts + 1;
}

// Scales of both laws, each by every second lane.
__device__ inline void find_scales(Request& request) {
    const float mine =
        logit_scale(lane_id() % 2 ? request.draft_temperature : request.temperature);
    request.scale = __shfl_sync(ALL_LANES, mine, 0);
    request.draft_scale = __shfl_sync(ALL_LANES, mine, 1);
}

// By a whole warp; the same in every lane.
__device__ inline Request read_request(const Params& p, i64 index, int* ids) {
    Request request = {};
    request.index = static_cast<int>(index);
    // Not behind the number of rows, which it would wait for.
    const i64 loaded = load_draft(p, index, 0);
    const Extent extent = load_extent(p, index);
    const i64 slot = integer_at(p.slots.data ? p.slots : p.positions, index);
    request.slot = p.slots.data ? slot : index;
    request.seed = static_cast<u64>(p.seeds[index]);
    request.position = static_cast<u32>(integer_at(p.positions, index));
    request.temperature = p.target.temperature[index];
    if (DENSE) request.draft_temperature = p.draft.temperature[index];
    find_scales(request);
    enter_rows(p, extent, loaded, ids, request);
    request.greedy = GREEDY || request.temperature == 0.0f;
    request.strict = POLICY == STRICT || (request.greedy && POLICY != SYNTHETIC);
    request.dense = DENSE && request.draft_temperature != 0.0f && !request.strict;
    return request;
}

// Whether a request is worth a guess: rows outside the batch must never be named, and rows behind an end that is
// about to be known are not asked for.
__device__ inline bool is_guessable(const Params& p) {
    return POLICY != SYNTHETIC && p.rows_known && !(DENSE && p.slots.data);
}

// What a request most likely looks like, known before anything is loaded.
__device__ inline Request guess_request(const Params& p, i64 index) {
    Request guess = {};
    guess.index = static_cast<int>(index);
    const u64 rows = static_cast<u32>(p.max_spec_len) + 1;
    guess.start = static_cast<i64>(static_cast<u32>(index) * rows);
    guess.slot = index;
    guess.num_drafts = static_cast<int>(p.max_spec_len);
    guess.num_rows = guess.num_drafts + 1;
    guess.dense = DENSE;
    return guess;
}

// Whether two have the same rows to be read.
__device__ inline bool has_rows_of(const Request& a, const Request& b) {
    return a.start == b.start && a.num_rows == b.num_rows && a.dense == b.dense &&
           (!DENSE || a.slot == b.slot);
}

// Whether the request that read_request would find has the rows of the guess. Its temperatures come with
// that. By a warp.
__device__ inline bool is_as_guessed(const Params& p, Request& guess) {
    const i64 index = guess.index, first_id = load_draft(p, index, 0);
    const Extent extent = load_extent(p, index);
    guess.temperature = p.target.temperature[index];
    if (DENSE) guess.draft_temperature = p.draft.temperature[index];
    bool good = (extent.start == guess.start) & (extent.end >= extent.start + guess.num_rows);
    if (DENSE) good &= (guess.temperature != 0.0f) & (guess.draft_temperature != 0.0f);
#pragma unroll 1
    for (int first = 0; first < guess.num_drafts; first += LANES) {
        const i64 id = first == 0 ? first_id : load_draft(p, index, first);
        good &= (first + lane_id() >= guess.num_drafts) | ((id >= 0) & (id < p.vocab_size));
    }
    return __all_sync(ALL_LANES, good);
}

__device__ inline Adjustment adjustment_of(const Params& p, const Request& request, int row) {
    Adjustment a = {};
    if (p.bias_ids) {
        a.bias_ids = p.bias_ids + request.index * p.num_bias;
        a.bias_values = p.bias_values + request.index * p.num_bias;
        a.num_bias = static_cast<int>(p.num_bias);
    }
    if (p.output_counts) {
        a.prompt_mask = p.prompt_mask + request.slot * p.prompt_stride;
        a.output_counts = p.output_counts + request.slot * p.counts_stride;
        a.repetition = p.repetition[request.index];
        a.presence = p.presence[request.index];
        a.frequency = p.frequency[request.index];
        a.drafts = drafts_of(p, request.index);
        a.num_before = row;
    }
    return a;
}

// Without its adjustment.
__device__ inline Row<TargetLogit> target_row(const Params& p, const Request& request, int row) {
    const TargetLogit* logits = static_cast<const TargetLogit*>(p.target_logits);
    return {logits + (request.start + row) * p.target_stride, p.target_elements, p.vocab_size,
            p.target_map, nullptr};
}

// With it; what is copied out of this must not outlive it.
struct AdjustedRow {
    Adjustment adjustment;
    Row<TargetLogit> row;
    __device__ AdjustedRow(const Params& p, const Request& request, int index)
        : row(target_row(p, request, index)) {
        if (!ADJUSTED) return;
        adjustment = adjustment_of(p, request, index);
        row.adjustment = &adjustment;
    }
    AdjustedRow(const AdjustedRow&) = delete;
};

// In the draft's own ids.
__device__ inline Row<DraftLogit> draft_row(const Params& p, const Request& request, int row) {
    const DraftLogit* logits = static_cast<const DraftLogit*>(p.draft_logits);
    return {logits + request.slot * p.draft_slot_stride + row * p.draft_row_stride,
            p.draft_vocab_size, p.draft_vocab_size, nullptr, nullptr};
}

// The same in the target's ids.
__device__ inline Row<DraftLogit> draft_row_in_target_ids(
    const Params& p, const Request& request, int row) {
    Row<DraftLogit> in_target = draft_row(p, request, row);
    in_target.vocab_size = p.vocab_size;
    in_target.inverse_map = p.draft_map;
    return in_target;
}

__device__ inline DrawKey target_key(const Params& p, const Request& request, int row) {
    return draw_key(request, row, static_cast<u32>(p.stream), static_cast<u32>(p.draft_index));
}
