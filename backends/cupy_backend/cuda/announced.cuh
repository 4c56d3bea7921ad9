// How a request's CTAs tell one of them their blocks' statistics: a word each, which is 0 until it has come.
// Nobody waits until another sees what it wrote, and nobody counts. Who takes words puts them back to 0.
#pragma once
#include "meeting.cuh"

constexpr u64 HAS_COME = 1ull << 63;  // the sign of the sum, which is never negative
constexpr u64 NO_BLOCK = HAS_COME | 0xff800000ull;

__device__ inline u64* word_of(Mass* place) { return reinterpret_cast<u64*>(place); }

// What is done with statistics that are found.
struct Announce {
    __device__ void operator()(Mass* place, const Mass& mass) const {
        if (!ANNOUNCED) {
            *place = mass;
            return;
        }
        const u64 sum = __float_as_uint(mass.sum);
        store_relaxed(word_of(place), HAS_COME | sum << 32 | __float_as_uint(mass.max));
    }
};

__device__ inline Mass mass_in(u64 word) {
    return {__uint_as_float(static_cast<u32>(word)),
            __uint_as_float(static_cast<u32>(word >> 32) & 0x7fffffffu)};
}

// A thread's words of a row: COUNT of them from `first` on, `step` blocks apart.
template <int COUNT>
struct Arriving {
    u64 words[COUNT];
    // On their way.
    __device__ void load(Mass* row, int num_blocks, int first, int step) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int block = first + i * step;
            words[i] = NO_BLOCK;
            load_relaxed_if(block < num_blocks, word_of(row + block), words[i]);
        }
    }
    __device__ bool have_come() const {
        u64 all = words[0];
#pragma unroll
        for (int i = 1; i < COUNT; ++i) all &= words[i];
        return all & HAS_COME;
    }
    // By a whole warp, after a first load.
    __device__ void take(Mass* row, int num_blocks, int first, int step) {
        while (!__all_sync(ALL_LANES, have_come())) load(row, num_blocks, first, step);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int block = first + i * step;
            if (block < num_blocks) store_relaxed(word_of(row + block), 0);
        }
    }
};

// By `step` threads.
__device__ inline void take_words(Mass* row, Mass* to, int num_blocks, int first, int step) {
    for (int block = first; block < num_blocks; block += step) {
        u64 word = 0;
        while (word == 0) load_relaxed_if(true, word_of(row + block), word);
        store_relaxed(word_of(row + block), 0);
        if (to) to[block] = mass_in(word);
    }
}
