// Logit bias and penalties of one row. Compiled in only if some request of the batch has any.
#pragma once
#include "law.cuh"

// The id of a lane's j-th logit: two runs of eight.
__device__ inline int id_of(int block, int j) {
    return block * BLOCK_SIZE + (j / 8) * (BLOCK_SIZE / 2) + lane_id() * 8 + j % 8;
}

// Which of its lane's logits is at a place in its block.
__device__ inline int j_of(u32 place) { return static_cast<int>(place / (BLOCK_SIZE / 2) * 8 + place % 8); }

// The changes of one row of one request. Null pointers: the batch has no such change.
struct Adjustment {
    const i64* bias_ids;
    const float* bias_values;
    int num_bias;
    const bool* prompt_mask;
    const int* output_counts;
    float repetition;
    float presence;
    float frequency;
    Integers drafts;  // of the request
    int num_before;   // drafts before the row, which count as output
    int num_ids;
    u8* marks;  // of the request's ids, see Mark; null: there are only few biases
    float* biases;  // of its named ids; null: no id is marked for a bias

    __device__ bool changes() const { return num_bias > 0 || output_counts; }
};

// Sets forbidden logits to -inf; NaN and +inf stay, so that they are found later.
__device__ inline float forbidden(float logit) { return logit < INFINITY ? -INFINITY : logit; }

// Without a branch, so that many such loads can be in flight at once.
__device__ inline i64 integer_at(const Integers& integers, i64 index) {
    const int* words = reinterpret_cast<const int*>(integers.data + index * integers.stride);
    const int low = words[0], high = words[integers.wide];
    const i64 whole = static_cast<i64>(static_cast<u64>(high) << 32 | static_cast<u32>(low));
    return integers.wide ? whole : low;
}

// One rounding per operation, never contracted, as the contract says. `count` is that of the output so far.
__device__ inline float penalised(const Adjustment& a, float logit, bool in_prompt, int count) {
    if (in_prompt || count > 0)
        logit = logit > 0.0f ? __fdiv_rn(logit, a.repetition) : __fmul_rn(logit, a.repetition);
    logit = __fsub_rn(logit, __fmul_rn(a.frequency, static_cast<float>(count)));
    return count > 0 ? __fsub_rn(logit, a.presence) : logit;
}

__device__ inline int drafts_equal(const Adjustment& a, i64 id) {
    int count = 0;
#pragma unroll 1
    for (int i = 0; i < a.num_before; ++i) count += integer_at(a.drafts, i) == id;
    return count;
}

__device__ inline float penalised_at(const Adjustment& a, int id, float logit) {
    return penalised(a, logit, a.prompt_mask[id], a.output_counts[id] + drafts_equal(a, id));
}
