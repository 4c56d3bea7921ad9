// Reading goes on while rows are judged: in every step the first team of a CTA judges a row, and all other
// warps read the next one until they are told to stop.
#pragma once
#include "foregone.cuh"
#include "lossy.cuh"
#include "readers.cuh"
#include "settle.cuh"

// Readers and judges wait for each other's rows: the first of a row's two meetings ends when it has been read, the
// second when it has been judged, so that the next row but one may take its place.
__device__ inline u64* meeting_on(int row, bool judged) {
    __shared__ u64 words[2 * KEPT_ROWS];
    return words + 2 * (row & (KEPT_ROWS - 1)) + judged;
}

// Before the first barrier of all, and never again: where that happens in a loop, compute-sanitizer does not know how
// many there are.
__device__ inline void make_rows_ready() {
    const int place = static_cast<int>(thread_id());
    if (place < 2 * KEPT_ROWS)
        make_ready(meeting_on(place / 2, place % 2), place % 2 ? DrawTeam::THREADS : READERS * LANES);
}

// Whether an odd number of turns of a row's meeting lies before what is read and judged now.
__device__ inline u32& is_odd_before(int row, bool judged) {
    __shared__ u32 words[2 * KEPT_ROWS];
    return words[2 * (row & (KEPT_ROWS - 1)) + judged];
}

// By the first threads, while nobody is on the way to a meeting: all warps come to the same ones. Nobody may have waited
// for the last turn to end, which PTX asks for before anybody arrives in the next one.
__device__ inline void note_turns() {
    const int place = static_cast<int>(thread_id());
    if (place >= 2 * KEPT_ROWS) return;
    u64* meeting = meeting_on(place / 2, place % 2);
    const u32 is_odd = is_odd_turn(meeting);
    wait_at(meeting, !is_odd);
    is_odd_before(place / 2, place % 2) = is_odd;
}

// For a row, of those from `first` on, by a warp.
__device__ inline void wait_for_row(int row, int first, bool judged) {
    const u32 turn = static_cast<u32>(row - first) / KEPT_ROWS;
    wait_at(meeting_on(row, judged), (turn ^ is_odd_before(row, judged)) & 1);
    __syncwarp();
}

// By the first team, a warp a law.
template <typename Places>
__device__ inline void find_laws(
    const Params& p, Shared& shared, const Places& places, int row) {
    const Request& request = shared.request;
    const bool draft = warp_id() == 1;
    if (warp_id() > 1 || (draft && !request.has_draft_row(row))) return;
    const Mass* stats = draft ? places.draft_stats(row) : places.target_stats(row);
    if (FILTERED) {
        note_law(shared, stats, row, draft);
        return;
    }
    const Law law = draft ? plain_law(stats, num_blocks_of(p.draft_vocab_size),
                                      request.draft_temperature)
                          : plain_law(stats, num_blocks_of(p.vocab_size), request.temperature);
    if (lane_id() == 0) law_of(shared, row, draft) = law;
}

// By the first team. A row that statistics leave open is not judged any further.
template <typename Places>
__device__ inline Verdict judge_row(
    const Params& p, Shared& shared, const Places& places, int row, bool known) {
    const DrawTeam team = my_team<DrawTeam>();
    if (!known) {
        find_laws(p, shared, places, row);
        team.sync();
    }
    Verdict verdict = OPEN;
    if (!FILTERED || JUDGES_OPEN_ROWS || !has_open_law(shared, row)) {
        if (SAMPLES_EVERY_ROW || shared.request.strict) {
            if (shared.target_laws[row].is_usable())
                target_token(shared, row, places.target_stats(row));
            team.sync();
        }
        verdict = verdict_of(shared, row);
    }
    if (verdict != PASSES && team.thread() == 0)
        atomicExch(verdict_on(shared, row), static_cast<int>(verdict));
    return verdict;
}

// Rows one after the other, by the first team.
template <typename Places>
__device__ inline void judge_rows(
    const Params& p, Shared& shared, const Places& places, const Course& course) {
    if (course.begins()) {
        if (warp_id() == 0) gather_evidence(p, shared);
        my_team<DrawTeam>().sync();
    }
    Verdict verdict = PASSES;
    int row = course.first;
#pragma unroll 1
    for (; row < course.end && verdict == PASSES; ++row) {
        if (row >= course.first_read()) wait_for_row(row, course.first_read(), false);
        verdict = judge_row(p, shared, places, row, course.known && row == course.first);
        arrive_at(meeting_on(row, true));
    }
    if (thread_id() > 0) return;
    shared.asked.first = verdict == PASSES ? row : row - 1;
    shared.asked.verdict = verdict;
}

// The same by the readers, each warp as soon as it can.
template <typename Places>
__device__ inline void read_rows(
    const Params& p, Shared& shared, const Places& places, const Course& course) {
    if (course.first_read() >= course.end) return;
    ReaderOf<(BERTH_BYTES > 0)>::Type reader;
    reader.begin(p, shared, places, course);
#pragma unroll 1
    for (int row = course.first_read(); row < course.end; ++row) {
        if (row - KEPT_ROWS >= course.first) {
            wait_for_row(row - KEPT_ROWS, course.first, true);
            if (verdict_now(shared, row) != PASSES) break;
        }
        reader.read(p, shared, places, row);
        __syncwarp();
        arrive_at(meeting_on(row, false));
    }
    reader.end();
}

// A barrier of all threads that no compiler may give to each branch before it.
__device__ COLD void meet() { meet_in_cta(); }

// Reads and judges by all threads, up to the row that is returned: the first that does not pass.
template <typename Places>
__device__ inline int follow(
    const Params& p, Shared& shared, const Places& places, const Course& course, Verdict& verdict) {
    meet_in_cta();
    if (thread_id() < KEPT_ROWS) shared.verdicts[thread_id()] = PASSES;
    note_turns();
    meet_in_cta();
    if (warp_id() >= DrawTeam::WARPS)
        read_rows(p, shared, places, course);
    else
        judge_rows(p, shared, places, course);
    meet();
    verdict = shared.asked.verdict;
    return shared.asked.first;
}

// Whether what is decided about a row asks for its laws, and is not known without.
template <typename Places>
__device__ inline bool must_be_settled(
    Shared& shared, Scratch& scratch, const Places& places, int first, Verdict verdict) {
    if (verdict == OPEN) return true;
    if (!asks_for_laws(shared, first, verdict)) return false;
    const int row = row_asked_for(shared, first);
    return !may_be_foregone(shared, row, verdict) ||
           !is_foregone(shared, scratch, row, places.target_stats(row), nullptr);
}

// Settles the row that is asked for, if it must be. What is known of it lies in shared memory meanwhile, where who
// judged it left it.
template <typename Places>
__device__ inline void settle_asked(
    Shared& shared, Scratch& scratch, const Places& places, int& first, Verdict& verdict) {
    meet_in_cta();  // all have read that
    if (must_be_settled(shared, scratch, places, first, verdict))
        settle_alone(shared, scratch, places, row_asked_for(shared, shared.asked.first));
    first = shared.asked.first;
    verdict = shared.asked.verdict;
}

// Up to the first row that does not pass. By all threads.
template <typename Places>
__device__ inline int judge_all(
    const Params& p, Shared& shared, Scratch* scratch, const Places& places, Verdict& verdict) {
    verdict = PASSES;
    int first = 0;
    bool known = false;
#pragma unroll 1
    while (first < shared.request.num_rows) {
        // All warps are needed again behind every row that a lossy policy may forgive.
        const int end = LOSSY_IN_Q ? first + 1 : shared.request.num_rows;
        first = follow(p, shared, places, {first, end, known}, verdict);
        if (FILTERED) settle_asked(shared, *scratch, places, first, verdict);
        known = FILTERED && verdict == OPEN;
        if (known) continue;
        if (LOSSY_IN_Q && !shared.request.strict && verdict == PASSES &&
            first <= shared.request.num_drafts) {
            if (!forgives_draft(p, shared, scratch, first - 1, places.target_stats(first - 1)))
                verdict = FAILS;
            if (verdict == FAILS) --first;
            meet_in_cta();
        }
        if (verdict != PASSES) break;
    }
    return first;
}
