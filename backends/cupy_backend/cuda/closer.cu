// The launches after `thresholds` if counts may leave a threshold open: all CTAs of a row look at it
// again at once.
#include "telling.cuh"

// Whether this CTA is the last one to look at a row; it then has the results of all.
__device__ inline bool gathers_looks(
    const Params& p, const Request& request, const Work& work, const Search& search, bool looked) {
    const i64 side = side_of(p, request, work);
    u32* sums = p.counts + side * ROW_WORDS;
    u64* masses = reinterpret_cast<u64*>(sums + SUMS);
    if (looked) {
        if (search.mode == LISTS) append_list_to(sums);
        else add_counts_to(sums, NUM_DIGITS);
        if (thread_id() < 2 && mass_sums()[thread_id()])
            atomicAdd(masses + thread_id(), mass_sums()[thread_id()]);
    }
    if (!is_last_arrival(p.counted + side, work.num_pieces)) return false;
    take_counts_from(sums);
    __syncthreads();
    return true;
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS, 1024 / CTA_THREADS)
    closer(const __grid_constant__ Params p) {
    __shared__ Judgement judgement;
    __shared__ TellingLaw telling;
    bool looked = false;
    let_next_launch_begin();
    wait_for_launch_before();
    work_on_piece(
        judgement, ending_in_counts(), p, false,
        [&](const Request& request, const Work& work, bool reads) {
            if (work.num_pieces == 1) return;
            copy_search(telling.finding.search, p.searches[side_of(p, request, work)]);
            // Threads may see an end published at different times, but must agree: one thread decides.
            if (thread_id() == 0) telling.behind = !reads;
            __syncthreads();
            const Search& search = telling.finding.search;
            looked = !telling.behind && search.mode != FOUND;
            if (!looked) return;
            const bool totals = asks_for_totals(search, filters_of(p, request, work.is_draft));
            with_row(p, request, work, [&](const Row& row) {
                look_closer(search, row, stats_of(p, request, work), work.piece, totals);
            });
        },
        [&](const Request& request, const Work& work) -> const Mass* {
            Search& search = telling.finding.search;
            if (work.num_pieces == 1 || search.mode == FOUND) return nullptr;
            if (!gathers_looks(p, request, work, search, looked)) return nullptr;
            const Filters filters = filters_of(p, request, work.is_draft);
            if (thread_id() == 0) telling.behind = is_behind_end(p, request, work.row);
            __syncthreads();
            if (!telling.behind)
                with_row(p, request, work, [&](const Row& row) {
                    narrow(telling.finding, idle_bits_of(row), filters);
                });
            const bool ends = ends_search(telling, judgement.facts, p, request, work, filters);
            return ends ? target_stats_of(p, request, work.row) : nullptr;
        });
}
