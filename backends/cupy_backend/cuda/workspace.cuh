// Where the stages of a launch meet in device memory. Control words come in two sets: a launch uses
// the one its epoch names and clears the other, so that none has to wait for a clearing.
#pragma once
#include "lanes.cuh"
#include "law.cuh"
#include "variant.cuh"

// What is known of a target row and of the draft token that it judges.
struct RowResult {
    float max;
    float threshold;
    float log2_sum;
    int usable;
    int draft_usable;
    int token;       // the target's own sample; -1 if not drawn
    float evidence;  // for judging whole drafts: log2 of p / q under BLOCK, entropy under FLY
    float variation;
};

struct DraftResult {
    float max;
    float threshold;
    float log2_sum;
    int usable;
};

enum Ending { STOPPED, FROM_TARGET, FROM_RESIDUAL };

struct Decision {
    int ending;
    int num_accepted;
    int status;
    int first_row;  // rows whose residual is wanted
    int num_rows;
    int kept;      // draft tokens that could be judged
    u32 forgiven;  // rows whose variation counts
    int pad;
};

struct Workspace {
    Mass* target_stats;    // [num_logits, target blocks]
    Mass* draft_stats;     // [num_reqs * max_spec_len, draft blocks]
    RowResult* rows;       // [num_logits]
    DraftResult* drafts;   // [num_reqs * max_spec_len]
    Decision* decisions;   // [num_reqs]
    float* residuals;      // [num_reqs * max_spec_len, target blocks]
};

// One set; 0 everywhere at the start of its launch.
struct Control {
    u64* verdicts;        // [num_reqs], decided rows in the low half, final ones in the high
    u32* decided;         // [num_reqs]
    u32* residual_tasks;  // [num_reqs], done
    u32* row_tasks;       // [num_reqs, max_spec_len + 1], done
};

constexpr int CONTROL_HEAD = 4;  // words: ticket, epoch

__device__ inline int num_blocks_of(i64 vocab_size) {
    return static_cast<int>((vocab_size + BLOCK_SIZE - 1) / BLOCK_SIZE);
}

__device__ inline Workspace workspace_of(const Params& p) {
    const i64 draft_rows = p.num_reqs * p.max_spec_len;
    const i64 blocks = num_blocks_of(p.vocab_size);
    Workspace w;
    w.rows = static_cast<RowResult*>(p.scratch);
    w.drafts = reinterpret_cast<DraftResult*>(w.rows + p.num_logits);
    w.decisions = reinterpret_cast<Decision*>(w.drafts + draft_rows);
    w.target_stats = reinterpret_cast<Mass*>(w.decisions + p.num_reqs);
    w.draft_stats = w.target_stats + p.num_logits * blocks;
    w.residuals = reinterpret_cast<float*>(
        w.draft_stats + (DENSE ? draft_rows * num_blocks_of(p.draft_vocab_size) : 0));
    return w;
}

__device__ inline u32* control_set(const Params& p, u32 index) {
    return p.control + CONTROL_HEAD + index * p.set_words;
}

__device__ inline Control control_of(const Params& p, u32 epoch) {
    Control c;
    c.verdicts = reinterpret_cast<u64*>(control_set(p, epoch & 1));
    c.decided = reinterpret_cast<u32*>(c.verdicts + p.num_reqs);
    c.residual_tasks = c.decided + p.num_reqs;
    c.row_tasks = c.residual_tasks + p.num_reqs;
    return c;
}

// One warp's share of clearing the other set, which the last launch used.
__device__ inline void clear_other_set(const Params& p, u32 epoch) {
    u32* other = control_set(p, ~epoch & 1);
    for (i64 i = blockIdx.x * LANES + lane_id(); i < p.set_words;
         i += static_cast<i64>(gridDim.x) * LANES)
        other[i] = 0;
}

// What another CTA wrote in this launch: read past the first-level cache.
template <typename T>
__device__ inline T load_fresh(const T* address) {
    static_assert(sizeof(T) % sizeof(uint4) == 0, "whole vectors");
    union {
        T value;
        uint4 words[sizeof(T) / sizeof(uint4)];
    } loaded;
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T) / sizeof(uint4)); ++i)
        loaded.words[i] = __ldcg(reinterpret_cast<const uint4*>(address) + i);
    return loaded.value;
}
