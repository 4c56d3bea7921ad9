// The same selection for rows with too many candidates to list: the row is read again for every
// eight bits of the threshold, counting or weighing in a shared histogram.
#pragma once
#include "selection.cuh"

template <typename T, typename Weigh>
__device__ inline void add_to_bins(
    const Team& team, u64* bins, const Row<T>& row, const Mass* stats, float floor, u32 prefix,
    int shift, Weigh weigh) {
    visit_blocks(team, row, stats, floor, [&](int, const float(&logits)[PER_LANE]) {
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j) {
            const float logit = logits[j];
            const u32 key = float_key(logit);
            const bool inside = shift == 24 || key >> (shift + 8) == prefix;
            if (logit >= floor && logit > -INFINITY && inside)
                atomicAdd(&bins[key >> shift & (NUM_BINS - 1)], weigh(logit));
        }
    });
}

// The lowest bin that holds something and has less than `target` above it. By one warp; `above`
// grows by what lies above that bin.
__device__ inline u32 find_bin(const u64* bins, u64 target, u64* above) {
    constexpr int per_lane = NUM_BINS / LANES;
    const int top = NUM_BINS - 1 - lane_id() * per_lane;
    u64 mine = 0;
    for (int i = 0; i < per_lane; ++i) mine += bins[top - i];
    u64 before = mine;
    for (int distance = 1; distance < LANES; distance *= 2) {
        const u64 other = __shfl_up_sync(ALL_LANES, before, distance);
        if (lane_id() >= distance) before += other;
    }
    before += *above - mine;
    u64 found = ~0ull, found_above = 0;
    for (int i = 0; i < per_lane; ++i) {
        const u64 here = bins[top - i];
        if (here > 0 && before < target) {
            found = top - i;
            found_above = before;
        }
        before += here;
    }
    const u32 lanes = __ballot_sync(ALL_LANES, found != ~0ull);
    const int last = LANES - 1 - __clz(static_cast<int>(lanes));
    *above = __shfl_sync(ALL_LANES, found_above, last);
    return static_cast<u32>(__shfl_sync(ALL_LANES, found, last));
}

// The lowest logit, among those from `floor` on, with less than `target` above it; `weigh` gives
// each logit's share.
template <typename T, typename Weigh>
__device__ COLD float radix_select(
    const Team& team, Scratch& scratch, const Row<T>& row, const Mass* stats, float floor,
    u64 target, Weigh weigh) {
    constexpr int idle = ADJUSTED ? 0 : IDLE_KEY_BITS<T>;
    u64* bins = scratch.masses;
    u32 prefix = 0;
    u64 above = 0;
    for (int shift = 24; shift >= idle; shift -= 8) {
        for (int bin = team.thread(); bin < NUM_BINS; bin += team.threads()) bins[bin] = 0;
        team.sync();
        add_to_bins(team, bins, row, stats, floor, prefix, shift, weigh);
        team.sync();
        if (team.warp() == 0) {
            const u32 bin = find_bin(bins, target, &above);
            if (lane_id() == 0) scratch.bin = bin;
        }
        team.sync();
        prefix = prefix << 8 | scratch.bin;
    }
    const u32 key = prefix << idle;
    return key_float(key & 0x80000000u ? key : key | ((1u << idle) - 1));
}

template <typename T>
__device__ inline u64 mass_from(
    const Team& team, Scratch& scratch, const Row<T>& row, const Mass* stats, const Law& law,
    float floor) {
    if (team.thread() == 0) scratch.sum = 0;
    team.sync();
    u64 mine = 0;
    visit_blocks(team, row, stats, floor, [&](int, const float(&logits)[PER_LANE]) {
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j)
            if (logits[j] >= floor)
                mine += fixed_weight(log2_weight(logits[j], law.max, law.scale));
    });
    atomicAdd(&scratch.sum, mine);
    team.sync();
    const u64 sum = scratch.sum;
    team.sync();
    return sum;
}

template <typename T>
__device__ COLD Kept select_by_radix(
    const Team& team, Scratch& scratch, const Row<T>& row, const Mass* stats, const Law& law,
    const Filters& filters, float floor, float row_sum) {
    const bool all = filters.top_k == 0 && filters.floor == -INFINITY;
    if (filters.top_k > 0 && filters.top_k < row.vocab_size) {
        // Cut below the k-th largest, but never above what min-p keeps.
        floor = fmaxf(floor, radix_select(team, scratch, row, stats, floor, filters.top_k,
                                          [](float) { return static_cast<u64>(1); }));
    }
    u64 sum = all ? static_cast<u64>(static_cast<double>(row_sum) * FIXED_ONE)
                  : mass_from(team, scratch, row, stats, law, floor);
    if (filters.top_p < 1.0f) {
        const u64 target = static_cast<u64>(ceil(static_cast<double>(filters.top_p) * sum));
        floor = radix_select(team, scratch, row, stats, floor, target, [&](float logit) {
            return fixed_weight(log2_weight(logit, law.max, law.scale));
        });
        sum = mass_from(team, scratch, row, stats, law, floor);
    }
    return {floor, static_cast<float>(static_cast<double>(sum) / FIXED_ONE)};
}
