// Laws of a request's filtered rows: a warp a row, and whole CTAs for those that statistics leave open.
#pragma once
#include "judge.cuh"
#include "recipe.cuh"

// The bit of a row in `open`.
__device__ inline int place_of(int row, bool draft) { return 2 * row + draft; }

__device__ inline bool is_open(const Shared& shared, int place) {
    return shared.open[place / LANES] >> place % LANES & 1;
}

// The first from a place on, NO_PLACE if there is none.
constexpr int NO_PLACE = 2 * MAX_ROWS;

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
}

__device__ inline Law& law_of(Shared& shared, int row, bool draft) {
    return DENSE && draft ? shared.draft_laws[row] : shared.target_laws[row];
}

// By two threads, before a barrier.
__device__ inline void gather_filters(const Params& p, Shared& shared, i64 index) {
    const int draft = lane_id();
    if (draft <= DENSE)
        shared.filters[draft] = draft ? filters_of(p.draft, index, p.draft_vocab_size)
                                      : filters_of(p.target, index, p.vocab_size);
}

// Whether the row's token may be drawn from its own law.
__device__ inline bool may_be_drawn_from(const Shared& shared, int row) {
    return !HAS_RESIDUAL || shared.request.strict || row == shared.request.num_drafts;
}

// By a warp.
__device__ COLD void note_open(Shared& shared, const Mass* stats, int row, bool draft) {
    __syncwarp();
    Law law = law_of(shared, row, draft);
    __syncwarp();
    if (draft || !may_be_drawn_from(shared, row)) {
        const Params& p = shared.params;
        const Filters filters = shared.filters[draft];
        bool settled = false;
        if (SAME_LOGITS || !draft) {
            Row<TargetLogit> either = target_row(p, shared.request, row);
            if (draft) {
                const Row<DraftLogit> beside = draft_row(p, shared.request, row);
                either.data = reinterpret_cast<const TargetLogit*>(beside.data);
                either.num_elements = beside.num_elements;
                either.vocab_size = beside.vocab_size;
            }
            settled = (draft || !ADJUSTED) && look_behind(either, stats, filters, law);
        } else {
            settled = look_behind(draft_row(p, shared.request, row), stats, filters, law);
        }
        if (lane_id() == 0 && settled) law_of(shared, row, draft) = law;
        if (settled) return;
    }
    const int place = place_of(row, draft);
    if (lane_id() == 0) atomicOr(&shared.open[place / LANES], 1u << place % LANES);
}

// Notes what statistics tell of a row, and at most one of its blocks. By a warp.
__device__ inline void note_law(Shared& shared, const Mass* stats, int row, bool draft) {
    const Params& p = shared.params;
    const int num_blocks = num_blocks_of(draft ? p.draft_vocab_size : p.vocab_size);
    const FoundLaw found = find_row_law(stats, num_blocks, shared.filters[draft]);
    if (lane_id() == 0) {
        law_of(shared, row, draft) = found.law;
        if (!draft) shared.is_lone[row] = found.is_lone;
    }
    if (found.is_open) note_open(shared, stats, row, draft);
}

template <typename Places>
__device__ inline Mass* stats_of(const Places& places, int place) {
    return DENSE && place % 2 ? places.draft_stats(place / 2) : places.target_stats(place / 2);
}

// Makes a row ready to be looked through. By a warp.
__device__ COLD void show_row(Shared& shared, OpenRow& open, const Mass* stats, int place) {
    const Params& p = shared.params;
    const int row = place / 2;
    const bool draft = place % 2;
    if (lane_id() == 0) {
        const float max = law_of(shared, row, draft).max;
        if (draft)
            set_row(open, draft_row(p, shared.request, row), stats, shared.filters[1], max);
        else
            set_row(open, AdjustedRow(p, shared.request, row).row, stats, shared.filters[0], max);
        open.place = place;
    }
    __syncwarp();
    if (!SAME_LOGITS && draft)
        bound_row<DraftLogit>(open);
    else
        bound_row<TargetLogit>(open);
}

// Makes the first open rows from a place on ready, a warp a row; how many they are, and where the next
// ones begin. By a whole CTA.
template <typename Places>
__device__ inline int show_rows(
    Shared& shared, Scratch& scratch, const Places& places, int& place) {
    clear_counts(scratch, ROWS_AT_ONCE);
    int num_rows = 0;
#pragma unroll 1
    for (int open = next_open(shared, place); open < NO_PLACE && num_rows < ROWS_AT_ONCE;
         open = next_open(shared, place)) {
        if (warp_id() == num_rows)
            show_row(shared, scratch.rows[num_rows], stats_of(places, open), open);
        ++num_rows;
        place = open + 1;
        if (place == NO_PLACE) break;
    }
    __syncthreads();
    return num_rows;
}

__device__ inline void store_laws(Shared& shared, const Scratch& scratch, int num_rows) {
    const int i = static_cast<int>(thread_id());
    if (i >= num_rows) return;
    const OpenRow& open = scratch.rows[i];
    law_of(shared, open.place / 2, open.place % 2) = open.known.law;
}

// Settles open rows, and what their laws keep of their blocks if a token may be drawn from them. By a
// CTA that shares them with none.
template <typename Places>
__device__ COLD void settle_alone(Shared& shared, Scratch& scratch, Places places) {
#pragma unroll 1
    for (int place = 0; place < NO_PLACE;) {
        const int num_rows = show_rows(shared, scratch, places, place);
        if (num_rows == 0) return;
        count_rows(scratch, num_rows, {0, 1});
        filter_rows(scratch, num_rows);
        store_laws(shared, scratch, num_rows);
#pragma unroll 1
        for (int i = 0; i < num_rows; ++i) {
            OpenRow& open = scratch.rows[i];
            const int row = open.place / 2;
            if (open.place % 2 == 0 && may_be_drawn_from(shared, row))
                keep_masses(open.target, places.target_stats(row), open.known.law, whole_cta());
        }
        __syncthreads();
    }
}
