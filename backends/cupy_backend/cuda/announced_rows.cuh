// Laws and samples of rows from statistics that may not have come.
#pragma once
#include "announced.cuh"
#include "noise.cuh"
#include "quick_draw.cuh"

// By one warp. Statistics go to `to`, unless that is null.
__device__ inline Law take_law(Mass* words, Mass* to, int num_blocks, float scale, bool greedy) {
    Arriving<Statistics::COUNT> arriving;
    const int lane = lane_id();
    arriving.load(words, num_blocks, lane, LANES);
    arriving.take(words, num_blocks, lane, LANES);
    Statistics mine;
#pragma unroll
    for (int i = 0; i < Statistics::COUNT; ++i) {
        const int block = lane + i * LANES;
        mine.of[i] = mass_in(arriving.words[i]);
        if (to != nullptr && block < num_blocks) to[block] = mine.of[i];
    }
    return plain_law(row_mass_of(mine, scale), scale, greedy);
}

// The same of a row of many blocks.
__device__ COLD Law take_long_law(Mass* words, Mass* to, int num_blocks, float scale, bool greedy) {
    take_words(words, to, num_blocks, lane_id(), LANES);
    __syncwarp();
    return plain_law<true>(to, num_blocks, scale, greedy);
}

__device__ inline Law find_announced_law(
    const Params& p, const GlobalPlaces& places, Shared& shared, KnownNoise& known, int row, bool draft) {
    const Request& request = shared.request;
    const int num_blocks = num_blocks_of(draft ? p.draft_vocab_size : p.vocab_size);
    Mass* words = draft ? places.announced_draft(row) : places.announced(row);
    Mass* to = draft ? nullptr : known.stats_of_row(p, row);
    const float scale = draft ? request.draft_scale : request.scale;
    const bool greedy = draft ? request.draft_temperature == 0.0f : request.greedy;
    if (to == nullptr && (!draft || num_blocks > Statistics::COUNT * LANES))
        to = draft ? places.draft_stats(row) : places.target_stats(row);
    if (num_blocks > Statistics::COUNT * LANES)
        return take_long_law(words, to, num_blocks, scale, greedy);
    return take_law(words, to, num_blocks, scale, greedy);
}

// A row whose statistics cannot be looked at once, or that is not read by whole vectors.
__device__ COLD void sample_any_row(Shared& shared, int row) {
    const GlobalPlaces places = {shared.params, shared.request};
    const DrawTeam team = my_team<DrawTeam>();
    const int num_blocks = num_blocks_of(shared.params.vocab_size);
    Mass* stats = places.target_stats(row);
    take_words(places.announced(row), stats, num_blocks, team.thread(), DrawTeam::THREADS);
    team.sync();
    const Law law = sampling_law(team, shared.slots, stats, num_blocks, shared.request.scale,
                                 shared.request.greedy);
    if (team.thread() == 0) shared.target_laws[row] = law;
    team.sync();
    if (law.is_usable()) target_token(shared, row, stats);
}

// The largest logit of a row, by a team whose threads have four neighbouring blocks each; if all requests are
// greedy, its first block is known with it.
__device__ inline float row_max(
    const DrawTeam& team, u64* slots, const FourBlocks& mine, int first, u64& best) {
    float max = mine.max[0];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        max = max_nan(max, mine.max[i]);
        if (GREEDY) best = Max{}(best, racer(mine.max[i] + 0.0f, first + i));
    }
    if (!GREEDY) return quick_max(team, slots, max);
    best = quick_best(team, slots, best);
    return best == 0 ? -INFINITY : key_float(static_cast<u32>(best >> 32));
}

// The target's own sample at a row, by a team. `known` is what find_noise found, or null.
__device__ inline void sample_row(
    const Params& p, const GlobalPlaces& places, Shared& shared, int row, const KnownNoise* known = nullptr) {
    const Request& request = shared.request;
    const int num_blocks = num_blocks_of(p.vocab_size);
    const Row<TargetLogit> target = target_row(p, request, row);
    if (!can_draw_quickly(target)) return sample_any_row(shared, row);
    const DrawTeam team = my_team<DrawTeam>();
    const QuickSlots slots = {shared.slots};
    const bool greedy = GREEDY || request.greedy;
    const int first = 4 * team.thread();
    const DrawKey key = target_key(p, request, row);
    Mass* words = places.announced(row);
    Arriving<4> arriving;
    arriving.load(words, num_blocks, first, 1);
    Noise noise = {};
    if (!greedy && first < num_blocks)
        noise = known && row < NOISE_ROWS ? known->quads[row][first / 4] : noise_here(key, BLOCK_LEVEL, first / 4);
    arriving.take(words, num_blocks, first, 1);
    FourBlocks mine;
#pragma unroll
    for (int i = 0; i < 4; ++i) mine.set(i, mass_in(arriving.words[i]), greedy);
    u64 best = 0;
    const float max = row_max(team, slots.stage(0), mine, first, best);
    const Law law = {max, greedy ? max : -INFINITY, request.scale, 0.0f};
    i64 token = NO_TOKEN;
    if (law.is_usable()) {
        if (!GREEDY) best = race_blocks(team, slots.stage(1), law, mine, noise, greedy);
        token = draw_quickly(team, slots.stage(2), target, law, best, key, greedy);
    }
    if (team.thread() > 0) return;
    shared.target_laws[row] = law;
    shared.tokens[row] = static_cast<int>(token);
}
