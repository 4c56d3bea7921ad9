// Rows that statistics leave open, by all CTAs of a request: each counts a share of their blocks.
#pragma once
#include "foregone.cuh"
#include "meeting.cuh"
#include "noise.cuh"

// Notes what statistics tell of all rows, every warp of another one. By a whole CTA.
__device__ COLD void note_laws(Shared& shared) {
#pragma unroll 1
    for (int part = warp_id();; part += CTA_WARPS) {
        const Parts parts(shared.request);
        if (part >= parts.count) return;
        const int place = place_of(parts.row(part), parts.draft(part));
        const GlobalPlaces places = {shared.params, shared.request};
        note_law(shared, stats_of(places, place), place / 2, place % 2);
    }
}

// Of the CTA's counts and those of all: [MAX_SHARED_ROWS, MAX_COUNTED] words of the request's.
__device__ inline void add_counts(const Scratch& scratch, int num_rows, u32* counts) {
#pragma unroll 1
    for (int word = thread_id(); word < num_rows * MAX_COUNTED; word += CTA_THREADS) {
        const int i = word / MAX_COUNTED;
        const u32 count = scratch.counts[i][word % MAX_COUNTED];
        if (scratch.rows[i].shared && count > 0) atomicAdd(&counts[word], count);
    }
}

// Whoever is alone then puts them back to 0.
__device__ inline void load_counts(Scratch& scratch, int num_rows, u32* counts) {
    constexpr int at_once = MAX_COUNTED / CTA_THREADS;  // loads on their way
#pragma unroll 1
    for (int first = thread_id(); first < num_rows * MAX_COUNTED; first += MAX_COUNTED) {
        const int i = first / MAX_COUNTED;
        u32 words[at_once];
        if (!scratch.rows[i].shared) continue;
#pragma unroll
        for (int j = 0; j < at_once; ++j) words[j] = __ldcg(&counts[first + j * CTA_THREADS]);
#pragma unroll
        for (int j = 0; j < at_once; ++j) {
            scratch.counts[i][first % MAX_COUNTED + j * CTA_THREADS] = words[j];
            if (JUDGES_OPEN_ROWS) counts[first + j * CTA_THREADS] = 0;
        }
    }
    meet_in_cta();
}

// Settles the open rows from a place on up to `end`; nobody reads statistics of all rows any more when this
// is over. Where rows are judged before their laws are known, only who comes last goes on, true for it.
__device__ COLD bool settle_together(Shared& shared, Scratch& scratch, int place, int end) {
    const GlobalPlaces places = {shared.params, shared.request};
    const Member& member = shared.member;
    u32 met = 0;
#pragma unroll 1
    for (int first = 0; place < end; first += ROWS_AT_ONCE) {
        const int num_rows = show_rows(shared, scratch, places, place, end);
        if (num_rows == 0) break;
        u32* counts = shared.control.counts;
        const bool shares = counts != nullptr && first < MAX_SHARED_ROWS && member.count > 1;
        counts += first * MAX_COUNTED;
        if (thread_id() < num_rows)
            scratch.rows[thread_id()].shared = shares && scratch.rows[thread_id()].counted;
        meet_in_cta();
        count_rows(scratch, num_rows, {member.index, member.count});
        if (shares) add_counts(scratch, num_rows, counts);
        if (JUDGES_OPEN_ROWS) {
            meet_in_cta();
            if (!arrive(shared, shared.control.counted, member.count)) return false;
        } else {
            meet(shared.control.counted, ++met * static_cast<u32>(member.count));
        }
        if (shares) load_counts(scratch, num_rows, counts);
        filter_rows(scratch, num_rows);
        store_laws(shared, scratch, num_rows);
        meet_in_cta();
    }
    return true;
}

// What decides about a row, or it is drawn from. True if the CTA goes on, which has no others beside it then.
__device__ COLD bool settle_row(Shared& shared, Scratch& scratch, int row, bool alone) {
    const int place = place_of(row, false);
    if (alone || shared.member.count == 1)
        settle_alone(shared, scratch, GlobalPlaces{shared.params, shared.request}, place, place + 2);
    else if (!settle_together(shared, scratch, place, place + 2))
        return false;
    close_row(shared, row);
    meet_in_cta();
    return true;
}

// Which row does not pass, when the laws that are asked for are known. `alone`: they were looked for, and no
// other CTA goes on; `is_over`: one of those does.
struct Judged {
    int first;
    Verdict verdict;
    bool alone;
    bool is_over;
};

__device__ COLD Judged judge_open(
    Shared& shared, Scratch& scratch, const KnownNoise& noise, int first, Verdict verdict) {
    const Params& p = shared.params;
    const GlobalPlaces places = {p, shared.request};
    Judged judged = {first, verdict, false, false};
#pragma unroll 1
    while (asks_for_laws(shared, judged.first, judged.verdict)) {
        const int drafts = shared.request.num_drafts, row = judged.first < drafts ? judged.first : drafts;
        if (may_be_foregone(shared, row, judged.verdict) &&
            is_foregone(shared, scratch, row, places.target_stats(row), noise.of_row(p, row)))
            break;
        judged.is_over = !settle_row(shared, scratch, row, judged.alone);
        if (judged.is_over) break;
        judged.alone = true;
        judged.first = first_failure(p, shared, row, shared.request.num_rows, judged.verdict);
    }
    return judged;
}

// This CTA's share of what the law of a target row keeps of its blocks.
__device__ COLD void keep_share(Shared& shared, int row) {
    const GlobalPlaces places = {shared.params, shared.request};
    AdjustedRow target(shared.params, shared.request, row);
    const Member& member = shared.member;
    keep_masses(target.row, places.target_stats(row), shared.target_laws[row],
                {member.index + member.count * warp_id(), member.count * CTA_WARPS});
    meet_in_cta();
}

// Puts the counters of all that was counted together back to 0. By a whole CTA.
__device__ inline void forget_counts(const Shared& shared) {
    u32* counts = shared.control.counts;
    if (counts == nullptr || shared.member.count == 1) return;
    int num_rows = 0;
#pragma unroll 1
    for (int word = 0; word < NO_PLACE / LANES; ++word) num_rows += __popc(shared.open[word]);
    if (num_rows > MAX_SHARED_ROWS) num_rows = MAX_SHARED_ROWS;
    for (int i = thread_id(); i < num_rows * MAX_COUNTED; i += CTA_THREADS) counts[i] = 0;
}

// What statistics leave open, together with the request's other CTAs or alone. By a whole CTA, behind
// a barrier; false if there was nothing.
__device__ inline bool settle_open(Shared& shared, Scratch& scratch, bool together) {
    if (next_open(shared, 0) == NO_PLACE) return false;
    if (together)
        settle_together(shared, scratch, 0, NO_PLACE);
    else
        settle_alone(shared, scratch, GlobalPlaces{shared.params, shared.request}, 0, NO_PLACE);
    return true;
}

// Where rows were settled together and no residual is wanted of all. True for the last, when it is known
// what is kept of the blocks of the row that is drawn from.
__device__ COLD bool leave_open(Shared& shared) {
    const int row = shared.decision.num_accepted;
    if (shared.decision.ending == FROM_TARGET && is_open(shared, place_of(row, false)))
        keep_share(shared, row);
    meet_in_cta();
    const bool last = arrive(shared, shared.control.left, static_cast<u32>(shared.member.count));
    if (last) forget_counts(shared);
    return last;
}
