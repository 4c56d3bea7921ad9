// Draws from a residual: few of its blocks are read, for the target's masses bound what they weigh.
#pragma once
#include "residual.cuh"

// Of the log2 mass of a block's residual, which takes away from the target's.
constexpr float RESIDUAL_SLACK = 0.015625f;  // more than sums of floats are wrong by

// What a law gives a block, to base 2.
__device__ inline float log2_share(const Mass& block, const Law& law) {
    return __fsub_rn(log2_mass(block, law), law.log2_sum);
}

__device__ inline float most_of_residual(const Pair& pair, int block) {
    const Mass kept = kept_of(pair.stats[block], pair.target_law, false);
    const float log2_most = __fadd_rn(log2_share(kept, pair.target_law), RESIDUAL_SLACK);
    return POLICY == BLOCK ? __fadd_rn(log2_most, pair.log2_product) : log2_most;
}

// The residual's blocks enter the race for the recovered token's, a warp's every sixteenth. A block is
// read only if it can still win: with the most that it may weigh, its score is above the best so far.
// That is a few blocks out of hundreds. Where blocks' noise and masses come from is told; `best` is in
// shared memory.
template <typename BlockNoise, typename BlockMass>
__device__ inline void race_residual(
    const Pair& pair, int num_blocks, u64* best, BlockNoise noise_at, BlockMass mass_of) {
    for (int first = warp_id(); first < num_blocks; first += LANES * CTA_WARPS) {
        const int block = first + lane_id() * CTA_WARPS;
        float noise = 0.0f;
        u64 most = 0;
        if (block < num_blocks) {
            noise = noise_at(block);
            most = racer_with(noise, block, most_of_residual(pair, block));
        }
        for (u64 known = 0;; known = __shfl_sync(ALL_LANES, known, 0)) {
            const u64 next = warp_reduce(most, Max{});
            if (next <= known) break;
            const int read = static_cast<int>(racer_id(next));
            const float mass = mass_of(read);
            if (read == block) {
                most = 0;
                const u64 entered = racer_with(noise, block, log2f(mass));
                if (entered != 0) atomicMax(best, entered);
            }
            __syncwarp();
            if (lane_id() == 0) known = atomicCAS(best, 0ull, 0ull);
        }
    }
}

// Any pair in shared memory.
__device__ COLD void race_any_residual(
    const Pair* pair, const DrawKey& key, u64* best) {
    const bool direct = is_direct(*pair);
    race_residual(
        *pair, pair->target.num_blocks(), best,
        [&](int block) { return log2_exponential(random_word(key, BLOCK_LEVEL, block)); },
        [&](int block) {
            return direct ? direct_residual(*pair, block) : residual_piecewise(pair, block);
        });
}

// A draw from a pair's target row, read again, maybe without one token.
__device__ COLD i64 draw_from_target(u64* slots, const Pair& pair, const DrawKey& key, i64 without) {
    const DrawTeam team = my_team<DrawTeam>();
    const auto weight = [&](i64 id, float logit) {
        return id == without ? -INFINITY : kept_log2_weight(pair.target_law, logit);
    };
    u64 best = 0;
    for (int block = team.warp(); block < pair.target.num_blocks(); block += DrawTeam::WARPS) {
        float logits[PER_LANE], terms[PER_LANE];
        load_block(pair.target, block, logits);
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j)
            terms[j] = exp2_fast(weight(id_of(block, lane_id(), j), logits[j]));
        const float sum = warp_reduce(lane_sum(terms), Add{});
        const u64 entered = enter_race(random_word(key, BLOCK_LEVEL, block), block, log2f(sum));
        best = Max{}(best, entered);
    }
    best = team_reduce(team, slots, best, Max{});
    if (best == 0) return NO_TOKEN;
    const auto weigh = [&](i64 id, float (&weights)[4]) {
        load_four(pair.target, id, weights);
#pragma unroll
        for (int j = 0; j < 4; ++j) weights[j] = weight(id + j, weights[j]);
    };
    return draw_inside(
        team, slots, racer_id(best), key, [&](i64 id) { prefetch_logit(pair.target, id); }, weigh);
}

// `best` is the winning block.
__device__ inline i64 draw_in_residual(u64* slots, const Pair& pair, u64 best, const DrawKey& key) {
    if (best == 0) return NO_TOKEN;
    const auto prefetch_four = [&](i64 id) {
        prefetch_logit(pair.target, id);
        if (pair.is_dense()) prefetch_logit(pair.draft, id);
    };
    return draw_inside(
        my_team<DrawTeam>(), slots, racer_id(best), key, prefetch_four,
        [&](i64 id, float (&weights)[4]) { weigh_residuals(pair, id, weights); });
}

// Rounding can leave nothing where p and q agree: then the target's law without the rejected token
// is drawn from, and only if nothing else is left, with it.
__device__ COLD i64 draw_without_residual(u64* slots, const Pair& pair, const DrawKey& key) {
    const i64 token = draw_from_target(slots, pair, key, pair.drafted);
    return token == NO_TOKEN ? draw_from_target(slots, pair, key, NO_TOKEN) : token;
}

// In one order whoever asks.
__device__ inline float residual_sum(
    const DrawTeam& team, u64* slots, const float* masses, int num_blocks) {
    float sum = 0.0f;
    for (int block = team.thread(); block < num_blocks; block += DrawTeam::THREADS)
        sum += masses[block];
    return team_reduce(team, slots, sum, Add{});
}

__device__ inline u64 best_residual(
    const DrawTeam& team, u64* slots, const float* masses, int num_blocks, const DrawKey& key,
    const Noise* noise) {
    const u64 best =
        race_quads(key, BLOCK_LEVEL, 0, num_blocks, team.thread(), DrawTeam::THREADS,
                   [&](u32 block) { return log2f(masses[block]); }, noise);
    return team_reduce(team, slots, best, Max{});
}
