// CUDA for the host: a fiber per CUDA thread, and one CTA after the other, so that g++ runs the kernels
// as they are. Between barriers, shuffles and ballots a fiber runs alone; a seed has them
// take turns in any order, so that a barrier that is missing shows, and other CTAs run in between.
// Shared memory begins as NaNs, so that what is read before it is written shows, too. expf differs
// in the last digits.
#pragma once
#include <link.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "switch_to.h"

#define __device__
#define __global__ __attribute__((visibility("hidden")))  // the C library has an accept, too
#define __grid_constant__
#define __noinline__ __attribute__((noinline))
#define COLD __noinline__ inline
#define __launch_bounds__(...)
#define __shared__ static thread_local

struct uint4 {
    unsigned x, y, z, w;
};
struct Index {
    unsigned x, y, z;
};

namespace host {

constexpr int WARP = 32, MAX_BARRIERS = 16;
constexpr size_t STACK = 128 * 1024;

using Stack = std::unique_ptr<char[]>;

struct Warp {
    uint64_t in[WARP], out[WARP];
    int arrived = 0;
    unsigned generation = 0;
};
struct Barrier {
    int arrived = 0;
    unsigned generation = 0;
};
struct Fiber {
    void* place;
    Stack stack;
    // Nothing to do while this is so.
    const unsigned* watched = nullptr;
    unsigned generation = 0;
    bool done = false;
    bool waits() const { return watched && *watched == generation; }
};
struct Cta {
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    Barrier barriers[MAX_BARRIERS];
    std::function<void()> body;
    void* scheduler;
    int current = 0;
};

inline thread_local Cta* cta;
inline thread_local Index thread_index, block_index;
inline Index grid_size;
inline unsigned schedule = 0;  // a seed; 0: one fiber after the other
inline std::mt19937 chance;
inline std::vector<int> pending;  // CTAs of the launch that have not begun, the last one first
inline bool stuck = false;        // a thread waits for one that has ended

// Of fibers that ended: pages that are new cost more than most kernels.
inline std::vector<Stack> spare_stacks;

inline Stack take_stack() {
    if (spare_stacks.empty()) return Stack(new char[STACK]);
    Stack stack = std::move(spare_stacks.back());
    spare_stacks.pop_back();
    return stack;
}

inline void give_stacks_back() {
    for (Fiber& fiber : cta->fibers) spare_stacks.push_back(std::move(fiber.stack));
}

inline void yield() { switch_to(&cta->fibers[cta->current].place, cta->scheduler); }

// Until it is another generation.
inline void wait_while(const unsigned& watched, unsigned generation) {
    Fiber& fiber = cta->fibers[cta->current];
    fiber.generation = generation;
    fiber.watched = &watched;
    do yield();
    while (fiber.waits());
    fiber.watched = nullptr;
}

inline void enter() {
    cta->body();
    cta->fibers[cta->current].done = true;
    yield();
}

inline void resume(int index) {
    Fiber& fiber = cta->fibers[index];
    cta->current = index;
    thread_index.x = index;
    if (!fiber.stack) {
        fiber.stack = take_stack();
        fiber.place = place_of(enter, fiber.stack.get(), STACK);
    }
    switch_to(&cta->scheduler, fiber.place);
}

// The order in which fibers take turns. By chance whole warps are left out, and so fall behind.
class Turns {
  public:
    Turns(int threads, int block) : order(threads), random(schedule + 7919u * block) {
        std::iota(order.begin(), order.end(), 0);
    }
    const std::vector<int>& next() {
        if (schedule == 0) return order;
        std::shuffle(order.begin(), order.end(), random);
        waiting = random() & random();
        return order;
    }
    bool skips(int fiber) const { return waiting >> fiber / WARP % WARP & 1; }

  private:
    std::vector<int> order;
    std::mt19937 random;
    unsigned waiting = 0;
};

// Of this thread and this library, as all shared memory is.
static thread_local volatile char own;

constexpr unsigned NAN_OF_DEVICES = 0x7fffffff;

struct Shared {
    unsigned* words = nullptr;
    size_t count = 0;
};

// All shared memory, and what else is of the thread.
inline Shared shared_memory() {
    Shared shared;
    own = 0;  // now there is memory
    dl_iterate_phdr(
        [](dl_phdr_info* library, size_t, void* found) {
            char* begin = static_cast<char*>(library->dlpi_tls_data);
            for (int i = 0; begin && i < library->dlpi_phnum; ++i) {
                const auto& part = library->dlpi_phdr[i];
                const size_t place = const_cast<char*>(&own) - begin;
                if (part.p_type != PT_TLS || place >= part.p_memsz) continue;
                *static_cast<Shared*>(found) = {reinterpret_cast<unsigned*>(begin), part.p_memsz / 4};
                return 1;
            }
            return 0;
        },
        &shared);
    return shared;
}

inline Index index_of(unsigned block) {
    return {block % grid_size.x, block / grid_size.x, 0};
}

inline int take_pending() {
    const int block = pending.back();
    pending.pop_back();
    return block;
}

inline void run_cta(int block, int threads, const std::function<void()>& body);

// Other CTAs, by chance, while one is where it is.
inline void let_others_run() {
    if (schedule == 0 || pending.empty() || chance() % 8) return;
    const Shared shared = shared_memory();
    const std::vector<unsigned> kept(shared.words, shared.words + shared.count);
    run_cta(take_pending(), static_cast<int>(cta->fibers.size()), cta->body);
    std::copy(kept.begin(), kept.end(), shared.words);
}

inline void run_cta(int block, int threads, const std::function<void()>& body) {
    // Before anything of the thread is set.
    const Shared shared = shared_memory();
    std::fill_n(shared.words, shared.count, NAN_OF_DEVICES);
    Cta mine;
    mine.fibers.resize(threads);
    mine.warps.resize(threads / WARP);
    mine.body = body;
    cta = &mine;
    block_index = index_of(block);
    Turns turns(threads, block);
    for (std::vector<int> ready(1); !ready.empty();) {
        // A warp's lanes go on together, so that no CTA runs between their loads.
        ready.clear();
        const std::vector<int>& order = turns.next();
        for (int i : order)
            if (!mine.fibers[i].done && !mine.fibers[i].waits()) ready.push_back(i);
        for (int i : ready)
            if (!turns.skips(i)) resume(i);
        let_others_run();
    }
    for (const Fiber& fiber : mine.fibers) stuck |= !fiber.done;
    give_stacks_back();
}

// One CTA after the other, in their order or, by a seed, in any: none waits for another.
inline void launch(Index grid, int threads, const std::function<void()>& body) {
    grid_size = grid;
    pending.resize(grid.x * grid.y);
    std::iota(pending.rbegin(), pending.rend(), 0);
    chance.seed(schedule);
    if (schedule) std::shuffle(pending.begin(), pending.end(), chance);
    while (!pending.empty()) run_cta(take_pending(), threads, body);
}

inline void wait_at(int id, int threads) {
    Barrier& barrier = cta->barriers[id];
    const unsigned generation = barrier.generation;
    if (++barrier.arrived == threads) {
        barrier.arrived = 0;
        ++barrier.generation;
    }
    wait_while(barrier.generation, generation);
}

// Every lane gives a value and gets all of the warp's.
inline const uint64_t* exchange(uint64_t value) {
    const int index = cta->current;
    Warp& warp = cta->warps[index / WARP];
    const unsigned generation = warp.generation;
    warp.in[index % WARP] = value;
    if (++warp.arrived == WARP) {
        warp.arrived = 0;
        std::memcpy(warp.out, warp.in, sizeof warp.in);
        ++warp.generation;
    }
    wait_while(warp.generation, generation);
    return warp.out;
}

template <typename T>
uint64_t to_bits(T value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}

template <typename T>
T from_bits(uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

}  // namespace host

// From now on, in every launch.
extern "C" void set_schedule(unsigned seed) { host::schedule = seed; }
// Whether some thread of a launch so far waited for one that had ended.
extern "C" bool was_stuck() { return host::stuck; }

#define threadIdx host::thread_index
#define blockIdx host::block_index
#define gridDim host::grid_size

inline int lane_of_host() { return host::cta->current % host::WARP; }
inline void __syncthreads() { host::wait_at(0, static_cast<int>(host::cta->fibers.size())); }
template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
    return host::from_bits<T>(host::exchange(host::to_bits(value))[lane % host::WARP]);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int distance) {
    return __shfl_sync(mask, value, lane_of_host() ^ distance);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, int distance) {
    const int lane = lane_of_host();
    return __shfl_sync(mask, value, lane >= distance ? lane - distance : lane);
}
inline unsigned __ballot_sync(unsigned, bool flag) {
    const uint64_t* flags = host::exchange(flag);
    unsigned ballot = 0;
    for (int lane = 0; lane < host::WARP; ++lane) ballot |= unsigned(flags[lane]) << lane;
    return ballot;
}
inline void __syncwarp() { host::exchange(0); }

template <typename T>
T atomicAdd(T* address, T value) { return std::exchange(*address, *address + value); }
inline unsigned increment_acq_rel(unsigned* address, unsigned last) {
    return std::exchange(*address, *address >= last ? 0 : *address + 1);
}
inline unsigned load_relaxed(const unsigned* address) { return *address; }
inline void let_next_launch_begin() {}
inline void wait_for_launch_before() {}
inline void add_relaxed(unsigned* address, unsigned value) { *address += value; }
inline unsigned window_of_pair(unsigned pair, unsigned below, unsigned last) {
    const auto cut = [&](int x) { return x ? unsigned(std::clamp(x - int(below), 1, int(last))) : 0u; };
    return cut(int16_t(pair)) | cut(int16_t(pair >> 16)) << 16;
}
inline unsigned upper_halves(unsigned low, unsigned high) {
    return low >> 16 | (high & 0xffff0000u);
}
inline int warp_max_signed(int value) {
    const uint64_t* all = host::exchange(host::to_bits(value));
    for (int lane = 0; lane < host::WARP; ++lane)
        value = std::max(value, host::from_bits<int>(all[lane]));
    return value;
}
template <typename T>
T __ldcg(const T* address) { return *address; }
// NaNs from where a device would refuse to load.
inline void load_once_if(bool wanted, const uint4* address, uint4& value) {
    constexpr unsigned none = host::NAN_OF_DEVICES;
    if (wanted)
        value = reinterpret_cast<uintptr_t>(address) % 16 ? uint4{none, none, none, none} : *address;
}
inline void load_pair_if(bool wanted, const unsigned* address, unsigned& low, unsigned& high) {
    if (wanted) low = address[0], high = address[1];
}
inline void load_byte_if(bool wanted, const unsigned char* address, unsigned& value) {
    if (wanted) value = *address;
}
inline unsigned* asked_shared_memory() {
    alignas(16) static thread_local unsigned words[2 * (22 * 128 + 4) + 4 + 6144];
    return words;
}

inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (uint64_t(high) << 32 | low) >> (shift & 31);
}
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline unsigned __float_as_uint(float x) { return host::from_bits<unsigned>(host::to_bits(x)); }
inline float __uint_as_float(unsigned x) { return host::from_bits<float>(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fmaf(a, b, c); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __double2float_ru(double x) {
    const float nearest = static_cast<float>(x);
    return nearest < x ? std::nextafterf(nearest, INFINITY) : nearest;
}
inline float reciprocal(float x) { return 1.0f / x; }
inline float exp2_fast(float x) { return std::exp2f(x); }
inline float log2_fast(float x) { return std::log2f(x); }
inline float max_nan(float a, float b) {
    return std::isnan(a) || std::isnan(b) ? NAN : a > b ? a : b;
}
// A function of two bfloat16, of both halves of words.
inline unsigned by_halves(unsigned a, unsigned b, float of(float, float)) {
    const auto half = [of](unsigned x, unsigned y) {
        return __float_as_uint(of(__uint_as_float(x), __uint_as_float(y))) >> 16;
    };
    return half(a << 16, b << 16) | half(a & 0xffff0000u, b & 0xffff0000u) << 16;
}
inline unsigned max_nan_of_pairs(unsigned a, unsigned b) { return by_halves(a, b, max_nan); }
inline unsigned signs_of_pair(unsigned pair) {
    return (pair >> 15 & 1) * 0xffffu | (pair >> 31) * 0xffff0000u;
}
inline unsigned neither(unsigned a, unsigned b, unsigned c) { return ~(a | (b & c)); }
inline unsigned lowest_by_even_bytes(unsigned word) {
    return (word >> 7 & 1) * 0xff00u | (word >> 23 & 1) * 0xff000000u;
}
inline unsigned lowest_by_odd_bytes(unsigned word) { return lowest_by_even_bytes(word >> 8); }
inline unsigned lowered_pair(unsigned pair, unsigned lowest) {
    return by_halves(pair, lowest, [](float x, float y) { return x + 0x1p127f * y; });
}
inline float half_bits_to_float(unsigned short bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const float sign = bits >> 15 ? -1.0f : 1.0f;
    if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
    return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

inline bool __any_sync(unsigned mask, bool flag) { return __ballot_sync(mask, flag) != 0; }
template <typename T>
T atomicOr(T* address, T value) { return std::exchange(*address, *address | value); }
template <typename T>
T atomicMax(T* address, T value) { return std::exchange(*address, std::max(*address, value)); }
