// Laws of a request's filtered rows: a warp a row, and whole CTAs for those that statistics leave open.
#pragma once
#include "judge.cuh"
#include "recipe.cuh"

// The first from a place on, NO_PLACE if there is none.
__device__ inline int next_open(const Shared& shared, int place) {
    u32 mask = ~0u << place % LANES;
#pragma unroll 1
    for (int word = place / LANES; word < NO_PLACE / LANES; ++word, mask = ~0u) {
        const u32 bits = shared.open[word] & mask;
        if (bits) return word * LANES + __ffs(static_cast<int>(bits)) - 1;
    }
    return NO_PLACE;
}

// By the first threads, between barriers.
__device__ inline void close_all(Shared& shared) {
    if (thread_id() < NO_PLACE / LANES) shared.open[thread_id()] = 0;
    if (thread_id() == 0) shared.asked.alone = false;
}

// By two threads, before a barrier.
__device__ inline void gather_filters(const Params& p, Shared& shared, i64 index) {
    const int draft = lane_id();
    if (draft <= DENSE)
        shared.filters[draft] = draft ? filters_of(p.draft, index, p.draft_vocab_size)
                                      : filters_of(p.target, index, p.vocab_size);
}

// Whether it is asked for what the row's law keeps of its blocks.
__device__ inline bool needs_masses(const Shared& shared, int row) {
    return !JUDGES_OPEN_ROWS &&
           (!HAS_RESIDUAL || shared.request.strict || row == shared.request.num_drafts);
}

// By a thread.
__device__ inline void enter_law(Shared& shared, const FoundLaw& found, int row, bool draft) {
    const int place = place_of(row, draft);
    law_of(shared, row, draft) = found.law;
    if (!draft) shared.is_lone[row] = found.is_lone;
    if (!found.is_open) return;
    shared.sums[place] = found.sum;
    shared.bounds[place] = found.bound;
    if (JUDGES_OPEN_ROWS) {
        shared.spreads[place] = found.spread;
        shared.lowest[place] = found.lowest;
    }
    atomicOr(&shared.open[place / LANES], 1u << place % LANES);
}

// The draft token judged by a row. Adjusted logits may differ by rounding from what statistics are of, and rows
// with ids of their own have other blocks.
__device__ inline KnownToken token_judged_by(const Shared& shared, int row, bool draft) {
    const Request& request = shared.request;
    if (!JUDGES_OPEN_ROWS || ADJUSTED || request.strict || row >= request.num_drafts) return {};
    if (!draft) return {shared.drafts[row], shared.target_logits[row]};
    if (shared.params.draft_map || !request.dense) return {};
    return {shared.drafts[row], shared.draft_logits[row]};
}

// Notes what statistics tell of a row, whose draft token's logits have been gathered. By a warp.
__device__ inline void note_law(Shared& shared, const Mass* stats, int row, bool draft) {
    const Params& p = shared.params;
    const int num_blocks = num_blocks_of(draft ? p.draft_vocab_size : p.vocab_size);
    // Of rows before a synthetic end only flaws are asked for.
    const FoundLaw found = POLICY == SYNTHETIC && row < shared.request.num_drafts
        ? find_large_row(stats, num_blocks, Filters{})
        : find_row_law(stats, num_blocks, shared.filters[draft], token_judged_by(shared, row, draft));
    if (lane_id() == 0) enter_law(shared, found, row, draft);
}

template <typename Places>
__device__ inline Mass* stats_of(const Places& places, int place) {
    return DENSE && place % 2 ? places.draft_stats(place / 2) : places.target_stats(place / 2);
}

// Makes a row ready to be looked through, with a bound if none is known. By a warp.
__device__ COLD void show_row(Shared& shared, OpenRow& open, Mass* stats, int place) {
    const Params& p = shared.params;
    const int row = place / 2;
    const bool draft = place % 2;
    if (lane_id() == 0) {
        const float max = law_of(shared, row, draft).max, sum = shared.sums[place];
        if (draft)
            set_row(open, draft_row(p, shared.request, row), stats, shared.filters[1], max, sum);
        else
            set_row(open, AdjustedRow(p, shared.request, row).row, stats, shared.filters[0], max, sum);
        open.place = place;
        open.known.bound = shared.bounds[place];
        open.counted = !SAME_LOGITS && draft ? is_countable<DraftLogit>(open.known)
                                             : is_countable<TargetLogit>(open.known);
    }
    __syncwarp();
    if (shared.bounds[place] > -INFINITY) return;
    if (!SAME_LOGITS && draft)
        bound_row<DraftLogit>(open);
    else
        bound_row<TargetLogit>(open);
}

// Makes the first open rows from a place on up to `end` ready, a warp a row; how many they are, and where
// the next ones begin, is noted. False if there are none. By a whole CTA.
template <typename Places>
__device__ inline bool show_rows(
    Shared& shared, Scratch& scratch, const Places& places, int place, int end) {
    clear_counts(scratch, ROWS_AT_ONCE);
    int num_rows = 0;
#pragma unroll 1
    while (place < end && num_rows < ROWS_AT_ONCE) {
        const int open = next_open(shared, place);
        place = open + 1;
        if (open >= end) break;
        if (warp_id() == num_rows)
            show_row(shared, scratch.rows[num_rows], stats_of(places, open), open);
        ++num_rows;
    }
    if (thread_id() == 0) {
        scratch.num_rows = num_rows;
        scratch.next_place = place;
    }
    meet_in_cta();
    return num_rows > 0;
}

__device__ inline void store_laws(Shared& shared, const Scratch& scratch) {
    const int i = static_cast<int>(thread_id());
    if (i >= scratch.num_rows) return;
    const OpenRow& open = scratch.rows[i];
    law_of(shared, open.place / 2, open.place % 2) = open.known.law;
}

// Of the row at hand, whose laws are known. Between barriers of a CTA.
__device__ inline void close_row(Shared& shared, const Scratch& scratch) {
    if (thread_id() > 0) return;
    const int place = place_of(scratch.rows[0].place / 2, false);
    shared.open[place / LANES] &= ~(3u << place % LANES);
}

// What rows' laws keep of their blocks, where that is asked for.
__device__ inline void keep_rows(const Shared& shared, Scratch& scratch) {
    u32 rows = 0;
#pragma unroll
    for (int i = 0; i < ROWS_AT_ONCE; ++i) {
        const int place = scratch.rows[i].place;
        if (i < scratch.num_rows && place % 2 == 0 && needs_masses(shared, place / 2)) rows |= 1u << i;
    }
#pragma unroll 1
    for (; rows; rows &= rows - 1)
        keep_masses(scratch, __ffs(static_cast<int>(rows)) - 1, whole_cta());
}

// Settles a row, whose CTA shares it with none.
template <typename Places>
__device__ COLD void settle_alone(Shared& shared, Scratch& scratch, const Places& places, int row) {
    const int place = place_of(row, false);
    if (!show_rows(shared, scratch, places, place, place + 2)) return;
    count_rows(scratch, {0, 1});
    filter_rows(scratch);
    store_laws(shared, scratch);
    if (!JUDGES_OPEN_ROWS) keep_rows(shared, scratch);
    close_row(shared, scratch);
    meet_in_cta();
}
