// The few instructions that C++ has no name for; a shim for the host replaces this file.
#pragma once

// For what is needed rarely: inlined everywhere it would fill the instruction cache.
#define COLD __noinline__

#define INFINITY __int_as_float(0x7f800000)

__device__ inline float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ inline float log2_fast(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ inline float max_nan(float a, float b) {
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}

// Of two pairs.
__device__ inline unsigned int max_nan_bf16x2(unsigned int a, unsigned int b) {
    unsigned int y;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}

// Of this CTA; never remembered.
__device__ inline unsigned int thread_id() {
    unsigned int y;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(y));
    return y;
}

// Of this thread in its warp; never remembered.
__device__ inline unsigned int lane_of_warp() {
    unsigned int y;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(y));
    return y;
}

// Of all lanes of a warp.
__device__ inline int warp_max_signed(int value) {
    int y;
    asm volatile("redux.sync.max.s32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(value));
    return y;
}

__device__ inline float half_bits_to_float(unsigned short bits) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(bits));
    return y;
}

__device__ inline void named_barrier(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// The same by a word in shared memory, of which racecheck follows who has come; `threads` were named when it
// was made ready.
__device__ inline void make_ready(unsigned long long* meeting, int threads) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(
                     static_cast<unsigned int>(__cvta_generic_to_shared(meeting))),
                 "r"(threads)
                 : "memory");
}

__device__ inline void meet_at(unsigned long long* meeting, int, int) {
    const unsigned int address = static_cast<unsigned int>(__cvta_generic_to_shared(meeting));
    unsigned long long turn;
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(turn) : "r"(address) : "memory");
    for (unsigned int over = 0; !over;)
        asm volatile(
            "{ .reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
            : "=r"(over)
            : "r"(address), "l"(turn)
            : "memory");
}

// Some arrive, others wait for the end of a turn: turns are even and odd by turns, the first one even.
__device__ inline void arrive_at(unsigned long long* meeting) {
    asm volatile("{ .reg .b64 turn; mbarrier.arrive.shared.b64 turn, [%0]; }" ::"r"(
                     static_cast<unsigned int>(__cvta_generic_to_shared(meeting)))
                 : "memory");
}

#if __CUDA_ARCH__ >= 900
#define WAIT_FOR_PARITY "mbarrier.try_wait.parity.shared.b64"
#else
#define WAIT_FOR_PARITY "mbarrier.test_wait.parity.shared.b64"
#endif

__device__ inline void wait_at(unsigned long long* meeting, int odd) {
    const unsigned int address = static_cast<unsigned int>(__cvta_generic_to_shared(meeting));
    for (unsigned int over = 0; !over;)
        asm volatile("{ .reg .pred p; " WAIT_FOR_PARITY " p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(over)
                     : "r"(address), "r"(odd)
                     : "memory");
}

// Which turn it is, while nobody arrives.
__device__ inline unsigned int is_odd_turn(unsigned long long* meeting) {
    unsigned int odd;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                 : "=r"(odd)
                 : "r"(static_cast<unsigned int>(__cvta_generic_to_shared(meeting)))
                 : "memory");
    return odd;
}

__device__ inline unsigned int load_acquire(const unsigned int* address) {
    unsigned int value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}

// Once every CTA has come here, the next launch may begin, if it was made so.
__device__ inline void let_next_launch_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Until the launch before has ended, which it has before sm_90.
__device__ inline void wait_for_launch_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Of what other CTAs are writing; orders nothing else.
__device__ inline void load_relaxed_if(
    bool wanted, const unsigned long long* address, unsigned long long& value) {
    asm volatile(
        "{ .reg .pred p; setp.ne.u32 p, %2, 0;"
        "@p ld.relaxed.gpu.global.u64 %0, [%1]; }"
        : "+l"(value)
        : "l"(address), "r"(static_cast<unsigned int>(wanted)));
}

__device__ inline void store_relaxed(unsigned long long* address, unsigned long long value) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

__device__ inline unsigned int add_acq_rel(unsigned int* address, unsigned int value) {
    unsigned int before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(address), "r"(value)
                 : "memory");
    return before;
}

// Under no branch, which what else is loaded would be waited for at.
__device__ inline int load_now(const int* address) {
    int value;
    asm volatile("ld.global.s32 %0, [%1];" : "=r"(value) : "l"(address));
    return value;
}

// Streamed logits are not kept in the first-level cache.
__device__ inline uint4 load_once(const uint4* address) {
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(address));
    return v;
}

// The same into registers that keep what they held if nothing is wanted. A branch around a load would
// have its result copied, and so waited for.
__device__ inline void load_once_if(bool wanted, const uint4* address, uint4& v) {
    asm volatile(
        "{ .reg .pred p; setp.ne.u32 p, %5, 0;"
        "@p ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4]; }"
        : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
        : "l"(address), "r"(static_cast<unsigned int>(wanted)));
}

// The same into shared memory, to be waited for by the thread that asks, once it has said that no more follow: only
// then does the hardware count those that come.
__device__ inline void copy_ahead_if(bool wanted, const uint4* address, uint4* to) {
    asm volatile(
        "{ .reg .pred p; setp.ne.u32 p, %2, 0;"
        "@p cp.async.cg.shared.global [%0], [%1], 16; }" ::"r"(
            static_cast<unsigned int>(__cvta_generic_to_shared(to))),
        "l"(address), "r"(static_cast<unsigned int>(wanted))
        : "memory");
}

__device__ inline void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }

// What a launch asks for beside what is declared. It begins behind that, and unless it began where a line does,
// what a warp copies at once would be written by one line more.
__device__ inline uint4* asked_shared_memory() {
    extern __shared__ __align__(128) uint4 asked[];
    return asked;
}

// Every half of a word as its highest bit.
__device__ inline unsigned int halves_of_signs(unsigned int word) {
    unsigned int y;
    asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(y) : "r"(word));
    return y;
}

// Counters in shared memory.
struct SharedCounters {
    unsigned int address;
    __device__ explicit SharedCounters(const unsigned int* counts)
        : address(static_cast<unsigned int>(__cvta_generic_to_shared(counts))) {}
    // Counts at a place, or at the end if that is before it: a branch would cost more.
    __device__ void add(unsigned int place, unsigned int end) const {
        const unsigned int nearer = place < end ? place : end;
        asm volatile("red.shared.add.u32 [%0], 1;" ::"r"(address + 4 * nearer) : "memory");
    }
};

// To be kept in the first-level cache.
__device__ inline void load_if(bool wanted, const uint4* address, uint4& v) {
    asm volatile(
        "{ .reg .pred p; setp.ne.u32 p, %5, 0;"
        "@p ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4]; }"
        : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
        : "l"(address), "r"(static_cast<unsigned int>(wanted)));
}

// Into the first-level cache, without waiting.
__device__ inline void prefetch(const void* address) {
    asm volatile("prefetch.global.L1 [%0];" ::"l"(address));
}

// Into the second-level cache.
__device__ inline void prefetch_far(const void* address) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}
