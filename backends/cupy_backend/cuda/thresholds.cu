// The launch that reads rows where some request has a filter, in the place of `statistics`: rows are
// counted on the way, and whoever completes one finds its law.
#include "pieces.cuh"
#include "thresholds.cuh"

struct TellingLaw {
    bool behind;
    KeptStats kept;
    Finding finding;
};

__device__ inline Filters filters_of(const Params& p, const Request& request, bool is_draft) {
    return is_draft ? filters_of(p.draft, request.index, p.draft_vocab_size)
                    : filters_of(p.target, request.index, p.vocab_size);
}

// One of a row's two laws, told to whoever completes the row.
__device__ inline void tell_law(
    TellingLaw& shared, const Params& p, const Request& request, const Work& work,
    const Filters& filters) {
    const TargetRow target(p, request, work.row);
    const Row row = work.is_draft ? draft_row(p, request, work.row) : target.row;
    const Mass* stats = work.is_draft ? draft_stats_of(p, request, work.row)
                                      : target_stats_of(p, request, work.row);
    stats = shared.kept.keep(stats, row.num_blocks());
    if (thread_id() == 0) shared.behind = is_behind_end(p, request, work.row);
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

// Tells a law; whether this CTA is the one that completes the row, which then knows both.
__device__ inline bool completes_row(
    TellingLaw& shared, RowFacts& facts, const Params& p, const Request& request, const Work& work) {
    const Filters filters = filters_of(p, request, work.is_draft);
    if (!gathers_counts(p, request, work, filters.any())) return false;
    tell_law(shared, p, request, work, filters);
    const i64 place = place_of(p, request, work.row);
    if (!is_last_arrival(p.arrivals + place, request.has_draft_row(work.row) ? 2 : 1)) return false;
    const u32* told = reinterpret_cast<const u32*>(p.facts + place);
    if (thread_id() < static_cast<int>(2 * sizeof(Law) / sizeof(u32)))
        reinterpret_cast<u32*>(&facts)[thread_id()] = __ldcg(told + thread_id());
    return true;
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS, 1024 / CTA_THREADS)
    thresholds(const __grid_constant__ Params p) {
    __shared__ Judgement judgement;
    __shared__ TellingLaw telling;
    __shared__ float largest;
    let_next_launch_begin();
    work_on_piece(
        judgement, p,
        [&](const Request& request, const Work& work, bool reads) {
            const Filters filters = filters_of(p, request, work.is_draft);
            Counting counting = {};
            if (filters.any()) {
                counting = {&largest, filters.reach(work.is_draft ? p.draft_vocab_size : p.vocab_size)};
                clear_counts();
                if (thread_id() == 0) largest = -INFINITY;
                __syncthreads();
            }
            if (reads) read_work(p, request, work, counting);
        },
        [&](const Request& request, const Work& work) {
            return completes_row(telling, judgement.facts, p, request, work);
        });
}
