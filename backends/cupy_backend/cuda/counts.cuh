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
__device__ COLD void count_share(OpenRow& open, u32* counts, Worker worker) {
    const Row<T>& row = row_of<T>(open);
    const Mass* stats = open.stats;
    const float bound = open.known.bound;
    const u32 low = lowest_short_key(bound, IDLE_BITS<T>);
    const SharedCounters counters(counts);
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

// The counters of one thread, from the largest logit on.
struct Counters {
    static constexpr int PER_THREAD = MAX_COUNTED / CTA_THREADS;
    u32 numbers[PER_THREAD];
    u64 masses[PER_THREAD];
    u32 top;  // key of the first
    __device__ Counters(const u32* counts, const Law& law, u32 low, int idle) {
        const int place = MAX_COUNTED - 1 - static_cast<int>(thread_id()) * PER_THREAD;
        top = low + place;
#pragma unroll
        for (int i = 0; i < PER_THREAD; ++i) {
            numbers[i] = number_at(counts, place - i, short_key(0.0f, idle) - low);
            const float logit = from_short_key(top - i, idle);
            masses[i] = numbers[i] ? numbers[i] * fixed_weight(law, logit) : 0;
        }
    }
};

// What lies above a thread's counters: exclusive prefix sums over the CTA.
__device__ inline Above above_counters(Scratch& scratch, const Counters& counters) {
    Above mine = {0, 0};
#pragma unroll
    for (int i = 0; i < Counters::PER_THREAD; ++i) {
        mine.number += counters.numbers[i];
        mine.mass += counters.masses[i];
    }
    Above end = mine;
#pragma unroll 1
    for (int distance = 1; distance < LANES; distance *= 2) {
        const u32 number = __shfl_up_sync(ALL_LANES, end.number, distance);
        const u64 mass = __shfl_up_sync(ALL_LANES, end.mass, distance);
        if (lane_id() >= distance) end = {end.number + number, end.mass + mass};
    }
    if (lane_id() == LANES - 1) {
        scratch.sums[warp_id()] = end.mass;
        scratch.numbers[warp_id()] = end.number;
    }
    __syncthreads();
    const bool before = lane_id() < warp_id();
    end.mass += warp_sum(before ? scratch.sums[lane_id()] : 0);
    end.number += __reduce_add_sync(ALL_LANES, before ? scratch.numbers[lane_id()] : 0);
    __syncthreads();
    return {end.number - mine.number, end.mass - mine.mass};
}

// What the filters keep of a row, from the counts of all that reaches its bound.
template <typename T>
__device__ COLD Kept filter_by_counts(Scratch& scratch, int place) {
    constexpr int idle = IDLE_BITS<T>;
    const Known& known = scratch.rows[place].known;
    const Filters& filters = known.filters;
    if (thread_id() == 0) scratch.threshold_key = ~0u;
    const u32 low = lowest_short_key(known.bound, idle);
    Counters counters(scratch.counts[place], known.law, low, idle);
    Above above = above_counters(scratch, counters);
    // What top-k cuts off is gone.
    u64 mine = 0;
    u32 number = above.number;
#pragma unroll
    for (int i = 0; i < Counters::PER_THREAD; ++i) {
        const bool kept = filters.top_k == 0 || number < static_cast<u32>(filters.top_k);
        number += counters.numbers[i];
        if (!kept) counters.numbers[i] = 0;
        if (kept) mine += counters.masses[i];
    }
    u64 whole = known.sum;
    if (cuts_before_top_p(filters)) whole = cta_sum(scratch, mine);
    const double wanted = filters.top_p * static_cast<double>(whole);
    u32 least = ~0u;
    u64 sum = 0;
#pragma unroll
    for (int i = 0; i < Counters::PER_THREAD; ++i) {
        const bool kept = counters.numbers[i] > 0 &&
                          (filters.top_p >= 1.0f || static_cast<double>(above.mass) < wanted);
        above.mass += counters.masses[i];
        if (!kept) continue;
        least = counters.top - i;
        sum += counters.masses[i];
    }
    least = __reduce_min_sync(ALL_LANES, least);
    if (lane_id() == 0) atomicMin(&scratch.threshold_key, least);
    sum = cta_sum(scratch, sum);
    return {from_short_key(scratch.threshold_key, idle), sum};
}
