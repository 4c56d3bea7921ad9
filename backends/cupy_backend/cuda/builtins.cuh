// The few instructions that C++ has no name for; a host build replaces this file.
#pragma once

#define COLD __noinline__  // inlined everywhere it would fill the instruction cache

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

__device__ inline float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ inline float max_nan(float a, float b) {
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}

// The same for both halves of two words, which are bfloat16.
__device__ inline unsigned int max_nan_of_pairs(unsigned int a, unsigned int b) {
    unsigned int y;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}

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

// Adds 1 to a counter that wraps to 0 after `last`, and orders earlier stores.
__device__ inline unsigned int increment_acq_rel(unsigned int* address, unsigned int last) {
    unsigned int before;
    asm volatile("atom.inc.acq_rel.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(address), "r"(last)
                 : "memory");
    return before;
}

__device__ inline unsigned int load_relaxed(const unsigned int* address) {
    unsigned int value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}

// Adds without reading the old value.
__device__ inline void add_relaxed(unsigned int* address, unsigned int value) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" : : "l"(address), "r"(value) : "memory");
}

// For both halves x of a word: x - below, cut to [1, last], but 0 for 0.
__device__ inline unsigned int window_of_pair(unsigned int pair, unsigned int below, unsigned int last) {
    const unsigned int least = __vminu2(pair, 0x00010001u);
    return __vmins2(__viaddmax_s16x2(pair, (65536u - below) * 0x00010001u, least), last * 0x00010001u);
}

// The upper halves of two words, the first one's in the lower half.
__device__ inline unsigned int upper_halves(unsigned int low, unsigned int high) {
    return __byte_perm(low, high, 0x7632);
}

// The signs of both halves of a word, each as all bits of its half.
__device__ inline unsigned int signs_of_pair(unsigned int pair) {
    unsigned int signs;
    asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(signs) : "r"(pair));
    return signs;
}

// ~(a | b & c) in one instruction; a compiler would split it.
__device__ inline unsigned int neither(unsigned int a, unsigned int b, unsigned int c) {
    unsigned int bits;
    asm("lop3.b32 %0, %1, %2, %3, 0x07;" : "=r"(bits) : "r"(a), "r"(b), "r"(c));
    return bits;
}

// Two bfloat16: -2^127 where a sign is set, of bytes 0 and 2 of a word or of bytes 1 and 3, else 0.
__device__ inline unsigned int lowest_by_even_bytes(unsigned int word) {
    unsigned int lowest;
    asm("prmt.b32 %0, %1, 0, 0xa484;" : "=r"(lowest) : "r"(word));
    return lowest;
}

__device__ inline unsigned int lowest_by_odd_bytes(unsigned int word) {
    unsigned int lowest;
    asm("prmt.b32 %0, %1, 0, 0xb494;" : "=r"(lowest) : "r"(word));
    return lowest;
}

// Two bfloat16 pair + 2^127 lowest, each rounded once: -inf in the place of what is finite, or the pair.
__device__ inline unsigned int lowered_pair(unsigned int pair, unsigned int lowest) {
    unsigned int lowered;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(lowered) : "r"(lowest), "r"(0x7f007f00u), "r"(pair));
    return lowered;
}

// The next launch may begin once every CTA has called this, if it was made to overlap.
__device__ inline void let_next_launch_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the previous launch has ended, which it always has before sm_90.
__device__ inline void wait_for_launch_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Loads into registers if `wanted`; else these keep their values. A branch around a load would copy its
// result, and so wait for it.
__device__ inline void load_once_if(bool wanted, const uint4* address, uint4& v) {
    asm volatile(
        "{ .reg .pred p; setp.ne.u32 p, %5, 0;"
        "@p ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4]; }"
        : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
        : "l"(address), "r"(static_cast<unsigned int>(wanted)));
}

// The same for two words, which an overlapping launch may have written, and for a byte.
__device__ inline void load_pair_if(
    bool wanted, const unsigned int* address, unsigned int& low, unsigned int& high) {
    asm volatile(
        "{ .reg .pred p; setp.ne.u32 p, %3, 0; @p ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2]; }"
        : "+r"(low), "+r"(high)
        : "l"(address), "r"(static_cast<unsigned int>(wanted)));
}

__device__ inline void load_byte_if(bool wanted, const unsigned char* address, unsigned int& v) {
    asm volatile(
        "{ .reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.nc.L1::no_allocate.u8 %0, [%1]; }"
        : "+r"(v)
        : "l"(address), "r"(static_cast<unsigned int>(wanted)));
}

// The shared memory that a launch requests beyond what is declared.
__device__ inline unsigned int* asked_shared_memory() {
    extern __shared__ __align__(16) unsigned int asked[];
    return asked;
}
