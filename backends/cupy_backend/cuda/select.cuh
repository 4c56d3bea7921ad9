// Finds the logit at which a number of tokens or a share of mass is reached, among listed logits and
// those counted in ranks that hold one logit each.
#pragma once
#include "statistics.cuh"

struct Query {
    Law law;
    bool by_number;  // else by mass
    bool counted;    // ranks hold something, too
    float low;       // the range of logits
    float high;
    u64 before;   // the amount above that range
    u64 limit;    // the wanted amount
    float share;  // below 1: this share of the whole amount is wanted instead
};

// One of a few candidates, or several equal ones.
struct Member {
    u32 key;
    u64 amount;
};

// The result, and amounts by digits of keys, shared by a CTA.
struct Selection {
    u32 lows[CTA_THREADS];
    u32 highs[CTA_THREADS];
    Member members[LANES];
    u32 num_members;
    int slot;     // -1: there is no logit
    float logit;  // the lowest that has less than the wanted amount above it
    u64 above;
    u64 found;  // the amount of logits equal to it
    u64 total;  // the whole amount, `before` included
    __device__ u64 kept() const { return above + found; }

    // Word by word, because hardware adds words.
    __device__ void add(int at, u64 amount) {
        const u32 low = static_cast<u32>(amount);
        const u32 before = atomicAdd(lows + at, low);
        const u32 high = static_cast<u32>(amount >> 32) + (before + low < low);
        if (high) atomicAdd(highs + at, high);
    }
    __device__ u64 amount(int at) const { return static_cast<u64>(highs[at]) << 32 | lows[at]; }
    __device__ void join(u32 key, u64 amount) {
        const u32 place = atomicAdd(&num_members, 1u);
        if (place < LANES) members[place] = {key, amount};
    }
};

// Keys of a range by leading digits, in falling order, one for each thread.
struct Slots {
    u32 low;
    u32 high;
    int shift;
    __device__ static Slots of(u32 low, u32 high) {
        int shift = 0;
        while ((high - low) >> shift >= CTA_THREADS) ++shift;
        return {low, high, shift};
    }
    __device__ int of(u32 key) const {
        return key >= low && key <= high ? static_cast<int>((high - key) >> shift) : -1;
    }
    // The slots within one slot.
    __device__ Slots inside(int slot) const {
        const u32 last = high - (static_cast<u32>(slot) << shift), width = (1u << shift) - 1;
        return of(last - low > width ? last - width : low, last);
    }
};

__device__ inline u64 amount_of(const Query& query, float logit, u32 count) {
    return query.by_number ? count : count * fixed_weight(query.law, logit);
}

// Calls take(key, amount) with what a rank holds between two keys.
template <typename Take>
__device__ inline void visit_rank(const Query& query, int rank, u32 low, u32 high, Take take) {
    const u32 count = count_at(rank);
    const float logit = least_of(rank, is_inner(rank));
    const u32 key = key_of(logit);
    if (count > 0 && key >= low && key <= high) take(key, amount_of(query, logit, count));
}

// The same for all ranks. By a CTA.
template <typename Take>
__device__ inline void visit_ranks(const Query& query, u32 low, u32 high, Take take) {
    const int highest = rank_of(key_float(high)), lowest = rank_of(key_float(low));
#pragma unroll 1
    for (int rank = highest + thread_id(); rank <= lowest; rank += CTA_THREADS)
        visit_rank(query, rank, low, high, take);
}

// The ranks of a range, shared out among the threads of a CTA.
struct SharedRanks {
    int first;
    int last;
    int each;
    __device__ explicit SharedRanks(const Query& query)
        : first(rank_of(query.high)), last(rank_of(query.low)), each((last - first) / CTA_THREADS + 1) {}
    __device__ int thread_of(int rank) const { return (rank - first) / each; }
    // What this thread's ranks hold.
    __device__ u64 amount(const Query& query, u32 low, u32 high) const {
        const int begin = first + thread_id() * each;
        u64 amount = 0;
#pragma unroll 1
        for (int rank = begin; rank <= last && rank < begin + each; ++rank)
            visit_rank(query, rank, low, high, [&](u32, u64 here) { amount += here; });
        return amount;
    }
    // The keys that a thread's ranks may hold.
    __device__ Slots slots(int thread, const Slots& within) const {
        const int begin = first + thread * each, end = begin + each - 1;
        const u32 low = key_of(bottom_of(end < last ? end : last)), high = key_of(top_of(begin));
        return Slots::of(low > within.low ? low : within.low, high < within.high ? high : within.high);
    }
};

// The same for listed logits.
template <typename Take>
__device__ inline void visit_listed(const Query& query, u32 low, u32 high, Take take) {
    const u32 length = list_length() < MAX_LISTED ? list_length() : MAX_LISTED;
#pragma unroll 1
    for (u32 i = thread_id(); i < length; i += CTA_THREADS) {
        const float logit = listed_logits()[i];
        const u32 key = key_of(logit);
        if (key >= low && key <= high) take(key, amount_of(query, logit, 1));
    }
}

// Ends a selection if few logits are left; returns whether it did. By a CTA.
__device__ inline bool select_among_few(
    Selection& out, const Query& query, const Slots& slots, u64 before, u64 limit) {
    if (thread_id() == 0) out.num_members = 0;
    __syncthreads();
    const auto join = [&](u32 key, u64 amount) { out.join(key, amount); };
    if (query.counted) visit_ranks(query, slots.low, slots.high, join);
    visit_listed(query, slots.low, slots.high, join);
    __syncthreads();
    const int number = static_cast<int>(out.num_members);
    if (number > LANES) return false;
    if (warp_id() == 0) {
        const Member mine = lane_id() < number ? out.members[lane_id()] : Member{0, 0};
        u64 above = before, equal = 0;
        for (int i = 0; i < number; ++i) {
            const Member other = out.members[i];
            if (other.key > mine.key) above += other.amount;
            if (other.key == mine.key) equal += other.amount;
        }
        const bool wanted = mine.amount > 0 && above < limit;
        const u32 lowest = warp_reduce(wanted ? mine.key : ~0u, Min{});
        if (wanted && mine.key == lowest) {  // equal ones write the same
            out.above = above;
            out.found = equal;
            out.logit = key_float(lowest);
        }
    }
    __syncthreads();
    return true;
}

// By a CTA, after a barrier. First by threads' ranks, if these hold any logit, then by digits.
__device__ COLD void select(Selection& out, const Query& asked) {
    const Query query = asked;  // a copy, so that it is loaded once
    const SharedRanks ranks(query);
    u64 before = query.before, limit = query.limit;
    Slots slots = Slots::of(key_of(query.low), key_of(query.high));
    for (bool first = true;; first = false) {
        const bool by_rank = first && query.counted;
        out.lows[thread_id()] = out.highs[thread_id()] = 0;
        __syncthreads();
        u64 mine = 0;
        const auto add = [&](u32 key, u64 amount) {
            out.add(by_rank ? ranks.thread_of(rank_of(key_float(key))) : slots.of(key), amount);
        };
        if (by_rank) mine = ranks.amount(query, slots.low, slots.high);
        else if (query.counted) visit_ranks(query, slots.low, slots.high, add);
        visit_listed(query, slots.low, slots.high, add);
        __syncthreads();
        mine += out.amount(thread_id());
        const u64 above = before + cta_sum_before(mine);
        if (thread_id() == 0) out.slot = -1;
        if (first && thread_id() == CTA_THREADS - 1) out.total = above + mine;
        __syncthreads();
        if (first && query.share < 1.0f) limit = share_of(query.share, out.total);
        if (mine > 0 && above < limit) atomicMax(&out.slot, thread_id());
        __syncthreads();
        const int slot = out.slot;
        if (slot < 0) return;
        const bool told = !by_rank && slots.shift == 0;
        slots = by_rank ? ranks.slots(slot, slots) : slots.inside(slot);
        if (slot == thread_id()) {
            out.above = above;
            out.found = mine;
            out.logit = key_float(slots.high);
        }
        __syncthreads();
        before = out.above;
        if (told || select_among_few(out, query, slots, before, limit)) return;
    }
}
