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
    __device__ float* residuals(int row) const {
        return p.residuals + draft_row(row) * num_blocks_of(p.vocab_size);
    }
    __device__ Law* law(int row, bool draft) const {
        return draft ? p.draft_laws + draft_row(row) : p.target_laws + target_row(row);
    }
};

// What the CTA wrote before a barrier is visible to whom the counter tells so. By all threads behind
// that barrier; true for the last.
__device__ inline bool arrive(Shared& shared, u32* counter, u32 expected) {
    if (thread_id() == 0) shared.flags[0] = add_acq_rel(counter, 1u) + 1 == expected;
    __syncthreads();
    return shared.flags[0];
}

// The rows of a request one behind the other, target and draft rows apart.
struct Parts {
    int target_blocks, draft_blocks, count;
    bool dense;
    __device__ Parts(const Params& p, const Request& request)
        : target_blocks(num_blocks_of(p.vocab_size)),
          draft_blocks(DENSE ? num_blocks_of(p.draft_vocab_size) : 0),
          count(request.num_rows + (DENSE && request.dense ? request.num_drafts : 0)),
          dense(DENSE && request.dense) {}
    __device__ int row(int part) const { return dense ? part / 2 : part; }
    __device__ bool draft(int part) const { return dense && part % 2; }
    __device__ int begin(int part) const {
        const int pairs = dense ? part / 2 : part;
        return pairs * (target_blocks + (dense ? draft_blocks : 0)) +
               (draft(part) ? target_blocks : 0);
    }
    __device__ int end(int part) const {
        return begin(part) + (draft(part) ? draft_blocks : target_blocks);
    }
};

// Arrives at every row that this CTA has read a share of. By all threads; afterwards bit i of
// `flags` says that it was the last at part i, whose counter is 0 again.
__device__ inline void arrive_at_rows(
    const Params& p, Shared& shared) {
    const Member& member = shared.member;
    u32* counters = shared.control.rows;
    const Parts parts(p, shared.request);
    const int total = length_of_request(p, shared.request);
    const Stretch mine = member.stretch(member.share(total), total);
    __syncthreads();
    for (int base = 0; warp_id() == 0 && base < parts.count; base += LANES) {
        const int part = base + lane_id();
        bool last = false;
        if (part < parts.count && parts.begin(part) < mine.end && mine.begin < parts.end(part)) {
            const int expected = member.owner(total, parts.end(part) - 1) -
                                 member.owner(total, parts.begin(part)) + 1;
            last = add_acq_rel(counters + part, 1u) + 1 == static_cast<u32>(expected);
            if (last) counters[part] = 0;
        }
        const u32 all = __ballot_sync(ALL_LANES, last);
        if (lane_id() == 0) shared.flags[base / LANES] = all;
    }
    __syncthreads();
}
