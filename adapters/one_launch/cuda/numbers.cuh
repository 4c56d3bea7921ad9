// 16-bit numbers, two a word or eight a line of 16 bytes, and sums of a warp. Refuses to know what
// they mean.
#pragma once
#include "device.cuh"

__device__ __forceinline__ float low_of(unsigned word) { return __uint_as_float(word << 16); }

__device__ __forceinline__ float high_of(unsigned word) { return __uint_as_float(word & 0xffff0000u); }

__device__ __forceinline__ float float_of(Half number) { return low_of(number); }

__device__ __forceinline__ Half half_of(float number) { return Half(word_of(number, 0.0f)); }

__device__ __forceinline__ float rounded(float number) { return float_of(half_of(number)); }

__device__ __forceinline__ void unpack(const Line& line, float (&numbers)[8]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        numbers[2 * i] = low_of(line.words[i]);
        numbers[2 * i + 1] = high_of(line.words[i]);
    }
}

__device__ __forceinline__ float sum_of_warp(float number) {
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) number += __shfl_xor_sync(~0u, number, apart);
    return number;
}
