// A row of logits and how its blocks are loaded: 16 logits a lane, the same ones whatever the
// row's alignment. A row never says which request it belongs to, except through its adjustment.
#pragma once
#include "adjust.cuh"
#include "variant.cuh"

struct Bf16 {
    unsigned short bits;
};
struct Fp16 {
    unsigned short bits;
};

using TargetLogit = VARIANT_TARGET;
using DraftLogit = VARIANT_DRAFT;

__device__ inline float to_float(Bf16 x) { return __uint_as_float(static_cast<u32>(x.bits) << 16); }
__device__ inline float to_float(Fp16 x) { return half_bits_to_float(x.bits); }
__device__ inline float to_float(float x) { return x; }

// How many low bits of a logit's float_key are the same for all logits of a sign.
template <typename T>
constexpr int IDLE_KEY_BITS = 0;
template <>
constexpr int IDLE_KEY_BITS<Bf16> = 16;
template <>
constexpr int IDLE_KEY_BITS<Fp16> = 8;

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
        return static_cast<int>((vocab_size + BLOCK_SIZE - 1) / BLOCK_SIZE);
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

template <typename T>
struct RawBlock {
    uint4 words[PER_LANE * sizeof(T) / sizeof(uint4)];
};

template <typename T>
__device__ inline RawBlock<T> load_raw(const T* data, int block, int lane) {
    constexpr int vectors = 8 * sizeof(T) / sizeof(uint4);
    RawBlock<T> raw;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < vectors; ++i)
            raw.words[half * vectors + i] =
                load_once(reinterpret_cast<const uint4*>(data + id_of(block, lane, 8 * half)) + i);
    return raw;
}

__device__ inline float unpack(const RawBlock<Bf16>& raw, int j) {
    const u32 word = (&raw.words[j / 8].x)[j % 8 / 2];
    return __uint_as_float(j % 2 ? word & 0xffff0000u : word << 16);
}

__device__ inline float unpack(const RawBlock<Fp16>& raw, int j) {
    const u32 word = (&raw.words[j / 8].x)[j % 8 / 2];
    return half_bits_to_float(static_cast<unsigned short>(j % 2 ? word >> 16 : word));
}

__device__ inline float unpack(const RawBlock<float>& raw, int j) {
    return __uint_as_float((&raw.words[j / 4].x)[j % 4]);
}

template <typename T>
__device__ inline void unpack_all(const RawBlock<T>& raw, float (&logits)[PER_LANE]) {
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) logits[j] = unpack(raw, j);
}

template <typename T>
__device__ inline bool is_full_block(const Row<T>& row, int block) {
    return static_cast<i64>(block + 1) * BLOCK_SIZE <=
           (row.num_elements < row.vocab_size ? row.num_elements : row.vocab_size);
}

template <typename T>
__device__ COLD void load_piecewise(const Row<T>& row, int block, float (&logits)[PER_LANE]) {
#pragma unroll 4
    for (int j = 0; j < PER_LANE; ++j) {
        const i64 element = row.element_of(id_of(block, lane_id(), j));
        logits[j] = element < 0 ? -INFINITY : to_float(row.data[element]);
    }
}

template <typename T>
__device__ inline void load_block(const Row<T>& row, int block, float (&logits)[PER_LANE]) {
    if (row.is_vector_loadable() && is_full_block(row, block))
        unpack_all(load_raw(row.data, block, lane_id()), logits);
    else
        load_piecewise(row, block, logits);
    if (ADJUSTED && row.adjustment) adjust_block(*row.adjustment, block, row.vocab_size, logits);
}

template <typename T>
__device__ inline float load_logit(const Row<T>& row, i64 id) {
    const i64 element = row.element_of(id);
    if (element < 0) return -INFINITY;
    const float logit = to_float(row.data[element]);
    return ADJUSTED && row.adjustment ? adjust_logit(*row.adjustment, id, logit) : logit;
}
