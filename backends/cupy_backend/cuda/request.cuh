// One request of a batch: its rows, its draft up to the first bad id, its keys. Decides nothing.
#pragma once
#include "rows.cuh"
#include "workspace.cuh"

struct Request {
    i64 index;
    i64 start;
    i64 slot;
    int num_drafts;  // up to the first bad id
    int num_rows;    // num_drafts + 1, or 0 for a request without rows
    int status;
    bool greedy;  // the target's law is one-hot
    bool strict;  // so drafts are judged by equality
    bool dense;   // draft rows are read
};

// A request's draft ids.
__device__ inline Integers drafts_of(const Params& p, i64 request) {
    const i64 bytes = request * p.draft_ids.stride * (p.draft_ids.wide ? 8 : 4);
    return {static_cast<const char*>(p.draft_ids.data) + bytes, p.draft_ids_step, p.draft_ids.wide};
}

// By a whole warp, a lane per draft token.
__device__ inline Request read_request(const Params& p, i64 index) {
    Request request;
    request.index = index;
    const bool one_row = p.row_starts.data == nullptr;
    request.start = one_row ? index : integer_at(p.row_starts, index);
    const i64 end = one_row ? index + 1 : integer_at(p.row_starts, index + 1);
    request.slot = p.slots.data ? integer_at(p.slots, index) : index;
    const float temperature = p.target.temperature[index];
    const bool draft_sampled = DENSE && p.draft.temperature[index] != 0.0f;
    const int lane = lane_id();
    const i64 id = lane < p.max_spec_len ? integer_at(drafts_of(p, index), lane) : -1;
    i64 room = end - request.start - 1;
    if (room > p.max_spec_len) room = p.max_spec_len;
    const bool usable = lane < room && id >= 0 && id < p.vocab_size;
    request.num_drafts = __ffs(static_cast<int>(~__ballot_sync(ALL_LANES, usable))) - 1;
    const i64 first_bad = __shfl_sync(ALL_LANES, id, request.num_drafts);
    const bool flagged = request.num_drafts < room && first_bad != -1;
    request.status = flagged ? DRAFT_TOKEN_INVALID : STATUS_OK;
    request.num_rows = room < 0 ? 0 : request.num_drafts + 1;
    request.greedy = temperature == 0.0f;
    request.strict = POLICY == STRICT || (request.greedy && POLICY != SYNTHETIC);
    request.dense = draft_sampled && !request.strict;
    return request;
}

__device__ inline float target_scale(const Params& p, i64 request) {
    return logit_scale(p.target.temperature[request]);
}

__device__ inline float draft_scale(const Params& p, i64 request) {
    return logit_scale(p.draft.temperature[request]);
}

__device__ inline Adjustment adjustment_of(const Params& p, i64 request, i64 slot, int row) {
    Adjustment a = {};
    if (p.bias_ids) {
        a.bias_ids = p.bias_ids + request * p.num_bias;
        a.bias_values = p.bias_values + request * p.num_bias;
        a.num_bias = static_cast<int>(p.num_bias);
    }
    if (p.output_counts) {
        a.prompt_mask = p.prompt_mask + slot * p.prompt_stride;
        a.output_counts = p.output_counts + slot * p.counts_stride;
        a.repetition = p.repetition[request];
        a.presence = p.presence[request];
        a.frequency = p.frequency[request];
        a.drafts = drafts_of(p, request);
        a.num_before = row;
    }
    return a;
}

__device__ inline Row<TargetLogit> target_row(
    const Params& p, i64 row, const Adjustment* adjustment) {
    const TargetLogit* data = static_cast<const TargetLogit*>(p.target_logits) + row * p.target_stride;
    return {data, p.target_elements, p.vocab_size, p.target_map, adjustment};
}

// In the draft's own ids.
__device__ inline Row<DraftLogit> draft_row(const Params& p, i64 slot, int row) {
    const DraftLogit* data = static_cast<const DraftLogit*>(p.draft_logits) +
                             slot * p.draft_slot_stride + row * p.draft_row_stride;
    return {data, p.draft_vocab_size, p.draft_vocab_size, nullptr, nullptr};
}

// The same in the target's ids.
__device__ inline Row<DraftLogit> draft_row_in_target_ids(const Params& p, i64 slot, int row) {
    Row<DraftLogit> in_target = draft_row(p, slot, row);
    in_target.vocab_size = p.vocab_size;
    in_target.inverse_map = p.draft_map;
    return in_target;
}

__device__ inline DrawKey draw_key(
    const Params& p, i64 request, int row, u32 stream, u32 draft_index) {
    const u32 position = static_cast<u32>(integer_at(p.positions, request)) + row;
    return {static_cast<u64>(p.seeds[request]), position, stream, draft_index};
}

__device__ inline float uniform_of(const Params& p, i64 request, int row) {
    const DrawKey key = draw_key(p, request, row, ACCEPT_STREAM, row + 1);
    return acceptance_uniform(random_word(key, BLOCK_LEVEL, 0));
}

__device__ inline Law law_of(const RowResult& row, float scale) {
    return {row.max, row.threshold, scale, row.log2_sum, row.usable};
}

__device__ inline Law law_of(const DraftResult& row, float scale) {
    return {row.max, row.threshold, scale, row.log2_sum, row.usable};
}
