// Thresholds of bfloat16 rows that may keep more logits than have counters. Most keys between a bound below 0 and the
// largest are those of numbers next to 0, which few logits are. All others have counters, so that one reading of the
// row tells everything, unless the threshold is next to 0.
#pragma once
#include "counts.cuh"

constexpr int ENDS_A_THREAD = NUM_ENDS / CTA_THREADS;

// By a thread, of the row's bound and of its largest logit.
__device__ inline void set_ends(Ends& ends, u32 low, u32 high) {
    constexpr int zero = 0x8000, room = NUM_ENDS - 1;
    const int above = static_cast<int>(high) - zero, below = zero - 1 - static_cast<int>(low);
    // As far from 0 on both sides, but half of the counters for the largest, for some rows have no bound. Zeros
    // have no counter. Of numbers below 0 alone, whose largest are those next to 0, most are for the largest.
    const int fair = (above + below + 3 - room) / 2, half = above - room / 2 + 1;
    const int nearer = fair < half ? fair : half, least = nearer > 1 ? nearer : 1;
    const int span = above + below + 2, most = span < room ? span : room;
    const int first = above < 0 ? room - room / 4 : above - least + 1;
    const int num_high = first < 0 ? 0 : first < most ? first : most;
    const int last = below - least + 1, left = most - num_high;
    ends.low = low;
    ends.high = high;
    ends.num_high = static_cast<u32>(num_high);
    ends.num_low = static_cast<u32>(last < 0 ? 0 : last < left ? last : left);
}

// Places of keys, the largest first: those that have counters from above, one place for all next to 0, and those
// from below.
struct EndPlaces {
    u32 high, num_high;
    u32 low, num_low;
    u32 between;
    __device__ explicit EndPlaces(const Ends& ends)
        : high(ends.high),
          num_high(ends.num_high),
          low(ends.low),
          num_low(ends.num_low),
          between(ends.high - ends.low + 1 - ends.num_high - ends.num_low) {}
    // NUM_ENDS where it has no counter.
    __device__ u32 place_of(u32 key) const {
        const u32 from_high = high - key, from_low = key - low;
        const u32 place = from_low < num_low ? num_high + num_low - from_low : NUM_ENDS;
        return from_high < num_high ? from_high : place;
    }
    __device__ bool is_between(u32 key) const { return key - low - num_low < between; }
    __device__ u32 key_at(u32 place) const {
        return place < num_high ? high - place : low + num_high + num_low - place;
    }
};

// Counts two logits; what is next to 0 is added to `between`.
__device__ inline void count_end_pair(
    const SharedCounters& counters, const EndPlaces& places, const Law& law, u32 pair, Above& between) {
    const u32 keys = pair ^ (halves_of_signs(pair) | 0x80008000u);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const u32 key = half ? keys >> 16 : keys & 0xffffu;
        counters.add(places.place_of(key), NUM_ENDS);
        if (places.is_between(key)) {
            ++between.number;
            between.mass += fixed_weight(law, __uint_as_float(half ? pair & 0xffff0000u : pair << 16));
        }
    }
}

// The row at hand; what is next to 0 of a thread's logits is returned. By a whole CTA.
template <typename T>
__device__ inline Above count_ends(Scratch& scratch) {
    OpenRow& open = scratch.rows[scratch.row];
    const Row<T>& row = row_of<T>(open);
    const Law& law = open.known.law;
    const SharedCounters counters(scratch.ends.counts);
    const EndPlaces places(scratch.ends);
    Above between = {0, 0};
    for (int first = warp_id(); first < row.num_blocks(); first += CTA_WARPS * LANES) {
        const int mine = first + lane_id() * CTA_WARPS;
        const u32 wanted =
            __ballot_sync(ALL_LANES, mine < row.num_blocks() && open.stats[mine].max >= open.known.bound);
        visit_direct(row, first, CTA_WARPS, wanted, [&](const RawBlock<T>& raw) {
#pragma unroll
            for (int i = 0; i < PER_LANE / 2; ++i)
                count_end_pair(counters, places, law, word_at(raw.words[i / 4], i % 4), between);
        });
    }
    return between;
}

// What lies above a thread's places: exclusive prefix sums. By a whole CTA.
__device__ inline Above above_places(Scratch& scratch, const Above& mine) {
    Above end = mine;
#pragma unroll 1
    for (int distance = 1; distance < LANES; distance *= 2) {
        const u32 number = __shfl_up_sync(ALL_LANES, end.number, distance);
        const u64 mass = __shfl_up_sync(ALL_LANES, end.mass, distance);
        if (lane_id() >= distance) end = {end.number + number, end.mass + mass};
    }
    if (lane_id() == LANES - 1) {
        scratch.numbers[warp_id()] = end.number;
        scratch.sums[warp_id()] = end.mass;
    }
    meet_in_cta();
    const bool before = lane_id() < warp_id();
    const u32 number = __reduce_add_sync(ALL_LANES, before ? scratch.numbers[lane_id()] : 0);
    const u64 mass = warp_sum(before ? scratch.sums[lane_id()] : 0);
    return {end.number - mine.number + number, end.mass - mine.mass + mass};
}

// What a thread's places hold, and all of them together.
struct HeldPlaces {
    Above of[ENDS_A_THREAD];
    Above all;
};

__device__ inline HeldPlaces hold_places(
    const Ends& ends, const EndPlaces& places, const Law& law, const Above& between, int idle) {
    HeldPlaces held = {};
#pragma unroll
    for (int i = 0; i < ENDS_A_THREAD; ++i) {
        const u32 place = thread_id() * ENDS_A_THREAD + i, number = ends.counts[place];
        const u64 weight = fixed_weight(law, from_short_key(places.key_at(place), idle));
        held.of[i] = {number, number > 0 ? number * weight : 0};
        if (place == places.num_high) held.of[i] = between;
        held.all = {held.all.number + held.of[i].number, held.all.mass + held.of[i].mass};
    }
    return held;
}

// What is kept of the places: where it ends, and its mass.
struct KeptPlaces {
    u32 end;
    u64 mass;
};

// By a thread: what is kept has less than `most` logits, or `wanted` of the mass, above it. For their mass, logits
// without any are not kept.
__device__ inline KeptPlaces kept_of_thread(
    const HeldPlaces& held, Above at, u32 most, double wanted, bool by_mass) {
    KeptPlaces kept = {0, 0};
#pragma unroll
    for (int i = 0; i < ENDS_A_THREAD; ++i) {
        const Above& here = held.of[i];
        const bool more = at.number < most && static_cast<double>(at.mass) < wanted &&
                          (by_mass ? here.mass > 0 : here.number > 0);
        at = {at.number + here.number, at.mass + here.mass};
        if (more) kept = {thread_id() * ENDS_A_THREAD + i + 1, at.mass};
    }
    return kept;
}

__device__ inline KeptPlaces kept_of_cta(Scratch& scratch, int turn, const KeptPlaces& mine) {
    const u64 mass = warp_reduce(mine.mass, Max{});
    const u32 end = __reduce_max_sync(ALL_LANES, mine.end);
    if (lane_id() == 0) {
        scratch.reached[turn][warp_id()] = mass;
        scratch.least[turn][warp_id()] = end;
    }
    meet_in_cta();
    const bool inside = lane_id() < CTA_WARPS;
    return {__reduce_max_sync(ALL_LANES, inside ? scratch.least[turn][lane_id()] : 0),
            warp_reduce(inside ? scratch.reached[turn][lane_id()] : 0, Max{})};
}

// What the filters keep of the row becomes its bound and its mass: first by top-k and min-p, then by top-p. False if
// one of these thresholds is next to 0 or would be, or the row is not read by whole vectors.
template <typename T>
__device__ COLD bool filter_by_ends(Scratch& scratch) {
    constexpr int idle = IDLE_BITS<T>;
    Known& known = scratch.rows[scratch.row].known;
    Ends& ends = scratch.ends;
    // Without a bound, a row whose largest logit is 0 would have counters for the least numbers there are.
    const bool in_vain = known.law.max == 0.0f && known.bound == LEAST_LOGIT;
    if (in_vain || !is_direct(row_of<T>(scratch.rows[scratch.row]))) return false;
    if (thread_id() == 0)
        set_ends(ends, lowest_short_key(known.bound, idle),
                 short_key(__fadd_rn(known.law.max, 0.0f), idle));
    for (int place = thread_id(); place < NUM_ENDS; place += CTA_THREADS) ends.counts[place] = 0;
    meet_in_cta();
    const Above mine = count_ends<T>(scratch);
    const Above between = {static_cast<u32>(cta_sum(scratch, mine.number)), cta_sum(scratch, mine.mass)};
    const EndPlaces places(ends);
    const HeldPlaces held = hold_places(ends, places, known.law, between, idle);
    const Above above = above_places(scratch, held.all);
    const u32 most = known.filters.top_k > 0 ? known.filters.top_k : ~0u;
    KeptPlaces kept = {0, known.sum};
#pragma unroll 1
    for (int turn = 0; turn < 2; ++turn) {
        if (turn == 0 ? !cuts_before_top_p(known.filters) : known.filters.top_p == 1.0f) continue;
        const double wanted = turn == 0 ? INFINITY : known.filters.top_p * static_cast<double>(kept.mass);
        kept = kept_of_cta(scratch, turn, kept_of_thread(held, above, most, wanted, turn == 1));
        if (kept.end - 1 == places.num_high) return false;
    }
    if (thread_id() == 0) {
        known.bound = from_short_key(places.key_at(kept.end - 1), idle);
        known.sum = kept.mass;
    }
    meet_in_cta();
    return true;
}
