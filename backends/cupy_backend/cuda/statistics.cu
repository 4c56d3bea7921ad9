// The launch that reads rows if no request has a filter; mostly the only launch.
#include "leniency.cuh"
#include "pieces.cuh"

struct KeptRows {
    KeptStats target;
    KeptStats draft;
};

// Both laws of a row without filters, found side by side; the target's statistics.
__device__ inline const Mass* find_plain_laws(
    KeptRows& kept, Judgement& shared, const Params& p, const Request& request, int row) {
    const bool dense = request.has_draft_row(row), of_draft = warp_id() == 1;
    const Mass* target =
        kept.target.keep(target_stats_of(p, request, row), num_blocks_of(p.vocab_size));
    const Mass* draft = target;
    if (dense)
        draft = kept.draft.keep(draft_stats_of(p, request, row), num_blocks_of(p.draft_vocab_size));
    __syncthreads();
    if (warp_id() > 1 || (of_draft && !dense)) return target;
    const Filters& filters = of_draft ? request.draft_filters : request.filters;
    const float scale = logit_scale(filters.temperature);
    const int num_blocks = num_blocks_of(of_draft ? p.draft_vocab_size : p.vocab_size);
    const Mass mass = row_mass(of_draft ? draft : target, num_blocks, scale);
    const Law law = plain_law(mass, scale, request.greedy && !of_draft);
    if (lane_id() == 0) (of_draft ? shared.facts.draft : shared.facts.target) = law;
    if (of_draft || !p.tells_entropies || row >= request.num_drafts || !law.is_usable()) return target;
    const float entropy = row_entropy(target, residuals_of(p, request, row), num_blocks, law);
    const float least = least_likely(typical_least_p(p, entropy), law);
    if (lane_id() == 0) shared.facts.least_logit = least;
    return target;
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS, READING_THREADS / CTA_THREADS)
    statistics(const __grid_constant__ Params p) {
    __shared__ Judgement judgement;
    __shared__ Ending ending;
    __shared__ KeptRows kept;
    let_next_launch_begin();
    work_on_piece(
        judgement, ending, p, true,
        [&](const Request& request, const Work& work, bool reads) {
            // With masks or changes too many loads are in flight already: masks would cost 10 % more.
            const bool asked = MOST_CHANGE == NO_CHANGE && p.tells_entropies && !work.is_draft &&
                               work.row < request.num_drafts;
            float* moments = asked ? residuals_of(p, request, work.row) : nullptr;
            read_work(p, request, work, Counting{}, moments, reads);
        },
        [&](const Request& request, const Work& work) -> const Mass* {
            const int expected = pieces_of(p, p.vocab_size) +
                (request.has_draft_row(work.row) ? pieces_of(p, p.draft_vocab_size) : 0);
            if (!is_last_arrival(p.arrivals + place_of(p, request, work.row), expected)) return nullptr;
            return find_plain_laws(kept, judgement, p, request, work.row);
        });
}
