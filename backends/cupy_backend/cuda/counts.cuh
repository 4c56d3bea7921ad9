// Thresholds where few distinct logits can occur between a bound and the largest, as among 16-bit
// ones: each has a counter, and one reading of the row tells everything.
#pragma once
#include "bounds.cuh"

constexpr int COUNTED_AT_ONCE = 4;  // blocks of a warp, on their way

// Hands on the blocks first + i * step for the bits i of `wanted`. As little code as can be: it is run
// once, and comes from memory.
template <typename T, typename Visit>
__device__ inline void visit_direct(
    const Row<T>& row, int first, int step, u32 wanted, Visit visit) {
    RawBlock<T> raw[COUNTED_AT_ONCE];
#pragma unroll 1
    while (wanted) {
        const int count = __popc(wanted) < COUNTED_AT_ONCE ? __popc(wanted) : COUNTED_AT_ONCE;
#pragma unroll
        for (int i = 0; i < COUNTED_AT_ONCE; ++i) {
            const i64 block = first + (__ffs(static_cast<int>(wanted)) - 1) * step;
            const i64 element = block * BLOCK_SIZE + lane_id() * 8;
            const int rest = wanted ? static_cast<int>(row.vocab_size - element) : 0;
#pragma unroll
            for (uint4& word : raw[i].words)
                word = uint4{NOTHING<T>, NOTHING<T>, NOTHING<T>, NOTHING<T>};
            load_raw_if<T>(rest, reinterpret_cast<const char*>(row.data + element), raw[i].words);
            wanted &= wanted - 1;
        }
#pragma unroll 1
        for (int i = 0; i < count; ++i) {
            visit(raw[0]);
#pragma unroll
            for (int j = 1; j < COUNTED_AT_ONCE; ++j) raw[j - 1] = raw[j];
        }
    }
}

// Counts the logits of a block from the one on whose key is `low`.
template <typename T>
__device__ inline void count_block(
    const SharedCounters& counters, const RawBlock<T>& raw, u32 low) {
    if constexpr (SAME<T, Bf16>) {
#pragma unroll
        for (int i = 0; i < PER_LANE / 2; ++i) {
            const u32 pair = word_at(raw.words[i / 4], i % 4);
            const u32 keys = pair ^ (halves_of_signs(pair) | 0x80008000u);
            counters.add((keys & 0xffffu) - low, MAX_COUNTED);
            counters.add((keys >> 16) - low, MAX_COUNTED);
        }
    } else {
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j)
            counters.add(short_key(unpack(raw, j), IDLE_BITS<T>) - low, MAX_COUNTED);
    }
}

// Counts a worker's share of a row.
template <typename T>
__device__ COLD void count_share(Scratch& scratch, int i, Worker worker) {
    if constexpr (IDLE_BITS<T> == 0) return;
    OpenRow& open = scratch.rows[i];
    const Row<T>& row = row_of<T>(open);
    const Mass* stats = open.stats;
    const float bound = open.known.bound;
    const u32 low = lowest_short_key(bound, IDLE_BITS<T>);
    const SharedCounters counters(scratch.counts[i]);
    if (!is_direct(row)) {
        visit_blocks(worker, row, stats, bound, [&](int, const float(&logits)[PER_LANE]) {
#pragma unroll
            for (int j = 0; j < PER_LANE; ++j)
                counters.add(short_key(logits[j], IDLE_BITS<T>) - low, MAX_COUNTED);
        });
        return;
    }
    for (int first = worker.index; first < row.num_blocks(); first += worker.count * LANES) {
        const int mine = first + lane_id() * worker.count;
        const u32 wanted =
            __ballot_sync(ALL_LANES, mine < row.num_blocks() && stats[mine].max >= bound);
        visit_direct(row, first, worker.count, wanted,
                     [&](const RawBlock<T>& raw) { count_block(counters, raw, low); });
    }
}

// How many logits are larger than those of a counter, and their mass.
struct Above {
    u32 number;
    u64 mass;
};

// How many there are of a logit, -0 being 0.
__device__ inline u32 number_at(const u32* counts, u32 place, u32 place_of_zero) {
    if (place + 1 == place_of_zero) return 0;
    return counts[place] + (place == place_of_zero && place > 0 ? counts[place - 1] : 0);
}

constexpr int WARPS_A_ROW = CTA_WARPS / ROWS_AT_ONCE;  // which find its threshold
constexpr int COUNTERS_A_THREAD = MAX_COUNTED / (WARPS_A_ROW * LANES);

// What a thread's counters hold.
struct Held {
    u32 numbers[COUNTERS_A_THREAD];
    u64 masses[COUNTERS_A_THREAD];
};

// Which of a row's counters a thread has, a part of a CTA's warps sharing them.
struct Counters {
    const u32* counts;
    u32 low;      // key of the first
    int idle;
    int first;  // the thread's, those below it follow
    __device__ u32 number(int i) const {
        return number_at(counts, first - i, short_key(0.0f, idle) - low);
    }
    __device__ u64 mass(const Law& law, int i, u32 number) const {
        return number * fixed_weight(law, from_short_key(low + first - i, idle));
    }
};

// What a thread's counters hold, and what it and those before it in its warp do.
struct Tally {
    Above mine;
    Above end;
};

__device__ inline Tally tally(const Counters& counters, const Law& law, Held& held) {
    Above mine = {0, 0};
#pragma unroll
    for (int i = 0; i < COUNTERS_A_THREAD; ++i) {
        held.numbers[i] = counters.number(i);
        held.masses[i] = counters.mass(law, i, held.numbers[i]);
        mine.number += held.numbers[i];
        mine.mass += held.masses[i];
    }
    Above end = mine;
#pragma unroll 1
    for (int distance = 1; distance < LANES; distance *= 2) {
        const u32 number = __shfl_up_sync(ALL_LANES, end.number, distance);
        const u64 mass = __shfl_up_sync(ALL_LANES, end.mass, distance);
        if (lane_id() >= distance) end = {end.number + number, end.mass + mass};
    }
    return {mine, end};
}

// What lies above a thread's counters: exclusive prefix sums over the warps that share a row. By a whole
// CTA, whose warps without a row are not `busy`.
__device__ inline Above above_counters(
    Scratch& scratch, const Counters& counters, const Law& law, Held& held, bool busy) {
    Tally here = {};
    if (busy) {
        here = tally(counters, law, held);
        if (lane_id() == LANES - 1) {
            scratch.sums[warp_id()] = here.end.mass;
            scratch.numbers[warp_id()] = here.end.number;
        }
    }
    meet_in_cta();
    if (!busy) return {0, 0};
    const int warp = warp_id() % WARPS_A_ROW, other = warp_id() - warp + lane_id();
    const bool before = lane_id() < warp;
    const u64 mass = warp_sum(before ? scratch.sums[other] : 0);
    const u32 number = __reduce_add_sync(ALL_LANES, before ? scratch.numbers[other] : 0);
    return {here.end.number - here.mine.number + number, here.end.mass - here.mine.mass + mass};
}

// What the filters keep of rows, from the counts of all that reaches their bounds. By a whole CTA, whose
// warps divide the rows among themselves: first how much top-k and min-p leave, then how much of that top-p
// keeps.
__device__ COLD void filter_by_counts(Scratch& scratch) {
    const int place = warp_id() / WARPS_A_ROW;
    const int thread = static_cast<int>(thread_id()) % (WARPS_A_ROW * LANES);
    const bool busy = place < scratch.num_rows && scratch.rows[place].counted;
    OpenRow& open = scratch.rows[place];
    const Known& known = open.known;
    const int idle = open.is_draft ? IDLE_BITS<DraftLogit> : IDLE_BITS<TargetLogit>;
    Held held = {};
    const Counters counters = {scratch.counts[place], lowest_short_key(known.bound, idle), idle,
                               MAX_COUNTED - 1 - thread * COUNTERS_A_THREAD};
    const Above above = above_counters(scratch, counters, known.law, held, busy);
    const u32 most = known.filters.top_k > 0 ? known.filters.top_k : ~0u;
    u64 whole = known.sum;
    double wanted = INFINITY;
    u32 key = 0;
#pragma unroll 1
    for (int turn = 0; turn < 2; ++turn) {
        const bool looks = busy && (turn == 1 || cuts_before_top_p(known.filters));
        if (looks) {
            if (turn == 1 && known.filters.top_p < 1.0f)
                wanted = known.filters.top_p * static_cast<double>(whole);
            Above at = above;
            u64 reached = 0;
            u32 least = ~0u;
#pragma unroll
            for (int i = 0; i < COUNTERS_A_THREAD; ++i) {
                const bool kept = held.numbers[i] > 0 && at.number < most &&
                                  static_cast<double>(at.mass) < wanted;
                at.number += kept ? held.numbers[i] : 0;
                at.mass += kept ? held.masses[i] : 0;
                reached = kept ? at.mass : reached;
                least = kept ? counters.low + counters.first - i : least;
            }
            reached = warp_reduce(reached, Max{});
            least = __reduce_min_sync(ALL_LANES, least);
            if (lane_id() == 0) {
                scratch.reached[turn][warp_id()] = reached;
                scratch.least[turn][warp_id()] = least;
            }
        }
        meet_in_cta();
        if (!looks) continue;
        const bool inside = lane_id() < WARPS_A_ROW;
        const int other = place * WARPS_A_ROW + lane_id();
        whole = warp_reduce(inside ? scratch.reached[turn][other] : 0, Max{});
        key = __reduce_min_sync(ALL_LANES, inside ? scratch.least[turn][other] : ~0u);
    }
    if (busy && thread == 0) set_kept(open.known.law, {from_short_key(key, idle), whole});
}
