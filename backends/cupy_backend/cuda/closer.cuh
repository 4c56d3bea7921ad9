// Searches a threshold that counts leave open: it lies between two logits, which every look at the row
// brings nearer to each other. If few logits are left between them, they are listed.
#pragma once
#include "digits.cuh"
#include "select.cuh"

constexpr int SLACK_BITS = 19;  // the relative error of sums of masses is below 2^-19

constexpr float LEAST_WEIGHT = 45.0f;  // as a power of 1/2

enum Mode { FOUND, LISTS, NUMBERS, SHARES };  // LISTS: logits in between are listed, not counted

struct alignas(16) Search {
    Law law;  // without filters, until the threshold is found
    u64 row_mass;
    float low;
    float high;
    float lower;  // bounds that are certain, even if `low` and `high` are a guess
    float upper;
    float floor;  // no logit below it is kept
    int mode;     // the target of the search: all from `low` on, a number of logits, or a share of mass
    int number;   // how many logits are above `high`
    int looks;    // how often the row was read so far

    __device__ void find(float threshold, u64 kept) {
        mode = FOUND;
        law.threshold = threshold;
        law.log2_sum = log2f(from_fixed(kept));
    }
    __device__ void look(int what, float from, float to) {
        mode = what;
        low = lower = from;
        high = upper = fmaxf(from, to);
    }
    // A share of the mass cannot end at logits that weigh almost nothing.
    __device__ void look_for_share(float from, float to) {
        look(SHARES, fmaxf(from, law.max - LEAST_WEIGHT / law.scale), to);
    }
};

struct Finding {
    Search search;
    Cut cut;
    Selection selection;
};

// Lists a piece's logits between `low` and `high`, and weighs those above.
__device__ inline void list_piece(
    const Search& search, const Row& row, const Mass* stats, const Piece& piece) {
    const bool weighs = search.high < search.law.max;
    u64 above = 0;
    visit_piece(row, stats, piece, search.low, [&](int, const float(&logits)[PER_LANE]) {
        u32 between = 0;
        float highs = 0.0f;
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j) {
            const float logit = logits[j];
            between |= static_cast<u32>(logit >= search.low && logit <= search.high) << j;
            const float weight = exp2_fast(log2_weight(logit, search.law.max, search.law.scale));
            highs = __fadd_rn(highs, logit > search.high ? weight : 0.0f);
        }
        list_logits(between, logits);
        if (weighs) above += to_fixed(warp_reduce(highs, Add{}));
    });
    if (lane_id() == 0 && above) atomicAdd(mass_sums(), above);
}

// Counts logits in between, and weighs those above and, with `totals`, all from the floor on. A block's
// sums have one fixed order.
__device__ inline void count_piece(
    const Search& search, const Row& row, const Mass* stats, const Piece& piece, bool totals) {
    const Digits digits = Digits::of(search.low, search.high, idle_bits_of(row));
    const float from = totals ? fminf(search.floor, search.low) : search.low;
    u64 above = 0, total = 0;
    visit_piece(row, stats, piece, from, [&](int, const float(&logits)[PER_LANE]) {
        float highs = 0.0f, all = 0.0f;
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j) {
            const float logit = logits[j];
            const bool here = logit >= search.low && logit <= search.high;
            atomicAdd(asked_shared_memory() + (here ? digits.rank_of(logit) : IN_VAIN), 1u);
            const float weight = exp2_fast(log2_weight(logit, search.law.max, search.law.scale));
            highs = __fadd_rn(highs, logit > search.high ? weight : 0.0f);
            all = __fadd_rn(all, logit >= search.floor ? weight : 0.0f);
        }
        above += to_fixed(warp_reduce(highs, Add{}));
        if (totals) total += to_fixed(warp_reduce(all, Add{}));
    });
    if (lane_id() > 0) return;
    if (above) atomicAdd(mass_sums(), above);
    if (total) atomicAdd(mass_sums() + 1, total);
}

// Reads a piece once for a search. By a CTA.
__device__ COLD void look_closer(
    const Search& asked, Row row, const Mass* stats, Piece piece, bool totals) {
    const Search search = asked;  // a copy, so that it is loaded once
    clear_counts();
    __syncthreads();
    if (search.mode == LISTS) list_piece(search, row, stats, piece);
    else count_piece(search, row, stats, piece, totals);
    __syncthreads();
}

// Whether masses from the floor on are needed.
__device__ inline bool asks_for_totals(const Search& search, const Filters& filters) {
    return search.mode == SHARES && filters.cuts_before_top_p() && filters.top_p < 1.0f;
}

// Applies filters to the listed logits, which are all that matter unless a guess was wrong: then those on the other
// side of one of its ends are listed. By a CTA.
__device__ inline void find_in_list(Finding& shared, const Search& was, const Filters& filters) {
    if (list_length() > MAX_LISTED) {
        if (thread_id() == 0) shared.search.look(SHARES, was.low, was.high);
        __syncthreads();
        return;
    }
    const bool shares = filters.top_p < 1.0f, cuts = filters.cuts_before_top_p();
    Query query = {was.law, true, false, fmaxf(was.floor, was.low), was.high, 0, 0, 1.0f};
    if (filters.top_k > 0) {
        query.limit = filters.top_k;
        select(shared.selection, query);
        query.low = fmaxf(query.low, shared.selection.logit);
    }
    query.by_number = false;
    query.before = mass_sums()[0];
    query.limit = shares && !cuts ? share_of(filters.top_p, was.row_mass) : ~0ull;
    query.share = shares && cuts ? filters.top_p : 1.0f;
    select(shared.selection, query);
    if (thread_id() == 0) {
        const Selection& found = shared.selection;
        const bool is_above = query.before >= query.limit && was.high < was.upper;
        const bool is_below = found.total < query.limit && was.low > was.lower;
        const float above = key_float(key_of(was.high) + 1);
        if (is_above) shared.search.look(LISTS, above, was.upper);
        // Two looks add up masses in different orders, and so may disagree where the share ends.
        else if (query.before >= query.limit) shared.search.find(above, query.before);
        else if (is_below) shared.search.look(LISTS, was.lower, key_float(key_of(was.low) - 1));
        else if (shares && found.slot >= 0) shared.search.find(found.logit, found.kept());
        else shared.search.find(query.low, found.total);
    }
    __syncthreads();
}

// Continues or ends a search for a number of logits. By a CTA.
__device__ inline void narrow_number(
    Finding& shared, const Search& was, const Filters& filters, const Digits& digits) {
    const u64 wanted = static_cast<u64>(filters.top_k);
    find_cut(
        shared.cut, digits, NUM_DIGITS - 1, was.number,
        [](int, u32 count) { return Amounts{count, count}; },
        [=](const Cut&) { return Amounts{wanted, wanted}; });
    const int rank = shared.cut.low;
    const u64 before = sum_down_to(digits, rank - 1, [](int, u32 count) { return u64{count}; });
    const u64 mass = sum_down_to(digits, rank, [&](int at, u32 count) {
        return count * fixed_weight(was.law, digits.logit_of(at));
    });
    if (thread_id() == 0) {
        Search& search = shared.search;
        const float logit = rank < 0 ? was.low : digits.logit_of(rank);
        if (rank >= 0 && !digits.single) {
            search.look(NUMBERS, digits.bottom(rank), digits.top(rank));
            search.number += static_cast<int>(before);
        } else if (filters.top_p < 1.0f) {
            search.floor = fmaxf(was.floor, logit);
            search.look_for_share(search.floor, was.law.max);
        } else if (logit < was.floor) {
            search.look(SHARES, was.floor, was.floor);
        } else {
            search.find(logit, mass_sums()[0] + mass);
        }
    }
    __syncthreads();
}

// Continues or ends a search for a share of the mass.
__device__ inline void narrow_share(
    Finding& shared, const Search& was, const Filters& filters, const Digits& digits) {
    const bool shares = filters.top_p < 1.0f;
    const u64 above = mass_sums()[0];
    const u64 mass = filters.cuts_before_top_p() ? mass_sums()[1] : was.row_mass;
    const u64 limit = shares ? share_of(filters.top_p, mass) : ~0ull;
    if (shares && above >= limit && was.high < was.upper) {
        if (thread_id() == 0) shared.search.look(SHARES, key_float(digits.high + 1), was.upper);
        __syncthreads();
        return;
    }
    const u64 slack = digits.single || !shares ? 0 : mass >> SLACK_BITS;
    find_cut(
        shared.cut, digits, NUM_DIGITS - 1, above,
        [&](int rank, u32 count) {
            if (!digits.single) return masses_of(digits, was.law, rank, count);
            const u64 all = count ? count * fixed_weight(was.law, digits.logit_of(rank)) : 0;
            return Amounts{all, all};
        },
        [=](const Cut&) { return Amounts{limit > slack ? limit - slack : 1, limit + slack}; });
    const int rank = shared.cut.low, first = shared.cut.high;
    const u64 kept = sum_down_to(digits, rank, [&](int at, u32 count) {
        return count * fixed_weight(was.law, digits.logit_of(at));
    });
    if (thread_id() == 0) {
        Search& search = shared.search;
        if (rank < 0) search.find(was.low, above);
        else if (digits.single) search.find(shares ? digits.logit_of(rank) : was.floor, above + kept);
        else search.look(SHARES, digits.bottom(rank), digits.top(first));
        // Ranks hold logits of too different weights to decide: guess a narrower range.
        if (rank > first && search.low == was.low && search.high == was.high)
            search.high = digits.top((first + rank + 1) / 2);
    }
    __syncthreads();
}

// Called when a whole row has been read, and its counters are in shared memory. By a CTA.
__device__ COLD void narrow(Finding& shared, int idle_bits, Filters filters) {
    const Search was = shared.search;
    __syncthreads();
    if (thread_id() == 0) ++shared.search.looks;
    if (was.mode == LISTS) return find_in_list(shared, was, filters);
    const Digits digits = Digits::of(was.low, was.high, idle_bits);
    if (was.mode == NUMBERS) narrow_number(shared, was, filters, digits);
    else narrow_share(shared, was, filters, digits);
}

// Continues a search within this CTA alone.
__device__ inline void search_alone(
    Finding& shared, const Row& row, const Mass* stats, const Filters& filters) {
    while (shared.search.mode != FOUND) {
        const bool totals = asks_for_totals(shared.search, filters);
        look_closer(shared.search, row, stats, {0, row.num_blocks()}, totals);
        narrow(shared, idle_bits_of(row), filters);
    }
}
