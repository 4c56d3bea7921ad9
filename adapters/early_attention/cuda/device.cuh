// What a GPU has and C++ has not: a host build replaces this file. Refuses to know what is computed.
#pragma once

typedef unsigned short Half;  // bfloat16

struct alignas(16) Line {
    unsigned words[4];
};

#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[];

// The kernel behind may be started; it does not wait for less than the end of this one.
__device__ __forceinline__ void let_next_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// Until all that kernels before have written can be read.
__device__ __forceinline__ void await_kernels_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Asked for here, and not where it is first used.
__device__ __forceinline__ Line load_line(const Half* from) {
    Line line;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(line.words[0]), "=r"(line.words[1]), "=r"(line.words[2]), "=r"(line.words[3])
                 : "l"(from));
    return line;
}

__device__ __forceinline__ unsigned word_of(float low, float high) {
    unsigned word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

// Two to the power of a number, to 2 in the last place.
__device__ __forceinline__ float power_of_two(float number) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(number));
    return power;
}

// sums [16 rows, 8 columns] += rows [16, 16] times columns [16, 8], by a warp: lane 4 g + t has rows g and g + 8
// (`more`), column g, and of each numbers 2 t, 2 t + 1 (`low`) and 2 t + 8, 2 t + 9; of the sums those of its rows with
// columns 2 t and 2 t + 1.
__device__ __forceinline__ void multiply_add(float (&sums)[4], unsigned low, unsigned more_low, unsigned high,
                                             unsigned more_high, unsigned column_low, unsigned column_high) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(low), "r"(more_low), "r"(high), "r"(more_high), "r"(column_low), "r"(column_high));
}
