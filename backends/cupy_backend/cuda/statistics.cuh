// Stage 1: every block of a row becomes (largest logit, sum of exponentials relative to it), and
// blocks a row's law without filters. Sums have one order, whatever the launch.
#pragma once
#include "request.cuh"

__device__ inline float lane_sum(const float (&terms)[PER_LANE]) {
    float sums[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
        sums[i] = (terms[i] + terms[i + 4]) + (terms[i + 8] + terms[i + 12]);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// By a warp; a tree, for max_nan of three is one instruction on some devices.
__device__ inline float block_max(const float (&logits)[PER_LANE]) {
    float largest = max_nan(logits[0], logits[1]);
#pragma unroll
    for (int j = 2; j < PER_LANE; ++j) largest = max_nan(largest, logits[j]);
    return warp_max(largest);
}

constexpr float LARGE_OFFSET = 1048576.0f;  // 2^20, below which fused exponents are exact enough

// A lane's share of a block's mass, without the correction for its offset's rounding.
__device__ inline float lane_mass(const float (&logits)[PER_LANE], float max, float scale) {
    float terms[PER_LANE];
    const float offset = __fmul_rn(max, scale);
    if (fabsf(offset) < LARGE_OFFSET) {
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j)
            terms[j] = exp2_fast(__fmaf_rn(logits[j], scale, -offset));
    } else {
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j) terms[j] = exp2_fast(log2_weight(logits[j], max, scale));
    }
    return lane_sum(terms);
}

// What the offset's rounding has added to every exponent, to be multiplied with their sum.
__device__ inline float correction_of(float max, float scale) {
    const float offset = __fmul_rn(max, scale);
    return fabsf(offset) < LARGE_OFFSET ? exp2_fast(-__fmaf_rn(max, scale, -offset)) : 1.0f;
}

// By a warp. `greedy`: nobody asks for the sum.
__device__ inline Mass block_mass(const float (&logits)[PER_LANE], float scale, bool greedy) {
    const float max = block_max(logits);
    if (greedy || !(max > -INFINITY)) return {max, 0.0f};
    const float sum = warp_reduce(lane_mass(logits, max, scale), Add{});
    return {max, __fmul_rn(sum, correction_of(max, scale))};
}

// Sum of 2^((logit - max) * scale) over the block's logits from a threshold on. By a warp.
__device__ inline float kept_sum(
    const float (&logits)[PER_LANE], float max, float scale, float threshold) {
    float terms[PER_LANE];
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j)
        terms[j] = logits[j] >= threshold ? exp2_fast(log2_weight(logits[j], max, scale)) : 0.0f;
    return warp_reduce(lane_sum(terms), Add{});
}

// The blocks [begin, end) of a row that one CTA looks at.
struct Piece {
    Row row;
    int begin;
    int end;
};

__device__ inline Piece whole_row(const Row& row) { return {row, 0, row.num_blocks()}; }

// How a piece comes into shared memory: in chunks, each with a barrier.
constexpr int MAX_CHUNKS = 8;
struct Copy {
    u64* barriers;  // null: nothing is copied
    int chunk_blocks;
    bool overlapping;  // a chunk's last block ends in the first 16 bytes of the next

    __device__ void wait_for(int block_of_piece, int num_blocks) const {
        const int chunk = block_of_piece / chunk_blocks;
        wait_for_copies(barriers + chunk);
        const bool last = block_of_piece % chunk_blocks == chunk_blocks - 1;
        if (overlapping && last && block_of_piece + 1 < num_blocks) wait_for_copies(barriers + chunk + 1);
    }
};

// Starts to copy all of a piece, in 16-byte granules, and has `piece` read it from `room`. By a CTA.
template <typename T>
__device__ inline Copy start_copy(Piece& piece, char* room, u64* barriers) {
    Row& row = piece.row;
    const int blocks = piece.end - piece.begin;
    const int each = (blocks + MAX_CHUNKS - 1) / MAX_CHUNKS;
    const int limit = row.num_elements < row.num_ids ? row.num_elements : row.num_ids;
    const auto address_of = [&](int block) {
        const int id = block * BLOCK_SIZE < limit ? block * BLOCK_SIZE : limit;
        return reinterpret_cast<u64>(row.data) + static_cast<u64>(id) * sizeof(T);
    };
    const u64 first = address_of(piece.begin) & ~u64{15};
    const u32 shift = static_cast<u32>(reinterpret_cast<u64>(row.data) % 16);
    const int num_chunks = each ? (blocks + each - 1) / each : 0;
    if (thread_id() == 0) {
        for (int i = 0; i < num_chunks; ++i) open_copy_barrier(barriers + i);
        publish_copy_barriers();
        for (int i = 0; i < num_chunks; ++i) {
            const u64 from = address_of(piece.begin + i * each) & ~u64{15};
            const u64 to = i + 1 < num_chunks ? address_of(piece.begin + (i + 1) * each) & ~u64{15}
                                              : (address_of(piece.end) + 15) & ~u64{15};
            start_bulk_copy(room + (from - first), reinterpret_cast<const void*>(from),
                            static_cast<u32>(to - from), barriers + i);
        }
    }
    __syncthreads();
    row.data = room + shift - static_cast<i64>(piece.begin) * BLOCK_SIZE * static_cast<i64>(sizeof(T));
    row.on_chip = true;
    return {barriers, each ? each : 1, shift != 0};
}

// A lane's share of a block, to where a piece is kept in float32.
__device__ inline void store_on_chip(float* room, int block_of_piece, const float (&logits)[PER_LANE]) {
#pragma unroll
    for (int j = 0; j < PER_LANE; j += 4)
        *reinterpret_cast<uint4*>(room + id_of(block_of_piece, j)) =
            uint4{__float_as_uint(logits[j]), __float_as_uint(logits[j + 1]),
                  __float_as_uint(logits[j + 2]), __float_as_uint(logits[j + 3])};
}

// Statistics of a piece, in `stats` for this CTA and in `told` for others. By a CTA, whose warps take
// turns.
__device__ inline void read_piece(
    const Piece& piece, const Copy& copy, float* room, float scale, bool greedy, Mass* stats, Mass* told) {
    for (int block = piece.begin + warp_id(); block < piece.end; block += CTA_WARPS) {
        float logits[PER_LANE];
        if (copy.barriers) copy.wait_for(block - piece.begin, piece.end - piece.begin);
        load_block(piece.row, block, logits);
        if (room) store_on_chip(room, block - piece.begin, logits);
        const Mass mass = block_mass(logits, scale, greedy);
        if (lane_id() == 0) stats[block] = told[block] = mass;
    }
}

// Starts to bring a piece into shared memory, if there is room for it. By a CTA.
__device__ inline Copy begin_piece(Piece& piece, char* room, u64* barriers) {
    if (!room || ADJUSTED || !HAS_BULK_COPIES || piece.row.inverse_map) return {};
    return by_type(piece.row.type, [&](auto type) {
        return start_copy<decltype(type)>(piece, room, barriers);
    });
}

// Makes a piece's statistics; adjusted logits are put into shared memory. By a CTA.
__device__ inline void open_piece(
    Piece& piece, const Copy& copy, char* room, float scale, bool greedy, Mass* stats, Mass* told) {
    float* store = ADJUSTED ? reinterpret_cast<float*>(room) : nullptr;
    read_piece(piece, copy, store, scale, greedy, stats, told);
    if (!store) return;
    piece.row.data = room - static_cast<i64>(piece.begin) * BLOCK_SIZE * static_cast<i64>(sizeof(float));
    piece.row.num_elements = piece.row.num_ids;
    piece.row.on_chip = true;
}

// What another CTA may have stored.
__device__ inline Mass load_mass(const Mass* place) {
    const u64 bits = *reinterpret_cast<const volatile u64*>(place);
    return {__uint_as_float(static_cast<u32>(bits)), __uint_as_float(static_cast<u32>(bits >> 32))};
}

__device__ inline float load_max(const Mass* place) {
    return *static_cast<const volatile float*>(&place->max);
}

// A row's statistics from its blocks', by one warp.
__device__ inline Mass row_mass(const Mass* stats, int num_blocks, float scale) {
    float largest = -INFINITY, sum = 0.0f;
#pragma unroll 4
    for (int block = lane_id(); block < num_blocks; block += LANES)
        largest = max_nan(largest, load_max(stats + block));
    largest = warp_max(largest);
    if (!(fabsf(largest) < INFINITY)) return {largest, 0.0f};
#pragma unroll 4
    for (int block = lane_id(); block < num_blocks; block += LANES) {
        const Mass mass = load_mass(stats + block);
        sum = __fmaf_rn(mass.sum, exp2_fast(log2_weight(mass.max, largest, scale)), sum);
    }
    return {largest, warp_reduce(sum, Add{})};
}

__device__ inline Law plain_law(const Mass& mass, float scale, bool greedy) {
    return {mass.max, greedy ? mass.max : -INFINITY, scale, greedy ? 0.0f : log2f(mass.sum)};
}
