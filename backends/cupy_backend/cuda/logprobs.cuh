// Logprobs of one emitted token and of the most likely ones of its row. The row is read anew: raw
// logits, or adjusted and filtered ones, as its request asks.
#pragma once
#include "recipe.cuh"
#include "request.cuh"

constexpr int MAX_GROUPS = 1024;  // runs of blocks among which the next most likely token is found

struct LogprobParams {
    Params batch;           // as the verification was told it
    const bool* processed;  // [num_reqs]
    Mass* stats;            // [CTAs, target blocks]
    float* emitted;         // [num_reqs, max_spec_len + 1], as the next two
    i64* top_token_ids;     // [..., top_n]
    float* top;
    i64 top_n;
};

// Every group's next token in the order of logprobs, as a racer; until a group was looked at, one
// that is not before it.
struct Groups {
    u64 next[MAX_GROUPS];
    bool exact[MAX_GROUPS];
};

// Falling logits, rising ids among equals; -0 is 0, and what a law cuts off is -inf.
__device__ inline u64 order_of(const Law& law, float logit, i64 id) {
    const float kept = logit >= law.threshold ? logit + 0.0f : -INFINITY;
    return static_cast<u64>(float_key(kept)) << 32 | static_cast<u32>(~static_cast<u32>(id));
}

__device__ inline float logprob_of(const Law& law, float logit) {
    return law_log2(law, logit) * LN_2;
}

// The law that logprobs are of: of a greedy request's row, before it is made one-hot.
template <typename TeamT>
__device__ inline Law reported_law(
    const TeamT& team, Scratch& scratch, const Row<TargetLogit>& row, Mass* stats,
    const Filters& filters) {
    const float scale = logit_scale(filters.temperature);
    for (int block = team.warp(); block < row.num_blocks(); block += TeamT::WARPS) {
        float logits[PER_LANE];
        load_block(row, block, logits);
        const Mass mass = block_mass(logits, scale);
        if (lane_id() == 0) stats[block] = mass;
    }
    team.sync();
    if (has_filters(filters)) return row_law(scratch, row, stats, filters).law;
    const Mass whole = row_mass(stats, row.num_blocks(), scale);
    return {whole.max, -INFINITY, scale, log2f(whole.sum)};
}

// The group's first token behind `limit`, 0 if there is none. By a warp.
__device__ inline u64 next_in_group(
    const Row<TargetLogit>& row, const Law& law, int first, int end, u64 limit) {
    u64 best = 0;
    for (int block = first; block < end && block < row.num_blocks(); ++block) {
        float logits[PER_LANE];
        load_block(row, block, logits);
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j) {
            const i64 id = id_of(block, lane_id(), j);
            const u64 order = order_of(law, logits[j], id);
            if (id < row.vocab_size && order < limit && order > best) best = order;
        }
    }
    return warp_reduce(best, Max{});
}

__device__ inline void bound_groups(
    Groups& groups, int num_groups, int size, const Row<TargetLogit>& row, const Mass* stats,
    const Law& law) {
    for (int group = static_cast<int>(thread_id()); group < num_groups; group += CTA_THREADS) {
        float max = -INFINITY;
        for (int block = group * size; block < (group + 1) * size; ++block)
            if (block < row.num_blocks()) max = fmaxf(max, stats[block].max);
        groups.next[group] = order_of(law, max, static_cast<i64>(group) * size * BLOCK_SIZE);
        groups.exact[group] = false;
    }
}

// By one warp; the places have room for as many ids as the vocabulary has, or fewer.
__device__ inline void write_most_likely(
    Groups& groups, int num_groups, int size, const Row<TargetLogit>& row, const Law& law,
    i64 top_n, i64* ids, float* logprobs) {
    for (i64 rank = 0; rank < top_n;) {
        u64 best = 0;
        for (int group = lane_id(); group < num_groups; group += LANES)
            best = Max{}(best, groups.next[group]);
        best = warp_reduce(best, Max{});
        const int group = static_cast<int>(racer_id(best) / (static_cast<u32>(size) * BLOCK_SIZE));
        const bool exact = groups.exact[group];
        if (exact && lane_id() == 0) {
            ids[rank] = racer_id(best);
            logprobs[rank] = logprob_of(law, key_float(static_cast<u32>(best >> 32)));
        }
        rank += exact;
        const u64 next =
            next_in_group(row, law, group * size, (group + 1) * size, exact ? best : ~0ull);
        __syncwarp();
        if (lane_id() == 0) {
            groups.next[group] = next;
            groups.exact[group] = true;
        }
        __syncwarp();
    }
}

__device__ inline void write_nothing(const LogprobParams& p, i64 place) {
    if (thread_id() == 0) p.emitted[place] = -INFINITY;
    for (i64 rank = thread_id(); rank < p.top_n; rank += CTA_THREADS) {
        p.top_token_ids[place * p.top_n + rank] = -1;
        p.top[place * p.top_n + rank] = -INFINITY;
    }
}

__device__ inline void write_logprobs(
    const LogprobParams& p, Scratch& scratch, Groups& groups, i64 place, i64 token) {
    const i64 width = p.batch.max_spec_len + 1;
    Request request = {};
    request.index = static_cast<int>(place / width);
    const bool one_row = p.batch.row_starts.data == nullptr;
    request.start = one_row ? request.index : integer_at(p.batch.row_starts, request.index);
    request.slot =
        p.batch.slots.data ? integer_at(p.batch.slots, request.index) : request.index;
    const bool processed = p.processed[request.index];
    const AdjustedRow adjusted(p.batch, request, static_cast<int>(place % width));
    Row<TargetLogit> row = adjusted.row;
    if (!processed) row.adjustment = nullptr;
    const Filters filters =
        processed ? filters_of(p.batch.target, request.index, p.batch.vocab_size) : Filters{0.0f, 0.0f, 0, 1.0f};
    const int num_blocks = row.num_blocks();
    Mass* stats = p.stats + static_cast<i64>(blockIdx.x) * num_blocks;
    const Law law = reported_law(WholeCta{0}, scratch, row, stats, filters);
    const int size = (num_blocks + MAX_GROUPS - 1) / MAX_GROUPS;
    const int num_groups = (num_blocks + size - 1) / size;
    bound_groups(groups, num_groups, size, row, stats, law);
    meet_in_cta();
    if (thread_id() == 0) p.emitted[place] = logprob_of(law, load_logit(row, token));
    if (warp_id() == 0)
        write_most_likely(groups, num_groups, size, row, law, p.top_n,
                          p.top_token_ids + place * p.top_n, p.top + place * p.top_n);
}
