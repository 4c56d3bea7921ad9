// The largest of the blocks' maxima, and what is known beside them, one a lane. By one warp.
#pragma once
#include "survey.cuh"

// In any order, -inf where there is none; those that are not here are not above `level`, nor is what hides.
struct Peaks {
    float value;
    float level;
    u32 number;   // of those that are not smaller
    u64 above;    // mass of those that are larger
    u64 reached;  // and of those that are not smaller
    u64 mass;     // of all
    __device__ bool here() const { return value > -INFINITY; }
};

// Each of the values that lanes want to give goes to a lane that has none, those before `found` having
// one. How many have one then, or more than lanes if those do not suffice.
__device__ inline int hand_out(float value, bool wanted, int found, float& mine) {
#pragma unroll 1
    for (u32 left = __ballot_sync(ALL_LANES, wanted); left && found <= LANES; left &= left - 1) {
        const float given = __shfl_sync(ALL_LANES, value, __ffs(static_cast<int>(left)) - 1);
        if (lane_id() == found) mine = given;
        ++found;
    }
    return found;
}

// Gives each lane a maximum, or the logit beside, that is above a level and not below another one; how many
// there are, or more than lanes if those do not suffice.
__device__ inline int take_above(
    const Mass* stats, int num_blocks, float beside, float level, float floor, float& mine) {
    constexpr int at_once = 4;  // loads on their way
    int found = beside > level && beside >= floor;
    mine = found > lane_id() ? beside : -INFINITY;
#pragma unroll 1
    for (int first = lane_id(); first - lane_id() < num_blocks; first += at_once * LANES) {
        float values[at_once];
#pragma unroll
        for (int i = 0; i < at_once; ++i)
            values[i] = first + i * LANES < num_blocks ? stats[first + i * LANES].max : -INFINITY;
#pragma unroll 1
        for (int i = 0; i < at_once; ++i) {
            found = hand_out(values[0], values[0] > level && values[0] >= floor, found, mine);
#pragma unroll
            for (int j = 1; j < at_once; ++j) values[j - 1] = values[j];
        }
    }
    return found;
}

// Whether lanes do not suffice: to count is cheaper than to hand out.
__device__ inline bool are_many_above(const Mass* stats, int num_blocks, float beside, float level, float floor) {
    u32 number = lane_id() == 0 && beside > level && beside >= floor;
#pragma unroll 2
    for (int block = lane_id(); block < num_blocks; block += LANES) {
        const float max = stats[block].max;
        number += max > level && max >= floor;
    }
    return __reduce_add_sync(ALL_LANES, number) > LANES;
}

// Compares each lane's with all that were found.
__device__ inline void rank_peaks(const Law& law, int found, Peaks& peaks) {
    const u64 weight = lane_id() < found ? fixed_weight(law, peaks.value) : 0;
#pragma unroll 2
    for (int other = 0; other < found; ++other) {
        const float value = __shfl_sync(ALL_LANES, peaks.value, other);
        const u64 mass = __shfl_sync(ALL_LANES, weight, other);
        peaks.number += value >= peaks.value;
        peaks.above += value > peaks.value ? mass : 0;
        peaks.reached += value >= peaks.value ? mass : 0;
        peaks.mass += mass;
    }
}

// The level is raised until lanes suffice, and there is none where that does not help.
__device__ inline Peaks gather_peaks(
    const Mass* stats, int num_blocks, const Law& law, const Survey& row, float beside, float floor) {
    constexpr int most_steps = 7;
    Peaks peaks = {-INFINITY, row.hidden, 0, 0, 0, 0};
    int found = LANES + 1;
#pragma unroll 1
    for (int step = 0; found > LANES; ++step) {
        if (step > 0) {
            peaks.level = step < most_steps ? 0.5f * (peaks.level + row.max) : row.max;
            if (are_many_above(stats, num_blocks, beside, peaks.level, floor)) continue;
        }
        found = take_above(stats, num_blocks, beside, peaks.level, floor, peaks.value);
    }
    rank_peaks(law, found, peaks);
    return peaks;
}
