// Rows that statistics leave open, by all CTAs of a request: each counts a share of their blocks.
#pragma once
#include "meeting.cuh"
#include "settle.cuh"

__device__ inline Worker worker_of(const Member& member) {
    return {member.index + member.count * warp_id(), member.count * CTA_WARPS};
}

__device__ inline Mass* stats_of(const GlobalPlaces& places, int row, bool draft) {
    return DENSE && draft ? places.draft_stats(row) : places.target_stats(row);
}

// Adds this CTA's counts to those of all.
__device__ inline void add_counts(const Scratch& scratch, u32* counts) {
    for (int i = thread_id(); i < MAX_COUNTED; i += CTA_THREADS)
        if (scratch.counts[i] > 0) atomicAdd(&counts[i], scratch.counts[i]);
}

// Counts a share of the row at hand, or finds its law alone if it cannot be counted.
template <typename T>
__device__ COLD void count_or_settle(Shared& shared, Scratch& scratch, int row, bool draft) {
    bound_row<T>(scratch);
    const int place = scratch.num_counted;
    u32* counts = shared.control.counts;
    const bool counted = is_countable<T>(scratch.at_hand.known);
    const bool shares = counted && counts != nullptr && place < MAX_SHARED_ROWS;
    if (IDLE_BITS<T> > 0 && counted)
        count_share<T>(scratch, shares ? worker_of(shared.member) : whole_cta());
    if (shares) {
        add_counts(scratch, counts + place * MAX_COUNTED);
        if (thread_id() > 0) return;
        scratch.counted[place] = scratch.at_hand.known;
        scratch.places[place] = place_of(row, draft);
        scratch.num_counted = place + 1;
    } else {
        const Law law = filter_row<T>(scratch, counted);
        if (thread_id() == 0) law_of(shared, row, draft) = law;
    }
}

// The law of a row that all have counted.
template <typename T>
__device__ COLD void settle_counted(Shared& shared, Scratch& scratch, int i) {
    __syncthreads();
    const u32* counts = shared.control.counts + i * MAX_COUNTED;
    for (int j = thread_id(); j < MAX_COUNTED; j += CTA_THREADS)
        scratch.counts[j] = __ldcg(counts + j);
    if (thread_id() == 0) {
        scratch.at_hand.known = scratch.counted[i];
        scratch.threshold_key = ~0u;
    }
    __syncthreads();
    const Law law = filter_row<T>(scratch, true);
    const int place = scratch.places[i];
    if (thread_id() == 0) law_of(shared, place / 2, place % 2) = law;
}

// Settles all open rows. Nobody reads statistics any more when this is over.
__device__ COLD void settle_together(Shared& shared, Scratch& scratch) {
    const GlobalPlaces places = {shared.params, shared.request};
    if (thread_id() == 0) scratch.num_counted = 0;
#pragma unroll 1
    for (int place = 0; place < 2 * shared.request.num_rows; ++place) {
        if (!is_open(shared, place)) continue;
        const int row = place / 2;
        const bool draft = place % 2;
        put_at_hand(shared, scratch, stats_of(places, row, draft), row, draft);
        if (DENSE && draft)
            count_or_settle<DraftLogit>(shared, scratch, row, true);
        else
            count_or_settle<TargetLogit>(shared, scratch, row, false);
    }
    meet(shared.control.counted, static_cast<u32>(shared.member.count));
#pragma unroll 1
    for (int i = 0; i < scratch.num_counted; ++i) {
        if (DENSE && scratch.places[i] % 2)
            settle_counted<DraftLogit>(shared, scratch, i);
        else
            settle_counted<TargetLogit>(shared, scratch, i);
    }
    __syncthreads();
}

// Settles all open rows alone, and what their laws keep of blocks.
__device__ COLD void settle_one_by_one(Shared& shared, Scratch& scratch) {
    const GlobalPlaces places = {shared.params, shared.request};
#pragma unroll 1
    for (int place = 0; place < 2 * shared.request.num_rows; ++place)
        if (is_open(shared, place))
            settle_row(shared, scratch, stats_of(places, place / 2, place % 2), place / 2, place % 2);
}

// This CTA's share of what the law of a target row keeps of its blocks.
__device__ COLD void keep_share(Shared& shared, int row) {
    const GlobalPlaces places = {shared.params, shared.request};
    const AdjustedRow target(shared.params, shared.request, row);
    keep_masses(worker_of(shared.member), target.row, places.target_stats(row),
                shared.target_laws[row]);
    __syncthreads();
}

// Puts the counters of all that was counted together back to 0. By a whole CTA.
__device__ inline void forget_counts(const Shared& shared, const Scratch& scratch) {
    u32* counts = shared.control.counts;
    for (int i = thread_id(); i < scratch.num_counted * MAX_COUNTED; i += CTA_THREADS) counts[i] = 0;
}

// What statistics leave open, together with the request's other CTAs or alone. By a whole CTA, behind
// a barrier; false if there was nothing.
__device__ inline bool settle_open(Shared& shared, Scratch& scratch, bool together) {
    if (!is_any_open(shared)) return false;
    if (together)
        settle_together(shared, scratch);
    else
        settle_one_by_one(shared, scratch);
    return true;
}

// Where rows were settled together and no residual is wanted. True for the last, who finds what is kept
// of the blocks of the row that is drawn from.
__device__ COLD bool leave_open(Shared& shared, const Scratch& scratch) {
    const int row = shared.decision.num_accepted;
    if (shared.decision.ending == FROM_TARGET && is_open(shared, place_of(row, false)))
        keep_share(shared, row);
    __syncthreads();
    const bool last = arrive(shared, shared.control.left, static_cast<u32>(shared.member.count));
    if (last) forget_counts(shared, scratch);
    return last;
}
