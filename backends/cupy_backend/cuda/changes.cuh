// Bias, penalties and masks of a block's logits, while these are loaded.
#pragma once
#include "marks.cuh"

// All changes of one logit. By a thread.
__device__ COLD float adjust_logit(const Adjustment& a, int id, float logit) {
    const u32 mark = a.marks ? a.marks[id] : NAMED;
    if (mark == 0) return logit;
    if (mark & NAMED && a.biases) logit = __fadd_rn(logit, a.biases[id]);
    const int num_few = a.marks ? 0 : a.num_bias;
    int found = -1;
    // Without a branch, so that several loads are in flight at once.
#pragma unroll 8
    for (int entry = 0; entry < num_few; ++entry) found = a.bias_ids[entry] == id ? entry : found;
    if (found >= 0) logit = __fadd_rn(logit, a.bias_values[found]);
    return a.output_counts ? penalised_at(a, id, logit) : logit;
}

// Divides many numbers by one in [1e-6, 1e6], rounded correctly: by the instructions of a division, with the
// reciprocal found once.
struct Divisor {
    float value;
    float inverse;
    static constexpr u32 LEAST = 0x17800000, MOST = 0x67800000;  // 2^-80 and 2^80

    __device__ explicit Divisor(float value) : value(value) {
        const float rough = reciprocal(value);
        inverse = __fmaf_rn(rough, __fmaf_rn(-value, rough, 1.0f), rough);
    }
    // Whether a number is positive and nothing underflows or overflows on the way.
    __device__ bool suits(float x) const { return __float_as_uint(x) - LEAST < MOST - LEAST; }
    __device__ float divide(float x) const {
        const float quotient = __fmul_rn(x, inverse);
        return __fmaf_rn(inverse, __fmaf_rn(-value, quotient, x), quotient);
    }
};

// Penalties of a lane's logits of a block. By four, because a short text touches few; four of which one needs more
// than its mark and a plain division, one by one.
__device__ inline void penalise(
    const Adjustment& a, int block, const Bytes& marks, float (&logits)[PER_LANE]) {
    const Divisor divisor(a.repetition);
    const float frequency = a.frequency, presence = a.presence;
    const bool counts = frequency != 0.0f || presence != 0.0f;
    u32 left = 0;
#pragma unroll
    for (int first = 0; first < PER_LANE; first += 4) {
        const u32 four = marks.words[first / 4] & ~ALL_NAMED;
        if (four == 0) continue;
        bool plain = (four & ALL_MANY) == 0;
        float moved[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float logit = logits[first + j];
            // Infinity stays, multiplied or divided.
            const bool divides = four >> 8 * j & 255 && logit > 0.0f && logit < INFINITY;
            plain = plain && (!divides || divisor.suits(logit));
            moved[j] = divides ? divisor.divide(logit) : __fmul_rn(logit, divisor.value);
        }
        if (counts) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const u32 count = four >> 8 * j & (MANY - 1);
                moved[j] = __fsub_rn(moved[j], __fmul_rn(frequency, static_cast<float>(count)));
                moved[j] = count > 0 ? __fsub_rn(moved[j], presence) : moved[j];
            }
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const bool seen = four >> 8 * j & 255;
            if (seen && !plain) left |= 1u << (first + j);
            logits[first + j] = seen && plain ? moved[j] : logits[first + j];
        }
    }
#pragma unroll 1
    for (; left; left &= left - 1) {
        const int j = __ffs(static_cast<int>(left)) - 1;
        choose(logits, j, penalised_at(a, id_of(block, j), chosen(logits, j)));
    }
}

// All changes of a lane's logits of a block, of which it has the marks. Where there are only few biases, it gets them
// here. By a warp.
__device__ inline void change_logits(const Adjustment& a, int block, Bytes& marks, float (&logits)[PER_LANE]) {
    if (!a.marks || __any_sync(ALL_LANES, (marks.any() & ALL_NAMED) != 0)) {
        const auto add = [&](int j, float bias) { choose(logits, j, __fadd_rn(chosen(logits, j), bias)); };
#pragma unroll 1
        for (u32 left = a.biases ? marks.bits(true) : 0; left; left &= left - 1) {
            const int j = __ffs(static_cast<int>(left)) - 1;
            add(j, a.biases[id_of(block, j)]);
        }
        if (!a.marks)
            visit_biased(a, block, [&](int j, int entry) {
                marks.put(j, NAMED);
                add(j, a.bias_values[entry]);
            });
        visit_drafts(a, block, [&](int j, int) { marks.put(j, MANY); });
    }
    if (a.output_counts) penalise(a, block, marks, logits);
}

struct Logits {
    float of[PER_LANE];
};

// The same by value, as calls would else put logits into memory.
__device__ COLD Logits changed_logits(const Adjustment& a, int block, Bytes marks, Logits logits) {
    change_logits(a, block, marks, logits.of);
    return logits;
}

__device__ inline void forbid(u32 allowed, float (&logits)[PER_LANE]) {
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j)
        logits[j] = allowed >> j & 1 ? logits[j] : forbidden(logits[j]);
}

// A lane's logits of a block, of which it has the marks. By a warp.
__device__ inline void adjust_block(
    const Adjustment& a, int block, const Bytes& marks, float (&logits)[PER_LANE]) {
    if (!__any_sync(ALL_LANES, marks.any() != 0)) return;
    Logits moved;
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) moved.of[j] = logits[j];
    moved = changed_logits(a, block, marks, moved);
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) logits[j] = moved.of[j];
}
