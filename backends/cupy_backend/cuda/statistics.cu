// The first launch: a CTA a piece of a row, first rows of all requests first. Without filters whoever
// completes a row judges it.
#include "accept.cuh"

// The row's law without filters. By one warp.
__device__ inline Law law_of_row(const Mass* stats, i64 vocab_size, float temperature) {
    const float scale = logit_scale(temperature);
    return plain_law(row_mass(stats, num_blocks_of(vocab_size), scale), scale, temperature == 0.0f);
}

struct Completion {
    Best best;
    RowFacts facts;
    KeptStats target;
    KeptStats draft;
};

__device__ COLD void complete_row(
    Completion& shared, const Params& p, const Request& request, int row) {
    const bool dense = request.has_draft_row(row);
    const Mass* target =
        shared.target.keep(target_stats_of(p, request, row), num_blocks_of(p.vocab_size));
    const Mass* draft = nullptr;
    if (dense)
        draft = shared.draft.keep(draft_stats_of(p, request, row), num_blocks_of(p.draft_vocab_size));
    if (thread_id() == 2 * LANES) gather_evidence(p, request, row, shared.facts);
    __syncthreads();
    if (warp_id() == 0) {
        const Law law = law_of_row(target, p.vocab_size, request.temperature);
        if (lane_id() == 0) shared.facts.target = law;
    }
    if (warp_id() == 1 && dense) {
        const Law law = law_of_row(draft, p.draft_vocab_size, request.draft_temperature);
        if (lane_id() == 0) shared.facts.draft = law;
    }
    __syncthreads();
    judge_row(shared.best, p, request, row, target, shared.facts);
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS, 8)
    statistics(const __grid_constant__ Params p) {
    __shared__ Completion completion;
    let_next_launch_begin();
    const int pieces = static_cast<int>(p.num_pieces), size = static_cast<int>(p.piece_blocks);
    const int part = static_cast<int>(blockIdx.x) % pieces, index = static_cast<int>(blockIdx.x) / pieces;
    const int row = static_cast<int>(blockIdx.y) / (p.dense ? 2 : 1);
    const bool is_draft = p.dense && blockIdx.y % 2;
    // Not behind the request, which it would wait for.
    const u32 published = load_relaxed(p.ends + index);
    const Request request = read_request(p, index);
    if (row >= request.num_rows || (is_draft && !request.has_draft_row(row))) return;
    const int target_blocks = num_blocks_of(p.vocab_size), draft_blocks = num_blocks_of(p.draft_vocab_size);
    const int num_blocks = is_draft ? draft_blocks : target_blocks;
    Piece piece = {part * size, (part + 1) * size};
    if (piece.begin >= num_blocks) return;
    if (piece.end > num_blocks) piece.end = num_blocks;
    if (static_cast<u32>(MAX_ROWS - row) >= published) {
        if (is_draft) {
            read_piece(draft_row(p, request, row), piece, logit_scale(request.draft_temperature), false,
                       draft_stats_of(p, request, row));
        } else {
            const TargetRow target(p, request, row);
            read_piece(target.row, piece, logit_scale(request.temperature), request.greedy,
                       target_stats_of(p, request, row));
        }
    }
    if (p.filtered) return;
    int expected = (target_blocks + size - 1) / size;
    if (request.has_draft_row(row)) expected += (draft_blocks + size - 1) / size;
    if (!is_last_arrival(p.arrivals + place_of(p, request, row), expected)) return;
    if (!is_behind_end(p, request, row)) complete_row(completion, p, request, row);
}
