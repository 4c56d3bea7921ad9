// A closer look at rows whose counts leave a threshold open: logits between two bounds are counted by digits
// of their keys, and logits above are weighed. Masses are integers, in units of 2^-40 of the largest logit's
// weight, so the order of additions does not matter.
#pragma once
#include "statistics.cuh"

constexpr int NUM_DIGITS = NUM_COUNTS - 8;
constexpr int IN_VAIN = NUM_DIGITS;  // the counter for logits that must not count
constexpr int SUMS = NUM_COUNTS - 4;  // the place of two sums of masses

// The masses above the searched range, and from the floor on.
__device__ inline u64* mass_sums() { return reinterpret_cast<u64*>(asked_shared_memory() + SUMS); }

// How many low bits are equal in all keys: 16-bit logits have fewer digits.
__device__ inline int idle_bits_of(const Row& row) {
    if (row.is_changed()) return 0;
    return row.type == BF16 ? 16 : row.type == FP16 ? 13 : 0;
}

// Ranks of logits in [low, high] by leading digits of their keys, in falling order.
struct Digits {
    u32 low;  // keys
    u32 high;
    int shift;
    bool single;  // all logits of a rank are equal

    __device__ static Digits of(float low, float high, int idle_bits) {
        Digits digits = {key_of(low), key_of(high), 0, false};
        while ((digits.high >> digits.shift) - (digits.low >> digits.shift) >= NUM_DIGITS) ++digits.shift;
        digits.single = digits.shift <= idle_bits;
        return digits;
    }
    __device__ int rank_of(float logit) const {
        return static_cast<int>((high >> shift) - (key_of(logit) >> shift));
    }
    __device__ u32 count(int rank) const { return rank < NUM_DIGITS ? asked_shared_memory()[rank] : 0; }
    // The least and the largest logit of a rank.
    __device__ float bottom(int rank) const {
        const u32 key = ((high >> shift) - rank) << shift;
        return key_float(key > low ? key : low);
    }
    __device__ float top(int rank) const {
        const u32 key = (((high >> shift) - rank) << shift) + ((1u << shift) - 1);
        return key_float(key < high ? key : high);
    }
    // The one logit of a rank. Idle bits are ones where a key is of a negative number.
    __device__ float logit_of(int rank) const {
        return (high >> shift) - rank >= 0x80000000u >> shift ? bottom(rank) : top(rank);
    }
};

// The same for the ranks by which all logits were counted.
struct Halves {
    float max;
    __device__ u32 count(int rank) const { return rank < NUM_RANKS ? count_at(rank) : 0; }
    __device__ float bottom(int rank) const { return bottom_of(rank); }
    __device__ float top(int rank) const { return fminf(top_of(rank), max); }
};

// A warp's blocks of a piece whose largest logit is in [floor, ...]. The same in all lanes.
struct WantedBlocks {
    const Mass* stats;
    float floor;
    int end;
    int first;  // the first block that `wanted` has a bit for
    u32 wanted;

    __device__ WantedBlocks(const Mass* stats, const Piece& piece, float floor)
        : stats(stats), floor(floor), end(piece.end), first(piece.begin + warp_id()), wanted(look()) {}
    __device__ u32 look() const {
        const int mine = first + lane_id() * CTA_WARPS;
        return __ballot_sync(ALL_LANES, mine < end && load_max(stats + mine) >= floor);
    }
    // The next block; -1 if none is left.
    __device__ int next() {
        while (wanted == 0 && first < end) {
            first += CTA_THREADS;
            wanted = look();
        }
        if (wanted == 0) return -1;
        const int lane = __ffs(static_cast<int>(wanted)) - 1;
        wanted &= wanted - 1;
        return first + lane * CTA_WARPS;
    }
};

// The same as below if some block must be gathered.
template <bool beside, typename Visit>
__device__ inline void visit_any(
    const Row& row, const Row& other, const Mass* stats, const Piece& piece, float floor, Visit visit) {
    WantedBlocks blocks(stats, piece, floor);
#pragma unroll 1
    for (int block = blocks.next(); block >= 0; block = blocks.next()) {
        float logits[PER_LANE], others[PER_LANE] = {};
        if (beside) load_both(row, other, block, logits, others);
        else load_block(row, block, logits);
        visit(block, logits, others);
    }
}

// Hands on (block, logits, others) of a piece's blocks whose largest logit is in [floor, ...], `others` being
// logits of another row, if `beside`. By a CTA; while a warp looks at a block, its next one is on its way.
template <bool beside, typename Visit>
__device__ inline void visit_beside(
    const Row& row, const Row& other, const Mass* stats, const Piece& piece, float floor, Visit visit) {
    // Two rows of wide logits do not fit in flight.
    if (!row.is_whole() || (beside && (!other.is_whole() || !ALL_NARROW)))
        return visit_any<beside>(row, other, stats, piece, floor, visit);
    WantedBlocks blocks(stats, piece, floor);
    Coming coming = {}, other_coming = {};
    int block = blocks.next();
    if (block >= 0) coming.fetch(row, block);
    if (beside && block >= 0) other_coming.fetch(other, block);
#pragma unroll 1
    while (block >= 0) {
        const Coming here = coming, other_here = other_coming;
        const int next = blocks.next();
        if (next >= 0) coming.fetch(row, next);
        if (beside && next >= 0) other_coming.fetch(other, next);
        float logits[PER_LANE], others[PER_LANE] = {};
        here.unpack_to(row, logits);
        here.change(row, block, logits);
        if (beside) other_here.unpack_to(other, others);
        if (beside) other_here.change(other, block, others);
        visit(block, logits, others);
        block = next;
    }
}

// The same for one row.
template <typename Visit>
__device__ inline void visit_piece(
    const Row& row, const Mass* stats, const Piece& piece, float floor, Visit visit) {
    visit_beside<false>(
        row, row, stats, piece, floor,
        [&](int block, const float(&logits)[PER_LANE], const float(&)[PER_LANE]) { visit(block, logits); });
}

template <typename Visit>
__device__ inline void visit_blocks(const Row& row, const Mass* stats, float floor, Visit visit) {
    visit_piece(row, stats, {0, row.num_blocks()}, floor, visit);
}

// The ranks that may hold the threshold: from `high` to `low`.
struct Cut {
    int low;      // -1: all ranks are empty
    int high;
    int highest;  // the distance of the first non-empty rank from the end
    u64 least;    // bounds of the amount that all ranks hold, this and the next one
    u64 most;
};

struct Amounts {
    u64 least;
    u64 most;
};

// Whether a rank holds a logit, and its amount.
struct Held {
    bool any;
    u64 amount;
};

// Calls take(rank, above, amount) for the last rank of [begin, end) that holds something and has less than a limit
// above it; the last call counts. By a warp.
template <typename HeldBy, typename Take>
__device__ inline void search_ranks(
    int begin, int end, u64 before, u64 limit, HeldBy held_by, Take take) {
    for (int rank = begin + lane_id(); rank - lane_id() < end; rank += LANES) {
        const Held held = rank < end ? held_by(rank) : Held{false, 0};
        const u64 up_to = before + warp_sum_up_to(held.amount);
        const u32 wanted = __ballot_sync(ALL_LANES, held.any && up_to - held.amount < limit);
        if (wanted && lane_id() == 31 - __clz(static_cast<int>(wanted)))
            take(rank, up_to - held.amount, held.amount);
        before = __shfl_sync(ALL_LANES, up_to, LANES - 1);
    }
}

constexpr int CUT_EACH = (NUM_RANKS + CTA_THREADS - 1) / CTA_THREADS;

// Ranks down to `lowest` that hold something and have less than wanted(cut) above them, `above` included: the
// lowest that may be, and the lowest that must be. By a CTA, and known to all of it. Every thread adds up a
// few neighbouring ranks; warps then search those in which the limits are reached.
template <typename Ranks, typename AmountsOf, typename Wanted>
__device__ inline void find_cut(
    Cut& cut, const Ranks& ranks, int lowest, u64 above, AmountsOf amounts_of, Wanted wanted) {
    const int first = thread_id() * CUT_EACH;
    const int end = first + CUT_EACH <= lowest ? first + CUT_EACH : lowest + 1;
    Amounts mine = {0, 0};
    int highest = -1;
#pragma unroll 1
    for (int rank = first; rank < end; ++rank) {
        const u32 count = ranks.count(rank);
        if (count == 0) continue;
        if (highest < 0) highest = NUM_RANKS - rank;
        const Amounts here = amounts_of(rank, count);
        mine = {mine.least + here.least, mine.most + here.most};
    }
    Amounts before = {above + cta_sum_before(mine.least), above + cta_sum_before(mine.most)};
    if (thread_id() == 0) cut.low = cut.high = cut.highest = -1;
    if (thread_id() == CTA_THREADS - 1) {
        cut.least = before.least + mine.least;
        cut.most = before.most + mine.most;
    }
    __syncthreads();
    const Amounts limit = wanted(cut);
    if (highest >= 0) {
        atomicMax(&cut.highest, highest);
        if (before.least < limit.most) atomicMax(&cut.low, first);
        if (before.most < limit.least) atomicMax(&cut.high, first);
    }
    __syncthreads();
    __shared__ u64 starts[2];
    if (cut.low == first) starts[0] = before.least;
    if (cut.high == first) starts[1] = before.most;
    __syncthreads();
    if (warp_id() < 2) {
        const bool is_low = warp_id() == 0;
        int& found = is_low ? cut.low : cut.high;
        const int begin = found;
        __syncwarp();
        const auto holds = [&](int rank) {
            const u32 count = begin >= 0 && rank <= lowest ? ranks.count(rank) : 0;
            const Amounts here = count > 0 ? amounts_of(rank, count) : Amounts{0, 0};
            return Held{count > 0, is_low ? here.least : here.most};
        };
        search_ranks(begin, begin + CUT_EACH, starts[warp_id()], is_low ? limit.most : limit.least, holds,
                     [&](int rank, u64, u64) { found = rank; });
    }
    __syncthreads();
    if (thread_id() == 0 && cut.highest >= 0) {
        if (cut.low < 0) cut.low = NUM_RANKS - cut.highest;
        if (cut.high < 0) cut.high = NUM_RANKS - cut.highest;
    }
    __syncthreads();
}

// The amount in ranks down to `last`. By a CTA.
template <typename Ranks, typename AmountOf>
__device__ inline u64 sum_down_to(const Ranks& ranks, int last, AmountOf amount_of) {
    u64 mine = 0;
#pragma unroll 1
    for (int rank = thread_id(); rank <= last; rank += CTA_THREADS) {
        const u32 count = ranks.count(rank);
        if (count > 0) mine += amount_of(rank, count);
    }
    return cta_reduce(mine, Add{});
}

// Bounds of the mass of a rank's logits.
template <typename Ranks>
__device__ inline Amounts masses_of(const Ranks& ranks, const Law& law, int rank, u32 count) {
    if (count == 0) return {0, 0};
    return {count * fixed_weight(law, ranks.bottom(rank)), count * fixed_weight(law, ranks.top(rank))};
}
