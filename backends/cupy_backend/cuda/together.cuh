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
__device__ inline void add_counts(const Scratch& scratch, u32* counts) {
#pragma unroll 1
    for (int word = thread_id(); word < scratch.num_rows * MAX_COUNTED; word += CTA_THREADS) {
        const int i = word / MAX_COUNTED;
        const u32 count = scratch.counts[i][word % MAX_COUNTED];
        if (scratch.rows[i].shared && count > 0) atomicAdd(&counts[word], count);
    }
}

// Whoever is alone then puts them back to 0.
__device__ inline void load_counts(Scratch& scratch, u32* counts) {
    constexpr int at_once = MAX_COUNTED / CTA_THREADS;  // loads on their way
#pragma unroll 1
    for (int first = thread_id(); first < scratch.num_rows * MAX_COUNTED; first += MAX_COUNTED) {
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

// Of the rows at hand, null where they are not counted together.
__device__ inline u32* counts_of(const Shared& shared, const Scratch& scratch) {
    u32* counts = shared.control.counts;
    const int first = JUDGES_OPEN_ROWS ? 0 : scratch.num_settled;
    const bool shares = counts != nullptr && first < MAX_SHARED_ROWS && shared.member.count > 1;
    return shares ? counts + first * MAX_COUNTED : nullptr;
}

// By the first threads, between barriers.
__device__ inline void share_rows(const Shared& shared, Scratch& scratch) {
    if (thread_id() >= scratch.num_rows) return;
    OpenRow& open = scratch.rows[thread_id()];
    open.shared = open.counted && counts_of(shared, scratch) != nullptr;
}

// Makes counts of this CTA's shares those of all. Where rows are judged before their laws are known, only who
// comes last goes on, true for it.
__device__ inline bool join_counts(Shared& shared, Scratch& scratch) {
    if (counts_of(shared, scratch)) add_counts(scratch, counts_of(shared, scratch));
    const u32 members = static_cast<u32>(shared.member.count);
    if (JUDGES_OPEN_ROWS) {
        meet_in_cta();
        if (!arrive(shared, shared.control.counted, members)) return false;
    } else {
        meet(shared.control.counted, (scratch.num_settled / ROWS_AT_ONCE + 1) * members);
    }
    if (counts_of(shared, scratch)) load_counts(scratch, counts_of(shared, scratch));
    return true;
}

// Whether the request's other CTAs count rows, too.
__device__ inline bool counts_together(const Shared& shared) {
    return HAS_RESIDUAL && !shared.asked.alone && (!JUDGES_OPEN_ROWS || shared.member.count > 1);
}

// Settles the first open rows from a place on up to `end`, with the request's other CTAs or alone; nobody
// reads their statistics any more when this is over. Where the next ones begin, or -1 if another CTA goes on.
__device__ COLD int settle_some(Shared& shared, Scratch& scratch, int place, int end) {
    const GlobalPlaces places = {shared.params, shared.request};
    if (!show_rows(shared, scratch, places, place, end)) return end;
    if (counts_together(shared)) {
        share_rows(shared, scratch);
        meet_in_cta();
    }
    count_rows(scratch, {shared.member.index, shared.member.count});
    if (counts_together(shared) && !join_counts(shared, scratch)) return -1;
    filter_rows(scratch);
    store_laws(shared, scratch);
    if (!JUDGES_OPEN_ROWS && !counts_together(shared)) keep_rows(shared, scratch);
    if (thread_id() == 0) scratch.num_settled += ROWS_AT_ONCE;
    const int next = scratch.next_place;
    meet_in_cta();
    return next;
}

// Settles the row that is asked for. The row, or -1 if another CTA goes on; otherwise none does beside this one.
__device__ inline int settle_row(Shared& shared, Scratch& scratch, int row) {
    const int place = place_of(row, false);
    if (settle_some(shared, scratch, place, place + 2) < 0) return -1;
    close_row(shared, scratch);
    if (thread_id() == 0) shared.asked.alone = true;
    const int settled = row_asked_for(shared, shared.asked.first);
    meet_in_cta();
    return settled;
}

// Which row does not pass, when the laws that are asked for are known. `alone`: they were looked for, and no
// other CTA goes on; `is_over`: one of those does.
struct Judged {
    int first;
    Verdict verdict;
    bool alone;
    bool is_over;
};

// Whether the draw that a row ends in is known without its laws.
__device__ inline bool is_row_foregone(
    Shared& shared, Scratch& scratch, const KnownNoise& noise, int row) {
    const Params& p = shared.params;
    const GlobalPlaces places = {p, shared.request};
    return is_foregone(shared, scratch, row, places.target_stats(row), noise.of_row(p, row));
}

// What lives across calls lies in shared memory: they take all registers.
__device__ COLD Judged judge_open(
    Shared& shared, Scratch& scratch, const KnownNoise& noise, int first, Verdict verdict) {
#pragma unroll 1
    while (asks_for_laws(shared, first, verdict)) {
        if (thread_id() == 0) {
            shared.asked.first = first;
            shared.asked.verdict = verdict;
        }
        int row = row_asked_for(shared, first);
        if (may_be_foregone(shared, row, verdict)) {
            if (is_row_foregone(shared, scratch, noise, row))
                return {shared.asked.first, shared.asked.verdict, shared.asked.alone, false};
            row = row_asked_for(shared, shared.asked.first);
        }
        row = settle_row(shared, scratch, row);
        if (row < 0) return {0, OPEN, false, true};
        first = first_failure(shared, row, shared.request.num_rows, verdict);
    }
    return {first, verdict, shared.asked.alone, false};
}

// This CTA's share of what the law of a target row keeps of its blocks.
__device__ inline void keep_share(Shared& shared, Scratch& scratch, int row) {
    if (thread_id() == 0) {
        const GlobalPlaces places = {shared.params, shared.request};
        const AdjustedRow target(shared.params, shared.request, row);
        set_row(scratch.rows[0], target.row, places.target_stats(row), Filters{}, 0.0f, 0.0f);
        scratch.rows[0].known.law = shared.target_laws[row];
    }
    meet_in_cta();
    const Member& member = shared.member;
    keep_masses(scratch, 0, {member.index + member.count * warp_id(), member.count * CTA_WARPS});
}

// Puts the counters of all that was counted together back to 0. By a whole CTA.
__device__ COLD void forget_counts(const Shared& shared) {
    u32* counts = shared.control.counts;
    if (counts == nullptr || shared.member.count == 1) return;
    int num_rows = 0;
#pragma unroll 1
    for (int word = 0; word < NO_PLACE / LANES; ++word) num_rows += __popc(shared.open[word]);
    if (num_rows > MAX_SHARED_ROWS) num_rows = MAX_SHARED_ROWS;
    for (int i = thread_id(); i < num_rows * MAX_COUNTED; i += CTA_THREADS) counts[i] = 0;
}

// Whether statistics leave rows open whose laws are found before any verdict.
__device__ inline bool has_open_rows(const Shared& shared) {
    u32 bits = 0;
#pragma unroll
    for (int word = 0; FILTERED && !JUDGES_OPEN_ROWS && word < NO_PLACE / LANES; ++word)
        bits |= shared.open[word];
    return bits != 0;
}

// Finds the laws of all such rows, together with the request's other CTAs or alone. By a whole CTA, behind a
// barrier; they pass for open ever after.
__device__ COLD void settle_open(Shared& shared, Scratch& scratch, bool together) {
    if (thread_id() == 0) {
        shared.asked.alone = !together;
        scratch.num_settled = 0;
    }
#pragma unroll 1
    for (int place = 0; next_open(shared, place) < NO_PLACE;)
        place = settle_some(shared, scratch, place, NO_PLACE);
}

// Where rows were settled together and no residual is wanted of all. True for the last, when it is known
// what is kept of the blocks of the row that is drawn from.
__device__ COLD bool leave_open(Shared& shared, Scratch& scratch) {
    const int row = shared.decision.num_accepted;
    if (shared.decision.ending == FROM_TARGET && is_open(shared, place_of(row, false)))
        keep_share(shared, scratch, row);
    meet_in_cta();
    const bool last = arrive(shared, shared.control.left, static_cast<u32>(shared.member.count));
    if (last) forget_counts(shared);
    return last;
}
