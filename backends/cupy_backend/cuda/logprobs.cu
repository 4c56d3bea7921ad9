// Logprobs of emitted tokens, on request: a CTA per emitted token reads its row again, raw or adjusted and
// filtered, and lists the most likely tokens.
#include "accept.cuh"
#include "reading.cuh"
#include "thresholds.cuh"

constexpr int MAX_RANKED = 256;  // tokens that are ranked by comparing all pairs

// A token as an integer, ordered by logprobs: falling logits, rising ids among equals; tokens that a law
// cuts off have -inf. 0 is none.
__device__ inline u64 order_of(const Law& law, float logit, int id) {
    const float kept = logit >= law.threshold ? __fadd_rn(logit, 0.0f) : -INFINITY;
    return static_cast<u64>(float_key(kept)) << 32 | ~static_cast<u32>(id);
}

__device__ inline float logprob_of(const Law& law, float logit) {
    if (!(logit >= law.threshold)) return -INFINITY;
    // Computed without a base-2 logarithm, which may overflow a float where this one does not.
    const float weight = __fmul_rn(__fsub_rn(logit, law.max), __fmul_rn(law.scale, LN_2));
    return __fsub_rn(weight, __fmul_rn(law.log2_sum, LN_2));
}

struct Ranking {
    u64 orders[MAX_RANKED];
    u32 count;
};

// The law of the logprobs, and a lower bound of the most likely tokens' logits.
__device__ inline Law reported_law(
    Finding& finding, const Row& row, Mass* stats, const Filters& filters, i64 num_logprobs,
    float& floor) {
    const float scale = logit_scale(filters.temperature);
    __shared__ u32 largest;
    __shared__ RankFound found;
    clear_counts();
    if (thread_id() == 0) largest = float_key(-INFINITY);
    __syncthreads();
    read_all(row, {0, row.num_blocks()}, {scale, false, {&largest, INFINITY}, stats, nullptr, nullptr}, true);
    __syncthreads();
    if (num_logprobs > 0)
        floor = bottom_of(find_rank_by_number(found, 0, static_cast<int>(num_logprobs)));
    __syncthreads();
    find_law(finding, row, stats, filters);
    search_alone(finding, row, stats, filters);
    return finding.search.law;
}

// Lists tokens whose logits reach `floor`; it counts on when the list is full.
__device__ inline void list_tokens(
    Ranking& ranking, const Row& row, const Mass* stats, const Law& law, float floor) {
    if (thread_id() == 0) ranking.count = 0;
    __syncthreads();
    u32 place = 0;  // once the list is full, counting may stop
    visit_blocks(row, stats, floor, [&](int block, const float(&logits)[PER_LANE]) {
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j) {
            if (!(logits[j] >= floor) || place > MAX_RANKED) continue;
            place = atomicAdd(&ranking.count, 1u);
            if (place < MAX_RANKED) ranking.orders[place] = order_of(law, logits[j], id_of(block, j));
        }
    });
    __syncthreads();
}

__device__ inline void write_rank(
    const Params& p, i64 place, const Law& law, i64 rank, u64 order) {
    p.top_token_ids[place * p.num_logprobs + rank] = ~static_cast<u32>(order);
    p.top[place * p.num_logprobs + rank] =
        logprob_of(law, key_float(static_cast<u32>(order >> 32)));
}

// Takes one token after the other from rank `rank` on: for rows with too many equal tokens to list, and for
// tokens that a law cuts off. A block's next token cannot precede its largest logit.
__device__ COLD void rank_one_by_one(
    const Params& p, Best& best, const Row& row, const Mass* stats, const Law& law, i64 place,
    i64 rank, u64 limit) {
    for (; rank < p.num_logprobs; ++rank) {
        if (thread_id() == 0) best.token = 0;
        __syncthreads();
        for (int block = warp_id(); block < row.num_blocks(); block += CTA_WARPS) {
            const u64 told = lane_id() == 0 ? atomicMax(&best.token, 0ull) : 0;
            const u64 known = __shfl_sync(ALL_LANES, told, 0);
            if (order_of(law, load_max(stats + block), block * BLOCK_SIZE) < known) continue;
            float logits[PER_LANE];
            load_block(row, block, logits);
            u64 mine = 0;
#pragma unroll
            for (int j = 0; j < PER_LANE; ++j) {
                const int id = id_of(block, j);
                const u64 order = order_of(law, logits[j], id);
                if (id < row.num_ids && order < limit) mine = Max{}(mine, order);
            }
            mine = warp_reduce(mine, Max{});
            if (lane_id() == 0 && mine) atomicMax(&best.token, mine);
            __syncwarp();
        }
        __syncthreads();
        limit = best.token;
        if (thread_id() == 0) write_rank(p, place, law, rank, limit);
        __syncthreads();
    }
}

__device__ inline void write_most_likely(
    const Params& p, Ranking& ranking, Best& best, const Row& row,
    const Mass* stats, const Law& law, float bound, i64 place) {
    const int wanted = static_cast<int>(p.num_logprobs);
    if (wanted == 0) return;
    list_tokens(ranking, row, stats, law, fmaxf(fmaxf(bound, law.threshold), LEAST_LOGIT));
    const u32 count = ranking.count;
    if (count > MAX_RANKED) return rank_one_by_one(p, best, row, stats, law, place, 0, ~0ull);
    for (u32 i = thread_id(); i < count; i += CTA_THREADS) {
        const u64 mine = ranking.orders[i];
        i64 rank = 0;
        for (u32 j = 0; j < count; ++j) rank += ranking.orders[j] > mine;
        if (rank < wanted) write_rank(p, place, law, rank, mine);
    }
    if (static_cast<int>(count) >= wanted) return;
    u64 last = ~0ull;
    for (u32 j = 0; j < count; ++j) last = Min{}(last, ranking.orders[j]);
    rank_one_by_one(p, best, row, stats, law, place, count, last);
}

__device__ inline void write_nothing(const Params& p, i64 place) {
    if (thread_id() == 0) p.emitted[place] = -INFINITY;
    for (i64 rank = thread_id(); rank < p.num_logprobs; rank += CTA_THREADS) {
        p.top_token_ids[place * p.num_logprobs + rank] = -1;
        p.top[place * p.num_logprobs + rank] = -INFINITY;
    }
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS, 1024 / CTA_THREADS)
    logprobs(const __grid_constant__ Params p) {
    __shared__ Finding finding;
    __shared__ Ranking ranking;
    __shared__ Best best;
    const int row_index = static_cast<int>(blockIdx.y);
    const Request request = read_request(p, blockIdx.x);
    wait_for_launch_before();
    const i64 place = place_of(p, request, row_index);
    const i64 token = p.token_ids[place];
    if (token < 0) return write_nothing(p, place);
    const bool processed = p.processed[request.entry];
    TargetRow target(p, request, row_index);
    if (!processed) target.row = target_row(p, request, row_index);
    Filters filters = {1.0f, 0.0f, 0, 1.0f};
    if (processed && !request.greedy) filters = request.filters;
    Mass* stats = target_stats_of(p, request, row_index);
    float bound = LEAST_LOGIT;
    const Law law = reported_law(finding, target.row, stats, filters, p.num_logprobs, bound);
    if (thread_id() == 0)
        p.emitted[place] = logprob_of(law, load_logit(target.row, static_cast<int>(token)));
    write_most_likely(p, ranking, best, target.row, stats, law, bound, place);
}
