// Stage 4: the exponential race of core/race.py, first among blocks, then among the tokens of the
// winner. By a CTA; results are the same in all its threads.
#pragma once
#include "statistics.cuh"

constexpr int NO_TOKEN = -1;

// A racer as one integer: the larger score is larger, on a tie the lower id. 0 is nobody.
__device__ inline u64 racer(float score, u32 id) {
    if (score == -INFINITY) return 0;
    return static_cast<u64>(float_key(score)) << 32 | static_cast<u32>(~id);
}

__device__ inline int racer_id(u64 racer) { return static_cast<int>(~static_cast<u32>(racer)); }

__device__ inline u64 enter_race(u32 word, u32 id, float log2_weight) {
    return racer(__fsub_rn(log2_weight, log2_fast(exponential(word))), id);
}

__device__ inline u64 enter_race_with(float noise, u32 id, float log2_weight) {
    return log2_weight == -INFINITY ? 0 : racer(__fsub_rn(log2_weight, noise), id);
}

constexpr float BOUND_SLACK = 0.015625f;  // of log2 weights: more than sums of floats are wrong by

// Where the best of a race is told.
struct Best {
    u64 block;
    u64 token;
};

// The winning block, or 0. most_of(block) is what a block's log2 weight is not above, and
// weight_of(block), by a warp, the weight itself, for which logits may be read. So a block is asked only
// if it could still win: a few out of hundreds. `certain`: most_of is the weight.
template <typename MostOf, typename WeightOf>
__device__ inline u64 race_blocks(
    u64* best, int num_blocks, const DrawKey& key, bool certain, MostOf most_of, WeightOf weight_of) {
    if (thread_id() == 0) *best = 0;
    __syncthreads();
    for (int first = warp_id(); first < num_blocks; first += CTA_THREADS) {
        const int block = first + lane_id() * CTA_WARPS;
        float noise = 0.0f;
        u64 most = 0;
        if (block < num_blocks) {
            noise = log2_fast(exponential(random_word(key, BLOCK_LEVEL, block)));
            most = enter_race_with(noise, block, most_of(block));
        }
        if (certain) {
            const u64 next = warp_reduce(most, Max{});
            if (lane_id() == 0 && next) atomicMax(best, next);
            continue;
        }
        for (u64 known = 0;; known = __shfl_sync(ALL_LANES, known, 0)) {
            const u64 next = warp_reduce(most, Max{});
            if (next <= known) break;
            const int asked = racer_id(next);
            const float weight = weight_of(asked);
            if (asked == block) {
                most = 0;
                const u64 entered = enter_race_with(noise, block, weight);
                if (entered) atomicMax(best, entered);
            }
            __syncwarp();
            if (lane_id() == 0) known = atomicMax(best, 0ull);
        }
    }
    __syncthreads();
    return *best;
}

// The winner inside a block: log2_weight_of(id) is -inf for ids that do not race.
template <typename WeightOf>
__device__ inline int race_tokens(u64* best, int block, const DrawKey& key, WeightOf log2_weight_of) {
    if (thread_id() == 0) *best = 0;
    __syncthreads();
    u64 mine = 0;
    for (int quad = thread_id(); quad < BLOCK_SIZE / 4; quad += CTA_THREADS) {
        const u32 id = block * BLOCK_SIZE + 4 * quad;
        float weights[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) weights[i] = log2_weight_of(static_cast<int>(id) + i);
        const uint4 words = random_words(key, TOKEN_LEVEL, id / 4);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (weights[i] > -INFINITY)
                mine = Max{}(mine, enter_race(word_at(words, i), id + i, weights[i]));
    }
    mine = warp_reduce(mine, Max{});
    if (lane_id() == 0 && mine) atomicMax(best, mine);
    __syncthreads();
    return *best ? racer_id(*best) : NO_TOKEN;
}

// A draw from a row's law, maybe without one token. Only where filters or that token take something
// from blocks must their logits be read.
__device__ COLD int draw_from_law(
    Best& best, const Row& row, const Mass* stats, const Law& law, const DrawKey& key, int without) {
    const bool whole = without < 0 && law.threshold == -INFINITY;
    const auto weight = [&](int id, float logit) {
        return id == without ? -INFINITY : kept_log2_weight(law, logit);
    };
    const u64 block = race_blocks(
        &best.block, row.num_blocks(), key, whole,
        [&](int at) { return __fadd_rn(log2_mass(load_mass(stats + at), law), whole ? 0.0f : BOUND_SLACK); },
        [&](int at) {
            float logits[PER_LANE], terms[PER_LANE];
            load_block(row, at, logits);
            const float max = load_max(stats + at);
#pragma unroll
            for (int j = 0; j < PER_LANE; ++j) {
                const bool kept = logits[j] >= law.threshold && id_of(at, j) != without;
                terms[j] = kept ? exp2_fast(log2_weight(logits[j], max, law.scale)) : 0.0f;
            }
            const float sum = warp_reduce(lane_sum(terms), Add{});
            return sum > 0.0f ? log2_mass(max, log2_fast(sum), law) : -INFINITY;
        });
    if (block == 0) return NO_TOKEN;
    return race_tokens(&best.token, racer_id(block), key,
                       [&](int id) { return weight(id, load_logit(row, id)); });
}

// The first element of the row that is as large as its largest. Ids of mapped rows are not in the order of
// elements.
__device__ COLD int greedy_token(Best& best, const Row& row, const Mass* stats, float max) {
    if (thread_id() == 0) best.token = 0;
    __syncthreads();
    u64 first = 0;
    for (int block = thread_id(); block < row.num_blocks(); block += CTA_THREADS)
        if (load_max(stats + block) == max) first = Max{}(first, u64{~static_cast<u32>(block)});
    const int begin = static_cast<int>(~static_cast<u32>(cta_reduce(first, Max{})));
    const int end = row.inverse_map ? row.num_blocks() : begin + 1;
    for (int block = begin; block < end; ++block) {
        if (load_max(stats + block) != max) continue;
        for (int id = block * BLOCK_SIZE + thread_id(); id < (block + 1) * BLOCK_SIZE; id += CTA_THREADS)
            if (id < row.num_ids && load_logit(row, id) == max)
                atomicMax(&best.token, static_cast<u64>(~static_cast<u32>(row.element_of(id))) << 32 |
                                           static_cast<u32>(id));
    }
    __syncthreads();
    return static_cast<int>(static_cast<u32>(best.token));
}

// The target's own sample at a row.
__device__ inline int target_token(
    Best& best, const Params& p, const Request& request, int row, const Mass* stats, const Law& law) {
    const TargetRow target(p, request, row);
    if (request.greedy) return greedy_token(best, target.row, stats, law.max);
    return draw_from_law(best, target.row, stats, law, target_key(p, request, row), NO_TOKEN);
}
