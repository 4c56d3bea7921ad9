// What lanes have seen of positions: of each query the highest score, weights relative to it, and
// values times weights. Eight lanes look at a position, eight dimensions each. Refuses to load.
#pragma once
#include "member.cuh"

constexpr float LOWEST = -1e30f;

struct Seen {
    float best[QUERIES], total[QUERIES], sums[QUERIES][8];

    __device__ __forceinline__ Seen() {
#pragma unroll
        for (int query = 0; query < QUERIES; ++query) {
            best[query] = LOWEST;
            total[query] = 0.0f;
#pragma unroll
            for (int i = 0; i < 8; ++i) sums[query][i] = 0.0f;
        }
    }

    // The first COUNT positions of some; there(which one) is false for those that are not to be seen.
    template <int COUNT, int ALL, class There>
    __device__ __forceinline__ void look(const float (&queries)[QUERIES][8], const Line (&keys)[ALL],
                                         const Line (&values)[ALL], There there) {
        float scores[COUNT][QUERIES];
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            float key[8];
            unpack(keys[i], key);
#pragma unroll
            for (int query = 0; query < QUERIES; ++query) {
                float score = 0.0f;
#pragma unroll
                for (int dim = 0; dim < 8; ++dim) score += queries[query][dim] * key[dim];
#pragma unroll
                for (int apart = 1; apart < 8; apart *= 2) score += __shfl_xor_sync(~0u, score, apart);
                scores[i][query] = there(i) ? score : 2 * LOWEST;
            }
        }
#pragma unroll
        for (int query = 0; query < QUERIES; ++query) {
            float higher = best[query];
#pragma unroll
            for (int i = 0; i < COUNT; ++i) higher = fmaxf(higher, scores[i][query]);
            shrink(query, higher);
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                scores[i][query] = power_of_two(scores[i][query] - higher);
                total[query] += scores[i][query];
            }
        }
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            float value[8];
            unpack(values[i], value);
#pragma unroll
            for (int query = 0; query < QUERIES; ++query)
#pragma unroll
                for (int dim = 0; dim < 8; ++dim) sums[query][dim] += scores[i][query] * value[dim];
        }
    }

    __device__ __forceinline__ void shrink(int query, float higher) {
        float factor = power_of_two(best[query] - higher);
        best[query] = higher;
        total[query] *= factor;
#pragma unroll
        for (int dim = 0; dim < 8; ++dim) sums[query][dim] *= factor;
    }

    // Of all positions of the warp.
    __device__ __forceinline__ void merge() {
#pragma unroll
        for (int query = 0; query < QUERIES; ++query) {
            float higher = best[query];
#pragma unroll
            for (int apart = 8; apart < 32; apart *= 2) higher = fmaxf(higher, __shfl_xor_sync(~0u, higher, apart));
            shrink(query, higher);
#pragma unroll
            for (int apart = 8; apart < 32; apart *= 2) {
                total[query] += __shfl_xor_sync(~0u, total[query], apart);
#pragma unroll
                for (int dim = 0; dim < 8; ++dim) sums[query][dim] += __shfl_xor_sync(~0u, sums[query][dim], apart);
            }
        }
    }

    // Keep a query's part; by eight lanes.
    __device__ __forceinline__ void keep(int query, float* part) const {
        int lane = threadIdx.x % 32;
        const float(&sum)[8] = sums[query];
        float4* goal = reinterpret_cast<float4*>(part) + 2 * lane;
        goal[0] = make_float4(sum[0], sum[1], sum[2], sum[3]);
        goal[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
        if (lane == 0) {
            part[HEAD_DIM] = best[query];
            part[HEAD_DIM + 1] = total[query];
        }
    }
};

// Four dimensions of a query's parts, added up in their order.
template <int COUNT, int ALL>
__device__ __forceinline__ float4 add_seen(const float (&parts)[COUNT][ALL][PART], int query, int dim, float& best,
                                           float& total) {
    best = LOWEST;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) best = fmaxf(best, parts[i][query][HEAD_DIM]);
    total = 0.0f;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        float factor = power_of_two(parts[i][query][HEAD_DIM] - best);
        float4 part = *reinterpret_cast<const float4*>(&parts[i][query][dim]);
        total += factor * parts[i][query][HEAD_DIM + 1];
        sum.x += factor * part.x;
        sum.y += factor * part.y;
        sum.z += factor * part.z;
        sum.w += factor * part.w;
    }
    return sum;
}
