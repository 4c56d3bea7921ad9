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
    const Mass* stats;    // the target row's, null where they are not at hand

    __device__ bool is_empty(int block) const {
        return FILTERED && stats != nullptr && stats[block].max == -INFINITY;
    }
    __device__ bool is_dense() const { return DENSE && dense; }
};

__device__ inline float draft_p(const Pair& pair, i64 id, float draft_logit) {
    return pair.is_dense() ? law_p(pair.draft_law, draft_logit) : id == pair.drafted ? 1.0f : 0.0f;
}

// P p less what the draft takes of it.
__device__ inline float residual_weight(const Pair& pair, float target_logit, float taken) {
    float log2_p = law_log2(pair.target_law, target_logit);
    if (POLICY == BLOCK) log2_p = __fadd_rn(log2_p, pair.log2_product);
    return fmaxf(__fsub_rn(exp2_fast(log2_p), taken), 0.0f);
}

__device__ inline float residual_of_token(const Pair& pair, i64 id) {
    const float draft_logit = pair.is_dense() ? load_logit(pair.draft, id) : 0.0f;
    return residual_weight(pair, load_logit(pair.target, id), draft_p(pair, id, draft_logit));
}

template <typename TargetAt, typename TakenAt>
__device__ inline float residual_sum_of_block(const Pair& pair, TargetAt target_at, TakenAt taken) {
    float terms[PER_LANE];
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) terms[j] = residual_weight(pair, target_at(j), taken(j));
    return warp_reduce(lane_sum(terms), Add{});
}

__device__ COLD float residual_piecewise(const Pair* pair, int block) {
    float target[PER_LANE], draft[PER_LANE] = {};
    load_block(pair->target, block, target);
    if (pair->is_dense()) load_block(pair->draft, block, draft);
    return residual_sum_of_block(
        *pair, [&](int j) { return target[j]; },
        [&](int j) { return draft_p(*pair, id_of(block, lane_id(), j), draft[j]); });
}

// A lane's share of a block of both rows, on its way.
struct PairSlot {
    uint4 target[PER_LANE / PER_VECTOR<TargetLogit>];
    uint4 draft[PER_LANE / PER_VECTOR<DraftLogit>];
};

constexpr int PAIR_DEPTH = sizeof(TargetLogit) + sizeof(DraftLogit) <= 4 ? 2 : 1;

template <typename T>
__device__ inline float unpack_from(const uint4* words, int j) {
    RawBlock<T> raw;
#pragma unroll
    for (int i = 0; i < PER_LANE / PER_VECTOR<T>; ++i) raw.words[i] = words[i];
    return unpack(raw, j);
}

// What a warp's blocks are read from.
struct PairFlow {
    const char* target;  // the lane's first logit of the next block
    const char* draft;
    i64 step;  // in elements

    __device__ void fetch(int wanted, PairSlot& slot) {
        load_raw_if<TargetLogit>(wanted, target, slot.target);
        if (DENSE) load_raw_if<DraftLogit>(wanted, draft, slot.draft);
        target += step * sizeof(TargetLogit);
        draft += step * sizeof(DraftLogit);
    }
};

__device__ inline float residual_of_slot(
    const Pair& pair, const PairSlot& slot, int block, int valid) {
    return residual_sum_of_block(
        pair,
        [&](int j) {
            const bool inside = j / 8 * (BLOCK_SIZE / 2) + lane_id() * 8 < valid;
            return inside ? unpack_from<TargetLogit>(slot.target, j) : -INFINITY;
        },
        [&](int j) {
            return DENSE ? law_p(pair.draft_law, unpack_from<DraftLogit>(slot.draft, j))
                         : draft_p(pair, id_of(block, lane_id(), j), 0.0f);
        });
}

// Whether a pair can be read by whole vectors.
__device__ inline bool is_direct(const Pair& pair) {
    return pair.is_dense() == DENSE && is_direct(pair.target) &&
           !(ADJUSTED && pair.target.adjustment) && (!DENSE || is_direct(pair.draft));
}

// Masses of `count` blocks from `first`, `step` apart, one a lane. No function may be called while
// blocks are on their way.
__device__ inline float direct_residuals(const Pair* shared_pair, int first, int step, int count) {
    Pair pair = {};
    pair.target_law = shared_pair->target_law;
    pair.draft_law = shared_pair->draft_law;
    pair.log2_product = shared_pair->log2_product;
    pair.drafted = shared_pair->drafted;
    pair.dense = DENSE;
    const i64 element = static_cast<i64>(first) * BLOCK_SIZE + lane_id() * 8;
    PairFlow flow = {reinterpret_cast<const char*>(shared_pair->target.data + element),
                     reinterpret_cast<const char*>(shared_pair->draft.data + element),
                     static_cast<i64>(step) * BLOCK_SIZE};
    const i64 vocab_size = shared_pair->target.vocab_size;
    const auto valid_of = [&](int i) {
        const int block = first + i * step;
        if (i >= count || shared_pair->is_empty(block)) return 0;
        const i64 rest = vocab_size - static_cast<i64>(block) * BLOCK_SIZE;
        return rest < BLOCK_SIZE ? static_cast<int>(rest) : BLOCK_SIZE;
    };
    PairSlot ring[PAIR_DEPTH] = {};
#pragma unroll
    for (int i = 0; i < PAIR_DEPTH; ++i) flow.fetch(valid_of(i) - lane_id() * 8, ring[i]);
    float mine = 0.0f;
    for (int round = 0; round < count; round += PAIR_DEPTH) {
#pragma unroll
        for (int i = 0; i < PAIR_DEPTH; ++i) {
            const int place = round + i, valid = valid_of(place);
            if (valid > 0) {
                const float mass = residual_of_slot(pair, ring[i], first + place * step, valid);
                if (lane_id() == place) mine = mass;
            }
            flow.fetch(valid_of(place + PAIR_DEPTH) - lane_id() * 8, ring[i]);
        }
    }
    return mine;
}

__device__ inline float piecewise_residuals(const Pair* pair, int first, int step, int count) {
    float mine = 0.0f;
    for (int i = 0; i < count; ++i) {
        if (pair->is_empty(first + i * step)) continue;
        const float mass = residual_piecewise(pair, first + i * step);
        if (lane_id() == i) mine = mass;
    }
    return mine;
}

// Masses of blocks first, first + step, ... below end, by one warp: hands on (block, mass) of up to
// 32 blocks at a time, each to the lane that has it. `pair` is in shared memory.
template <typename Visit>
__device__ inline void visit_residual(const Pair* pair, int first, int step, int end, Visit visit) {
    const bool direct = is_direct(*pair);
    for (; first < end; first += LANES * step) {
        int count = (end - first + step - 1) / step;
        if (count > LANES) count = LANES;
        const float mine = direct ? direct_residuals(pair, first, step, count)
                                  : piecewise_residuals(pair, first, step, count);
        if (lane_id() < count) visit(first + lane_id() * step, mine);
        __syncwarp();
    }
}

// The best of such blocks in the race for the recovered token's, in every lane.
__device__ inline u64 race_residual(
    const Pair* pair, const DrawKey& key, int first, int step, int end) {
    u64 best = 0;
    visit_residual(pair, first, step, end, [&](int block, float mass) {
        best = Max{}(best, enter_race(random_word(key, BLOCK_LEVEL, block), block, log2f(mass)));
    });
    return warp_reduce(best, Max{});
}

// Rounding can leave nothing where p and q agree: then the target's law without the rejected token
// is drawn from, and only if nothing else is left, with it. `best` is the winning block.
__device__ inline i64 draw_residual(
    const DrawTeam& team, u64* slots, const Pair& pair, u64 best, const DrawKey& key) {
    i64 token = NO_TOKEN;
    if (best != 0)
        token = draw_inside(team, slots, racer_id(best), pair.target.vocab_size, key,
                            [&](u32 id) { return log2f(residual_of_token(pair, id)); });
    if (token == NO_TOKEN)
        token = draw_from_row(team, slots, pair.target, pair.target_law, key, pair.drafted);
    if (token == NO_TOKEN)
        token = draw_from_row(team, slots, pair.target, pair.target_law, key, NO_TOKEN);
    return token;
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
    const DrawTeam& team, u64* slots, const float* masses, int num_blocks, const DrawKey& key) {
    const u64 best =
        race_quads(key, BLOCK_LEVEL, 0, num_blocks, team.thread(), DrawTeam::THREADS,
                   [&](u32 block) { return log2f(masses[block]); });
    return team_reduce(team, slots, best, Max{});
}
