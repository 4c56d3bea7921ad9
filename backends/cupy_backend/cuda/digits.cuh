// A closer look at rows whose counts leave a threshold open: counts by digits of keys between two
// logits, in shared memory. Masses are integers, 2^40 being the largest logit's weight, so that no
// order of additions can matter.
#pragma once
#include "filters.cuh"

constexpr int BIN_BITS = 10;
constexpr int NUM_BINS = 1 << BIN_BITS;
constexpr int COPIES = 2;  // of each counter and mass, so that fewer lanes meet at one
constexpr int PART_BITS = 24;                  // of a weight relative to its bin's largest

// Bins of logits in [low, high], in their order: bits of the key of logit * 2^(-126 - exponent). With
// exponent -126 these are digits of the logit's own key. Any other makes logits below 2^exponent
// denormal, so that bins there are equally wide, and a row around 0 needs few.
struct Bins {
    float low;
    float high;
    float factor;       // 2^(-126 - exponent)
    float up;           // 2^exponent, or 1 where the factor is
    float single_from;  // bins of logits that are so large hold equal ones: 0 for all, infinity for none
    int exponent;
    int shift;
    u32 first;

    __device__ u32 bin_of(float logit) const {
        const float scaled = __fmaf_rn(logit, factor, 0.0f);  // -0 is 0
        return (float_key(scaled) >> shift) - first;
    }
    // What a key of scaled logits stands for.
    __device__ float logit_at(u32 key) const {
        return __fmul_rn(__fmul_rn(key_float(key), exponent == -126 ? 1.0f : 8.507059173e37f), up);
    }
    // The largest logit of a bin, or more.
    __device__ float top_of(u32 bin) const {
        const u64 end = static_cast<u64>(first + bin + 1) << shift;
        return fminf(logit_at(static_cast<u32>(end - 1)), high);
    }
    // The logit of a bin that is counted there.
    __device__ float logit_of(u32 bin) const {
        const u32 digits = first + bin;
        return logit_at(digits >> (31 - shift) ? digits << shift : (digits + 1) * (1u << shift) - 1);
    }
    __device__ bool fit(int new_exponent, int new_shift, int idle) {
        exponent = new_exponent;
        shift = new_shift;
        factor = exponent > 0 ? __uint_as_float(1u << (23 - exponent))
                              : __uint_as_float(static_cast<u32>(1 - exponent) << 23);
        if (exponent == -126) factor = 1.0f;
        up = exponent == -126 ? 1.0f : ldexpf(1.0f, exponent);
        single_from = shift > idle ? INFINITY : exponent == -126 ? 0.0f : up;
        first = 0;
        first = bin_of(low);
        return bin_of(high) < NUM_BINS;
    }

    // The finest that fit, but no finer than logits whose `idle` low bits are 0.
    __device__ static Bins of(float low, float high, int idle) {
        Bins bins = {};
        bins.low = low;
        bins.high = high;
        const u32 span = float_key(high) - float_key(low);
        int shift = 32 - __clz(static_cast<int>(span | 1)) - (BIN_BITS + 1);
        if (shift < idle) shift = idle;
        while (!bins.fit(-126, shift, idle)) ++shift;
        if (shift <= 16) return bins;
        int exponent = static_cast<int>(float_key(fmaxf(fabsf(low), fabsf(high))) >> 23 & 255) - 127;
        for (int fine = exponent - 31; fine <= exponent; ++fine)
            if (fine >= -100 && fine <= 22 && bins.fit(fine, 16, idle)) return bins;
        bins.fit(-126, shift, idle);
        return bins;
    }
};

// What a CTA shares while it looks for thresholds.
constexpr int MAX_LISTED = 256;
struct Scratch {
    float logits[MAX_LISTED];
    u64 weights[MAX_LISTED];
    u32 num_listed;
    u32 least_key;
    u32 largest_key;
    u32 bin;
    u64 total;
    u64 above;
    u64 found;
};

// A row that is looked through.
struct Subject {
    const Row& row;
    const Mass* stats;
    Law law;  // without filters
};

constexpr int MASSES = NUM_BINS * COPIES;           // behind counters, before carries of masses
constexpr int CARRIES = 2 * MASSES;
constexpr int IN_VAIN = CARRIES + NUM_BINS;         // what is not to be counted
constexpr int COUNTER_WORDS = IN_VAIN + COPIES;
static_assert(COUNTER_WORDS <= NUM_COUNTS, "counters take the place of counts");

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

// Hands on (block, logits) of the blocks whose largest logit is in [floor, ...]. By a CTA, two blocks of
// a warp at a time, so that one is on its way while the other is looked at.
template <typename Visit>
__device__ inline void visit_blocks(
    const Row& row, const Mass* stats, float floor, Visit visit) {
    const int num_blocks = row.num_blocks();
    for (int first = warp_id(); first < num_blocks; first += CTA_THREADS) {
        const int mine = first + lane_id() * CTA_WARPS;
        const float largest = mine < num_blocks ? load_max(stats + mine) : -INFINITY;
        u32 wanted = __ballot_sync(ALL_LANES, largest >= floor && largest > -INFINITY);
        while (wanted) {
            float near[PER_LANE], far[PER_LANE] = {};
            const int block = first + (__ffs(static_cast<int>(wanted)) - 1) * CTA_WARPS;
            wanted &= wanted - 1;
            const bool two = wanted != 0;
            const int other = first + (__ffs(static_cast<int>(wanted)) - 1) * CTA_WARPS;
            load_block(row, block, near);
            if (two) load_block(row, other, far);
            wanted &= wanted - 1;
#pragma unroll 1
            for (int turn = 0; turn <= two; ++turn) {
                visit(turn ? other : block, near);
#pragma unroll
                for (int j = 0; j < PER_LANE; ++j) near[j] = far[j];
            }
        }
    }
}

// Adds the weight of a logit, relative to its bin's largest.
__device__ inline void add_mass(const Bins& bins, float scale, float logit, u32* masses) {
    const u32 bin = bins.bin_of(logit);
    const float part = exp2_fast(__fmul_rn(__fsub_rn(logit, bins.top_of(bin)), scale));
    const u32 mass = static_cast<u32>(__fmul_rn(part, 1 << PART_BITS));
    if (atomicAdd(masses + bin * COPIES, mass) + mass < mass)
        atomicAdd(asked_shared_memory() + CARRIES + bin, 1u);
}

// Whether a logit is counted, for its bin holds no other that is: else its mass is added up.
__device__ inline bool is_counted(float logit, float counted_from, bool by_number) {
    if (!(fabsf(logit) >= counted_from)) return false;
    return (ONLY_TYPE == BF16 && !ADJUSTED) || by_number || __float_as_uint(logit) << 16 == 0;
}

// Counts the row's logits in bins, by number or, where a bin is not of equal logits, by mass.
__device__ COLD void fill_bins(Row row, const Mass* stats, float scale, Bins bins, bool by_number) {
    u32* counters = asked_shared_memory();
    for (int i = thread_id(); i < COUNTER_WORDS; i += CTA_THREADS) counters[i] = 0;
    __syncthreads();
    const float counted_from = by_number ? 0.0f : bins.single_from;
    u32* mine = counters + lane_id() % COPIES;
    visit_blocks(row, stats, bins.low, [&](int, const float(&logits)[PER_LANE]) {
        bool rest = false;
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j) {
            const bool here = logits[j] >= bins.low && logits[j] <= bins.high;
            const bool counts = is_counted(logits[j], counted_from, by_number);
            // Without a branch; hardware adds up the ones that a warp adds at one place.
            atomicAdd(mine + (here && counts ? bins.bin_of(logits[j]) * COPIES : IN_VAIN), 1u);
            rest |= here && !counts;
        }
        if (!__any_sync(ALL_LANES, rest)) return;
        one_by_one(logits, [&](float logit) {
            const bool here = logit >= bins.low && logit <= bins.high;
            if (here && !is_counted(logit, counted_from, by_number))
                add_mass(bins, scale, logit, mine + MASSES);
        });
    });
    __syncthreads();
}

__device__ inline u64 counted_in(u32 bin) {
    const u32* counters = asked_shared_memory() + bin * COPIES;
    return static_cast<u64>(counters[0]) + counters[1];
}

__device__ inline u64 mass_in(u32 bin) {
    const u32* masses = asked_shared_memory() + MASSES + bin * COPIES;
    return (static_cast<u64>(asked_shared_memory()[CARRIES + bin]) << 32) + masses[0] + masses[1];
}

// Whether all logits in a bin are equal.
__device__ inline bool is_single(const Bins& bins, u32 bin, bool by_number) {
    if (bins.shift == 0) return true;
    if (!by_number) return mass_in(bin) == 0;
    return ONLY_TYPE == BF16 && !ADJUSTED && fabsf(bins.logit_of(bin)) >= bins.single_from;
}

// What a bin holds, logits or their mass.
__device__ inline u64 amount_in(const Subject& subject, const Bins& bins, u32 bin, bool by_number) {
    const u64 count = counted_in(bin), mass = mass_in(bin);
    if (by_number || count + mass == 0) return count;
    const u64 counted = count ? count * fixed_weight(subject.law, bins.logit_of(bin)) : 0;
    if (mass == 0) return counted;
    const double top = static_cast<double>(fixed_weight(subject.law, bins.top_of(bin)));
    return counted + static_cast<u64>(static_cast<double>(mass) * top / (1 << PART_BITS));
}

// The lowest bin, among those from `floor` on, that holds something and has less than wanted(total)
// above it, `before` included. By a CTA; the answer is in `scratch`.
template <typename Wanted>
__device__ inline void find_bin(
    Scratch& scratch, const Subject& subject, const Bins& bins, bool by_number, float floor,
    u64 before, Wanted wanted) {
    constexpr int each = NUM_BINS / CTA_THREADS;
    const u32 lowest = bins.bin_of(fmaxf(floor, bins.low));
    const u32 top = NUM_BINS - 1 - thread_id() * each;
    u64 amounts[each], mine = 0;
#pragma unroll
    for (int i = 0; i < each; ++i) {
        amounts[i] = top - i >= lowest ? amount_in(subject, bins, top - i, by_number) : 0;
        mine += amounts[i];
    }
    u64 above = before + cta_sum_before(mine);
    if (thread_id() == 0) scratch.bin = NUM_BINS;
    if (thread_id() == CTA_THREADS - 1) scratch.total = above + mine;
    __syncthreads();
    const u64 limit = wanted(scratch.total);
    u32 found = NUM_BINS;
    u64 above_found = 0, in_found = 0;
#pragma unroll
    for (int i = 0; i < each; ++i) {
        if (amounts[i] > 0 && above < limit) {
            found = top - i;
            above_found = above;
            in_found = amounts[i];
        }
        above += amounts[i];
    }
    if (found < NUM_BINS) atomicMin(&scratch.bin, found);
    __syncthreads();
    if (found == scratch.bin) {
        scratch.above = above_found;
        scratch.found = in_found;
    }
    __syncthreads();
}
