// Logit bias and penalties, applied while logits are loaded. Compiled in only when some request of
// the batch has any.
#pragma once
#include "lanes.cuh"

// Of one row of one request. Null pointers: the batch has no such thing.
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
    int num_before;  // drafts before the row, which count as output
};

// `index` has 32 bits, which spares half of the product.
__device__ inline const char* address_of(const Integers& integers, i64 index) {
    const u64 bytes = static_cast<u64>(static_cast<u32>(index)) * static_cast<u64>(integers.stride);
    return static_cast<const char*>(integers.data) + bytes;
}

// Without a branch, so that many such loads can be on their way at once.
__device__ inline i64 integer_at(const Integers& integers, i64 index) {
    const bool wide = static_cast<u32>(integers.wide);
    const int* words = reinterpret_cast<const int*>(address_of(integers, index));
    const int low = load_now(words), high = load_now(words + wide);
    const i64 narrow = low;
    const i64 whole = static_cast<i64>(static_cast<u64>(high) << 32 | static_cast<u32>(low));
    return wide ? whole : narrow;
}

// Each operation is rounded to float32, as the contract says.
__device__ inline float penalised(const Adjustment& a, i64 id, float logit) {
    int count = a.output_counts[id];
    for (int i = 0; i < a.num_before; ++i)
        count += integer_at(a.drafts, i) == id;
    if (a.prompt_mask[id] || count > 0)
        logit = logit > 0.0f ? __fdiv_rn(logit, a.repetition) : __fmul_rn(logit, a.repetition);
    logit = __fsub_rn(logit, __fmul_rn(a.frequency, count));
    return __fsub_rn(logit, count > 0 ? a.presence : 0.0f);
}

// The first `num_bias` entries may have the id.
__device__ inline float adjusted(const Adjustment& a, int num_bias, i64 id, float logit) {
    float sum = logit;
    for (int entry = 0; entry < num_bias; ++entry)
        if (a.bias_ids[entry] == id) sum = __fadd_rn(sum, a.bias_values[entry]);
    return a.output_counts ? penalised(a, id, sum) : sum;
}

__device__ COLD float adjust_logit(const Adjustment& a, i64 id, float logit) {
    return adjusted(a, a.num_bias, id, logit);
}

// Of this lane's logits in a block, those whose ids have a bias, a bit each.
__device__ inline u32 biased_in(const Adjustment& a, int block, i64 vocab_size) {
    u32 biased = 0;
    for (int entry = 0; entry < a.num_bias; ++entry) {
        const i64 id = a.bias_ids[entry];
        if (id < 0 || id >= vocab_size || id / BLOCK_SIZE != block) continue;
        const int offset = static_cast<int>(id % BLOCK_SIZE);
        const int place = offset / (BLOCK_SIZE / 2) * 8 + offset % 8;
        if (offset % (BLOCK_SIZE / 2) / 8 == lane_id()) biased |= 1u << place;
    }
    return biased;
}

__device__ COLD void adjust_block(
    const Adjustment& a, int block, i64 vocab_size, float (&logits)[PER_LANE]) {
    const u32 biased = biased_in(a, block, vocab_size);
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) {
        const i64 id = static_cast<i64>(block) * BLOCK_SIZE + j / 8 * (BLOCK_SIZE / 2) +
                       lane_id() * 8 + j % 8;
        if (id < vocab_size) logits[j] = adjusted(a, biased >> j & 1 ? a.num_bias : 0, id, logits[j]);
    }
}
