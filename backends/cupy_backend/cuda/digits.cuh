// Counts of a row's logits by digits of their keys, in the shared memory of a cluster. Masses are
// integers, 2^40 being the largest logit's weight, so that no order of additions can matter.
#pragma once
#include "cluster.cuh"

constexpr float FIXED_ONE = 1099511627776.0f;  // 2^40
constexpr int PART_BITS = 24;                  // of a weight relative to its bin's largest
constexpr int IDLE_BITS = 16;                  // of the first digits, for most logits are bfloat16
constexpr bool ALL_IDLE = ONLY_TYPE == BF16 && !ADJUSTED;  // every logit has so many low bits unused

__device__ inline u64 fixed_weight(const Law& law, float logit) {
    return static_cast<u64>(exp2_fast(log2_weight(logit, law.max, law.scale)) * FIXED_ONE);
}

__device__ inline float from_fixed(u64 mass) {
    return static_cast<float>(static_cast<double>(mass) / FIXED_ONE);
}

__device__ inline u64 to_fixed(float mass) { return static_cast<u64>(mass * FIXED_ONE); }

// A bin's words are NUM_BINS apart. While logits are counted: how many are counted alone, the mass of
// the others, and its carries with how many these are.
constexpr int CARRY_BITS = 12;

// Hands on a lane's logits one after the other, by little code: kernels run most of theirs once, and
// it comes from memory.
template <typename Visit>
__device__ inline void one_by_one(const float (&logits)[PER_LANE], Visit visit) {
    float moved[PER_LANE];
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) moved[j] = logits[j];
#pragma unroll 1
    for (int turn = 0; turn < PER_LANE; ++turn) {
        visit(moved[0]);
#pragma unroll
        for (int j = 1; j < PER_LANE; ++j) moved[j - 1] = moved[j];
    }
}

// Hands on (block, logits) of the blocks whose largest logit is in [floor, ...]. By a CTA.
template <typename Visit>
__device__ inline void visit_blocks(
    const Piece& piece, const Mass* stats, float floor, Visit visit) {
    for (int block = piece.begin + warp_id(); block < piece.end; block += CTA_WARPS) {
        const float largest = load_max(stats + block);
        if (!(largest >= floor && largest > -INFINITY)) continue;
        float logits[PER_LANE];
        load_block(piece.row, block, logits);
        visit(block, logits);
    }
}

// Whether a logit is counted, for its bin holds no other that is: else its mass is added up.
__device__ inline bool is_counted(float logit, float counted_from) {
    if (!(fabsf(logit) >= counted_from)) return false;
    return ALL_IDLE || __float_as_uint(logit) << 16 == 0;
}

// Adds a logit that shares its bin with others.
__device__ inline void add_to_bin(const Command& c, float logit, u32* words) {
    const u32 bin = c.bins.bin_of(logit);
    u32 other = c.by_number ? 1u << CARRY_BITS : 0;
    if (c.by_mass) {
        const float part =
            exp2_fast(__fmul_rn(__fsub_rn(logit, c.bins.top_of(bin)), c.law.scale));
        const u32 mass = static_cast<u32>(__fmul_rn(part, 1 << PART_BITS));
        if (atomicAdd(words + NUM_BINS + bin, mass) + mass < mass) ++other;
    }
    if (other) atomicAdd(words + 2 * NUM_BINS + bin, other);
}

// Counts the logits of this CTA's piece.
__device__ COLD void fill_bins(Piece piece, const Mass* stats, Command c) {
    u32* words = bin_words();
    for (int i = thread_id(); i < 3 * NUM_BINS; i += CTA_THREADS) words[i] = 0;
    __syncthreads();
    u32* in_vain = &cta_head().in_vain;
    visit_blocks(piece, stats, c.bins.low, [&](int, const float(&logits)[PER_LANE]) {
        bool rest = false;
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j) {
            const bool here = logits[j] >= c.bins.low && logits[j] <= c.bins.high;
            const bool counts = is_counted(logits[j], c.bins.single_from);
            // Without a branch; hardware adds up the ones that a warp adds at one place.
            atomicAdd(here && counts ? words + c.bins.bin_of(logits[j]) : in_vain, 1u);
            rest |= here && !counts;
        }
        if (!__any_sync(ALL_LANES, rest)) return;
        one_by_one(logits, [&](float logit) {
            const bool here = logit >= c.bins.low && logit <= c.bins.high;
            if (here && !is_counted(logit, c.bins.single_from)) add_to_bin(c, logit, words);
        });
    });
}

// What a bin holds of the whole row.
struct Tally {
    u32 number;
    bool mixed;  // logits may differ
    u64 mass;
};

constexpr u32 MIXED_BIT = 0x80000000u;

// Adds up what all CTAs have counted in this one's share of the bins.
__device__ COLD void merge_bins(Team team, Command c) {
    const int each = NUM_BINS / team.size;
    u32* words = bin_words();
    for (int bin = team.rank * each + thread_id(); bin < (team.rank + 1) * each; bin += CTA_THREADS) {
        u32 count = 0, others = 0;
        u64 mass = 0;
        u32 counts[MAX_TEAM], masses[MAX_TEAM], carries[MAX_TEAM];
#pragma unroll
        for (int rank = 0; rank < MAX_TEAM; ++rank) {
            counts[rank] = masses[rank] = carries[rank] = 0;
            if (rank >= team.size) continue;
            const u32* from = in_peer(words, rank) + bin;
            counts[rank] = from[0];
            masses[rank] = from[NUM_BINS];
            carries[rank] = from[2 * NUM_BINS];
        }
#pragma unroll
        for (int rank = 0; rank < MAX_TEAM; ++rank) {
            count += counts[rank];
            mass += masses[rank] + (static_cast<u64>(carries[rank] % (1u << CARRY_BITS)) << 32);
            others += carries[rank] >> CARRY_BITS;
        }
        const bool mixed = (mass > 0 || others > 0) && c.bins.shift > 0;
        u64 whole = count ? count * fixed_weight(c.law, c.bins.logit_of(bin)) : 0;
        if (mass) {
            const double top = static_cast<double>(fixed_weight(c.law, c.bins.top_of(bin)));
            whole += static_cast<u64>(static_cast<double>(mass) * top / (1 << PART_BITS));
        }
        words[bin] = count + others + (mixed ? MIXED_BIT : 0);
        words[NUM_BINS + bin] = static_cast<u32>(whole);
        words[2 * NUM_BINS + bin] = static_cast<u32>(whole >> 32);
    }
}

__device__ inline Tally tally_of(const Team& team, u32 bin) {
    const u32* from = in_peer(bin_words(), static_cast<int>(bin) / (NUM_BINS / team.size)) + bin;
    const u64 mass = static_cast<u64>(from[2 * NUM_BINS]) << 32 | from[NUM_BINS];
    return {from[0] & ~MIXED_BIT, (from[0] & MIXED_BIT) != 0, mass};
}

// What every CTA of a cluster does when it is commanded to count.
__device__ inline void count_together(const Team& team, const Piece& piece, const Mass* stats) {
    const Command c = cta_head().command;
    fill_bins(piece, stats, c);
    cluster_sync();
    merge_bins(team, c);
    cluster_sync();
}

// Does what the leader commands until there is nothing more. By the CTAs that do not lead.
__device__ inline void follow(const Team& team, const Piece& piece, const Mass* stats) {
    for (;;) {
        cluster_sync();
        if (cta_head().command.task == END) return;
        count_together(team, piece, stats);
    }
}

__device__ inline void end_cluster(const Team& team) {
    Command c = {};
    c.task = END;
    command(team, c);
}

// A row in the hands of a cluster, for its leader.
struct Search {
    Team team;
    Piece piece;
    const Mass* stats;  // of the whole row
    Law law;            // without filters
};

__device__ inline void count(const Search& search, const Bins& bins, bool by_number, bool by_mass) {
    command(search.team, Command{COUNT, by_number, by_mass, search.law, bins});
    count_together(search.team, search.piece, search.stats);
}

// What a leader's threads share while it looks for thresholds.
struct Scratch {
    u32 bin;
    bool mixed;
    u64 total;
    u64 above;
    u64 found;
};

// The lowest bin, among those from `floor` on, that holds something and has less than wanted(total)
// above it, `before` included. By a CTA; the answer is in `scratch`.
template <typename Wanted>
__device__ inline void find_bin(
    Scratch& scratch, const Team& team, const Bins& bins, bool by_number, float floor, u64 before,
    Wanted wanted) {
    constexpr int each = NUM_BINS / CTA_THREADS;
    const u32 lowest = bins.bin_of(fmaxf(floor, bins.low));
    const u32 top = NUM_BINS - 1 - thread_id() * each;
    Tally tallies[each];
    u64 amounts[each], mine = 0;
#pragma unroll
    for (int i = 0; i < each; ++i) tallies[i] = tally_of(team, top - i);
#pragma unroll
    for (int i = 0; i < each; ++i) {
        amounts[i] = by_number ? tallies[i].number : tallies[i].mass;
        if (top - i < lowest) amounts[i] = 0;
        mine += amounts[i];
    }
    u64 above = before + cta_sum_before(mine);
    if (thread_id() == 0) scratch.bin = NUM_BINS;
    if (thread_id() == CTA_THREADS - 1) scratch.total = above + mine;
    __syncthreads();
    const u64 limit = wanted(scratch.total);
    u32 found = NUM_BINS;
    u64 above_found = 0, in_found = 0;
    bool mixed = false;
#pragma unroll
    for (int i = 0; i < each; ++i) {
        if (amounts[i] > 0 && above < limit) {
            found = top - i;
            above_found = above;
            in_found = amounts[i];
            mixed = tallies[i].mixed;
        }
        above += amounts[i];
    }
    if (found < NUM_BINS) atomicMin(&scratch.bin, found);
    __syncthreads();
    if (found < NUM_BINS && found == scratch.bin) {
        scratch.above = above_found;
        scratch.found = in_found;
        scratch.mixed = mixed;
    }
    __syncthreads();
}

// The first key in [from, to] whose logit is in a bin from `bin` on; that of `to` is. By a warp.
__device__ inline u32 first_key_of(const Bins& bins, u32 bin, u32 from, u32 to) {
    while (from < to) {
        const u32 step = (to - from) / LANES + 1;
        const u64 mine = from + static_cast<u64>(lane_id()) * step;
        const u32 key = mine < to ? static_cast<u32>(mine) : to;
        const u32 reached = __ballot_sync(ALL_LANES, bins.bin_of(key_float(key)) >= bin);
        const int lane = reached ? __ffs(static_cast<int>(reached)) - 1 : LANES;
        const u64 before = from + static_cast<u64>(lane ? lane - 1 : 0) * step + (lane ? 1 : 0);
        if (lane < LANES) {
            const u64 end = from + static_cast<u64>(lane) * step;
            to = end < to ? static_cast<u32>(end) : to;
        }
        from = before < to ? static_cast<u32>(before) : to;
    }
    return from;
}

// Finer bins of one bin's logits. By a warp.
__device__ inline Bins refined(const Bins& bins, u32 bin) {
    const u32 low = float_key(bins.low), high = float_key(bins.high);
    const u32 from = first_key_of(bins, bin, low, high);
    u32 to = high;
    if (bin < bins.bin_of(bins.high)) to = first_key_of(bins, bin + 1, from, high) - 1;
    return Bins::of(key_float(from), key_float(to), ALL_IDLE ? IDLE_BITS : 0);
}
