// The first launch, and mostly the only one: a CTA a piece of a row, first rows of all requests first.
// Whoever completes a row judges it, and whoever judges a request's last row ends the request.
#include "outputs.cuh"
#include "thresholds.cuh"

// What a CTA works on.
struct Work {
    int row;
    bool is_draft;
    Piece piece;
    int num_pieces;  // of its row
};

struct Completion {
    bool behind;  // a row that follows the end of its draft; all threads must find it so
    Best best;
    RowFacts facts;
    KeptStats target;
    KeptStats draft;
    Finding finding;
    Ending ending;
};

__device__ inline int pieces_of(const Params& p, i64 vocab_size) {
    return (num_blocks_of(vocab_size) + static_cast<int>(p.piece_blocks) - 1) /
           static_cast<int>(p.piece_blocks);
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

__device__ inline Filters filters_of(const Params& p, const Request& request, bool is_draft) {
    return is_draft ? filters_of(p.draft, request.index, p.draft_vocab_size)
                    : filters_of(p.target, request.index, p.vocab_size);
}

__device__ inline void read_work(
    const Params& p, const Request& request, const Work& work, bool counting) {
    const float temperature = work.is_draft ? request.draft_temperature : request.temperature;
    const Reading reading = {logit_scale(temperature), temperature == 0.0f, counting};
    if (work.is_draft) {
        read_piece(draft_row(p, request, work.row), work.piece, reading,
                   draft_stats_of(p, request, work.row));
        return;
    }
    const TargetRow target(p, request, work.row);
    read_piece(target.row, work.piece, reading, target_stats_of(p, request, work.row));
}

// To be read behind a barrier.
__device__ inline void look_for_end(
    Completion& shared, const Params& p, const Request& request, int row) {
    if (thread_id() == 0) shared.behind = is_behind_end(p, request, row);
}

// Both laws of a row without filters, found side by side.
__device__ inline void find_plain_laws(
    Completion& shared, const Params& p, const Request& request, int row) {
    const bool dense = request.has_draft_row(row), of_draft = warp_id() == 1;
    const Mass* target =
        shared.target.keep(target_stats_of(p, request, row), num_blocks_of(p.vocab_size));
    const Mass* draft = target;
    if (dense)
        draft = shared.draft.keep(draft_stats_of(p, request, row), num_blocks_of(p.draft_vocab_size));
    __syncthreads();
    if (warp_id() > 1 || (of_draft && !dense)) return;
    const float scale = logit_scale(of_draft ? request.draft_temperature : request.temperature);
    const int num_blocks = num_blocks_of(of_draft ? p.draft_vocab_size : p.vocab_size);
    const Mass mass = row_mass(of_draft ? draft : target, num_blocks, scale);
    if (lane_id() > 0) return;
    if (of_draft) shared.facts.draft = plain_law(mass, scale, false);
    else shared.facts.target = plain_law(mass, scale, request.greedy);
}

// One of a row's two laws, told to whoever completes the row.
__device__ COLD void tell_law(
    Completion& shared, const Params& p, const Request& request, const Work& work,
    const Filters& filters) {
    const TargetRow target(p, request, work.row);
    const Row row = work.is_draft ? draft_row(p, request, work.row) : target.row;
    const Mass* stats = work.is_draft ? draft_stats_of(p, request, work.row)
                                      : target_stats_of(p, request, work.row);
    stats = shared.target.keep(stats, row.num_blocks());
    look_for_end(shared, p, request, work.row);
    __syncthreads();
    if (shared.behind) return;
    const Law law = find_law(shared.finding, row, stats, filters);
    RowFacts& told = p.facts[place_of(p, request, work.row)];
    if (thread_id() == 0) (work.is_draft ? told.draft : told.target) = law;
}

// Whether this CTA is the last that reads a row; then it has all counts of the row.
__device__ inline bool gathers_counts(
    const Params& p, const Request& request, const Work& work, bool counting) {
    if (work.num_pieces == 1) return true;
    const i64 place = 2 * place_of(p, request, work.row) + work.is_draft;
    u32* sums = p.counts + place * NUM_COUNTS;
    if (counting) add_counts_to(sums);
    if (!is_last_arrival(p.counted + place, work.num_pieces)) return false;
    if (counting) take_counts_from(sums);
    return true;
}

// Whether this CTA is the one that completes the row; then laws are in shared memory, behind a barrier.
__device__ inline bool completes_row(
    Completion& shared, const Params& p, const Request& request, const Work& work,
    const Filters& filters) {
    u32* arrivals = p.arrivals + place_of(p, request, work.row);
    const bool dense = request.has_draft_row(work.row);
    if (!p.filtered) {
        const int expected = pieces_of(p, p.vocab_size) + (dense ? pieces_of(p, p.draft_vocab_size) : 0);
        if (!is_last_arrival(arrivals, expected)) return false;
        find_plain_laws(shared, p, request, work.row);
        return true;
    }
    if (!gathers_counts(p, request, work, filters.any())) return false;
    tell_law(shared, p, request, work, filters);
    if (!is_last_arrival(arrivals, dense ? 2 : 1)) return false;
    const u32* told = reinterpret_cast<const u32*>(p.facts + place_of(p, request, work.row));
    if (thread_id() < static_cast<int>(2 * sizeof(Law) / sizeof(u32)))
        reinterpret_cast<u32*>(&shared.facts)[thread_id()] = __ldcg(told + thread_id());
    return true;
}

__device__ COLD void complete(
    Completion& shared, const Params& p, const Request& request, const Work& work,
    const Filters& filters) {
    if (!completes_row(shared, p, request, work, filters)) return;
    look_for_end(shared, p, request, work.row);
    if (thread_id() == 2 * LANES) gather_evidence(p, request, work.row, shared.facts);
    __syncthreads();
    if (!shared.behind)
        judge_row(shared.best, p, request, work.row, target_stats_of(p, request, work.row), shared.facts);
    if (!p.ends_early || !is_last_arrival(p.judged + request.index, request.num_rows)) return;
    end_request(shared.ending, p, request);
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS, 1024 / CTA_THREADS)
    statistics(const __grid_constant__ Params p) {
    __shared__ Completion completion;
    let_next_launch_begin();
    const int pieces = static_cast<int>(p.num_pieces);
    const int part = static_cast<int>(blockIdx.x) % pieces, index = static_cast<int>(blockIdx.x) / pieces;
    // Not behind the request, which it would wait for.
    const u32 published = load_relaxed(p.ends + index);
    const Work work = find_work(p, part);
    const Request request = read_request(p, index);
    if (request.num_rows == 0 && p.ends_early && blockIdx.y == 0 && part == 0)
        end_request(completion.ending, p, request);
    if (work.row >= request.num_rows || (work.is_draft && !request.has_draft_row(work.row))) return;
    if (part >= work.num_pieces) return;
    Filters filters = {};
    if (p.filtered) filters = filters_of(p, request, work.is_draft);
    if (filters.any()) {
        clear_counts();
        __syncthreads();
    }
    if (static_cast<u32>(MAX_ROWS - work.row) >= published)
        read_work(p, request, work, filters.any());
    __syncthreads();
    complete(completion, p, request, work, filters);
}
