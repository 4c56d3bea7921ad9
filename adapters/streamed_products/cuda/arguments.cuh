// What a product is told, and which units of work each CTA has.
#pragma once
#include "device.cuh"
#include "sizes.cuh"

struct alignas(64) Arguments {
    Map rows, tokens;          // see `maps`
    Half* out;                 // [num_tokens, num_rows], a stride apart
    long long out_stride;
    Half* scaled;              // the same, times gamma; to add only
    const Half* gamma;         // [num_rows]; to add only
    const Half* bias;          // [rows of the matrix], or null
    const float* squares;      // [num_squares, squares_stride], of every so manieth token: parts of a sum
    float* new_squares;        // [tiles, squares_stride]; to add only
    int num_squares, squares_stride, every;
    int num_tokens, num_rows;  // of out
    int num_tiles, tile_units; // stages of columns that a CTA has of a tile
    float size, eps;           // columns of the matrix; of the norm
};

// A cluster takes one tile after the other, and each of its CTAs has as many columns of it.
struct Work {
    const Arguments& arguments;
    int rank, first_tile, num_clusters;

    __device__ explicit Work(const Arguments& a)
        : arguments(a), rank(blockIdx.x % SPLITS), first_tile(blockIdx.x / SPLITS), num_clusters(gridDim.x / SPLITS) {}

    __device__ __forceinline__ int first_block() const { return rank * arguments.tile_units * BLOCKS; }
};
