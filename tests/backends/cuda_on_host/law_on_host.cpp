// The law of filtered rows as a function of the host.
#include "host_builtins.h"
#include "recipe.cuh"

using LogitRow = Row<TargetLogit>;

__device__ void find_statistics(const LogitRow& row, float scale, Mass* stats) {
    for (int block = warp_id(); block < row.num_blocks(); block += CTA_WARPS) {
        float logits[PER_LANE];
        load_block(row, block, logits);
        const Mass mass = block_mass(logits, scale);
        if (lane_id() == 0) stats[block] = mass;
    }
    __syncthreads();
}

// As several CTAs, each of which counts a share, find it. False if the row cannot be counted.
__device__ bool settle_by_shares(Scratch& scratch, int num_shares, u32* counts, Law& law) {
    OpenRow& open = scratch.rows[0];
    if (warp_id() == 0) bound_row<TargetLogit>(open);
    __syncthreads();
    if (!open.counted) return false;
    if (thread_id() == 0) {
        open.shared = true;
        scratch.num_rows = 1;
    }
    for (int share = 0; share < num_shares; ++share) {
        clear_counts(scratch, 1);
        __syncthreads();
        count_rows(scratch, {share, num_shares});
        for (int i = thread_id(); i < MAX_COUNTED; i += CTA_THREADS)
            counts[i] += scratch.counts[0][i];
        __syncthreads();
    }
    for (int i = thread_id(); i < MAX_COUNTED; i += CTA_THREADS) scratch.counts[0][i] = counts[i];
    __syncthreads();
    filter_rows(scratch);
    law = open.known.law;
    return true;
}

// stats: [num_blocks], of what is kept in the end; law: max, threshold, scale, log2_sum, spread, lowest. With
// shares, or -1 for statistics alone, the law alone is found, and statistics stay; statistics are joined by the
// logit of a token unless that is -1. Returns whether the row was open, settled by shares, and lone.
extern "C" int find_law(
    const void* data, i64 size, Filters filters, int num_shares, int token, Mass* stats, float* law) {
    static Scratch scratch;
    static u32 counts[MAX_COUNTED];
    std::memset(counts, 0, sizeof counts);
    const LogitRow row = {static_cast<const TargetLogit*>(data), size, size, nullptr, nullptr};
    if (filters.top_k >= size) filters.top_k = 0;
    int result = 0;
    host::launch(1, CTA_THREADS, [&] {
        find_statistics(row, logit_scale(filters.temperature), stats);
        FoundLaw found = {};
        bool shared = false;
        if (num_shares == 0) {
            found = row_law(scratch, row, stats, filters);
            __syncthreads();
            for (int block = thread_id(); block < row.num_blocks(); block += CTA_THREADS)
                if (found.law.is_usable())
                    stats[block] = kept_of(stats[block], found.law, found.is_lone);
        } else if (num_shares < 0) {
            KnownToken known;
            if (token >= 0) known = {token, to_float(row.data[token])};
            found = find_row_law(stats, row.num_blocks(), filters, known);
        } else {
            found = find_row_law(stats, row.num_blocks(), filters);
            __syncthreads();
            if (thread_id() == 0)
                set_row(scratch.rows[0], row, stats, filters, found.law.max, found.sum);
            __syncthreads();
            if (found.is_open) shared = settle_by_shares(scratch, num_shares, counts, found.law);
        }
        if (thread_id() != 37) return;
        std::memcpy(law, &found.law, sizeof found.law);
        law[4] = num_shares < 0 ? found.spread : 0.0f;
        law[5] = num_shares < 0 ? found.lowest : 0.0f;
        result = found.is_open + 2 * shared + 4 * found.is_lone;
    });
    return result;
}
