// Reading goes on while rows are judged: in every step the first team of a CTA judges a row, and all other
// warps read the next one until they are told to stop.
#pragma once
#include "foregone.cuh"
#include "lossy.cuh"
#include "settle.cuh"
#include "stream.cuh"

constexpr int READERS = CTA_WARPS - DrawTeam::WARPS;  // warps
constexpr int KEPT_ROWS = 2;  // whose statistics are there at once: one is judged, one is read

// What is read and judged in one go: rows from `first` on up to `end`. `known`: the first one's laws are,
// and the next row is read.
struct Course {
    int first;
    int end;
    bool known;
};

// What judging a row has left to say. Rows take turns, so that nobody asks for a row's when the next
// one's is written.
__device__ inline int* verdict_on(Shared& shared, int row) { return shared.verdicts + (row & (KEPT_ROWS - 1)); }

// Whether it is over while it is being judged; an open row is not. By a whole warp.
__device__ inline bool is_stopped(Shared& shared, int judged) {
    constexpr int passes = PASSES;
    int verdict = passes;
    if (lane_id() == 0) verdict = atomicCAS(verdict_on(shared, judged), passes, passes);
    verdict = __shfl_sync(ALL_LANES, verdict, 0);
    return verdict != passes && verdict != OPEN;
}

// Statistics of a target row and the draft row beside it, by the readers.
template <typename Places>
__device__ inline void read_row(const Params& p, Shared& shared, const Places& places, int row) {
    const Request& request = shared.request;
    const Stretch stretch = stretch_of_row(p, request, row);
    const u32 inverse = inverse_of(length_of_pair(p, request));
    const Rows rows = Rows::of(p, request, places, inverse, KEPT_ROWS - 1);
    Flow<READERS> flow = {};
    flow.open(p, rows, stretch, shared.cursors);
    flow.fetch_all();
    flow.drain(p, shared.cursors, [&] { return is_stopped(shared, row - 1); });
    if (!rows.whole()) read_piecewise<READERS>(p, request, rows, stretch);
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
__device__ inline void judge_row(
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
        verdict = verdict_of(p, shared, row);
    }
    if (verdict != PASSES && team.thread() == 0)
        atomicExch(verdict_on(shared, row), static_cast<int>(verdict));
}

// A barrier of all threads that no compiler may give to each branch before it.
__device__ COLD void meet() { meet_in_cta(); }

// Reads and judges by all threads, up to the row that is returned: the first that does not pass.
template <typename Places>
__device__ inline int follow(
    const Params& p, Shared& shared, const Places& places, const Course& course,
    Verdict& verdict) {
    meet_in_cta();
    if (thread_id() < KEPT_ROWS) shared.verdicts[thread_id()] = PASSES;
    meet_in_cta();
#pragma unroll 1
    for (int row = course.known ? course.first : course.first - 1; row < course.end; ++row) {
        const bool known = course.known && row == course.first;
        if (warp_id() >= DrawTeam::WARPS) {
            if (row + 1 < course.end && !known) read_row(p, shared, places, row + 1);
        } else if (row >= course.first) {
            judge_row(p, shared, places, row, known);
        }
        meet();
        if (row < course.first) continue;
        verdict = static_cast<Verdict>(*verdict_on(shared, row));
        if (verdict != PASSES) return row;
    }
    return course.end;
}

// What statistics leave open of a row. By all threads.
template <typename Places>
__device__ COLD void settle(Shared& shared, Scratch& scratch, Places places, int row) {
    const int place = place_of(row, false);
    settle_alone(shared, scratch, places, place, place + 2);
    meet_in_cta();
    close_row(shared, row);
    meet_in_cta();
}

// Up to the first row that does not pass. By all threads.
template <typename Places>
__device__ inline int judge_all(
    const Params& p, Shared& shared, Scratch* scratch, const Places& places, Verdict& verdict) {
    const int num_rows = shared.request.num_rows;
    if (warp_id() == 0) gather_evidence(p, shared);
    verdict = PASSES;
    Course course = {0, num_rows, false};
#pragma unroll 1
    while (course.first < num_rows) {
        // All warps are needed again behind every row that a lossy policy may forgive.
        if (LOSSY_IN_Q) course.end = course.first + 1;
        const int row = follow(p, shared, places, course, verdict);
        course = {row, num_rows, false};
        if (FILTERED && verdict == OPEN) {
            settle(shared, *scratch, places, row);
            course.known = true;
            continue;
        }
        if (LOSSY_IN_Q && !shared.request.strict && verdict == PASSES &&
            row <= shared.request.num_drafts) {
            if (!forgives_draft(p, shared, scratch, row - 1, places.target_stats(row - 1)))
                verdict = FAILS;
            if (verdict == FAILS) --course.first;
            meet_in_cta();
        }
        if (verdict != PASSES) break;
    }
    if (asks_for_laws(shared, course.first, verdict)) {
        const int drafts = shared.request.num_drafts;
        const int row = course.first < drafts ? course.first : drafts;
        if (!may_be_foregone(shared, row, verdict) ||
            !is_foregone(shared, *scratch, row, places.target_stats(row), nullptr))
            settle(shared, *scratch, places, row);
    }
    return course.first;
}
