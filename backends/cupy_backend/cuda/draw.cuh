// Draws: among blocks, then inside the winner. By a team; results are uniform in it.
#pragma once
#include "statistics.cuh"

constexpr i64 NO_TOKEN = -1;

// log2_weight(id) of the block's tokens.
template <typename TokenWeight>
__device__ inline i64 draw_inside(
    const DrawTeam& team, u64* slots, u32 block, i64 vocab_size, const DrawKey& key,
    TokenWeight log2_weight) {
    const i64 first = static_cast<i64>(block) * BLOCK_SIZE, rest = vocab_size - first;
    const u32 count = rest < BLOCK_SIZE ? static_cast<u32>(rest) : BLOCK_SIZE;
    static_assert(4 * DrawTeam::THREADS == BLOCK_SIZE);
    u64 best = race_quad(
        key, TOKEN_LEVEL, static_cast<u32>(first), count, team.thread(), log2_weight);
    best = team_reduce(team, slots, best, Max{});
    return best == 0 ? NO_TOKEN : static_cast<i64>(racer_id(best));
}

// log2_mass(block) of every block, log2_weight(id) of the winner's tokens.
template <typename BlockMass, typename TokenWeight>
__device__ inline i64 draw_among(
    const DrawTeam& team, u64* slots, i64 vocab_size, const DrawKey& key, BlockMass log2_mass,
    TokenWeight log2_weight) {
    const u32 num_blocks = static_cast<u32>((vocab_size + BLOCK_SIZE - 1) / BLOCK_SIZE);
    u64 best =
        race_quads(key, BLOCK_LEVEL, 0, num_blocks, team.thread(), DrawTeam::THREADS, log2_mass);
    best = team_reduce(team, slots, best, Max{});
    if (best == 0) return NO_TOKEN;
    return draw_inside(team, slots, racer_id(best), vocab_size, key, log2_weight);
}

__device__ inline float kept_log2_weight(const Law& law, float logit) {
    return logit >= law.threshold ? log2_weight(logit, law.max, law.scale) : -INFINITY;
}

template <typename T>
__device__ inline i64 draw_from_law(
    const DrawTeam& team, u64* slots, const Row<T>& row, const Mass* stats, const Law& law,
    bool is_lone, const DrawKey& key) {
    return draw_among(
        team, slots, row.vocab_size, key,
        [&](u32 block) { return log2_mass(kept_of(stats[block], law, is_lone), law); },
        [&](u32 id) { return kept_log2_weight(law, load_logit(row, id)); });
}

// The first element of the row that is as large as its largest.
template <typename T>
__device__ inline i64 greedy_token(
    const DrawTeam& team, u64* slots, const Row<T>& row, const Mass* stats, const Law& law) {
    const u32 num_blocks = static_cast<u32>(row.num_blocks());
    u64 best = 0;
    const auto look_into = [&](u32 block) {
        for (u32 i = team.thread(); i < BLOCK_SIZE; i += DrawTeam::THREADS) {
            const i64 id = static_cast<i64>(block) * BLOCK_SIZE + i;
            const i64 element = row.element_of(id);
            if (element < 0 || load_logit(row, id) != law.max) continue;
            const u64 order = ~static_cast<u32>(element);
            best = Max{}(best, order << 32 | static_cast<u32>(id));
        }
    };
    u32 first = num_blocks;
    for (u32 block = team.thread(); block < num_blocks; block += DrawTeam::THREADS)
        if (stats[block].max == law.max && block < first) first = block;
    first = team_reduce(team, slots, first, Min{});
    if (first < num_blocks) look_into(first);
    // Mapped rows are not in the order of their elements.
    if (row.inverse_map)
        for (u32 block = first + 1; block < num_blocks; ++block)
            if (stats[block].max == law.max) look_into(block);
    return static_cast<u32>(team_reduce(team, slots, best, Max{}));
}
