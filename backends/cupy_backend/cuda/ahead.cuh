// Reading goes on while rows are judged: the first team of a CTA judges one row after the other, all other
// warps read the next ones, at most two ahead of what is judged, until they are told to stop.
#pragma once
#include "lossy.cuh"
#include "settle.cuh"
#include "stream.cuh"

constexpr int READERS = CTA_WARPS - DrawTeam::WARPS;  // warps
constexpr int KEPT_ROWS = 2;  // whose statistics are there at once
// Named barriers, one for every row that is kept.
constexpr int ROW_READ = 10;
constexpr int ROW_JUDGED = ROW_READ + KEPT_ROWS;
constexpr int NOT_JUDGED = 0x7ffffff0;

// What is read and judged in one go: rows from `first` on up to `end`, whose first may have a law.
struct Course {
    int first;
    int end;
    bool known;
};

__device__ inline int row_barrier(int id, int row) { return id + row % KEPT_ROWS; }

// By a whole warp.
__device__ inline int judged_row(Shared& shared) {
    int row = 0;
    if (lane_id() == 0) row = atomicCAS(&shared.judged, NOT_JUDGED, NOT_JUDGED);
    return __shfl_sync(ALL_LANES, row, 0);
}

// Statistics of a target row and the draft row beside it, by the readers.
template <typename Places>
__device__ inline void read_row(const Params& p, Shared& shared, const Places& places, int row) {
    const Request& request = shared.request;
    const Stretch stretch = stretch_of_row(p, request, row);
    const u32 inverse = inverse_of(length_of_pair(p, request));
    const Rows rows = Rows::of(p, request, places, inverse, KEPT_ROWS - 1);
    Flow<READERS, false> flow = {};
    flow.open(p, rows, stretch, shared.cursors);
    flow.fetch_all();
    flow.drain(p, shared.cursors, [&] { return judged_row(shared) != NOT_JUDGED; });
    if (!rows.whole()) read_piecewise<READERS>(p, request, rows, stretch);
}

// Judging ends at some row: whoever was told to read the next one comes to its barrier all the same.
template <typename Places>
__device__ inline void read_rows(
    const Params& p, Shared& shared, const Places& places, const Course& course) {
#pragma unroll 1
    for (int row = course.first + course.known; row < course.end; ++row) {
        if (row >= course.first + KEPT_ROWS)
            named_barrier(row_barrier(ROW_JUDGED, row), CTA_THREADS);
        const int judged = judged_row(shared);
        if (row > judged + 1) return;
        if (judged == NOT_JUDGED) read_row(p, shared, places, row);
        __syncwarp();
        named_arrive(row_barrier(ROW_READ, row), CTA_THREADS);
    }
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

// Of a row whose laws are known. By the first team, the same in all its threads.
template <typename Places>
__device__ inline Verdict judge_row(
    const Params& p, Shared& shared, const Places& places, int row) {
    if (SAMPLES_EVERY_ROW || shared.request.strict) {
        if (shared.target_laws[row].is_usable())
            target_token(shared, row, places.target_stats(row));
        my_team<DrawTeam>().sync();
    }
    return verdict_of(p, shared, row);
}

// By the first team: up to the first row that does not pass, or is open.
template <typename Places>
__device__ inline void judge_rows(
    const Params& p, Shared& shared, const Places& places, const Course& course) {
    const DrawTeam team = my_team<DrawTeam>();
    Verdict verdict = PASSES;
    int row = course.first;
#pragma unroll 1
    for (; row < course.end && verdict == PASSES; ++row) {
        if (row > course.first || !course.known) {
            named_barrier(row_barrier(ROW_READ, row), CTA_THREADS);
            find_laws(p, shared, places, row);
            team.sync();
        }
        const bool open = FILTERED && (is_open(shared, place_of(row, false)) ||
                                       (DENSE && is_open(shared, place_of(row, true))));
        verdict = open ? OPEN : judge_row(p, shared, places, row);
        if (verdict != PASSES && team.thread() == 0) atomicExch(&shared.judged, row);
        __syncwarp();
        if (row + KEPT_ROWS < course.end)
            named_arrive(row_barrier(ROW_JUDGED, row), CTA_THREADS);
        if (verdict != PASSES && row + 1 < course.end)
            named_barrier(row_barrier(ROW_READ, row + 1), CTA_THREADS);
    }
    if (team.thread() > 0) return;
    if (verdict == PASSES) shared.judged = row;
    shared.verdict = verdict;
}

// Reads and judges by all threads; tells the row that judging ended at.
template <typename Places>
__device__ inline int follow(
    const Params& p, Shared& shared, const Places& places, const Course& course) {
    __syncthreads();
    if (thread_id() == 0) shared.judged = NOT_JUDGED;
    __syncthreads();
    if (warp_id() < DrawTeam::WARPS)
        judge_rows(p, shared, places, course);
    else
        read_rows(p, shared, places, course);
    __syncthreads();
    return shared.judged;
}

// What statistics leave open of a row. By all threads.
template <typename Places>
__device__ COLD void settle(Shared& shared, Scratch& scratch, Places places, int row) {
    settle_alone(shared, scratch, places);
    const int place = place_of(row, false);
    __syncthreads();
    if (thread_id() == 0) shared.open[place / LANES] &= ~(3u << place % LANES);
    __syncthreads();
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
        const int row = follow(p, shared, places, course);
        verdict = static_cast<Verdict>(shared.verdict);
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
            __syncthreads();
        }
        if (verdict != PASSES) break;
    }
    return course.first;
}
