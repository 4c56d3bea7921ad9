// The common part of launches that read rows: one CTA per piece of a row, in the order of rows, so that
// first rows of all requests come first. The CTA that completes a row judges it. If every row then has its
// sample, the CTA that judges a request's last row ends the request.
#pragma once
#include "outputs.cuh"
#include "reading.cuh"

// The work of a CTA.
struct Work {
    int row;
    bool is_draft;
    Piece piece;
    int num_pieces;  // of its row
};

struct Judgement {
    bool behind;  // a row that follows the end of its draft; all threads must find it so
    RowFacts facts;
};

__device__ inline int pieces_of(const Params& p, i64 vocab_size) {
    const u32 size = static_cast<u32>(p.piece_blocks), num_blocks = num_blocks_of(vocab_size);
    return static_cast<int>((num_blocks + size - 1) / size);
}

__device__ inline Work find_work(const Params& p, int part) {
    Work work = {};
    work.row = static_cast<int>(blockIdx.y) / (p.dense ? 2 : 1);
    work.is_draft = p.dense && blockIdx.y % 2;
    const i64 vocab_size = work.is_draft ? p.draft_vocab_size : p.vocab_size;
    const int size = static_cast<int>(p.piece_blocks), num_blocks = num_blocks_of(vocab_size);
    work.num_pieces = pieces_of(p, vocab_size);
    work.piece = {part * size, (part + 1) * size < num_blocks ? (part + 1) * size : num_blocks};
    return work;
}

__device__ inline Mass* stats_of(const Params& p, const Request& request, const Work& work) {
    return work.is_draft ? draft_stats_of(p, request, work.row) : target_stats_of(p, request, work.row);
}

// Calls visit(row) with the row of the work.
template <typename Visit>
__device__ inline void with_row(const Params& p, const Request& request, const Work& work, Visit visit) {
    const TargetRow target(p, request, work.row);
    visit(work.is_draft ? draft_row(p, request, work.row) : target.row);
}

__device__ inline void read_work(
    const Params& p, const Request& request, const Work& work, const Counting& counting, float* moments,
    bool reads) {
    const float temperature = (work.is_draft ? request.draft_filters : request.filters).temperature;
    const Reading reading = {
        logit_scale(temperature), temperature == 0.0f, counting, stats_of(p, request, work), nullptr, moments};
    with_row(p, request, work, [&](const Row& row) { read_all(row, work.piece, reading, reads); });
}

// Judges a row once its laws are in shared memory, after a barrier; returns whether to end the request now.
// By a CTA; while some warps still find laws, others do the rest.
__device__ inline bool judge_work(
    Judgement& shared, Best& best, const Params& p, const Request& request, int row, const Mass* stats) {
    if (thread_id() == 2 * LANES) gather_evidence(p, request, row, shared.facts);
    if (thread_id() == 3 * LANES) shared.behind = is_behind_end(p, request, row);
    __syncthreads();
    if (!shared.behind) judge_row(best, p, request, row, stats, shared.facts);
    return p.ends_early && is_last_arrival(p.judged + request.index, request.num_rows);
}

// Calls visit(request, work, reads) if there is work; `reads` says that the row follows no published end. Then
// calls end(request), if visit says so or, where a request has no rows, if this launch `ends_empty` ones.
template <typename Visit, typename End>
__device__ inline void visit_work(const Params& p, bool ends_empty, Visit visit, End end) {
    const u32 pieces = static_cast<u32>(p.num_pieces);
    const int part = static_cast<int>(blockIdx.x % pieces), index = static_cast<int>(blockIdx.x / pieces);
    // Loaded before the request, which it would wait for.
    const u32 published = load_relaxed(p.ends + index);
    const Work work = find_work(p, part);
    const Request request = read_request(p, index);
    if (request.num_rows > 0) {
        if (work.row >= request.num_rows || part >= work.num_pieces) return;
        if (work.is_draft && !request.has_draft_row(work.row)) return;
        if (!visit(request, work, static_cast<u32>(MAX_ROWS - work.row) >= published)) return;
    } else {
        wait_for_launch_before();
        if (!ends_empty || blockIdx.y > 0 || part > 0) return;
    }
    end(request);
}

// `first`: no launch before has read rows. read(request, work, reads) as above; complete(request, work) has the
// statistics of a target row that it completes, else null. `ending` is first needed then.
template <typename Read, typename Complete>
__device__ inline void work_on_piece(
    Judgement& shared, Ending& ending, const Params& p, bool first, Read read, Complete complete) {
    visit_work(
        p, first && p.ends_early,
        [&](const Request& request, const Work& work, bool reads) {
            read(request, work, reads);
            __syncthreads();
            const Mass* stats = complete(request, work);
            return stats && judge_work(shared, ending.best, p, request, work.row, stats);
        },
        [&](const Request& request) { end_request<false>(ending, p, request); });
}
