// One request of a batch: its rows, its draft up to the first bad id, its keys.
#pragma once
#include "filters.cuh"
#include "rows.cuh"

struct Request {
    i64 start;
    i64 slot;
    i64 entry;  // of its parameters
    u64 seed;
    u32 position;
    int index;
    int num_drafts;  // up to the first bad id, or to where synthetic acceptance ends
    int num_rows;    // num_drafts + 1, or 0 for a request without rows
    int status;
    Filters filters;
    Filters draft_filters;
    bool greedy;  // the target's law is one-hot
    bool strict;  // drafts are judged by equality
    bool dense;   // draft rows are read

    __device__ bool has_draft_row(int row) const { return dense && row < num_drafts; }
};

__device__ inline DrawKey draw_key(const Request& request, int row, u32 stream, u32 draft_index) {
    return {request.seed, request.position + static_cast<u32>(row), stream, draft_index};
}

__device__ inline DrawKey target_key(const Params& p, const Request& request, int row) {
    return draw_key(request, row, static_cast<u32>(p.stream), static_cast<u32>(p.draft_index));
}

__device__ inline DrawKey recover_key(const Request& request, int row) {
    return draw_key(request, row, RECOVER_STREAM, row + 1);
}

__device__ inline float uniform_of(const Request& request, int row) {
    const DrawKey key = draw_key(request, row, ACCEPT_STREAM, row + 1);
    return acceptance_uniform(random_word(key, BLOCK_LEVEL, 0));
}

__device__ inline Integers drafts_of(const Params& p, i64 request) {
    return {p.draft_token_ids.data + request * p.draft_token_ids.stride, p.draft_step, p.draft_token_ids.wide};
}

__device__ inline int draft_of(const Params& p, const Request& request, int row) {
    return static_cast<int>(integer_at(drafts_of(p, request.index), row));
}

// The length of its draft, up to the first id that is not in the vocabulary. By a warp.
__device__ inline void count_drafts(const Params& p, i64 room, Request& request) {
    if (room > p.max_spec_len) room = p.max_spec_len;
    request.num_drafts = room > 0 ? static_cast<int>(room) : 0;
    const Integers drafts = drafts_of(p, request.index);
    for (int first = 0; first < p.max_spec_len; first += LANES) {
        const int place = first + lane_id();
        // Loaded without regard to the number of rows, which it would wait for.
        i64 id = place < p.max_spec_len ? integer_at(drafts, place) : 0;
        if (place >= room) id = 0;
        const u32 all_bad = __ballot_sync(ALL_LANES, id < 0 || id >= p.vocab_size);
        if (!all_bad) continue;
        const int lane = __ffs(static_cast<int>(all_bad)) - 1;
        request.num_drafts = first + lane;
        const bool padding = __shfl_sync(ALL_LANES, static_cast<int>(id == -1), lane);
        request.status = padding ? STATUS_OK : DRAFT_TOKEN_INVALID;
        return;
    }
}

// The mask of a target row; null where all tokens are allowed.
__device__ inline const u8* mask_of(const Params& p, const Request& request, int row) {
    if (!ADJUSTED || !p.allowed_tokens) return nullptr;
    i64 mask = request.start + row;
    if (p.allowed_rows.data) mask = integer_at(p.allowed_rows, mask);
    return mask < 0 ? nullptr : p.allowed_tokens + mask * p.allowed_stride;
}

// Whether a row's mask allows its draft token.
__device__ inline bool allows_draft(const Params& p, const Request& request, int row) {
    const u8* mask = mask_of(p, request, row);
    if (!mask) return true;
    const int id = draft_of(p, request, row);
    return mask[id / 8] >> (id % 8) & 1;
}

// A draft that synthetic acceptance ends is treated like a shorter one: the target's own sample follows.
// By a warp.
__device__ inline void end_by_rates(const Params& p, Request& request) {
    for (int first = 0; first < request.num_drafts; first += LANES) {
        const int row = first + lane_id();
        const bool falls =
            row < request.num_drafts &&
            (!(uniform_of(request, row) < p.rates[row]) || !allows_draft(p, request, row));
        const u32 all_falling = __ballot_sync(ALL_LANES, falls);
        if (all_falling) request.num_drafts = first + __ffs(static_cast<int>(all_falling)) - 1;
    }
}

__device__ inline i64 entry_of(const Params& p, i64 index) {
    return p.entries.data ? integer_at(p.entries, index) : index;
}

// By a warp; the same in every lane.
__device__ inline Request read_request(const Params& p, i64 index) {
    Request request = {};
    request.index = static_cast<int>(index);
    const bool one_row = p.cu_num_logits.data == nullptr;
    request.start = one_row ? index : integer_at(p.cu_num_logits, index);
    const i64 end = one_row ? index + 1 : integer_at(p.cu_num_logits, index + 1);
    request.slot = p.slot_ids.data ? integer_at(p.slot_ids, index) : index;
    request.entry = entry_of(p, index);
    request.seed = static_cast<u64>(p.seeds[request.entry]);
    request.position = static_cast<u32>(integer_at(p.positions, index));
    // Loaded beside the others, also where only temperatures are used.
    request.filters = filters_of(p.target, request.entry, p.vocab_size);
    if (p.dense) request.draft_filters = filters_of(p.draft, request.entry, p.draft_vocab_size);
    count_drafts(p, end - request.start - 1, request);
    if (p.policy == SYNTHETIC) end_by_rates(p, request);
    request.num_rows = end > request.start ? request.num_drafts + 1 : 0;
    request.greedy = request.filters.temperature == 0.0f;
    request.strict = p.policy == STRICT || (request.greedy && p.policy != SYNTHETIC);
    request.dense = p.dense && request.draft_filters.temperature != 0.0f && !request.strict;
    return request;
}

// Bias and penalties of a request; neutral ones count as none. `drafts_before` count as output.
__device__ inline Adjustment changes_of(
    const Params& p, i64 request, i64 entry, i64 slot, int drafts_before) {
    Adjustment a = {};
    a.num_ids = static_cast<int>(p.vocab_size);
    if (p.bias_ids) {
        a.bias_ids = p.bias_ids + entry * p.num_bias;
        a.bias_values = p.bias_values + entry * p.num_bias;
        a.num_bias = static_cast<int>(p.num_bias);
    }
    if (p.output_counts) {
        a.repetition = p.repetition[entry];
        a.presence = p.presence[entry];
        a.frequency = p.frequency[entry];
    }
    if (p.output_counts && (a.repetition != 1.0f || a.presence != 0.0f || a.frequency != 0.0f)) {
        a.prompt_mask = p.prompt_mask + slot * p.vocab_size;
        a.output_counts = p.output_counts + slot * p.vocab_size;
        a.drafts = drafts_of(p, request);
        a.num_before = drafts_before;
    }
    return a;
}

// Whether ids are marked before rows are read; a few biases are searched in each block instead.
__device__ inline bool needs_marks(const Params& p) { return p.output_counts || p.num_bias > LANES; }

__device__ inline Adjustment adjustment_of(const Params& p, const Request& request, int row) {
    Adjustment a = changes_of(p, request.index, request.entry, request.slot, row);
    const i64 num_blocks = (p.vocab_size + BLOCK_SIZE - 1) / BLOCK_SIZE;
    if (!needs_marks(p) || !a.changes()) return a;
    const i64 first = request.index * num_blocks * BLOCK_SIZE;
    a.marks = p.marks + first;
    a.biases = p.bias_ids ? p.biases + first : nullptr;
    return a;
}

// As the model gave it.
__device__ inline Row target_row(const Params& p, const Request& request, int row) {
    return {p.target_logits + (request.start + row) * p.target_stride,
            static_cast<int>(p.target_type), static_cast<int>(p.target_elements),
            static_cast<int>(p.vocab_size), p.target_map, nullptr, nullptr};
}

// A target row with its changes; copies of its parts must not outlive it.
struct TargetRow {
    Adjustment adjustment;
    Row row;
    __device__ TargetRow(const Params& p, const Request& request, int index)
        : row(target_row(p, request, index)) {
        row.allowed = mask_of(p, request, index);
        if (MOST_CHANGE != ANY_CHANGE) return;
        adjustment = adjustment_of(p, request, index);
        row.adjustment = &adjustment;
    }
    TargetRow(const TargetRow&) = delete;
};

// In the draft's own ids.
__device__ inline Row draft_row(const Params& p, const Request& request, int row) {
    const int size = static_cast<int>(p.draft_vocab_size);
    return {p.draft_logits + request.slot * p.draft_slot_stride + row * p.draft_row_stride,
            static_cast<int>(p.draft_type), size, size, nullptr, nullptr, nullptr};
}

__device__ inline Row draft_row_in_target_ids(const Params& p, const Request& request, int row) {
    Row in_target = draft_row(p, request, row);
    in_target.num_ids = static_cast<int>(p.vocab_size);
    in_target.inverse_map = p.draft_map;
    return in_target;
}
