// What the kernel's device.cuh has, for a host. Refuses to know what is computed.
#pragma once
#include "fibers.h"

using std::min;
typedef unsigned short Half;
typedef unsigned long long Bits;

#define __device__
#define __forceinline__ inline
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __expf(a) expf(a)
#define __fdividef(a, b) ((a) / (b))
#define rsqrtf(a) (1.0f / sqrtf(a))
#define DYNAMIC_SHARED(name) unsigned char* name = my_cta().memory;

struct uint4 {
    unsigned x, y, z, w;
};

struct float4 {
    float x, y, z, w;
};

static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

template <class To, class From>
static To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

static float __uint_as_float(unsigned bits) { return bits_as<float>(bits); }

template <class Number>
static Number __shfl_xor_sync(unsigned, Number number, int apart) {
    Warp& warp = my_cta().warps[running->thread / 32];
    unsigned(*all)[6] = warp.words[warp.meeting.times % 2];
    all[running->thread % 32][0] = bits_as<unsigned>(number);
    meet_at(warp.meeting, 32);
    return bits_as<Number>(all[running->thread % 32 ^ apart][0]);
}

static void __syncthreads() { meet_at(my_cta().all, CTA_THREADS); }
static void meet(int threads) { meet_at(my_cta().consumers, threads); }

static void let_next_begin() {}
static void await_kernels_before() {}

static unsigned shared_address(const void* pointer) {
    long offset = (const unsigned char*)pointer - my_cta().memory;
    expect_that(offset >= 0 && offset < SHARED_BYTES, "not in shared memory");
    return unsigned(offset);
}

struct Barrier {
    int bytes;
    unsigned char arrivals, most;
    unsigned short phase;

    void go_on() {
        if (arrivals == 0 && bytes == 0) {
            arrivals = most;
            phase ^= 1;
        }
    }
};

static Barrier& barrier_of(const Bits* barrier) { return *(Barrier*)barrier; }

static void set_up_barrier(const Bits* barrier, int arrivals) {
    barrier_of(barrier) = {0, (unsigned char)arrivals, (unsigned char)arrivals, 0};
}

static void show_barriers() {}

static void expect(const Bits* barrier, unsigned bytes) {
    expect_that(barrier_of(barrier).arrivals > 0, "too many arrivals");
    barrier_of(barrier).bytes += bytes;
    --barrier_of(barrier).arrivals;
    barrier_of(barrier).go_on();
}

static void arrive(const Bits* barrier) { expect(barrier, 0); }

// A place in the cluster: whose memory, and where in it.
static unsigned place_of(const void* pointer, int rank) {
    return shared_address(pointer) | unsigned(running->cta / CLUSTER * CLUSTER + rank) << 20;
}

static void send(unsigned place, float first, float second, float third, float fourth, unsigned barrier) {
    float four[] = {first, second, third, fourth};
    memcpy(ctas[place >> 20].memory + (place & 0xfffff), four, sizeof four);
    expect_that(place >> 20 == barrier >> 20, "a barrier counts what comes to its own CTA");
    Barrier& other = *(Barrier*)(ctas[barrier >> 20].memory + (barrier & 0xfffff));
    other.bytes -= sizeof four;
    other.go_on();
}

static unsigned long cluster_times[CTAS * CTA_THREADS];

static void arrive_in_cluster() {
    Meeting& meeting = clusters[running->cta / CLUSTER];
    cluster_times[running->cta * CTA_THREADS + running->thread] = meeting.times;
    if (++meeting.count == CLUSTER * CTA_THREADS) {
        meeting.count = 0;
        ++meeting.times;
    }
}

static void await_cluster() {
    while (clusters[running->cta / CLUSTER].times == cluster_times[running->cta * CTA_THREADS + running->thread]) give_way();
}

static void wait_for(const Bits* barrier, unsigned parity) {
    wait_while(barrier_of(barrier).phase, parity);
}

// A box of a tensor; its lines are 64 numbers.
struct alignas(64) Map {
    const unsigned char* tensor;
    unsigned sizes[5], box[5];
    long long strides[4];  // in bytes, of all but the first
    char unused[48];
};

static void expect_map(const Map*) {}
static Bits read_once() { return 0; }

static void copy_box(void* goal, const Map& map, const int (&at)[5], const Bits* barrier) {
    expect_that(shared_address(goal) % 1024 == 0, "a box begins where the pattern of its lines does");
    int lines = map.box[1] * map.box[2] * map.box[3] * map.box[4];
    for (int line = 0; line < lines; ++line) {
        long long offset = 0;
        bool inside = true;
        for (int axis = 1, rest = line; axis < 5; rest /= map.box[axis++]) {
            unsigned place = at[axis] + rest % map.box[axis];
            inside &= place < map.sizes[axis];
            offset += place * map.strides[axis - 1];
        }
        for (int unit = 0; unit < 8; ++unit) {
            void* to = (char*)goal + 128 * line + 16 * (unit ^ line % 8);
            if (inside) memcpy(to, map.tensor + offset + 16 * unit, 16);
            else memset(to, 0, 16);
        }
    }
    barrier_of(barrier).bytes -= lines * 128;
    barrier_of(barrier).go_on();
}

static void copy_rows(void* goal, const Map* map, int group, int block, const Bits* barrier, Bits) {
    expect_that(group + map->box[4] <= map->sizes[4] && block + map->box[2] <= map->sizes[2], "outside");
    copy_box(goal, *map, {0, 0, block, 0, group}, barrier);
}

static void copy_tokens(void* goal, const Map* map, int block, const Bits* barrier) {
    copy_box(goal, *map, {0, 0, block, 0, 0}, barrier);
}

// Products.

static Bits lines_at(unsigned address, int apart) { return Bits(address >> 4) | Bits(apart >> 4) << 32; }
static void begin_products() {}
static void end_products() {}
static void await_products() {}

static float float_of(Half number) { return __uint_as_float(unsigned(number) << 16); }
static float low_of(unsigned word) { return __uint_as_float(word << 16); }
static float high_of(unsigned word) { return __uint_as_float(word & 0xffff0000u); }

// Column of a line that lies with others as a copy leaves them.
static float number_at(Bits lines, int line, int column) {
    unsigned address = unsigned(lines) * 16 + line / 8 * unsigned(lines >> 32) * 16 + line % 8 * 128 + 2 * column;
    return float_of(*(const Half*)(my_cta().memory + (address ^ (address >> 7 & 7) << 4)));
}

template <int COUNT>
static void multiply_add(float (&sums)[COUNT], Bits rows, Bits tokens) {
    int thread = running->thread;
    for (int i = 0; i < COUNT; ++i) {
        int row = thread / 32 % 4 * 16 + thread % 32 / 4 + i % 4 / 2 * 8, token = i / 4 * 8 + thread % 4 * 2 + i % 2;
        for (int column = 0; column < 16; ++column)
            sums[i] += number_at(rows, row, column) * number_at(tokens, token, column);
    }
}

// Memory.

static float __ldcg(const float* from) { return *from; }
static unsigned __ldcg(const unsigned* from) { return *from; }
static unsigned rounded_half(float number) {
    unsigned bits = bits_as<unsigned>(number);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static unsigned word_of(float low, float high) { return rounded_half(low) | rounded_half(high) << 16; }
