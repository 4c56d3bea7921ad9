// Stage 1: every block of a row becomes (largest logit, sum of exponentials relative to it), and
// blocks a row. Knows nothing of requests.
#pragma once
#include "law.cuh"
#include "rows.cuh"

__device__ inline float lane_sum(const float (&terms)[PER_LANE]) {
    float sums[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
        sums[i] = (terms[i] + terms[i + 4]) + (terms[i + 8] + terms[i + 12]);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

__device__ inline float block_max(const float (&logits)[PER_LANE]) {
    float largest = logits[0];
#pragma unroll
    for (int j = 1; j < PER_LANE; ++j) largest = max_nan(largest, logits[j]);
    return warp_max(largest);
}

// Sum of 2^((logit - max) * scale) over the block's logits from a threshold on.
__device__ inline float block_sum(
    const float (&logits)[PER_LANE], float max, float scale, float threshold) {
    float terms[PER_LANE];
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j)
        terms[j] = logits[j] >= threshold ? exp2_fast(log2_weight(logits[j], max, scale)) : 0.0f;
    return warp_reduce(lane_sum(terms), Add{});
}

constexpr float LARGE_OFFSET = 1048576.0f;  // 2^20, below which offsets serve logits of all types

// logit * scale - offset, one instruction a logit.
struct Exponents {
    float scale;
    float offset;
    __device__ float of(float logit) const { return __fmaf_rn(logit, scale, -offset); }
};

// For logits of 16 bits, next to each other so far apart at such scales that only the largest has a
// weight, which is exactly 1.
__device__ inline Exponents steep_exponents(float max) {
    if (!(fabsf(max) < INFINITY)) return {1.0f, 0.0f};
    const u32 exponent = __float_as_uint(max) >> 23 & 255;
    const float scale = __uint_as_float((274 - (exponent < 64 ? 64 : exponent)) << 23);
    return {scale, __fmul_rn(max, scale)};
}

// What the offset's rounding has added to every exponent, to be multiplied with their sum.
__device__ inline float correction_of(float max, float scale) {
    const Exponents exponents = {scale, __fmul_rn(max, scale)};
    return fabsf(exponents.offset) < LARGE_OFFSET ? exp2_fast(-exponents.of(max)) : 1.0f;
}

template <typename Exponent>
__device__ inline float lane_weights(Exponent exponent_at) {
    float terms[PER_LANE];
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) terms[j] = exp2_fast(exponent_at(j));
    return lane_sum(terms);
}

// A lane's share of a block's mass, without the correction.
template <typename T>
__device__ inline float lane_mass(const RawBlock<T>& raw, float max, float scale) {
    Exponents exponents = {scale, __fmul_rn(max, scale)};
    if (!(fabsf(exponents.offset) < LARGE_OFFSET)) exponents = steep_exponents(max);
    return lane_weights([&](int j) { return exponents.of(unpack(raw, j)); });
}

__device__ inline float lane_mass(const float (&logits)[PER_LANE], float max, float scale) {
    const Exponents exponents = {scale, __fmul_rn(max, scale)};
    if (fabsf(exponents.offset) < LARGE_OFFSET)
        return lane_weights([&](int j) { return exponents.of(logits[j]); });
    if (!(fabsf(max) < INFINITY)) return 0.0f;
    return lane_weights([&](int j) { return log2_weight(logits[j], max, scale); });
}

__device__ inline float lane_mass(const RawBlock<float>& raw, float max, float scale) {
    float logits[PER_LANE];
    unpack_all(raw, logits);
    return lane_mass(logits, max, scale);
}

__device__ inline Mass block_mass(const float (&logits)[PER_LANE], float scale) {
    const float max = block_max(logits);
    if (GREEDY) return {max, 0.0f};
    const float sum = warp_reduce(lane_mass(logits, max, scale), Add{});
    return {max, __fmul_rn(sum, correction_of(max, scale))};
}

// A lane's of a row's blocks' statistics, those from `first` on; nothing where there is no block.
struct Statistics {
    static constexpr int COUNT = 10;  // on their way at once
    Mass of[COUNT];
    __device__ void load(const Mass* stats, int num_blocks, int first) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int block = first + i * LANES;
            of[i] = {-INFINITY, 0.0f};
            if (block < num_blocks) of[i] = stats[block];
        }
    }
    __device__ float max() const {
        float largest = of[0].max;
#pragma unroll
        for (int i = 1; i < COUNT; ++i) largest = max_nan(largest, of[i].max);
        return largest;
    }
    __device__ float add_to(float sum, float largest, float scale) const {
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            sum = __fmaf_rn(of[i].sum, exp2_fast(log2_weight(of[i].max, largest, scale)), sum);
        return sum;
    }
};

// A row's statistics from its blocks', by one warp, in one order.
__device__ inline Mass row_mass(const Mass* stats, int num_blocks, float scale) {
    constexpr int step = Statistics::COUNT * LANES;
    Statistics mine;
    float largest = -INFINITY, sum = 0.0f;
    for (int first = lane_id(); first < num_blocks; first += step) {
        mine.load(stats, num_blocks, first);
        largest = max_nan(largest, mine.max());
    }
    largest = warp_max(largest);
    if (GREEDY || largest == -INFINITY) return {largest, sum};
    for (int first = lane_id(); first < num_blocks; first += step) {
        mine.load(stats, num_blocks, first);
        sum = mine.add_to(sum, largest, scale);
    }
    return {largest, warp_reduce(sum, Add{})};
}

// The same of a row with few blocks, at hand.
__device__ inline Mass row_mass_of(const Statistics& mine, float scale) {
    const float largest = warp_max(mine.max());
    if (GREEDY || largest == -INFINITY) return {largest, 0.0f};
    return {largest, warp_reduce(mine.add_to(0.0f, largest, scale), Add{})};
}

__device__ inline Mass row_mass_at_once(const Mass* stats, int num_blocks, float scale) {
    Statistics mine;
    mine.load(stats, num_blocks, lane_id());
    return row_mass_of(mine, scale);
}

__device__ inline Law plain_law(const Mass& mass, float scale, bool greedy) {
    const bool one = GREEDY || greedy;
    return {mass.max, one ? mass.max : -INFINITY, scale, one ? 0.0f : log2f(mass.sum)};
}

// The law of a row without filters, by one warp. `FAR`: statistics are in device memory.
template <bool FAR>
__device__ inline Law plain_law(const Mass* stats, int num_blocks, float scale, bool greedy) {
    const Mass mass = FAR && num_blocks <= Statistics::COUNT * LANES
        ? row_mass_at_once(stats, num_blocks, scale)
        : row_mass(stats, num_blocks, scale);
    return plain_law(mass, scale, greedy);
}

__device__ inline Law plain_law(const Mass* stats, int num_blocks, float temperature) {
    return plain_law<false>(stats, num_blocks, logit_scale(temperature), temperature == 0.0f);
}

// What a row's token is drawn by, whose weights need no sum. By a team.
template <typename TeamT>
__device__ inline Law sampling_law(
    const TeamT& team, u64* slots, const Mass* stats, int num_blocks, float scale, bool greedy) {
    constexpr int batch = 4;  // loads on their way at once
    float max = -INFINITY;
    for (int first = team.thread(); first < num_blocks; first += batch * TeamT::THREADS) {
#pragma unroll
        for (int i = 0; i < batch; ++i) {
            const int block = first + i * TeamT::THREADS;
            max = max_nan(max, block < num_blocks ? stats[block].max : -INFINITY);
        }
    }
    max = team_reduce(team, slots, max, Max{});
    return {max, GREEDY || greedy ? max : -INFINITY, scale, 0.0f};
}

// A warp among those that share a row's blocks: it has every `count`-th.
struct Worker {
    int index;
    int count;
};

__device__ inline Worker whole_cta() { return {warp_id(), CTA_WARPS}; }

// Two blocks of a row whose logits lie in memory as they are, the second if it is wanted, too: both are on
// their way at once.
template <typename T>
__device__ inline void load_two(
    const Row<T>& row, int near, int far, bool two, float (&logits)[PER_LANE], RawBlock<T>& more) {
    const RawBlock<T> raw = load_raw(row.data + static_cast<i64>(near) * BLOCK_SIZE, lane_id());
    const T* other = row.data + static_cast<i64>(far) * BLOCK_SIZE + lane_id() * 8;
    more = {};
    load_raw_if<T>(two ? BLOCK_SIZE : 0, reinterpret_cast<const char*>(other), more.words);
    unpack_all(raw, logits);
}

// Loads a worker's blocks that reach `floor` and hands each on as (block, logits), by whole warps; where no
// function is called for that two at a time, so that the second is on its way while the first is looked at.
template <typename T, typename Visit>
__device__ inline void visit_blocks(
    const Worker& worker, const Row<T>& row, const Mass* stats, float floor, Visit visit) {
    const int num_blocks = row.num_blocks(), step = worker.count;
    for (int first = worker.index; first < num_blocks; first += step * LANES) {
        const int mine = first + lane_id() * step;
        const float largest = mine < num_blocks ? stats[mine].max : -INFINITY;
        u32 wanted = __ballot_sync(ALL_LANES, largest >= floor && largest > -INFINITY);
#pragma unroll 1
        while (wanted) {
            const int near = first + (__ffs(static_cast<int>(wanted)) - 1) * step;
            wanted &= wanted - 1;
            const int far = first + (__ffs(static_cast<int>(wanted)) - 1) * step;
            const bool direct = !(ADJUSTED && row.adjustment) && is_direct(row, near);
            const bool two = direct && wanted != 0 && is_direct(row, far);
            float logits[PER_LANE];
            RawBlock<T> more;
            if (direct) {
                load_two(row, near, far, two, logits, more);
                if (two) wanted &= wanted - 1;
            } else {
                load_block(row, near, logits);
                more = {};
            }
#pragma unroll 1
            for (int turn = 0; turn <= two; ++turn) {
                visit(turn ? far : near, logits);
                unpack_all(more, logits);
            }
        }
    }
}
