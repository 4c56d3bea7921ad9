// Which logit a number or a share of mass ends at, among those that are listed and, where a rank of
// counted ones holds one logit, counted.
#pragma once
#include "filters.cuh"

struct Query {
    Law law;
    bool by_number;  // else by mass
    bool counted;    // ranks hold something, too
    float low;       // which logits are asked for
    float high;
    u64 before;   // what is above these
    u64 limit;    // what is wanted
    float share;  // below 1: wanted is this share of all instead
};

// What is found, and amounts by digits of keys, known to all of a CTA.
struct Selection {
    u32 lows[CTA_THREADS];
    u32 highs[CTA_THREADS];
    int slot;     // -1: nothing is there
    float logit;  // the lowest that has less than what is wanted above it
    u64 above;
    u64 found;  // of logits that are equal to it
    u64 total;  // of all, and before
    __device__ u64 kept() const { return above + found; }

    // By words, for which there is hardware.
    __device__ void add(int at, u64 amount) {
        const u32 low = static_cast<u32>(amount);
        const u32 before = atomicAdd(lows + at, low);
        const u32 high = static_cast<u32>(amount >> 32) + (before + low < low);
        if (high) atomicAdd(highs + at, high);
    }
    __device__ u64 amount(int at) const { return static_cast<u64>(highs[at]) << 32 | lows[at]; }
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
    // Those of one.
    __device__ Slots inside(int slot) const {
        const u32 last = high - (static_cast<u32>(slot) << shift), width = (1u << shift) - 1;
        return of(last - low > width ? last - width : low, last);
    }
};

__device__ inline u64 amount_of(const Query& query, float logit, u32 count) {
    return query.by_number ? count : count * fixed_weight(query.law, logit);
}

// Adds up what ranks hold. Neighbours are mostly of one slot.
__device__ inline void add_ranks(Selection& out, const Query& query, const Slots& slots) {
    int slot = -1;
    u64 amount = 0;
    const int begin = thread_id() * RANKS_EACH, end = begin + RANKS_EACH;
    const int highest = rank_of(key_float(slots.high)), lowest = rank_of(key_float(slots.low));
#pragma unroll 1
    for (int rank = highest > begin ? highest : begin; rank <= lowest && rank < end; ++rank) {
        const u32 count = count_at(rank);
        if (count == 0) continue;
        const float logit = least_of(rank, is_inner(rank));
        const int here = slots.of(key_of(logit));
        if (here != slot && slot >= 0) out.add(slot, amount);
        if (here != slot) amount = 0;
        slot = here;
        amount += amount_of(query, logit, count);
    }
    if (slot >= 0) out.add(slot, amount);
}

__device__ inline void add_listed(Selection& out, const Query& query, const Slots& slots) {
    const u32 length = list_length() < MAX_LISTED ? list_length() : MAX_LISTED;
#pragma unroll 1
    for (u32 i = thread_id(); i < length; i += CTA_THREADS) {
        const float logit = listed_logits()[i];
        const int slot = slots.of(key_of(logit));
        if (slot >= 0) out.add(slot, amount_of(query, logit, 1));
    }
}

// By a CTA, behind a barrier.
__device__ COLD void select(Selection& out, const Query& asked) {
    const Query query = asked;  // to be loaded once
    u64 before = query.before, limit = query.limit;
    Slots slots = Slots::of(key_of(query.low), key_of(query.high));
    for (bool first = true;; first = false) {
        out.lows[thread_id()] = out.highs[thread_id()] = 0;
        __syncthreads();
        if (query.counted) add_ranks(out, query, slots);
        add_listed(out, query, slots);
        __syncthreads();
        const u64 mine = out.amount(thread_id()), above = before + cta_sum_before(mine);
        if (thread_id() == 0) out.slot = -1;
        if (first && thread_id() == CTA_THREADS - 1) out.total = above + mine;
        __syncthreads();
        if (first && query.share < 1.0f) limit = share_of(query.share, out.total);
        if (mine > 0 && above < limit) atomicMax(&out.slot, thread_id());
        __syncthreads();
        const int slot = out.slot;
        if (slot == thread_id()) {
            out.above = above;
            out.found = mine;
            out.logit = key_float(slots.inside(slot).high);
        }
        __syncthreads();
        if (slot < 0 || slots.shift == 0) return;
        before = out.above;
        slots = slots.inside(slot);
    }
}
