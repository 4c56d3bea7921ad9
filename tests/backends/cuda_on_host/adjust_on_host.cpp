// Logit bias and penalties, by whole blocks and token by token.
#include "host_builtins.h"
#include "statistics.cuh"

extern "C" void adjust(
    const i64* bias_ids, const float* bias_values, int num_bias, const bool* prompt_mask,
    const int* output_counts, float repetition, float presence, float frequency, const i64* drafts,
    int num_before, i64 vocab_size, float* by_block, float* by_token) {
    const Adjustment adjustment = {bias_ids,   bias_values, num_bias, prompt_mask,           output_counts,
                                   repetition, presence,    frequency, {drafts, sizeof(i64), 1}, num_before};
    host::launch(1, LANES, [=] {
        for (int block = 0; block * BLOCK_SIZE < vocab_size; ++block) {
            float logits[PER_LANE];
            for (int j = 0; j < PER_LANE; ++j) {
                const i64 id = id_of(block, lane_id(), j);
                logits[j] = id < vocab_size ? by_block[id] : -INFINITY;
            }
            adjust_block(adjustment, block, vocab_size, logits);
            for (int j = 0; j < PER_LANE; ++j) {
                const i64 id = id_of(block, lane_id(), j);
                if (id < vocab_size) by_block[id] = logits[j];
            }
        }
        for (i64 id = lane_id(); id < vocab_size; id += LANES)
            by_token[id] = adjust_logit(adjustment, id, by_token[id]);
    });
}
