// Draws: among blocks, then inside the winner. By all compute warps of a CTA; results are uniform.
#pragma once
#include "statistics.cuh"

constexpr i64 NO_TOKEN = -1;

template <typename TokenWeight>
__device__ inline i64 draw_inside(
    u64* slots, i64 block, i64 vocab_size, const DrawKey& key, TokenWeight log2_weight) {
    const i64 first = block * BLOCK_SIZE, next = first + BLOCK_SIZE;
    const i64 end = next < vocab_size ? next : vocab_size;
    u64 best = 0;
    for (i64 id = first + threadIdx.x; id < end; id += THREADS)
        best = Max{}(
            best, enter_race(key, TOKEN_LEVEL, static_cast<u32>(id), log2_weight(id)));
    best = team_reduce(everyone(), slots, best, Max{});
    return best == 0 ? NO_TOKEN : static_cast<i64>(racer_id(best));
}

// log2_mass(block) of every block, log2_weight(id) of the winner's tokens.
template <typename BlockMass, typename TokenWeight>
__device__ inline i64 draw_among(
    u64* slots, i64 vocab_size, const DrawKey& key, BlockMass log2_mass, TokenWeight log2_weight) {
    const int num_blocks = static_cast<int>((vocab_size + BLOCK_SIZE - 1) / BLOCK_SIZE);
    u64 best = 0;
    for (int block = threadIdx.x; block < num_blocks; block += THREADS)
        best = Max{}(best, enter_race(key, BLOCK_LEVEL, block, log2_mass(block)));
    best = team_reduce(everyone(), slots, best, Max{});
    if (best == 0) return NO_TOKEN;
    return draw_inside(slots, racer_id(best), vocab_size, key, log2_weight);
}

// From a law that cuts tokens off, or without one token: block masses are summed anew.
template <typename T>
__device__ COLD i64 draw_from_part(
    u64* slots, const Row<T>& row, const Mass* stats, const Law& law, const DrawKey& key,
    i64 without) {
    u64 best = 0;
    const auto weight = [&](i64 id, float logit) {
        return id == without || !(logit >= law.threshold)
                   ? -INFINITY
                   : log2_weight(logit, law.max, law.scale);
    };
    visit_blocks(everyone(), row, stats, law.threshold, [&](int block, const float(&logits)[PER_LANE]) {
        float terms[PER_LANE];
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j)
            terms[j] = exp2_fast(weight(id_of(block, lane_id(), j), logits[j]));
        const float sum = warp_reduce(lane_sum(terms), Add{});
        if (sum > 0.0f) best = Max{}(best, enter_race(key, BLOCK_LEVEL, block, log2f(sum)));
    });
    best = team_reduce(everyone(), slots, best, Max{});
    if (best == 0) return NO_TOKEN;
    return draw_inside(slots, racer_id(best), row.vocab_size, key,
                       [&](i64 id) { return weight(id, load_logit(row, id)); });
}

template <typename T>
__device__ COLD i64 draw_from_law(
    u64* slots, const Row<T>& row, const Mass* stats, const Law& law, const DrawKey& key) {
    if (law.threshold > -INFINITY)
        return draw_from_part(slots, row, stats, law, key, NO_TOKEN);
    return draw_among(
        slots, row.vocab_size, key,
        [&](int block) { return log2_mass(load_mass(stats + block), law.max, law.scale); },
        [&](i64 id) { return log2_weight(load_logit(row, id), law.max, law.scale); });
}

// The first element of the row that is as large as its largest.
template <typename T>
__device__ COLD i64 greedy_token(
    u64* slots, const Row<T>& row, const Mass* stats, const Law& law) {
    u64 best = 0;
    visit_blocks(everyone(), row, stats, law.max, [&](int block, const float(&logits)[PER_LANE]) {
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j) {
            const i64 id = id_of(block, lane_id(), j);
            if (logits[j] != law.max) continue;
            const u64 order = ~static_cast<u32>(row.element_of(id));
            best = Max{}(best, order << 32 | static_cast<u32>(id));
        }
    });
    return static_cast<u32>(team_reduce(everyone(), slots, best, Max{}));
}
