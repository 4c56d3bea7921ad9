// Stage 2: finds a row's law from its blocks' statistics and, if a filter cuts, from the counts of its
// logits.
#pragma once
#include "closer.cuh"
#include "small.cuh"

// A search among ranks: their masses, and the amount that is wanted from above.
struct RankQuery {
    Law law;
    float floor;
    int lowest;      // the last rank that counts
    int highest;     // the rank of the largest logit
    bool of_total;   // the share is of the ranks' total, else of `most`
    float share;     // of mass; 1: all
    u64 most;        // the mass of the row
    SmallMasses small;
};

// What a CTA shares while it searches ranks.
struct RankFound {
    int thread;
    int rank;
    u64 total;
    u64 above;
    u64 found;
    __device__ u64 kept() const { return above + found; }
};

// The least mass of the logits in a rank; the exact mass where it is known.
__device__ inline u64 mass_of(const RankQuery& query, int rank) {
    const u32 count = count_at(rank);
    const bool single = is_inner(rank);
    const float logit = least_of(rank, single);
    const u64 weight = fixed_weight(query.law, logit);
    const u64 each = logit >= query.floor ? weight : 0;
    if (query.small.known && count > 0 && is_small(rank))
        return rank < ZERO_RANK ? query.small.positive : query.small.negative;
    const bool has_largest = !single && count > 0 && rank == query.highest;
    return count * each + (has_largest ? WEIGHT_OF_LARGEST - each : 0);
}

// The lowest non-empty rank in [highest, lowest] with less than the wanted amount above it. By a CTA: each thread
// adds up a few neighbouring ranks, and a warp then searches those of one thread. amount_of(rank) is a rank's amount,
// and wanted(total) the wanted one, which is returned.
template <typename AmountOf, typename Wanted>
__device__ inline u64 find_rank(RankFound& out, int highest, int lowest, AmountOf amount_of, Wanted wanted) {
    const int each = (lowest - highest) / CTA_THREADS + 1, first = highest + thread_id() * each;
    u64 mine = 0;
    // Several at a time and without branches: otherwise one would wait for the other.
#pragma unroll 4
    for (int rank = first; rank < first + each; ++rank) {
        const u64 amount = amount_of(rank < lowest ? rank : lowest);
        mine += rank <= lowest ? amount : 0;
    }
    const u64 above = cta_sum_before(mine);
    if (thread_id() == 0) out.thread = -1;
    if (thread_id() == CTA_THREADS - 1) out.total = above + mine;
    __syncthreads();
    const u64 limit = wanted(out.total);
    if (mine > 0 && above < limit) atomicMax(&out.thread, thread_id());
    __syncthreads();
    if (out.thread == thread_id()) out.above = above;
    __syncthreads();
    const u64 before = out.above;
    __syncthreads();
    if (warp_id() > 0 || out.thread < 0) return limit;
    const int begin = highest + out.thread * each;
    search_ranks(
        begin, begin + each, before, limit,
        [&](int rank) {
            const u64 amount = rank <= lowest ? amount_of(rank) : 0;
            return Held{amount > 0, amount};
        },
        [&](int rank, u64 above, u64 amount) {
            out.rank = rank;
            out.above = above;
            out.found = amount;
        });
    return limit;
}

// The same by mass; all threads of the CTA get the result.
__device__ COLD u64 find_rank_by_mass(RankFound& out, const RankQuery& asked) {
    const RankQuery query = asked;  // a copy, so that it is loaded once
    const u64 limit = find_rank(
        out, query.highest, query.lowest, [&](int rank) { return mass_of(query, rank); },
        [&](u64 total) {
            return query.share < 1.0f ? share_of(query.share, query.of_total ? total : query.most) : ~0ull;
        });
    __syncthreads();
    return limit;
}

// The rank of the number-th largest logit; none has a rank before `highest`. By a CTA.
__device__ COLD int find_rank_by_number(RankFound& out, int highest, int number) {
    find_rank(
        out, highest, NUM_RANKS - 1, [](int rank) { return u64{count_at(rank)}; },
        [=](u64) { return static_cast<u64>(number); });
    __syncthreads();
    return out.rank;
}

// Whether small magnitudes have equal weights, up to less than the error of float sums.
__device__ inline bool small_weigh_alike(const Law& law, u64 row_mass) {
    const u32 count = count_at(ZERO_RANK - 1) + count_at(ZERO_RANK + 1);
    if (count == 0) return true;
    const float spread = edge_of(2) * law.scale;  // of log2 weights
    const float most = static_cast<float>(fixed_weight(law, fminf(below_edge(2), law.max)));
    const float mass = static_cast<float>(count) * most;
    return spread * mass <= 1e-7f * static_cast<float>(row_mass);
}

// Whether each rank down to `rank` holds logits of equal weight, if all are bfloat16.
__device__ inline bool are_single(const RankQuery& query, const Filters& filters, int rank) {
    constexpr int last = NUM_RANKS - 1;
    if (count_at(0) > 0) return false;
    if (is_small(rank) && count_at(rank) > 0) return false;
    if (rank >= ZERO_RANK && !query.small.known && !small_weigh_alike(query.law, query.most)) return false;
    if (rank < last || count_at(last) == 0) return true;
    return filters.top_k == 0 && fixed_weight(query.law, fminf(top_of(last), query.law.max)) == 0;
}

// Whether counts alone determine what filters keep. By a CTA.
__device__ inline bool cut_ranks(RankFound& found, RankQuery& query, const Filters& filters, Kept& kept) {
    const bool cuts = filters.cuts_before_top_p(), shares = filters.top_p < 1.0f;
    const bool single = are_single(query, filters, query.lowest);
    query.of_total = single && cuts;
    const u64 limit = find_rank_by_mass(found, query);
    const bool reached = shares && found.kept() >= limit;
    const bool alike = single || (!cuts && reached && are_single(query, filters, found.rank));
    const bool all = query.lowest == NUM_RANKS - 1;
    const float lowest = all ? query.floor : fmaxf(query.floor, logit_of(query.lowest));
    kept = {single && !shares ? lowest : logit_of(found.rank), found.kept()};
    // The order of small magnitudes still decides which of them a share keeps.
    const bool is_known = single && !shares ? true : alike && !is_small(found.rank);
    __syncthreads();  // `found` may go
    return is_known;
}

// The same for a row whose logits are all bfloat16 numbers, whatever their type; if only small magnitudes
// leave it open, these are weighed first. By a CTA.
__device__ inline bool filter_ranks(
    RankFound& found, const Row& row, const Mass* stats, const Law& law, const Filters& filters,
    u64 row_mass, Kept& kept) {
    RankQuery query = {};
    query.law = law;
    query.floor = floor_of_min_p(filters, law.max);
    query.lowest = rank_of(least_kept(filters, law.max, row.num_ids));
    query.highest = rank_of(law.max);
    query.share = filters.top_p;
    query.most = row_mass;
    if (filters.top_k > 0) {
        const int rank = find_rank_by_number(found, query.highest, filters.top_k);
        if (rank < query.lowest) query.lowest = rank;
        __syncthreads();
    }
    while (!cut_ranks(found, query, filters, kept)) {
        if (!WEIGHS_SMALL || query.small.known || small_weigh_alike(law, row_mass)) return false;
        query.small = weigh_small(law, row, stats);
    }
    return true;
}

// The same for a bfloat16 row in which some logits were changed, all of which are listed.
__device__ COLD bool filter_listed(
    Selection& found, int num_ids, const Law& law, const Filters& filters, u64 row_mass, Kept& kept) {
    if (list_length() > MAX_LISTED) return false;
    change_listed_counts(false);
    const bool cuts = filters.cuts_before_top_p(), shares = filters.top_p < 1.0f;
    Query query = {law, true, true, least_kept(filters, law.max, num_ids), law.max, 0, ~0ull, 1.0f};
    RankQuery ranks = {};
    ranks.law = law;
    ranks.most = row_mass;
    int lowest = rank_of(query.low);
    if (filters.top_k > 0) {
        query.limit = static_cast<u64>(filters.top_k);
        select(found, query);
        if (found.total >= query.limit) query.low = found.logit;
        lowest = rank_of(query.low);
    }
    const bool single = are_single(ranks, filters, lowest);
    query.by_number = false;
    query.limit = shares ? share_of(filters.top_p, row_mass) : ~0ull;
    if (shares && cuts) query.share = filters.top_p;
    select(found, query);
    bool is_known = single;
    if (shares && !cuts && !single)
        is_known = found.kept() >= query.limit && are_single(ranks, filters, rank_of(found.logit));
    if (shares) is_known = is_known && found.slot >= 0 && !is_small(rank_of(found.logit));
    kept = shares ? Kept{found.logit, found.kept()} : Kept{query.low, found.total};
    if (!is_known) change_listed_counts(true);
    __syncthreads();  // `found` may go
    return is_known;
}

constexpr u32 TOLD = 1u << 31;  // marks a counter of one logit, whose lower half it holds

// A logit that has a rank to itself and is the largest of its block is known in full, which bounds rows with peaks
// closely. Its counter then holds TOLD and the bits that the rank does not tell. Blocks whose largest logit reaches
// `least` are counted. By a CTA.
__device__ inline void tell_largest(const Mass* stats, int num_blocks, float least) {
#pragma unroll 1
    for (int block = thread_id(); block < num_blocks; block += CTA_THREADS) {
        const float max = load_max(stats + block);
        u32* counter = counter_of(max);
        if (max >= least && is_inner(rank_of(max)) && *counter == 1)
            *counter = TOLD | (__float_as_uint(max) & 0xffffu);
    }
    __syncthreads();
}

// Bounds of what a rank's logits weigh; both are the mass of a logit that is told.
__device__ inline Amounts told_masses(const Halves& halves, const Law& law, int rank, u32 counter) {
    if (!(counter & TOLD)) return masses_of(halves, law, rank, counter);
    const u32 bits = __float_as_uint(least_of(rank, true)) | (counter & 0xffffu);
    const u64 mass = fixed_weight(law, __uint_as_float(bits));
    return {mass, mass};
}

// The ranks between which a share of mass ends, by the counts' bounds or, for a `guess`, by the middle fourth of
// these: logits are mostly spread over their rank. By a CTA.
__device__ inline void bound_share(
    Cut& cut, const Search& search, const Filters& filters, int lowest, bool guess) {
    const Halves halves = {search.law.max};
    const u64 mass = search.row_mass, slack = mass >> SLACK_BITS;
    const bool cuts = filters.cuts_before_top_p();
    find_cut(
        cut, halves, lowest, 0,
        [&](int at, u32 counter) {
            Amounts masses = told_masses(halves, search.law, at, counter);
            if (halves.bottom(at) < search.floor) masses.least = 0;
            const u64 less = guess ? (masses.most - masses.least) / 8 * 3 : 0;
            return Amounts{masses.least + less, masses.most - less};
        },
        [&](const Cut& all) {
            const u64 limit = share_of(filters.top_p, cuts ? all.least : mass);
            return Amounts{limit > slack ? limit - slack : 1,
                           share_of(filters.top_p, cuts ? all.most : mass) + slack};
        });
}

// Begins a search when the row's counts are in shared memory: finds the logits between which they leave
// the threshold open. By a CTA.
__device__ COLD void begin_search(
    Finding& shared, RankFound& found, const Law& law, Filters filters, const Row& row, const Mass* stats,
    u64 row_mass) {
    const Halves halves = {law.max};
    const bool shares = filters.top_p < 1.0f, cuts = filters.cuts_before_top_p();
    const float floor = floor_of_min_p(filters, law.max), least = law.max - filters.reach(row.num_ids);
    Search search = {law, row_mass, floor, law.max, floor, law.max, floor, SHARES, 0, 0};
    int first = 0, last = rank_of(floor);
    if (filters.top_k > 0) {
        const int nth = find_rank_by_number(found, rank_of(law.max), filters.top_k);
        if (nth <= last) {
            last = nth;
            search.number = static_cast<int>(found.above);
            search.look(NUMBERS, fmaxf(bottom_of(nth), LEAST_LOGIT), halves.top(nth));
        }
    }
    const bool bounds = search.mode == SHARES && shares;
    if (search.mode == SHARES && !shares) search.look(SHARES, floor, floor);
    u64 open = 0;
    if (bounds) tell_largest(stats, row.num_blocks(), least);
#pragma unroll 1
    for (bool guess = false;; guess = true) {
        if (bounds) {
            bound_share(shared.cut, search, filters, last, guess);
            // Further down not all are counted.
            const float bottom = fmaxf(halves.bottom(shared.cut.low), least);
            const float top = halves.top(shared.cut.high);
            if (!guess) search.look_for_share(fmaxf(bottom, floor), top);
            search.low = fmaxf(search.low, bottom);
            search.high = fmaxf(search.low, top);
        }
        if (bounds && !cuts) {
            const int lowest = rank_of(search.low);
            first = shared.cut.high;
            last = lowest < shared.cut.low ? lowest : shared.cut.low;
        }
        open = sum_down_to(
            halves, last, [=](int rank, u32 counter) { return rank < first ? 0 : u64{counter & TOLD ? 1 : counter}; });
        if (!bounds || cuts || guess || open <= MAX_LISTED) break;
    }
    if (open <= MAX_LISTED) {
        const bool by_floor = search.mode == SHARES;
        if (cuts) search.look(LISTS, by_floor ? floor : fmaxf(search.low, floor), law.max);
        else search.mode = LISTS;
    } else if (bounds) {
        search.look(SHARES, search.lower, search.upper);
    }
    if (thread_id() == 0) shared.search = search;
    __syncthreads();
}

// The row's mass, added in the order of all kernels, for all threads of a CTA.
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

// The law of a row, whose logits are counted if it has filters; or a search for it. Consumes the counts.
// By a CTA.
__device__ COLD void find_law(Finding& shared, Row row, const Mass* stats, Filters filters) {
    __shared__ RankFound found;
    const float scale = logit_scale(filters.temperature);
    const Mass whole = shared_row_mass(stats, row.num_blocks(), scale);
    const Law law = plain_law(whole, scale, filters.temperature == 0.0f);
    const bool cuts = law.is_usable() && filters.any();
    const u64 row_mass = cuts ? to_fixed(whole.sum) : 0;
    Kept kept;
    bool is_known = !cuts;
    // A model's float32 logits are often bfloat16.
    const bool fine = !row.is_changed() && (row.type == BF16 || !counts_are_coarse());
    if (cuts && fine) is_known = filter_ranks(found, row, stats, law, filters, row_mass, kept);
    else if (LISTS_BESIDE && cuts && row.type == BF16)
        is_known = filter_listed(shared.selection, row.num_ids, law, filters, row_mass, kept);
    if (!is_known) return begin_search(shared, found, law, filters, row, stats, row_mass);
    if (thread_id() == 0) {
        shared.search.law = law;
        shared.search.mode = FOUND;
        if (cuts) shared.search.find(kept.threshold, kept.mass);
    }
    __syncthreads();
}
