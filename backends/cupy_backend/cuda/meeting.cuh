// How the CTAs that share a request divide it and learn of each other.
#pragma once
#include "judge.cuh"
#include "stream.cuh"

// Where a request's results are, which all of its CTAs see.
struct GlobalPlaces {
    const Params& p;
    const Request& request;
    __device__ i64 target_row(int row) const { return request.start + row; }
    __device__ i64 draft_row(int row) const { return request.index * p.max_spec_len + row; }
    __device__ Mass* target_stats(int row) const {
        return p.target_stats + target_row(row) * num_blocks_of(p.vocab_size);
    }
    __device__ Mass* draft_stats(int row) const {
        return p.draft_stats + draft_row(row) * num_blocks_of(p.draft_vocab_size);
    }
    __device__ Mass* announced(int row) const {
        return p.announced + target_row(row) * num_blocks_of(p.vocab_size);
    }
    __device__ Mass* announced_draft(int row) const {
        return p.announced_drafts + draft_row(row) * num_blocks_of(p.draft_vocab_size);
    }
    __device__ float* residuals(int row) const {
        return p.residuals + draft_row(row) * num_blocks_of(p.vocab_size);
    }
};

// Where its CTAs write statistics.
struct WrittenPlaces {
    GlobalPlaces places;
    __device__ Mass* target_stats(int row) const {
        return ANNOUNCED ? places.announced(row) : places.target_stats(row);
    }
    __device__ Mass* draft_stats(int row) const {
        return ANNOUNCED ? places.announced_draft(row) : places.draft_stats(row);
    }
};

// What the CTA wrote before a barrier is visible to whom the counter tells so. By all threads behind
// that barrier; true for the last.
__device__ inline bool arrive(Shared& shared, u32* counter, u32 expected) {
    if (thread_id() == 0) shared.flags[0] = add_acq_rel(counter, 1u) + 1 == expected;
    meet_in_cta();
    return shared.flags[0];
}

// The rows of a request one behind the other, target and draft rows apart.
struct Parts {
    int count;
    bool dense;
    __device__ explicit Parts(const Request& request)
        : count(request.num_rows + (DENSE && request.dense ? request.num_drafts : 0)),
          dense(DENSE && request.dense) {}
    __device__ int row(int part) const { return dense ? part / 2 : part; }
    __device__ bool draft(int part) const { return dense && part % 2; }
};

// Waits for the whole request, or, from the second meeting at a counter on, until so many have come in
// all. What a CTA wrote before is visible to all.
__device__ inline void meet(u32* counter, u32 expected) {
    meet_in_cta();
    if (thread_id() == 0) {
        u32 arrived = add_acq_rel(counter, 1u) + 1;
        while (arrived < expected) arrived = load_acquire(counter);
    }
    meet_in_cta();
}
