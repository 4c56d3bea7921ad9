// The law of filtered rows as a function of the host.
#include "host_builtins.h"
#include "thresholds.cuh"

// stats: [num_blocks] of the row, in and out; law: max, threshold, scale, log2_sum.
template <int NUM_WARPS>
void find_law(const TargetLogit* row, i64 vocab_size, Filters filters, Mass* stats, float* law) {
    static Scratch scratch;
    const Row<TargetLogit> whole = {row, vocab_size, vocab_size, nullptr, nullptr};
    host::launch(1, NUM_WARPS * LANES, [&] {
        const Team<NUM_WARPS> team = {0, 1};
        for (int block = team.warp(); block < whole.num_blocks(); block += NUM_WARPS) {
            float logits[PER_LANE];
            load_block(whole, block, logits);
            const Mass mass = block_mass(logits, logit_scale(filters.temperature));
            if (lane_id() == 0) stats[block] = mass;
        }
        team.sync();
        const Law found = filtered_law(team, scratch, whole, stats, filters);
        if (team.thread() != 37) return;
        law[0] = found.max;
        law[1] = found.threshold;
        law[2] = found.scale;
        law[3] = found.log2_sum;
    });
}

extern "C" void law_by_8_warps(const void* row, i64 size, Filters f, void* stats, float* law) {
    find_law<8>(static_cast<const TargetLogit*>(row), size, f, static_cast<Mass*>(stats), law);
}

extern "C" void law_by_16_warps(const void* row, i64 size, Filters f, void* stats, float* law) {
    find_law<16>(static_cast<const TargetLogit*>(row), size, f, static_cast<Mass*>(stats), law);
}
