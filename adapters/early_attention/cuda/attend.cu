// Rotation, the cache's write and attention of a decode step: a CTA for each request and key head.
//
// Keys and values of earlier positions are asked for before the kernel before has ended. That is allowed: a forward
// begins with its embedding, which is launched without overlap, so that it starts when all of earlier forwards is
// complete, and every kernel of this one starts later. Of this forward's kernels only this one writes to its layer's
// cache, at positions that it does not read from there. That kernels of this forward may be three deep on their way
// harms nothing else: each waits for the one before to its end, so that behind the wait all before are complete.
// Given by macros: KEY_HEADS; GROUP, heads of queries that share one of them; THREADS and SHARED_BYTES of a CTA.
#include "device.cuh"

constexpr int HEAD_DIM = 64, QUERIES = 8;         // of all tokens of a request; fewer are filled up
constexpr int STRIDE = 2 * KEY_HEADS * HEAD_DIM;  // of the cache, from one position to the next
constexpr int WARPS = 8, TILES = 2;               // a warp has so many tiles of 16 positions in registers
constexpr int BLOCK = 16 * TILES * WARPS;
constexpr int PITCH = HEAD_DIM + 4;

struct Arguments {
    const Half* qkv;             // [tokens, (GROUP + 2) * KEY_HEADS * HEAD_DIM], a stride apart
    Half* memory;                // see `LayerCache`
    const Half* angles;          // [positions, 2, HEAD_DIM], see `Rope.table`
    const long long* positions;  // [num_reqs, num_tokens], a stride apart; each is the one before or follows it
    const long long* slots;      // [num_reqs]
    Half* out;                   // [tokens, GROUP * KEY_HEADS * HEAD_DIM]
    long long qkv_stride, positions_stride, max_len;
    int num_tokens;
    float scale;                 // of scores, in powers of two
};

// What a warp has found; its sums are not divided yet.
struct Parts {
    float sums[WARPS][QUERIES][PITCH], best[WARPS][QUERIES], total[WARPS][QUERIES];
};
static_assert(THREADS == 32 * WARPS && SHARED_BYTES == sizeof(Parts), "as the host has them");

// Of a head, dimensions 8 t to 8 t + 7 of the first half and of the second, which are rotated together.
struct Head {
    Line low, high;

    __device__ __forceinline__ unsigned word(int i) const { return i < 4 ? low.words[i] : high.words[i - 4]; }
};

__device__ __forceinline__ float low_of(unsigned word) { return __uint_as_float(word << 16); }
__device__ __forceinline__ float high_of(unsigned word) { return __uint_as_float(word & 0xffff0000u); }

__device__ __forceinline__ Head load_head(const Half* from, bool there = true) {
    Head head = {};
    if (there) head = {load_line(from), load_line(from + HEAD_DIM / 2)};
    return head;
}

// Cosines, and the second half's sines.
__device__ __forceinline__ Head load_angles(const Half* from) {
    return {load_line(from), load_line(from + HEAD_DIM * 3 / 2)};
}

__device__ __forceinline__ Head turned(const Head& head, const Head& angles, float scale) {
    Head turned;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        unsigned low = head.low.words[i], high = head.high.words[i];
        unsigned cos = angles.low.words[i], sin = angles.high.words[i];
        turned.low.words[i] = word_of((low_of(low) * low_of(cos) - low_of(high) * low_of(sin)) * scale,
                                      (high_of(low) * high_of(cos) - high_of(high) * high_of(sin)) * scale);
        turned.high.words[i] = word_of((low_of(high) * low_of(cos) + low_of(low) * low_of(sin)) * scale,
                                       (high_of(high) * high_of(cos) + high_of(low) * high_of(sin)) * scale);
    }
    return turned;
}

// Lane 4 g + t has query g. Scores are its with positions 8 half + 2 t and the one behind of each tile, and sums those
// of queries 2 t and 2 t + 1 in dimensions 8 g to 8 g + 7.
struct Seen {
    float best = -1e30f, total = 0.0f;  // the best never is less, where nothing is seen
    float sums[4][4] = {};

    template <int COUNT>
    __device__ __forceinline__ void look(float (&scores)[COUNT][2][2], const Line (&values)[COUNT][4]) {
        shrink(scores);
#pragma unroll
        for (int tile = 0; tile < COUNT; ++tile) {
            unsigned weights[2];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float (&two)[2] = scores[tile][half];
                for (float& number : two) total += number = power_of_two(number - best);
                weights[half] = word_of(two[0], two[1]);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                unsigned of[4];
                for (int n = 0; n < 4; ++n) of[n] = values[tile][n].words[i];
                multiply_add(sums[i], of[0] & 0xffff | of[1] << 16, of[0] >> 16 | of[1] & 0xffff0000u,
                             of[2] & 0xffff | of[3] << 16, of[2] >> 16 | of[3] & 0xffff0000u, weights[0], weights[1]);
            }
        }
    }

    template <int COUNT>
    __device__ __forceinline__ void shrink(const float (&scores)[COUNT][2][2]) {
        float higher = best;
#pragma unroll
        for (int i = 0; i < 4 * COUNT; ++i) higher = fmaxf(higher, scores[i / 4][i / 2 % 2][i % 2]);
        higher = fmaxf(higher, __shfl_xor_sync(~0u, higher, 1));
        higher = fmaxf(higher, __shfl_xor_sync(~0u, higher, 2));
        float shrunk = power_of_two(best - higher);
        best = higher;
        total *= shrunk;
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
            float factor = __shfl_sync(~0u, shrunk, threadIdx.x % 4 * 8 + 4 * odd);
#pragma unroll
            for (int i = 0; i < 8; ++i) sums[i / 2][i % 2 * 2 + odd] *= factor;
        }
    }

    __device__ __forceinline__ void keep(Parts& parts) {
        int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        total += __shfl_xor_sync(~0u, total, 1);
        total += __shfl_xor_sync(~0u, total, 2);
        if (t == 0) {
            parts.best[warp][g] = best;
            parts.total[warp][g] = total;
        }
#pragma unroll
        for (int i = 0; i < 16; ++i)
            parts.sums[warp][2 * t + i / 8][8 * g + i % 8] = sums[i % 8 / 2][i % 2 * 2 + i / 8];
    }
};

struct Look {
    const Arguments& a;
    int request = blockIdx.x / KEY_HEADS, head = blockIdx.x % KEY_HEADS;
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int first = place_of(0);
    Half* slot = a.memory + a.slots[request] * a.max_len * STRIDE + head * HEAD_DIM;
    Head keys[TILES][2];
    Line values[TILES][4];
    Seen seen;

    __device__ explicit Look(const Arguments& a) : a(a) {}

    __device__ __forceinline__ int place_of(int token) const {
        return int(a.positions[request * a.positions_stride + min(token, a.num_tokens - 1)]);
    }

    __device__ __forceinline__ int first_of(int block, int tile) const { return block + 16 * (tile * WARPS + warp); }

    __device__ __forceinline__ void load_keys(int block) {
        int left = first - first_of(block, 0) - g;
        const Half* from = slot + (long long)(first - left) * STRIDE + 8 * t;
#pragma unroll
        for (int i = 0; i < 2 * TILES; ++i) {
            int further = i / 2 * 16 * WARPS + i % 2 * 8;
            keys[i / 2][i % 2] = load_head(from + further * STRIDE, further < left);
        }
    }

    __device__ __forceinline__ void load_values(int block) {
        int left = first - first_of(block, 0) - 2 * t;
        const Half* from = slot + (long long)(first - left) * STRIDE + KEY_HEADS * HEAD_DIM + 8 * g;
#pragma unroll
        for (int i = 0; i < 4 * TILES; ++i) {
            int further = i / 4 * 16 * WARPS + i % 4 / 2 * 8 + i % 2;
            values[i / 4][i % 4] = {};
            if (further < left) values[i / 4][i % 4] = load_line(from + further * STRIDE);
        }
    }

    // Of a head of queries, or keys or values behind all of these.
    __device__ __forceinline__ const Half* row(int token, int head) const {
        return a.qkv + (request * a.num_tokens + token) * a.qkv_stride + head * HEAD_DIM;
    }

    // Eight positions, of which those there count.
    template <class There>
    __device__ __forceinline__ void score(const Head& query, const Head& key, float (&scores)[2], There there) const {
        float found[4] = {};
#pragma unroll
        for (int i = 0; i < 8; i += 2)
            multiply_add(found, query.word(i), 0, query.word(i + 1), 0, key.word(i), key.word(i + 1));
#pragma unroll
        for (int i = 0; i < 2; ++i) scores[i] = there(2 * t + i) ? found[i] : __uint_as_float(0xff800000u);
    }

    // This step's tokens. Of those at one position the last one stays. Nobody reads them before the next forward.
    __device__ __forceinline__ void look_at_new(const Head& query, int position, const Head& key, int place,
                                                const Line (&new_values)[1][4]) {
        if (place >= 0) {
            Half* goal = slot + (long long)place * STRIDE + 8 * t;
            *reinterpret_cast<Line*>(goal) = key.low;
            *reinterpret_cast<Line*>(goal + HEAD_DIM / 2) = key.high;
        }
        int places[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            places[i] = __shfl_sync(~0u, place, 8 * t + 4 * i);
            Half* goal = slot + (long long)places[i] * STRIDE + KEY_HEADS * HEAD_DIM + 8 * g;
            if (places[i] >= 0) *reinterpret_cast<Line*>(goal) = new_values[0][i];
        }
        float scores[1][2][2];
        score(query, key, scores[0][0], [&](int n) { return places[n % 2] >= 0 && places[n % 2] <= position; });
        scores[0][1][0] = scores[0][1][1] = __uint_as_float(0xff800000u);
        seen.look(scores, new_values);
    }

    __device__ __forceinline__ void look_at_earlier(const Head& query) {
#pragma unroll 1
        for (int block = 0; block < first; block += BLOCK) {
            float scores[TILES][2][2];
#pragma unroll
            for (int i = 0; i < 2 * TILES; ++i) {
                int begin = first_of(block, i / 2) + i % 2 * 8;
                score(query, keys[i / 2][i % 2], scores[i / 2][i % 2], [&](int n) { return begin + n < first; });
            }
            load_keys(block + BLOCK);
            seen.look(scores, values);
            load_values(block + BLOCK);
        }
    }

    __device__ __forceinline__ void run() {
        int of_all = min(g, GROUP * a.num_tokens - 1), token = of_all / GROUP, new_token = min(g, a.num_tokens - 1);
        int position = place_of(token), new_position = place_of(g);
        bool stays = (new_token == g) & ((g == a.num_tokens - 1) | (new_position != place_of(g + 1)));
        load_keys(0);
        load_values(0);
        Head angles = load_angles(a.angles + position * 2 * HEAD_DIM + 8 * t);
        await_kernels_before();
        Head query = load_head(row(token, head * GROUP + of_all % GROUP) + 8 * t);
        if (warp == WARPS - 1) {
            Head key = load_head(row(new_token, GROUP * KEY_HEADS + head) + 8 * t);
            Line new_values[1][4] = {};
#pragma unroll
            for (int i = 0; i < 2; ++i)
                if (2 * t + i < a.num_tokens)
                    new_values[0][i] = load_line(row(2 * t + i, (GROUP + 1) * KEY_HEADS + head) + 8 * g);
            Head new_angles = load_angles(a.angles + new_position * 2 * HEAD_DIM + 8 * t);
            query = turned(query, angles, a.scale);
            look_at_new(query, position, turned(key, new_angles, 1.0f), stays ? new_position : -1, new_values);
        } else {
            query = turned(query, angles, a.scale);
        }
        look_at_earlier(query);
    }
};

// What all warps have found, two dimensions of a query.
__device__ __forceinline__ void store_sum(const Arguments& a, const Parts& parts) {
    int query = threadIdx.x / 32, dim = threadIdx.x % 32 * 2, token = query / GROUP;
    if (token >= a.num_tokens) return;
    float best = -1e30f, total = 0.0f, sums[2] = {};
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) best = fmaxf(best, parts.best[warp][query]);
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) {
        float factor = power_of_two(parts.best[warp][query] - best);
        total += parts.total[warp][query] * factor;
        for (int i = 0; i < 2; ++i) sums[i] += parts.sums[warp][query][dim + i] * factor;
    }
    long long row = blockIdx.x / KEY_HEADS * a.num_tokens + token;
    int head = blockIdx.x % KEY_HEADS * GROUP + query % GROUP;
    Half* goal = a.out + (row * GROUP * KEY_HEADS + head) * HEAD_DIM + dim;
    *reinterpret_cast<unsigned*>(goal) = word_of(__fdividef(sums[0], total), __fdividef(sums[1], total));
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) attend(const Arguments arguments) {
    DYNAMIC_SHARED(memory)
    Parts& parts = *reinterpret_cast<Parts*>(memory);
    let_next_begin();
    Look look(arguments);
    look.run();
    look.seen.keep(parts);
    __syncthreads();
    store_sum(arguments, parts);
}
