// Stage 2: a row's law from its blocks' statistics and, where a filter cuts, from the counts of its
// logits.
#pragma once
#include "closer.cuh"

// What a CTA shares while it goes through ranks.
struct RankFound {
    int thread;
    int rank;
    u64 total;
    u64 above;
    u64 found;
};

// The lowest rank that holds something and has less than wanted(total) above it. amount_of(rank) is what
// a rank holds. By a CTA.
template <typename AmountOf, typename Wanted>
__device__ inline void find_rank(RankFound& out, AmountOf amount_of, Wanted wanted) {
    const int first = thread_id() * RANKS_EACH;
    const int end = first + RANKS_EACH < NUM_RANKS ? first + RANKS_EACH : NUM_RANKS;
    u64 mine = 0;
    for (int rank = first; rank < end; ++rank) mine += amount_of(rank);
    u64 above = cta_sum_before(mine);
    if (thread_id() == 0) out.thread = -1;
    if (thread_id() == CTA_THREADS - 1) out.total = above + mine;
    __syncthreads();
    const u64 limit = wanted(out.total);
    if (mine > 0 && above < limit) atomicMax(&out.thread, thread_id());
    __syncthreads();
    if (out.thread == thread_id()) {
        for (int rank = first; rank < end && above < limit; ++rank) {
            const u64 amount = amount_of(rank);
            if (amount == 0) continue;
            out.rank = rank;
            out.above = above;
            out.found = amount;
            above += amount;
        }
    }
    __syncthreads();
}

// Whether ranks down to `rank` hold equal logits each, if all are bfloat16, as far as they weigh.
__device__ inline bool are_single(const Law& law, const Filters& filters, int rank) {
    if (count_at(0) > 0) return false;
    if (rank >= SMALL_RANK && count_at(SMALL_RANK) > 0) return false;
    constexpr int last = NUM_RANKS - 1;
    if (rank < last || count_at(last) == 0) return true;
    return filters.top_k == 0 && fixed_weight(law, top_of(last)) == 0;
}

// The least that a rank weighs, and what it weighs where it is of equal logits.
__device__ inline u64 least_mass_of(const Law& law, float floor, bool exact, int rank) {
    const u32 count = count_at(rank);
    if (count == 0) return 0;
    const bool single = exact && rank != 0 && rank != SMALL_RANK && rank != NUM_RANKS - 1;
    const float logit = single ? logit_of(rank) : bottom_of(rank);
    const u64 each = logit >= floor ? fixed_weight(law, logit) : 0;
    if (single || rank != rank_of(law.max)) return count * each;
    return (count - 1) * each + fixed_weight(law, law.max);
}

// What filters keep of a counted row, or, if that is open, a logit below which they keep nothing.
struct Found {
    Kept kept;
    bool open;
};

// `exact`: all logits are bfloat16. By a CTA.
__device__ COLD Found filter_ranks(
    RankFound& found, const Law& law, const Filters& filters, bool exact, u64 row_mass) {
    const float floor = floor_of_min_p(filters, law.max);
    int lowest = rank_of(floor);
    if (filters.top_k > 0) {
        find_rank(found, count_at, [&](u64) { return static_cast<u64>(filters.top_k); });
        if (found.rank < lowest) lowest = found.rank;
    }
    const bool shares = filters.top_p < 1.0f, cuts = filters.cuts_before_top_p();
    const bool single = exact && are_single(law, filters, lowest);
    u64 limit = ~0ull;
    find_rank(
        found,
        [&](int rank) { return rank <= lowest ? least_mass_of(law, floor, exact, rank) : 0; },
        [&](u64 total) {
            const u64 most = exact && !cuts ? row_mass : row_mass + (row_mass >> 16);
            if (shares) limit = share_of(filters.top_p, single && cuts ? total : most);
            return limit;
        });
    const u64 kept = found.above + found.found;
    const bool reached = shares && kept >= limit;
    if (single && !shares) {
        const bool all = lowest == NUM_RANKS - 1;
        return {{all ? floor : fmaxf(floor, logit_of(lowest)), kept}, false};
    }
    const bool found_exactly = exact && !cuts && reached && are_single(law, filters, found.rank);
    __syncthreads();  // counts may go
    if (single || found_exactly) return {{logit_of(found.rank), kept}, false};
    // What top-p takes a share of is counted down to where the other filters cut.
    const float bottom = bottom_of(reached && !cuts ? found.rank : lowest);
    return {{fmaxf(fmaxf(floor, bottom), LEAST_LOGIT), 0}, true};
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
