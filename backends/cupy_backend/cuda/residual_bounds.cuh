// What a residual weighs, as far as few of its blocks tell: block verification asks how likely draft
// tokens are kept, and the answer is seldom near enough to need all blocks.
#pragma once
#include "finish.cuh"

struct Bounds {
    float least;
    float most;
    __device__ float gap() const { return most - least; }
};

constexpr float MASS_SLACK_DOWN = 1.0f - 1.0f / 4096, MASS_SLACK_UP = 1.0f + 1.0f / 4096;
constexpr int MOST_READ_AT_ONCE = 8;  // blocks, by a warp

// Of a block's residual, from statistics of both rows.
__device__ inline Bounds bounds_of_block(const Pair& pair, const Mass* draft_stats, int block) {
    const float most = exp2_fast(
        __fadd_rn(log2_share(pair.stats[block], pair.target_law), pair.log2_product));
    const float taken = exp2_fast(log2_share(draft_stats[block], pair.draft_law));
    return {fmaxf(most * MASS_SLACK_DOWN - taken * MASS_SLACK_UP, 0.0f), most * MASS_SLACK_UP};
}

// A thread's of a row's blocks: a warp has every sixteenth or so, its lanes one after the other.
struct KnownBlocks {
    static constexpr int COUNT = 3;
    static constexpr int MOST = COUNT * CTA_THREADS;  // of a row
    Bounds of[COUNT];

    __device__ static int first(int i) { return warp_id() + i * CTA_THREADS; }

    __device__ void find(const Pair& pair, const Mass* draft_stats, int num_blocks) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int block = first(i) + lane_id() * CTA_WARPS;
            of[i] = {0.0f, 0.0f};
            if (block < num_blocks) of[i] = bounds_of_block(pair, draft_stats, block);
        }
    }

    // Of all the warp's.
    __device__ Bounds sum() const {
        Bounds all = of[0];
#pragma unroll
        for (int i = 1; i < COUNT; ++i) all = {all.least + of[i].least, all.most + of[i].most};
        return {warp_reduce(all.least, Add{}), warp_reduce(all.most, Add{})};
    }

    // Reads up to `limit` of the warp's blocks whose bounds are far apart; one alone is that with the
    // farthest. By a warp.
    __device__ void read(const Pair& pair, int limit) {
        float widest = of[0].gap();
#pragma unroll
        for (int i = 1; i < COUNT; ++i) widest = fmaxf(widest, of[i].gap());
        widest = warp_max(widest);
        if (!(widest > 0.0f)) return;
        const float floor = limit == 1 ? widest : 0.5f * widest;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const bool wide = of[i].gap() >= floor;
            const u32 found = __ballot_sync(ALL_LANES, wide);
            const u32 wanted = __ballot_sync(ALL_LANES, wide && __popc(found & lanes_below()) < limit);
            if (wanted == 0) continue;
            limit -= __popc(wanted);
            const float mass = direct_residuals(pair, first(i), CTA_WARPS, wanted);
            if (wanted >> lane_id() & 1) of[i] = {mass, mass};
        }
    }

    __device__ static u32 lanes_below() { return (1u << lane_id()) - 1; }
};

// Of the CTA's, in one order.
__device__ inline Bounds sum_of(u64* slots, const Bounds& of_warp) {
    if (lane_id() == 0) reinterpret_cast<Bounds&>(slots[warp_id()]) = of_warp;
    meet_in_cta();
    Bounds mass = {0.0f, 0.0f};
    for (int warp = 0; warp < CTA_WARPS; ++warp) {
        const Bounds& part = reinterpret_cast<const Bounds&>(slots[warp]);
        mass = {mass.least + part.least, mass.most + part.most};
    }
    meet_in_cta();
    return mass;
}

enum Answer { REFUSED, KEPT, OPEN_ANSWER };

// Whether a draft token is kept, given bounds of the residual's mass; rounding is allowed for.
__device__ inline Answer answer_of(float uniform, float log2_product, const Bounds& mass) {
    constexpr float margin = 1.0f / 4096;
    if (log2_product == 0.0f) return accepts(uniform, 0.0f) ? KEPT : REFUSED;
    const float least = mass.least * MASS_SLACK_DOWN, most = mass.most * MASS_SLACK_UP;
    if (accepts(uniform, log2_block_threshold(log2_product, least) - margin)) return KEPT;
    if (!accepts(uniform, log2_block_threshold(log2_product, most) + margin)) return REFUSED;
    return OPEN_ANSWER;
}

// Whether block verification, which refused the whole draft, keeps `row` of its tokens, the pair's, as far
// as bounds tell; no warp reads more than about so many blocks. By all threads, behind a barrier.
__device__ inline Answer answer_by_bounds(
    Shared& shared, int row, const Mass* draft_stats, int most_read) {
    const int num_blocks = num_blocks_of(shared.params.vocab_size);
    if (row == 0) return KEPT;
    const Pair& pair = shared.pair;
    if (FILTERED || !is_direct(pair) || !pair.is_dense() || num_blocks > KnownBlocks::MOST)
        return OPEN_ANSWER;
    KnownBlocks known;
    known.find(pair, draft_stats, num_blocks);
#pragma unroll 1
    for (int limit = 1, count = 0;; limit = limit < MOST_READ_AT_ONCE ? 2 * limit : limit) {
        const Bounds mass = sum_of(shared.slots, known.sum());
        const Answer answer = answer_of(shared.uniforms[row - 1], shared.products[row], mass);
        if (answer != OPEN_ANSWER || !(mass.most > mass.least) || count >= most_read) return answer;
        known.read(pair, limit);
        count += limit;
    }
}
