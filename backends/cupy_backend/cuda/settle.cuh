// Laws of a request's filtered rows: a warp a row, and whole CTAs for those that statistics leave open.
#pragma once
#include "judge.cuh"
#include "recipe.cuh"

// The bit of a row in `open`.
__device__ inline int place_of(int row, bool draft) { return 2 * row + draft; }

__device__ inline bool is_open(const Shared& shared, int place) {
    return shared.open[place / LANES] >> place % LANES & 1;
}

__device__ inline bool is_any_open(const Shared& shared) {
    u32 any = 0;
    for (int i = 0; i < 2 * MAX_ROWS / LANES; ++i) any |= shared.open[i];
    return any != 0;
}

// By the first threads, between barriers.
__device__ inline void close_all(Shared& shared) {
    if (thread_id() < 2 * MAX_ROWS / LANES) shared.open[thread_id()] = 0;
}

__device__ inline Law& law_of(Shared& shared, int row, bool draft) {
    return DENSE && draft ? shared.draft_laws[row] : shared.target_laws[row];
}

__device__ inline Filters filters_of(const Shared& shared, bool draft) {
    const Params& p = shared.params;
    return draft ? filters_of(p.draft, shared.request.index, p.draft_vocab_size)
                 : filters_of(p.target, shared.request.index, p.vocab_size);
}

// Notes what statistics tell of a row. By a warp.
__device__ inline void note_law(Shared& shared, const Mass* stats, int row, bool draft) {
    const Params& p = shared.params;
    const int num_blocks = num_blocks_of(draft ? p.draft_vocab_size : p.vocab_size);
    const FoundLaw found = find_row_law(stats, num_blocks, filters_of(shared, draft));
    if (lane_id() > 0) return;
    law_of(shared, row, draft) = found.law;
    if (!draft) shared.is_lone[row] = found.is_lone;
    const int place = place_of(row, draft);
    if (found.is_open) atomicOr(&shared.open[place / LANES], 1u << place % LANES);
}

// Shows a row to a whole CTA.
__device__ inline void put_at_hand(
    Shared& shared, Scratch& scratch, const Mass* stats, int row, bool draft) {
    __syncthreads();
    if (thread_id() == 0) {
        const Params& p = shared.params;
        const float max = law_of(shared, row, draft).max;
        if (draft)
            set_row(scratch, draft_row(p, shared.request, row), stats, filters_of(shared, true), max);
        else
            set_row(scratch, AdjustedRow(p, shared.request, row).row, stats,
                    filters_of(shared, false), max);
    }
    __syncthreads();
}

// Whether the row's token may be drawn from its own law.
__device__ inline bool may_be_drawn_from(const Shared& shared, int row) {
    return !HAS_RESIDUAL || shared.request.strict || row == shared.request.num_drafts;
}

// Settles a row that is open, and what the law keeps of its blocks if a token may be drawn from it. By
// a CTA that shares the row with none.
__device__ COLD void settle_row(
    Shared& shared, Scratch& scratch, Mass* stats, int row, bool draft) {
    put_at_hand(shared, scratch, stats, row, draft);
    const Law law = DENSE && draft ? settle_alone<DraftLogit>(scratch)
                                   : settle_alone<TargetLogit>(scratch);
    if (thread_id() == 0) law_of(shared, row, draft) = law;
    if (!draft && may_be_drawn_from(shared, row))
        keep_masses(whole_cta(), scratch.at_hand.target, stats, law);
    __syncthreads();
}
