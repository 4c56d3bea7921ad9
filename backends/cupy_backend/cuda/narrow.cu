// Verification by one CTA a request, for batches that fill the device with requests. Rows are read
// one after the other, and hardly any behind a rejection.
#include "ahead.cuh"

constexpr int MAX_SHARED_BLOCKS = LOSSY_IN_Q ? 512 : FILTERED ? 944 : 1024;  // of the rows at hand

constexpr u32 NO_NUMBER = ~0u;  // of a request: there are as many CTAs as requests

// Where the statistics of the rows at hand are: in shared memory if they fit.
struct LocalPlaces {
    Mass* target;
    Mass* draft;
    int target_blocks;
    int draft_blocks;
    __device__ Mass* target_stats(int row) const {
        return target + row % KEPT_ROWS * target_blocks;
    }
    __device__ Mass* draft_stats(int row) const { return draft + row % KEPT_ROWS * draft_blocks; }
    // Over the statistics, which are no longer needed then.
    __device__ float* residuals() const { return reinterpret_cast<float*>(target); }
};

__device__ inline LocalPlaces local_places(
    const Params& p, Mass* shared_stats, const Request& request) {
    const int target_blocks = num_blocks_of(p.vocab_size);
    const int draft_blocks = DENSE ? num_blocks_of(p.draft_vocab_size) : 0;
    LocalPlaces places = {
        shared_stats, shared_stats + MAX_SHARED_BLOCKS, target_blocks, draft_blocks};
    if (KEPT_ROWS * target_blocks > MAX_SHARED_BLOCKS) {
        places.target = p.target_stats + static_cast<i64>(request.start) * target_blocks;
        places.draft = p.draft_stats + request.index * p.max_spec_len * draft_blocks;
    }
    return places;
}

__device__ inline void decide_alone(
    const Params& p, Shared& shared, int first, Verdict verdict) {
    if (warp_id() == 0) {
        Decision decision = decide(p, shared, first, verdict);
        if (POLICY == FLY && !shared.request.strict) {
            const int accepted = accepted_by_fly(p, shared, decision.kept);
            if (accepted < decision.kept)
                decision = {FROM_TARGET, accepted, decision.kept, shared.request.status};
        }
        __syncwarp();
        if (lane_id() == 0) shared.decision = decision;
    }
    meet_in_cta();
}

// Residual masses of one row, known to all.
__device__ inline void find_residual(Shared& shared, const LocalPlaces& places, int row) {
    meet_in_cta();
    if (thread_id() == 0) set_pair(shared, row, nullptr);
    meet_in_cta();
    const auto end = [&] { return num_blocks_of(shared.params.vocab_size); };
    visit_residual(&shared.pair, warp_id(), CTA_WARPS, end,
                   [&](int block, float mass) {
                       places.residuals()[block] = mass;
                   });
    meet_in_cta();
}

// Draws from the residual of the last row that is kept, whose number lies in shared memory meanwhile.
__device__ COLD void finish_block(Shared& shared, const LocalPlaces& places) {
    const auto num_blocks = [&] { return num_blocks_of(shared.params.vocab_size); };
    int row = shared.decision.kept;
    do {
        find_residual(shared, places, row - 1);
        if (warp_id() < DrawTeam::WARPS) {
            const bool keeps = block_keeps(
                my_team<DrawTeam>(), shared, places.residuals(), num_blocks(), shared.pair_row);
            if (thread_id() == 0) shared.flags[0] = keeps;
        }
        meet_in_cta();
        row = shared.pair_row;
    } while (!shared.flags[0]);
    if (warp_id() >= DrawTeam::WARPS) return;
    if (thread_id() == 0) shared.decision.num_accepted = shared.pair_row;
    find_best_residual(shared, places.residuals(), num_blocks());
    my_team<DrawTeam>().sync();
    finish_from_residual(shared);
}

__device__ inline void verify_request(
    const Params& p, Shared& shared, Scratch* scratch, Mass* stats, LocalPlaces& kept, i64 index) {
    if (warp_id() == 0) {
        const Request request = read_request(p, index, shared.drafts);
        if (lane_id() == 0) {
            shared.request = request;
            if (FILTERED) kept = local_places(p, stats, request);
            shared.best = 0;
            shared.foregone = static_cast<int>(NO_TOKEN);
        }
    }
    prefetch_first_row(p, index);
    if (FILTERED) close_all(shared);
    if (FILTERED && warp_id() == 1) gather_filters(p, shared, index);
    meet_in_cta();
    // With filters, what is called takes all registers.
    const LocalPlaces here = FILTERED ? LocalPlaces{} : local_places(p, stats, shared.request);
    const LocalPlaces& places = FILTERED ? kept : here;
    Verdict verdict;
    const int first = judge_all(p, shared, scratch, places, verdict);
    decide_alone(p, shared, first, verdict);
    if (JUDGES_OPEN_ROWS && shared.foregone != static_cast<int>(NO_TOKEN)) {
        finish_foregone(shared);
    } else if (HAS_RESIDUAL && shared.decision.ending == FROM_RESIDUAL) {
        if (POLICY == BLOCK)
            finish_block(shared, places);
        else
            finish_row(shared, shared.decision.kept,
                       places.target_stats(shared.decision.kept));
    } else if (shared.decision.ending == FROM_TARGET &&
               is_kept_in_part(shared, shared.decision.num_accepted)) {
        finish_kept(shared, shared.decision.num_accepted,
                    places.target_stats(shared.decision.num_accepted));
    } else if (warp_id() < DrawTeam::WARPS) {
        finish_from_target(shared, places.target_stats(shared.decision.num_accepted));
    }
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS, CTAS_PER_MULTIPROCESSOR)
    narrow(const __grid_constant__ Params p) {
    __shared__ Shared shared;
    __shared__ Mass stats[(DENSE ? 2 : 1) * MAX_SHARED_BLOCKS];
    alignas(16) __shared__ u64 scratch[SELECTS ? (sizeof(Scratch) + 7) / 8 : 1];
    __shared__ LocalPlaces places;
    __shared__ u32 next;
    static_assert(
        sizeof(shared) + sizeof(stats) + sizeof(scratch) + sizeof(places) + 16 <= STATIC_SHARED_BYTES);
    const bool queues = gridDim.x < p.num_reqs;
    copy_params(p, shared);
    make_meetings_ready();
    make_rows_ready();
    for (i64 index = blockIdx.x; index < p.num_reqs;) {
        // Who draws the last number puts the counter back.
        if (thread_id() == 0 && queues) {
            const u32 drawn = atomicAdd(p.control, 1u);
            if (drawn == p.num_reqs - 1) *p.control = 0;
            next = gridDim.x + drawn;
        }
        verify_request(p, shared, reinterpret_cast<Scratch*>(scratch), stats, places, index);
        if (!queues) return;
        meet_in_cta();
        index = next;
        meet_in_cta();
    }
}
