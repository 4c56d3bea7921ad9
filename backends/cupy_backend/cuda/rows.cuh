// A row of logits and how its blocks are loaded: 16 logits a lane, the same ones whatever the
// row's alignment. A row never says which request it belongs to, except through its adjustment.
#pragma once
#include "adjust.cuh"

struct Bf16 {
    unsigned short bits;
};
struct Fp16 {
    unsigned short bits;
};

using TargetLogit = VARIANT_TARGET;
using DraftLogit = VARIANT_DRAFT;

template <typename A, typename B>
constexpr bool SAME = false;
template <typename A>
constexpr bool SAME<A, A> = true;
constexpr bool SAME_LOGITS = SAME<TargetLogit, DraftLogit>;

__device__ inline float to_float(Bf16 x) { return __uint_as_float(static_cast<u32>(x.bits) << 16); }
__device__ inline float to_float(Fp16 x) { return half_bits_to_float(x.bits); }
__device__ inline float to_float(float x) { return x; }

// How many low bits of a logit's float_key are the same for all logits of a sign.
template <typename T>
constexpr int IDLE_KEY_BITS = 0;
template <>
constexpr int IDLE_KEY_BITS<Bf16> = 16;
template <>
constexpr int IDLE_KEY_BITS<Fp16> = 13;

// The bits of -inf, as often as they fit into a word.
template <typename T>
constexpr u32 NOTHING = 0xff800000u;
template <>
constexpr u32 NOTHING<Bf16> = 0xff80ff80u;
template <>
constexpr u32 NOTHING<Fp16> = 0xfc00fc00u;

// How many logits a 16-byte load brings.
template <typename T>
constexpr int PER_VECTOR = sizeof(uint4) / sizeof(T);

// inverse_map null: id v of [0, vocab_size) is element v, if v < num_elements. Otherwise element
// inverse_map[v], unless that is -1. Ids without an element have logit -inf.
template <typename T>
struct Row {
    const T* data;
    i64 num_elements;
    i64 vocab_size;
    const int* inverse_map;
    const Adjustment* adjustment;

    __device__ int num_blocks() const {
        return static_cast<int>((static_cast<u32>(vocab_size) + BLOCK_SIZE - 1) / BLOCK_SIZE);
    }
    __device__ i64 element_of(i64 id) const {
        if (id >= vocab_size) return -1;
        if (inverse_map) return inverse_map[id];
        return id < num_elements ? id : -1;
    }
    __device__ bool is_vector_loadable() const {
        return !inverse_map && reinterpret_cast<u64>(data) % 16 == 0;
    }
};

// The id of a lane's j-th logit: two runs of eight.
__device__ inline i64 id_of(int block, int lane, int j) {
    return static_cast<i64>(block) * BLOCK_SIZE + (j / 8) * (BLOCK_SIZE / 2) + lane * 8 + j % 8;
}

// A lane's share of a block as it lies in memory.
template <typename T>
struct RawBlock {
    uint4 words[PER_LANE / PER_VECTOR<T>];
};

template <typename T>
__device__ inline RawBlock<T> load_raw(const T* block, int lane) {
    constexpr int vectors = 8 / PER_VECTOR<T>;
    RawBlock<T> raw;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < vectors; ++i)
            raw.words[half * vectors + i] = load_once(
                reinterpret_cast<const uint4*>(block + half * (BLOCK_SIZE / 2) + lane * 8) + i);
    return raw;
}

// The same for vectors that begin before `wanted`, counted from the lane's first logit in the block.
template <typename T>
__device__ inline void load_raw_if(int wanted, const char* lane_data, uint4* words) {
    constexpr int vectors = 8 / PER_VECTOR<T>;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < vectors; ++i)
            load_once_if(half * (BLOCK_SIZE / 2) < wanted,
                         reinterpret_cast<const uint4*>(
                             lane_data + half * (BLOCK_SIZE / 2) * sizeof(T)) + i,
                         words[half * vectors + i]);
}

__device__ inline u32 word_at(const uint4& words, int i) {
    return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

// The j-th of the logits that lie in `words`.
template <typename T>
__device__ inline float unpack_at(const uint4* words, int j) {
    if constexpr (sizeof(T) == 4) return __uint_as_float(word_at(words[j / 4], j % 4));
    const u32 word = word_at(words[j / 8], j % 8 / 2);
    if constexpr (SAME<T, Bf16>) return __uint_as_float(j % 2 ? word & 0xffff0000u : word << 16);
    return half_bits_to_float(static_cast<unsigned short>(j % 2 ? word >> 16 : word));
}

template <typename T>
__device__ inline float unpack(const RawBlock<T>& raw, int j) {
    return unpack_at<T>(raw.words, j);
}

template <typename T>
__device__ inline void unpack_all(const RawBlock<T>& raw, float (&logits)[PER_LANE]) {
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) logits[j] = unpack(raw, j);
}

template <typename T>
__device__ inline float lane_max(const RawBlock<T>& raw) {
    float largest = unpack(raw, 0);
#pragma unroll
    for (int j = 1; j < PER_LANE; ++j) largest = max_nan(largest, unpack(raw, j));
    return largest;
}

__device__ inline float lane_max(const RawBlock<Bf16>& raw) {
    u32 pair = max_nan_bf16x2(raw.words[0].x, raw.words[1].x);
#pragma unroll
    for (int i = 1; i < 8; ++i) pair = max_nan_bf16x2(pair, word_at(raw.words[i / 4], i % 4));
    return max_nan(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

template <typename T>
__device__ inline bool is_full_block(const Row<T>& row, int block) {
    return static_cast<i64>(block + 1) * BLOCK_SIZE <=
           (row.num_elements < row.vocab_size ? row.num_elements : row.vocab_size);
}

// Whether all of a row can be loaded by whole vectors.
template <typename T>
__device__ inline bool is_direct(const Row<T>& row) {
    return row.is_vector_loadable() && static_cast<u32>(row.vocab_size) % 8 == 0 &&
           static_cast<u32>(row.num_elements) >= static_cast<u32>(row.vocab_size);
}

// Whether a block can.
template <typename T>
__device__ inline bool is_direct(const Row<T>& row, int block) {
    return row.is_vector_loadable() && is_full_block(row, block);
}

struct Logits {
    float of[PER_LANE];
};

// By value, so that what is rarely asked for keeps nobody's row in memory.
template <typename T>
__device__ COLD Logits load_piecewise(Row<T> row, int block) {
    Logits logits;
#pragma unroll 4
    for (int j = 0; j < PER_LANE; ++j) {
        const i64 element = row.element_of(id_of(block, lane_id(), j));
        logits.of[j] = element < 0 ? -INFINITY : to_float(row.data[element]);
    }
    return logits;
}

template <typename T>
__device__ inline void load_block(const Row<T>& row, int block, float (&logits)[PER_LANE]) {
    if (is_direct(row, block)) {
        unpack_all(load_raw(row.data + static_cast<i64>(block) * BLOCK_SIZE, lane_id()), logits);
    } else {
        const Logits loaded = load_piecewise(row, block);
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j) logits[j] = loaded.of[j];
    }
    if (ADJUSTED && row.adjustment) adjust_block(*row.adjustment, block, row.vocab_size, logits);
}

template <typename T>
struct alignas(4 * sizeof(T)) FourLogits {
    T of[4];
};

// Those from `id` on, a multiple of four; -inf where there is none.
template <typename T>
__device__ inline void load_four(const Row<T>& row, i64 id, float (&logits)[4]) {
    if (is_direct(row) && !(ADJUSTED && row.adjustment)) {
        if (id < row.vocab_size) {
            const FourLogits<T> four = *reinterpret_cast<const FourLogits<T>*>(row.data + id);
#pragma unroll
            for (int j = 0; j < 4; ++j) logits[j] = to_float(four.of[j]);
        } else {
#pragma unroll
            for (int j = 0; j < 4; ++j) logits[j] = -INFINITY;
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) logits[j] = load_logit(row, id + j);
}

// What load_logit is about to load, if that is known without loading anything.
template <typename T>
__device__ inline void prefetch_logit(const Row<T>& row, i64 id) {
    if (!row.inverse_map && id < row.num_elements) prefetch(row.data + id);
}

template <typename T>
__device__ inline float load_logit(const Row<T>& row, i64 id) {
    const i64 element = row.element_of(id);
    if (element < 0) return -INFINITY;
    const float logit = to_float(row.data[element]);
    return ADJUSTED && row.adjustment ? adjust_logit(*row.adjustment, id, logit) : logit;
}
