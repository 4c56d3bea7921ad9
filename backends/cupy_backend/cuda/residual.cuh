// What is left of the target's law when the draft's is taken away: max(P p - q, 0), block by block.
#pragma once
#include "draw.cuh"
#include "request.cuh"

// One row of a request and the draft row beside it.
struct Pair {
    Row<TargetLogit> target;
    Row<DraftLogit> draft;  // in target ids
    Law target_law;
    Law draft_law;
    bool dense;           // else the draft's law is one-hot
    i64 drafted;          // the draft token
    float log2_product;   // P
    const Mass* stats;    // the target row's, null where they are not at hand

    __device__ bool is_empty(int block) const {
        return FILTERED && stats != nullptr && !(stats[block].max >= target_law.threshold);
    }
    __device__ bool is_dense() const { return DENSE && dense; }
};

__device__ inline float draft_p(const Pair& pair, i64 id, float draft_logit) {
    return pair.is_dense() ? law_p(pair.draft_law, draft_logit) : id == pair.drafted ? 1.0f : 0.0f;
}

// P p less what the draft takes of it.
__device__ inline float residual_weight(const Pair& pair, float target_logit, float taken) {
    float log2_p = law_log2(pair.target_law, target_logit);
    if (POLICY == BLOCK) log2_p = __fadd_rn(log2_p, pair.log2_product);
    return fmaxf(__fsub_rn(exp2_fast(log2_p), taken), 0.0f);
}

// log2 of those of four tokens.
__device__ inline void weigh_residuals(const Pair& pair, i64 id, float (&weights)[4]) {
    float logits[4], draft_logits[4] = {};
    load_four(pair.target, id, logits);
    if (pair.is_dense()) load_four(pair.draft, id, draft_logits);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        const float taken = draft_p(pair, id + j, draft_logits[j]);
        weights[j] = log2f(residual_weight(pair, logits[j], taken));
    }
}

__device__ inline float residual_of_token(const Pair& pair, i64 id) {
    const float draft_logit = pair.is_dense() ? load_logit(pair.draft, id) : 0.0f;
    return residual_weight(pair, load_logit(pair.target, id), draft_p(pair, id, draft_logit));
}

// A lane's share of a block's mass as lane_sum adds it, token by token.
__device__ inline float lane_residual(const Pair& pair, int block) {
    float sum = 0.0f;
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
        float part = 0.0f;
#pragma unroll 1
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
            float terms[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const i64 id = id_of(block, lane_id(), i + 4 * j);
                terms[j] = id < pair.target.vocab_size ? residual_of_token(pair, id) : 0.0f;
            }
            part += (terms[0] + terms[1]) + (terms[2] + terms[3]);
        }
        sum += part;
    }
    return sum;
}

// The same where tokens are adjusted, which is cheaper for whole blocks.
__device__ inline float lane_residual_adjusted(const Pair& pair, int block) {
    float target[PER_LANE], draft[PER_LANE] = {}, terms[PER_LANE];
    load_block(pair.target, block, target);
    if (pair.is_dense()) load_block(pair.draft, block, draft);
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j)
        terms[j] = residual_weight(
            pair, target[j], draft_p(pair, id_of(block, lane_id(), j), draft[j]));
    return lane_sum(terms);
}

__device__ COLD float residual_piecewise(const Pair* pair, int block) {
    const float mine =
        ADJUSTED ? lane_residual_adjusted(*pair, block) : lane_residual(*pair, block);
    return warp_reduce(mine, Add{});
}

// Eight logits a lane of both rows, on their way: half of a block.
struct HalfPair {
    uint4 target[8 / PER_VECTOR<TargetLogit>];
    uint4 draft[8 / PER_VECTOR<DraftLogit>];
};

template <typename T>
__device__ inline void fetch_eight(bool wanted, const T* data, uint4* words) {
#pragma unroll
    for (int i = 0; i < 8 / PER_VECTOR<T>; ++i)
        load_if(wanted, reinterpret_cast<const uint4*>(data) + i, words[i]);
}

// From an element of the rows on, if there is one to be wanted.
__device__ inline void fetch_half(const Pair& pair, i64 element, bool wanted, HalfPair& half) {
    wanted = wanted && element < pair.target.vocab_size;
    fetch_eight(wanted, pair.target.data + element, half.target);
    if (DENSE) fetch_eight(wanted, pair.draft.data + element, half.draft);
}

// The half's share of the terms that lane_sum adds, a half block from `element` on.
__device__ inline void add_half(
    const Pair& pair, const HalfPair& half, i64 element, float (&sums)[4]) {
    float terms[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        const float taken = DENSE
            ? law_p(pair.draft_law, unpack_at<DraftLogit>(half.draft, j))
            : draft_p(pair, element + j, 0.0f);
        terms[j] = residual_weight(pair, unpack_at<TargetLogit>(half.target, j), taken);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
        sums[i] = element < pair.target.vocab_size ? sums[i] + (terms[i] + terms[i + 4]) : sums[i];
}

// Whether a pair can be read by whole vectors.
__device__ inline bool is_direct(const Pair& pair) {
    return pair.is_dense() == DENSE && is_direct(pair.target) &&
           !(ADJUSTED && pair.target.adjustment) && (!DENSE || is_direct(pair.draft));
}

// Masses of the blocks `first` + i * `step` for the bits i of `wanted`, each in lane i. No function
// may be called while blocks are on their way.
__device__ inline float direct_residuals(const Pair& pair, int first, int step, u32 wanted) {
    const auto element_of = [&](u32 blocks, int half) {
        const int block = first + (__ffs(static_cast<int>(blocks)) - 1) * step;
        return static_cast<i64>(block) * BLOCK_SIZE + half * (BLOCK_SIZE / 2) + lane_id() * 8;
    };
    HalfPair halves[2] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half)
        fetch_half(pair, element_of(wanted, half), wanted != 0, halves[half]);
    float mine = 0.0f;
    while (wanted) {
        const u32 others = wanted & (wanted - 1);
        float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            add_half(pair, halves[half], element_of(wanted, half), sums);
            fetch_half(pair, element_of(others, half), others != 0, halves[half]);
        }
        const float sum = warp_reduce((sums[0] + sums[1]) + (sums[2] + sums[3]), Add{});
        if (1u << lane_id() == (wanted ^ others)) mine = sum;
        wanted = others;
    }
    return mine;
}

// Mass of one block.
__device__ inline float direct_residual(const Pair& pair, int block) {
    const i64 element = static_cast<i64>(block) * BLOCK_SIZE + lane_id() * 8;
    HalfPair halves[2] = {};
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int half = 0; half < 2; ++half)
        fetch_half(pair, element + half * (BLOCK_SIZE / 2), true, halves[half]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        add_half(pair, halves[half], element + half * (BLOCK_SIZE / 2), sums);
        if (FILTERED) __syncwarp();  // one half after the other: registers are few
    }
    return warp_reduce((sums[0] + sums[1]) + (sums[2] + sums[3]), Add{});
}

// The same for any rows.
__device__ inline float piecewise_residuals(const Pair* pair, int first, int step, u32 wanted) {
    float mine = 0.0f;
    for (; wanted; wanted &= wanted - 1) {
        const int i = __ffs(static_cast<int>(wanted)) - 1;
        const float mass = residual_piecewise(pair, first + i * step);
        if (lane_id() == i) mine = mass;
    }
    return mine;
}

// Masses of blocks first, first + step, ... below `end()`, by one warp: hands on (block, mass) of up to 32
// blocks at a time, each to the lane that has it. `pair` is in shared memory. What can be asked for again is
// not kept meanwhile: masses take all registers.
template <typename End, typename Visit>
__device__ inline void visit_residual(const Pair* pair, int first, int step, End end, Visit visit) {
    const auto mine = [&] { return first + lane_id() * step; };
    for (; first < end(); first += LANES * step) {
        const u32 wanted = __ballot_sync(ALL_LANES, mine() < end() && !pair->is_empty(mine()));
        const float mass = is_direct(*pair) ? direct_residuals(*pair, first, step, wanted)
                                            : piecewise_residuals(pair, first, step, wanted);
        if (mine() < end()) visit(mine(), mass);
        __syncwarp();
    }
}
