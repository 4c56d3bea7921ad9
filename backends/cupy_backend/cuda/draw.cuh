// Stage 4: the exponential race of core/race.py, first among blocks, then among the tokens of the
// winner. By a CTA; results are the same in all its threads.
#pragma once
#include "statistics.cuh"

constexpr int NO_TOKEN = -1;

__device__ inline u64 enter_race(u32 word, u32 id, float log2_weight) {
    return racer(__fsub_rn(log2_weight, log2_fast(exponential(word))), id);
}

__device__ inline u64 enter_race_with(float noise, u32 id, float log2_weight) {
    return log2_weight == -INFINITY ? 0 : racer(__fsub_rn(log2_weight, noise), id);
}

constexpr float BOUND_SLACK = 0.015625f;  // of log2 weights: more than the error of float sums

// The best of a race, and the candidates that may still win, shared by a CTA.
struct Best {
    u64 block;
    u64 token;
    u64 most[CTA_THREADS];
    float noise[CTA_THREADS];
    u32 num_candidates;
};

// Adds the candidates of threads that have one. After a barrier, and followed by one.
__device__ inline void list_candidates(Best& best, bool wants, u64 most, float noise) {
    if (thread_id() == 0) best.num_candidates = 0;
    __syncthreads();
    if (wants) {
        const u32 place = atomicAdd(&best.num_candidates, 1u);
        best.most[place] = most;
        best.noise[place] = noise;
    }
    __syncthreads();
}

// The winning block, or 0. most_of(mass) is an upper bound of a block's log2 weight; weight_of(block),
// by a warp, is the weight itself, for which logits may be read. First every warp weighs the likeliest of
// its blocks; then warps share those that could still win, a few out of hundreds.
// `certain`: most_of is the weight.
template <typename MostOf, typename WeightOf>
__device__ inline u64 race_blocks(
    Best& best, const Mass* stats, int num_blocks, const DrawKey& key, bool certain, MostOf most_of,
    WeightOf weight_of) {
    if (thread_id() == 0) best.block = 0;
    __syncthreads();
    u64 winner = 0;
    for (int first = warp_id(); first - warp_id() < num_blocks; first += CTA_THREADS) {
        const int block = first + lane_id() * CTA_WARPS;
        float noise = 0.0f;
        u64 most = 0;
        if (block < num_blocks) {
            const Mass mass = load_mass(stats + block);  // on its way while the word is made
            noise = log2_fast(exponential(random_word(key, BLOCK_LEVEL, block)));
            most = enter_race_with(noise, block, most_of(mass));
        }
        winner = Max{}(winner, most);
        if (certain) continue;
        const u64 likeliest = warp_reduce(most, Max{});
#pragma unroll 1
        for (int turn = 0; turn < 2; ++turn) {
            const bool is_first = most == likeliest;
            list_candidates(best, turn ? !is_first && most > best.block : is_first && most, most, noise);
            for (u32 i = warp_id(); i < best.num_candidates; i += CTA_WARPS) {
                const u64 known = lane_id() == 0 ? atomicMax(&best.block, 0ull) : 0;
                if (best.most[i] <= __shfl_sync(ALL_LANES, known, 0)) continue;
                const int asked = racer_id(best.most[i]);
                const u64 entered = enter_race_with(best.noise[i], asked, weight_of(asked));
                if (lane_id() == 0 && entered) atomicMax(&best.block, entered);
            }
            __syncthreads();
        }
    }
    if (certain) {
        winner = warp_reduce(winner, Max{});
        if (lane_id() == 0 && winner) atomicMax(&best.block, winner);
    }
    __syncthreads();
    return best.block;
}

// The winner inside a block: log2_weight_of(id) is -inf for ids that cannot win.
template <typename WeightOf>
__device__ inline int race_tokens(Best& best, int block, const DrawKey& key, WeightOf log2_weight_of) {
    constexpr int each = BLOCK_SIZE / CTA_THREADS;
    if (thread_id() == 0) best.token = 0;
    __syncthreads();
    const u32 id = block * BLOCK_SIZE + each * thread_id();
    float weights[each];
#pragma unroll
    for (int i = 0; i < each; ++i) weights[i] = log2_weight_of(static_cast<int>(id) + i);
    const uint4 words = random_words(key, TOKEN_LEVEL, id / 4);
    u64 mine = 0;
#pragma unroll
    for (int i = 0; i < each; ++i)
        mine = Max{}(mine, enter_race(word_at(words, id % 4 + i), id + i, weights[i]));
    mine = warp_reduce(mine, Max{});
    if (lane_id() == 0 && mine) atomicMax(&best.token, mine);
    __syncthreads();
    return best.token ? racer_id(best.token) : NO_TOKEN;
}

// A draw from a row's law, perhaps without one token. Logits of a block must be read only if filters or
// that token remove a part of its mass.
__device__ COLD int draw_from_law(
    Best& best, Row row, const Mass* stats, Law law, DrawKey key, int without) {
    const bool whole = without < 0 && law.threshold == -INFINITY;
    const auto weight = [&](int id, float logit) {
        return id == without ? -INFINITY : kept_log2_weight(law, logit);
    };
    const u64 block = race_blocks(
        best, stats, row.num_blocks(), key, whole,
        [&](const Mass& mass) { return __fadd_rn(log2_mass(mass, law), whole ? 0.0f : BOUND_SLACK); },
        [&](int at) {
            float logits[PER_LANE], terms[PER_LANE];
            load_block(row, at, logits);
            const float max = load_max(stats + at);
#pragma unroll
            for (int j = 0; j < PER_LANE; ++j) {
                const bool kept = logits[j] >= law.threshold && id_of(at, j) != without;
                const float term = exp2_fast(log2_weight(logits[j], max, law.scale));
                terms[j] = kept ? term : 0.0f;
            }
            const float sum = warp_reduce(lane_sum(terms), Add{});
            return sum > 0.0f ? log2_mass(max, log2_fast(sum), law) : -INFINITY;
        });
    if (block == 0) return NO_TOKEN;
    return race_tokens(best, racer_id(block), key,
                       [&](int id) { return weight(id, load_logit(row, id)); });
}

// The lowest id of the row's largest logit. In mapped rows ids are not in the order of elements.
__device__ COLD int greedy_token(Best& best, Row row, const Mass* stats, float max) {
    if (thread_id() == 0) best.token = 0;
    u64 first = 0;
#pragma unroll 1
    for (int block = thread_id(); block < row.num_blocks(); block += CTA_THREADS)
        if (load_max(stats + block) == max) first = Max{}(first, u64{~static_cast<u32>(block)});
    const int begin = static_cast<int>(~static_cast<u32>(cta_reduce(first, Max{})));
    const int end = row.inverse_map ? row.num_blocks() : begin + 1;
#pragma unroll 1
    for (int block = begin + warp_id(); block < end; block += CTA_WARPS) {
        if (load_max(stats + block) != max) continue;
        float logits[PER_LANE];
        load_block(row, block, logits);
        u32 equal = 0;
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j) equal |= static_cast<u32>(logits[j] == max) << j;
#pragma unroll 1
        for (; equal; equal &= equal - 1) {
            const int id = id_of(block, __ffs(static_cast<int>(equal)) - 1);
            atomicMax(&best.token, static_cast<u64>(~static_cast<u32>(row.element_of(id))) << 32 |
                                       static_cast<u32>(id));
        }
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
