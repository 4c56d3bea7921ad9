// Verification by one CTA a request, for batches that fill the device with requests. Rows are read
// one after the other, and none behind a rejection; another CTA of the same multiprocessor reads
// while a row is judged.
#include "lossy.cuh"
#include "settle.cuh"
#include "stream.cuh"

constexpr int MAX_SHARED_BLOCKS = LOSSY_IN_Q ? 512 : FILTERED ? 944 : 1024;  // of a row

// Where the statistics of the rows at hand are: in shared memory if they fit.
struct LocalPlaces {
    Mass* target;
    Mass* draft;
    __device__ Mass* target_stats(int) const { return target; }
    __device__ Mass* draft_stats(int) const { return draft; }
    // Over the statistics, which are no longer needed then.
    __device__ float* residuals() const { return reinterpret_cast<float*>(target); }
};

__device__ inline LocalPlaces local_places(const Params& p, Mass* shared_stats, i64 request) {
    const i64 target_blocks = num_blocks_of(p.vocab_size);
    const i64 draft_blocks = num_blocks_of(p.draft_vocab_size);
    LocalPlaces places = {shared_stats, shared_stats + MAX_SHARED_BLOCKS};
    if (target_blocks > MAX_SHARED_BLOCKS) {
        places.target = p.target_stats + request * target_blocks;
        if (DENSE) places.draft = p.draft_stats + request * p.max_spec_len * draft_blocks;
    }
    return places;
}

__device__ inline void find_laws(
    const Params& p, Shared& shared, const LocalPlaces& places, int row) {
    const Request& request = shared.request;
    const int half = warp_id() / HalfCta::WARPS;
    const bool draft = half == 1;
    if (draft && !request.has_draft_row(row)) return;
    Law law = {};
    if (FILTERED) {
        if (warp_id() % HalfCta::WARPS == 0)
            note_law(shared, draft ? places.draft : places.target, row, draft);
        return;
    }
    if (warp_id() % HalfCta::WARPS == 0) {
        law = draft ? plain_law(places.draft, num_blocks_of(p.draft_vocab_size),
                                request.draft_temperature)
                    : plain_law(places.target, num_blocks_of(p.vocab_size), request.temperature);
    }
    if (thread_id() % HalfCta::THREADS != 0) return;
    if (DENSE && draft)
        shared.draft_laws[row] = law;
    else
        shared.target_laws[row] = law;
}

// By all threads, and the same for all.
__device__ inline Verdict judge_row(
    const Params& p, Shared& shared, Scratch* scratch, const LocalPlaces& places, int row) {
    const Request& request = shared.request;
    __syncthreads();
    find_laws(p, shared, places, row);
    __syncthreads();
    if (FILTERED && is_open(shared, place_of(row, false)))
        settle_row(shared, *scratch, places.target, row, false);
    if (FILTERED && DENSE && is_open(shared, place_of(row, true)))
        settle_row(shared, *scratch, places.draft, row, true);
    if (SAMPLES_EVERY_ROW || request.strict) {
        if (warp_id() < DrawTeam::WARPS && shared.target_laws[row].is_usable())
            target_token(shared, row, places.target);
        __syncthreads();
    }
    Verdict verdict = verdict_of(p, shared, row);
    if (LOSSY_IN_Q && !request.strict && row < request.num_drafts && verdict == PASSES) {
        if (!forgives_draft(p, shared, scratch, row, places.target)) verdict = FAILS;
        __syncthreads();
    }
    return verdict;
}

// Statistics of a target row and the draft row beside it.
__device__ inline void read_row(
    const Params& p, Shared& shared, const LocalPlaces& places, int row) {
    const Request& request = shared.request;
    const Stretch stretch = stretch_of_row(p, request, row);
    const u32 inverse = inverse_of(length_of_pair(p, request));
    const Rows rows = Rows::of(p, request, places, inverse, false);
    Flow flow = {};
    flow.open(p, rows, stretch, shared.cursors);
    flow.fetch_all();
    flow.drain(p, shared.cursors);
    if (!rows.whole()) read_piecewise(p, request, rows, stretch);
}

// Reads and judges rows up to the first that does not pass.
__device__ inline int judge_rows(
    const Params& p, Shared& shared, Scratch* scratch, const LocalPlaces& places,
    Verdict& verdict) {
    const Request& request = shared.request;
    if (warp_id() == 0) gather_evidence(p, shared);
    verdict = PASSES;
    for (int row = 0; row < request.num_rows; ++row) {
        read_row(p, shared, places, row);
        verdict = judge_row(p, shared, scratch, places, row);
        if (verdict != PASSES) return row;
    }
    return request.num_rows;
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
    __syncthreads();
}

// Residual masses of one row, known to all.
__device__ inline void find_residual(Shared& shared, const LocalPlaces& places, int row) {
    __syncthreads();
    if (thread_id() == 0) set_pair(shared, row, nullptr);
    __syncthreads();
    visit_residual(&shared.pair, warp_id(), CTA_WARPS, num_blocks_of(shared.params.vocab_size),
                   [&](int block, float mass) {
                       places.residuals()[block] = mass;
                   });
    __syncthreads();
}

__device__ COLD void finish_block(Shared& shared, LocalPlaces places) {
    const int num_blocks = num_blocks_of(shared.params.vocab_size);
    int row = shared.decision.kept - 1;
    for (;; --row) {
        find_residual(shared, places, row);
        if (warp_id() < DrawTeam::WARPS) {
            const bool keeps =
                block_keeps(my_team<DrawTeam>(), shared, places.residuals(), num_blocks, row);
            if (thread_id() == 0) shared.flags[0] = keeps;
        }
        __syncthreads();
        if (shared.flags[0]) break;
    }
    if (warp_id() >= DrawTeam::WARPS) return;
    if (thread_id() == 0) shared.decision.num_accepted = row;
    find_best_residual(shared, places.residuals(), num_blocks);
    my_team<DrawTeam>().sync();
    finish_from_residual(shared);
}

__device__ COLD void finish_row(Shared& shared, LocalPlaces places) {
    const int row = shared.decision.kept;
    if (thread_id() == 0) set_pair(shared, row, places.target);
    __syncthreads();
    race_residual(&shared.pair, shared.recover_key, warp_id(), CTA_WARPS,
                  num_blocks_of(shared.params.vocab_size), &shared.best);
    __syncthreads();
    if (warp_id() < DrawTeam::WARPS) finish_from_residual(shared);
}

__device__ inline void verify_request(
    const Params& p, Shared& shared, Scratch* scratch, Mass* stats, i64 index) {
    if (warp_id() == 0) {
        const Request request = read_request(p, index, shared.drafts);
        if (lane_id() == 0) shared.request = request;
    }
    if (FILTERED) close_all(shared);
    __syncthreads();
    const LocalPlaces places = local_places(p, stats, index);
    Verdict verdict;
    const int first = judge_rows(p, shared, scratch, places, verdict);
    decide_alone(p, shared, first, verdict);
    if (HAS_RESIDUAL && shared.decision.ending == FROM_RESIDUAL) {
        if (POLICY == BLOCK)
            finish_block(shared, places);
        else
            finish_row(shared, places);
    } else if (warp_id() < DrawTeam::WARPS) {
        finish_from_target(shared, places.target);
    }
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS, CTAS_PER_MULTIPROCESSOR)
    narrow(const __grid_constant__ Params p) {
    __shared__ Shared shared;
    __shared__ Mass stats[(DENSE ? 2 : 1) * MAX_SHARED_BLOCKS];
    alignas(16) __shared__ u64 scratch[SELECTS ? (sizeof(Scratch) + 7) / 8 : 1];
    __shared__ u32 drawn;
    static_assert(sizeof(shared) + sizeof(stats) + sizeof(scratch) + 16 <= STATIC_SHARED_BYTES);
    const bool queues = gridDim.x < p.num_reqs;
    copy_params(p, shared);
    for (i64 index = blockIdx.x; index < p.num_reqs;) {
        // Who draws the last number puts the counter back.
        if (thread_id() == 0 && queues) {
            drawn = atomicAdd(p.control, 1u);
            if (drawn == p.num_reqs - 1) *p.control = 0;
        }
        verify_request(p, shared, reinterpret_cast<Scratch*>(scratch), stats, index);
        if (!queues) return;
        __syncthreads();
        index = static_cast<i64>(gridDim.x) + drawn;
        __syncthreads();
    }
}
