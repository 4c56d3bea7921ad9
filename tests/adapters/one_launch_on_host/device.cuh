// What the kernel's device.cuh has, for a host. Refuses to know what is computed.
#pragma once
#include "fibers.h"

using std::min;
typedef unsigned short Half;
typedef unsigned long long Bits;

#define __device__
#define __forceinline__ inline
#define __global__
#define __cluster_dims__(...)
#define __launch_bounds__(...)
#define __fdividef(a, b) ((a) / (b))
#define __expf(a) expf(a)
#define rsqrtf(a) (1.0f / sqrtf(a))
#define DYNAMIC_SHARED(name) unsigned char* name = my_cta().memory;

struct alignas(16) Line {
    unsigned words[4];
};
struct uint2 {
    unsigned x, y;
};
struct float4 {
    float x, y, z, w;
};

static uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

template <class To, class From>
static To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

static float __uint_as_float(unsigned bits) { return bits_as<float>(bits); }
static unsigned __float_as_uint(float number) { return bits_as<unsigned>(number); }

// What a warp does together.

static unsigned (*collect(const unsigned* words, int count))[6] {
    Warp& warp = my_cta().warps[running->thread / 32];
    unsigned(*all)[6] = warp.words[warp.meeting.times % 2];
    memcpy(all[running->thread % 32], words, 4 * count);
    meet_at(warp.meeting, 32);
    return all;
}

template <class Number>
static Number shuffled(Number number, int from) {
    unsigned word = bits_as<unsigned>(number);
    return bits_as<Number>(collect(&word, 1)[from][0]);
}

template <class Number>
static Number __shfl_sync(unsigned, Number number, int from) {
    return shuffled(number, from % 32);
}

template <class Number>
static Number __shfl_xor_sync(unsigned, Number number, int apart) {
    return shuffled(number, running->thread % 32 ^ apart);
}

template <class Number>
static Number __shfl_down_sync(unsigned, Number number, int apart) {
    return shuffled(number, min(running->thread % 32 + apart, 31));
}

static bool __all_sync(unsigned, bool holds) {
    unsigned word = holds, all = 1;
    unsigned(*words)[6] = collect(&word, 1);
    for (int lane = 0; lane < 32; ++lane) all &= words[lane][0];
    return all;
}

static void __syncwarp() { __all_sync(~0u, true); }
static void __syncthreads() { meet_at(my_cta().all, CTA_THREADS); }
static void meet(int threads) { meet_at(my_cta().consumers, threads); }

static float low_half(unsigned word) { return __uint_as_float(word << 16); }
static float high_half(unsigned word) { return __uint_as_float(word & 0xffff0000u); }

static void multiply_add(float (&sums)[4], unsigned low, unsigned more_low, unsigned high, unsigned more_high,
                         unsigned token_low, unsigned token_high) {
    unsigned mine[6] = {low, more_low, high, more_high, token_low, token_high};
    unsigned(*all)[6] = collect(mine, 6);
    int lane = running->thread % 32;
    for (int more = 0; more < 2; ++more)
        for (int odd = 0; odd < 2; ++odd)
            for (int t = 0; t < 4; ++t)
                for (int half = 0; half < 2; ++half) {
                    unsigned row = all[lane / 4 * 4 + t][2 * half + more];
                    unsigned token = all[4 * (lane % 4 * 2 + odd) + t][4 + half];
                    sums[2 * more + odd] += low_half(row) * low_half(token) + high_half(row) * high_half(token);
                }
}

// Clusters: a place is a rank and an offset.

static int rank_in_cluster() { return running->cta % CLUSTER; }

static void arrive_in_cluster() { ++clusters[running->cta / CLUSTER].count; }

static void await_cluster() {
    while (clusters[running->cta / CLUSTER].count < CLUSTER * CTA_THREADS) give_way();
}

static unsigned shared_address(const void* pointer) {
    long offset = (const unsigned char*)pointer - my_cta().memory;
    expect_that(offset >= 0 && offset < SHARED_BYTES, "not in shared memory");
    return unsigned(offset);
}

static unsigned place_of(const void* pointer, int rank) { return shared_address(pointer) | unsigned(rank) << 24; }

static unsigned char* at(unsigned place) {
    return ctas[running->cta / CLUSTER * CLUSTER + (place >> 24)].memory + (place & 0xffffff);
}

struct Barrier {
    int bytes;
    short arrivals;
    unsigned short phase;

    void go_on() {
        expect_that(arrivals >= 0, "too many arrivals");
        if (arrivals == 0 && bytes == 0) {
            arrivals = 1;
            phase ^= 1;
        }
    }
};

static Barrier& barrier_of(const Bits* barrier) { return *(Barrier*)barrier; }

static void set_up_barrier(const Bits* barrier) { barrier_of(barrier) = {0, 1, 0}; }
static void show_barriers() {}

static void expect(const Bits* barrier, unsigned bytes) {
    barrier_of(barrier).bytes += bytes;
    --barrier_of(barrier).arrivals;
    barrier_of(barrier).go_on();
}

static void arrive(const Bits* barrier) { expect(barrier, 0); }

static void wait_for(const Bits* barrier, unsigned parity) {
    wait_while(barrier_of(barrier).phase, parity);
}

static void come(Barrier& barrier, int bytes) {
    barrier.bytes -= bytes;
    barrier.go_on();
}

template <class Words>
static void send_words(unsigned place, Words words, unsigned barrier) {
    expect_that(place % sizeof words == 0 && place >> 24 == barrier >> 24, "a place that is not allowed");
    memcpy(at(place), &words, sizeof words);
    come(*(Barrier*)at(barrier), sizeof words);
}

static void send(unsigned place, unsigned word, unsigned barrier) { send_words(place, word, barrier); }
static void send(unsigned place, const Line& line, unsigned barrier) { send_words(place, line, barrier); }
static void send(unsigned place, unsigned first, unsigned second, unsigned barrier) {
    send_words(place, uint2{first, second}, barrier);
}

// Memory.

struct Map {
    const Half* matrix;
    long long rows, columns;
    int box_rows, box_blocks;
    char unused[96];
};

static void expect_map(const Map*) {}
static Bits read_once() { return 0; }

static void copy(void* goal, const Map* map, int row, int block, const Bits* barrier, Bits) {
    expect_that(shared_address(goal) % 1024 == 0, "a box begins where the pattern of its lines does");
    expect_that(row + map->box_rows <= map->rows && 64 * (block + map->box_blocks) <= map->columns, "outside");
    for (int line = 0; line < map->box_blocks * map->box_rows; ++line) {
        const Half* from = map->matrix + (row + line % map->box_rows) * map->columns + 64 * (block + line / map->box_rows);
        for (int unit = 0; unit < 8; ++unit) memcpy((char*)goal + 128 * line + 16 * (unit ^ line % 8), from + 8 * unit, 16);
    }
    come(barrier_of(barrier), map->box_blocks * map->box_rows * 128);
}

static Line load_line(const Half* from) {
    expect_that((uintptr_t)from % 16 == 0, "not a line");
    return *(const Line*)from;
}

static Line load_kept(unsigned from) { return *(const Line*)(my_cta().memory + from); }

static unsigned load_anew(const unsigned* from) {
    give_way();
    return *(const volatile unsigned*)from;
}

static void store_at_once(unsigned* goal, unsigned number) { *(volatile unsigned*)goal = number; }
static void store_tagged(uint2* goal, float number, unsigned tag) { *goal = {__float_as_uint(number), tag}; }

static uint2 load_tagged(const uint2* from) {
    give_way();
    return *from;
}

static void take_registers() {}
static void leave_registers() {}

static unsigned rounded_half(float number) {
    unsigned bits = __float_as_uint(number);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static unsigned word_of(float low, float high) { return rounded_half(low) | rounded_half(high) << 16; }
static float power_of_two(float number) { return exp2f(number); }
