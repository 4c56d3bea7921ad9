// The device functions that carry the mathematics, one by one. Only block masses need a warp.
#include "host_builtins.h"
#include "acceptance.cuh"
#include "statistics.cuh"

extern "C" {

unsigned random_word_of(u64 seed, u32 position, u32 stream, u32 draft_index, u32 level, u32 id) {
    return random_word({seed, position, stream, draft_index}, level, id);
}

float exponential_of(u32 word) { return exponential(word); }
float acceptance_uniform_of(u32 word) { return acceptance_uniform(word); }

// The winner among ids [first, first + count), by one thread; first is a multiple of four.
long long winner_of(u64 seed, u32 position, u32 level, u32 first, u32 count, const float* weights) {
    const DrawKey key = {seed, position, TARGET_STREAM, 0};
    const u64 best = race_quads(
        key, level, first, count, 0, 1, [&](u32 id) { return weights[id - first]; });
    return best == 0 ? -1 : static_cast<long long>(racer_id(best));
}

// Mass of the block of 512 logits at `data`: (largest, sum).
void block_mass_of(const TargetLogit* data, i64 count, float scale, float* mass) {
    host::launch(1, LANES, [=] {
        const Row<TargetLogit> row = {data, count, count, nullptr, nullptr};
        float logits[PER_LANE];
        load_block(row, 0, logits);
        const Mass found = block_mass(logits, scale);
        if (lane_id() == 0) {
            mass[0] = found.max;
            mass[1] = found.sum;
        }
    });
}

bool accepts_at(float uniform, float log2_p, float log2_q) {
    return accepts(uniform, log2_ratio(log2_p, log2_q));
}
float product_after(float log2_product, float log2_p, float log2_q) {
    return next_log2_product(log2_product, log2_ratio(log2_p, log2_q));
}
float block_threshold_of(float log2_product, float mass) {
    return log2_block_threshold(log2_product, mass);
}
float typical_threshold_of(float entropy, double epsilon, double delta) {
    return typical_threshold(entropy, epsilon, delta);
}
}
