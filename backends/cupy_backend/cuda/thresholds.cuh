// Stage 2: a row's law from its blocks' statistics and, where a filter cuts, from the counts of its
// logits.
#pragma once
#include "closer.cuh"

// What is asked of ranks: what each holds, and how much from above is wanted.
struct RankQuery {
    Law law;
    float floor;
    int lowest;      // rank that counts
    bool by_number;  // else by mass
    bool exact;      // all logits are bfloat16
    bool of_total;   // the share is of what ranks hold, else of `most`
    float share;     // of mass; 1: all
    u64 most;        // also the number that is wanted
};

// What a CTA shares while it goes through ranks.
struct RankFound {
    int thread;
    int rank;
    u64 total;
    u64 above;
    u64 found;
    __device__ u64 kept() const { return above + found; }
};

// The number of logits in a rank, or the least that they weigh; what they weigh where they are equal.
__device__ inline u64 amount_of(const RankQuery& query, int rank) {
    const u32 count = rank <= query.lowest ? count_at(rank) : 0;
    if (count == 0 || query.by_number) return count;
    const bool single =
        query.exact && rank != 0 && rank != SMALL_RANK && rank != NUM_RANKS - 1;
    const float logit = single ? logit_of(rank) : bottom_of(rank);
    const u64 each = logit >= query.floor ? fixed_weight(query.law, logit) : 0;
    if (single || rank != rank_of(query.law.max)) return count * each;
    return (count - 1) * each + fixed_weight(query.law, query.law.max);
}

__device__ inline u64 wanted_of(const RankQuery& query, u64 total) {
    if (query.by_number) return query.most;
    return query.share < 1.0f ? share_of(query.share, query.of_total ? total : query.most) : ~0ull;
}

// The lowest rank that holds something and has less than what is wanted above it; returns that. By a CTA.
__device__ COLD u64 find_rank(RankFound& out, const RankQuery& query) {
    const int first = thread_id() * RANKS_EACH;
    const int end = first + RANKS_EACH < NUM_RANKS ? first + RANKS_EACH : NUM_RANKS;
    u64 mine = 0, above = 0, limit = ~0ull;
    // Twice by the same code, which comes from memory: all threads, then the one that has it.
#pragma unroll 1
    for (int turn = 0; turn < 2; ++turn) {
#pragma unroll 1
        for (int rank = first; rank < end && (turn == 0 || above < limit); ++rank) {
            const u64 amount = amount_of(query, rank);
            if (turn && amount) {
                out.rank = rank;
                out.above = above;
                out.found = amount;
            }
            if (turn) above += amount;
            else mine += amount;
        }
        if (turn) break;
        above = cta_sum_before(mine);
        if (thread_id() == 0) out.thread = -1;
        if (thread_id() == CTA_THREADS - 1) out.total = above + mine;
        __syncthreads();
        limit = wanted_of(query, out.total);
        if (mine > 0 && above < limit) atomicMax(&out.thread, thread_id());
        __syncthreads();
        if (out.thread != thread_id()) break;
    }
    __syncthreads();
    return limit;
}

// The rank of the number-th largest logit. By a CTA.
__device__ inline int find_rank_by_number(RankFound& out, int number) {
    RankQuery query = {};
    query.lowest = NUM_RANKS - 1;
    query.by_number = true;
    query.most = static_cast<u64>(number);
    find_rank(out, query);
    return out.rank;
}

// Whether small magnitudes weigh as 0 does, but for less than sums of floats are wrong by.
__device__ inline bool small_weigh_alike(const Law& law, u64 row_mass) {
    const u32 count = count_at(SMALL_RANK);
    if (count == 0) return true;
    const float spread = edge_of(1) * law.scale;  // of log2 weights
    const float mass = static_cast<float>(count) * static_cast<float>(fixed_weight(law, 0.0f));
    return spread * mass <= 1e-7f * static_cast<float>(row_mass);
}

// Whether ranks down to `rank` hold equal logits each, if all are bfloat16, as far as they weigh.
__device__ inline bool are_single(const Law& law, const Filters& filters, u64 row_mass, int rank) {
    constexpr int last = NUM_RANKS - 1;
    if (count_at(0) > 0) return false;
    if (rank == SMALL_RANK && count_at(SMALL_RANK) > 0) return false;
    if (rank > SMALL_RANK && !small_weigh_alike(law, row_mass)) return false;
    if (rank < last || count_at(last) == 0) return true;
    return filters.top_k == 0 && fixed_weight(law, fminf(top_of(last), law.max)) == 0;
}

// What filters keep of a counted row, or, if that is open, a logit below which they keep nothing.
struct Found {
    Kept kept;
    bool open;
};

// `exact`: all logits are bfloat16. By a CTA.
__device__ COLD Found filter_ranks(
    RankFound& found, const Law& law, const Filters& filters, bool exact, u64 row_mass) {
    RankQuery query = {};
    query.law = law;
    query.exact = exact;
    query.floor = floor_of_min_p(filters, law.max);
    query.lowest = rank_of(query.floor);
    if (filters.top_k > 0) {
        const int rank = find_rank_by_number(found, filters.top_k);
        if (rank < query.lowest) query.lowest = rank;
        __syncthreads();
    }
    const bool cuts = filters.cuts_before_top_p(), shares = filters.top_p < 1.0f;
    const bool single = exact && are_single(law, filters, row_mass, query.lowest);
    query.share = filters.top_p;
    query.of_total = single && cuts;
    query.most = exact && !cuts ? row_mass : row_mass + (row_mass >> 16);
    const u64 limit = find_rank(found, query);
    const bool reached = shares && found.kept() >= limit;
    const bool by_share =
        single || (exact && !cuts && reached && are_single(law, filters, row_mass, found.rank));
    __syncthreads();  // counts may go
    if (single && !shares) {
        const bool all = query.lowest == NUM_RANKS - 1;
        return {{all ? query.floor : fmaxf(query.floor, logit_of(query.lowest)), found.kept()}, false};
    }
    if (by_share) return {{logit_of(found.rank), found.kept()}, false};
    // What top-p takes a share of is counted down to where the other filters cut.
    const float bottom = bottom_of(reached && !cuts ? found.rank : query.lowest);
    return {{fmaxf(fmaxf(query.floor, bottom), LEAST_LOGIT), 0}, true};
}

// The row's mass as all kernels add it, known to all of a CTA.
__device__ inline Mass shared_row_mass(const Mass* stats, int num_blocks, float scale) {
    __shared__ Mass whole;
    if (warp_id() == 0) {
        const Mass mass = row_mass(stats, num_blocks, scale);
        if (lane_id() == 0) whole = mass;
    }
    __syncthreads();
    const Mass mass = whole;
    __syncthreads();
    return mass;
}

struct Finding {
    Scratch scratch;
    RankFound rank;
};

// The law of a row whose logits are counted if it has filters; then counts are used up. By a CTA.
__device__ COLD Law find_law(Finding& shared, Row row, const Mass* stats, Filters filters) {
    const float scale = logit_scale(filters.temperature);
    const Mass whole = shared_row_mass(stats, row.num_blocks(), scale);
    Law law = plain_law(whole, scale, filters.temperature == 0.0f);
    if (!law.is_usable() || !filters.any()) return law;
    const u64 row_mass = to_fixed(whole.sum);
    const bool exact = row.type == BF16 && !row.is_adjusted();
    const Found found = filter_ranks(shared.rank, law, filters, exact, row_mass);
    Kept kept = found.kept;
    if (found.open) {
        const Subject subject = {row, stats, law};
        kept = filter_counted(shared.scratch, subject, filters, kept.threshold, row_mass);
    }
    law.threshold = kept.threshold;
    law.log2_sum = log2f(from_fixed(kept.mass));
    return law;
}
