// What is left of the target's law when the draft's is taken away: max(P p - q, 0), block by block.
#pragma once
#include "draw.cuh"
#include "request.cuh"

// One row of a request and the draft row beside it.
struct Pair {
    Row<TargetLogit> target;
    Row<DraftLogit> draft;  // in target ids
    Law target_law;
    Law draft_law;
    bool dense;           // else the draft's law is one-hot
    i64 drafted;          // the draft token
    float log2_product;   // P
};

__device__ inline float draft_p(const Pair& pair, i64 id, float draft_logit) {
    return pair.dense ? law_p(pair.draft_law, draft_logit) : id == pair.drafted ? 1.0f : 0.0f;
}

__device__ inline float residual_weight(
    const Pair& pair, i64 id, float target_logit, float draft_logit) {
    const float log2_p = law_log2(pair.target_law, target_logit) + pair.log2_product;
    return fmaxf(exp2_fast(log2_p) - draft_p(pair, id, draft_logit), 0.0f);
}

__device__ inline float residual_of_token(const Pair& pair, i64 id) {
    const float target_logit = load_logit(pair.target, id);
    const float draft_logit = pair.dense ? load_logit(pair.draft, id) : 0.0f;
    return residual_weight(pair, id, target_logit, draft_logit);
}

__device__ inline void load_pair(
    const Pair& pair, int block, float (&target)[PER_LANE], float (&draft)[PER_LANE]) {
    load_block(pair.target, block, target);
    if (pair.dense) load_block(pair.draft, block, draft);
}

__device__ inline float residual_of_block(
    const Pair& pair, int block, const float (&target)[PER_LANE], const float (&draft)[PER_LANE]) {
    float terms[PER_LANE];
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j)
        terms[j] = residual_weight(pair, id_of(block, lane_id(), j), target[j], draft[j]);
    return warp_reduce(lane_sum(terms), Add{});
}

// Masses of blocks [begin, end) by all compute warps; blocks that the target's law cuts off have
// none and are not read.
__device__ COLD void residual_masses(
    const Pair& pair, const Mass* stats, float* masses, int begin, int end) {
    for (int block = begin + static_cast<int>(threadIdx.x) / LANES; block < end; block += WARPS) {
        float mass = 0.0f;
        const float threshold = pair.target_law.threshold;
        if (threshold == -INFINITY || load_mass(stats + block).max >= threshold) {
            float target[PER_LANE], draft[PER_LANE] = {};
            load_pair(pair, block, target, draft);
            mass = residual_of_block(pair, block, target, draft);
        }
        if (lane_id() == 0) masses[block] = mass;
    }
}

// Rounding can leave nothing where p and q agree: then the target's law without the rejected token
// is drawn from, and only if nothing else is left, with it.
__device__ COLD i64 draw_residual(
    u64* slots, const Pair& pair, const Mass* stats, const float* masses, const DrawKey& key) {
    i64 token = draw_among(
        slots, pair.target.vocab_size, key,
        [&](int block) { return log2f(__ldcg(masses + block)); },
        [&](i64 id) { return log2f(residual_of_token(pair, id)); });
    if (token == NO_TOKEN)
        token = draw_from_part(slots, pair.target, stats, pair.target_law, key, pair.drafted);
    if (token == NO_TOKEN) token = draw_from_law(slots, pair.target, stats, pair.target_law, key);
    return token;
}

__device__ inline float residual_sum(u64* slots, const float* masses, int num_blocks) {
    float sum = 0.0f;
    for (int block = threadIdx.x; block < num_blocks; block += THREADS)
        sum += __ldcg(masses + block);
    return team_reduce(everyone(), slots, sum, Add{});
}
