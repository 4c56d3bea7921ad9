// The common part of launches that read rows for filters: the CTA that completes a row gets its laws, at
// once or, if the search continues in the next launch, later.
#pragma once
#include "pieces.cuh"
#include "thresholds.cuh"

struct TellingLaw {
    bool behind;
    KeptStats kept;
    Finding finding;
};

// In the place of counts, which are not needed once a row's laws are known.
__device__ inline Ending& ending_in_counts() {
    static_assert(sizeof(Ending) <= NUM_COUNTS * sizeof(u32));
    return *reinterpret_cast<Ending*>(asked_shared_memory());
}

__device__ inline Filters filters_of(const Params& p, const Request& request, bool is_draft) {
    return is_draft ? filters_of(p.draft, request.entry, p.draft_vocab_size)
                    : filters_of(p.target, request.entry, p.vocab_size);
}

// Of a row's side.
__device__ inline i64 side_of(const Params& p, const Request& request, const Work& work) {
    return 2 * place_of(p, request, work.row) + work.is_draft;
}

__device__ inline void copy_search(Search& to, const Search& from) {
    constexpr int words = sizeof(Search) / sizeof(u32);
    if (thread_id() < words)
        reinterpret_cast<u32*>(&to)[thread_id()] = __ldcg(reinterpret_cast<const u32*>(&from) + thread_id());
}

// Continues a search, unless the next launch does. Returns whether this CTA completes the row, and so knows both
// laws. By a CTA that has all counts of its side of the row.
__device__ inline bool ends_search(
    TellingLaw& shared, RowFacts& facts, const Params& p, const Request& request, const Work& work,
    const Filters& filters) {
    const i64 place = place_of(p, request, work.row);
    Search& search = shared.finding.search;
    const bool shared_out = work.num_pieces > 1 && p.num_looks > 0;
    if (!shared.behind && shared_out && search.mode != FOUND && search.looks < p.num_looks) {
        if (thread_id() == 0) p.searches[side_of(p, request, work)] = search;
        return false;
    }
    if (!shared.behind) {
        if (search.mode != FOUND)
            with_row(p, request, work, [&](const Row& row) {
                const Mass* stats = shared.kept.keep(stats_of(p, request, work), row.num_blocks());
                search_alone(shared.finding, row, stats, filters);
            });
        RowFacts& told = p.facts[place];
        if (thread_id() == 0) (work.is_draft ? told.draft : told.target) = search.law;
    }
    if (shared_out && thread_id() == 0) p.searches[side_of(p, request, work)].mode = FOUND;
    if (!is_last_arrival(p.arrivals + place, request.has_draft_row(work.row) ? 2 : 1)) return false;
    const u32* told = reinterpret_cast<const u32*>(p.facts + place);
    if (thread_id() < static_cast<int>(2 * sizeof(Law) / sizeof(u32)))
        reinterpret_cast<u32*>(&facts)[thread_id()] = __ldcg(told + thread_id());
    return true;
}
