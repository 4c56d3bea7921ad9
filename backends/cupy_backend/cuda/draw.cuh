// Draws: among blocks, then inside the winner. By a team; results are uniform in it.
#pragma once
#include "statistics.cuh"

constexpr i64 NO_TOKEN = -1;

// weigh(id, weights) tells log2 weights of four of the block's tokens, those from `id` on, -inf where there
// is none; prefetch(id) is called before.
template <typename Prefetch, typename Weigh>
__device__ inline i64 draw_inside(
    const DrawTeam& team, u64* slots, u32 block, const DrawKey& key, Prefetch prefetch_four,
    Weigh weigh) {
    static_assert(4 * DrawTeam::THREADS == BLOCK_SIZE);
    const u32 id = block * BLOCK_SIZE + 4 * team.thread();
    prefetch_four(id);
    const Noise noise = noise_of(key, TOKEN_LEVEL, id / 4);
    float weights[4];
    weigh(id, weights);
    const u64 best = team_reduce(team, slots, race_four(noise, weights, id), Max{});
    return best == 0 ? NO_TOKEN : static_cast<i64>(racer_id(best));
}

__device__ inline float kept_log2_weight(const Law& law, float logit) {
    return logit >= law.threshold ? log2_weight(logit, law.max, law.scale) : -INFINITY;
}

// `best` is the winning block.
template <typename T>
__device__ inline i64 draw_from_block(
    const DrawTeam& team, u64* slots, const Row<T>& row, const Law& law, u64 best,
    const DrawKey& key) {
    if (best == 0) return NO_TOKEN;
    const auto weigh = [&](i64 id, float (&weights)[4]) {
        load_four(row, id, weights);
#pragma unroll
        for (int j = 0; j < 4; ++j) weights[j] = kept_log2_weight(law, weights[j]);
    };
    return draw_inside(
        team, slots, racer_id(best), key, [&](i64 id) { prefetch_logit(row, id); }, weigh);
}

template <typename T>
__device__ inline i64 draw_from_law(
    const DrawTeam& team, u64* slots, const Row<T>& row, const Mass* stats, const Law& law,
    bool is_lone, const DrawKey& key, const Noise* noise) {
    u64 best = race_quads(
        key, BLOCK_LEVEL, 0, row.num_blocks(), team.thread(), DrawTeam::THREADS,
        [&](u32 block) { return log2_mass(kept_of(stats[block], law, is_lone), law); }, noise);
    best = team_reduce(team, slots, best, Max{});
    return draw_from_block(team, slots, row, law, best, key);
}

// The first element of the row that is as large as its largest.
template <typename T>
__device__ inline i64 greedy_token(
    const DrawTeam& team, u64* slots, const Row<T>& row, const Mass* stats, const Law& law) {
    const u32 num_blocks = static_cast<u32>(row.num_blocks());
    u64 best = 0;
    const auto look_into = [&](u32 block) {
        const i64 id = static_cast<i64>(block) * BLOCK_SIZE + 4 * team.thread();
        float logits[4];
        load_four(row, id, logits);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            if (id + j >= row.vocab_size || logits[j] != law.max) continue;
            const u64 order = ~static_cast<u32>(row.element_of(id + j));
            best = Max{}(best, order << 32 | static_cast<u32>(id + j));
        }
    };
    u64 first = 0;
    constexpr int batch = 4;
    for (u32 block = team.thread(); block < num_blocks; block += batch * DrawTeam::THREADS) {
#pragma unroll
        for (int i = batch - 1; i >= 0; --i) {
            const u32 here = block + i * DrawTeam::THREADS;
            if (here < num_blocks && stats[here].max == law.max) first = Max{}(first, u64{~here});
        }
    }
    first = team_reduce(team, slots, first, Max{});
    const u32 where = ~static_cast<u32>(first);
    if (first != 0) look_into(where);
    // Mapped rows are not in the order of their elements.
    if (row.inverse_map)
        for (u32 block = where + 1; block < num_blocks; ++block)
            if (stats[block].max == law.max) look_into(block);
    return static_cast<u32>(team_reduce(team, slots, best, Max{}));
}
