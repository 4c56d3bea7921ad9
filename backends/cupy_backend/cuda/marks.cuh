// Marks of token ids: what is known of a request's bias and penalties whatever the row, found by the launch `marks`.
#pragma once
#include "adjust.cuh"

// Calls visit(j, i) in the lane whose j-th logit the i-th of a list of ids names. By a warp.
template <typename IdAt, typename Visit>
__device__ inline void visit_named(
    const Adjustment& a, int count, int block, IdAt id_at, Visit visit) {
    const i64 begin = static_cast<i64>(block) * BLOCK_SIZE, left = a.num_ids - begin;
    const u64 size = static_cast<u64>(left < BLOCK_SIZE ? left : BLOCK_SIZE);
#pragma unroll 1
    for (int first = 0; first < count; first += LANES) {
        const int mine = first + lane_id();
        const u64 place = static_cast<u64>(mine < count ? id_at(mine) - begin : -1);
#pragma unroll 1
        for (u32 from = __ballot_sync(ALL_LANES, place < size); from; from &= from - 1) {
            const int lane = __ffs(static_cast<int>(from)) - 1;
            const u32 next = __shfl_sync(ALL_LANES, static_cast<u32>(place), lane);
            if (next / 8 % LANES == lane_id()) visit(j_of(next), first + lane);
        }
    }
}

template <typename Visit>
__device__ inline void visit_biased(const Adjustment& a, int block, Visit visit) {
    const i64* ids = a.bias_ids;  // loaded once
    visit_named(a, a.num_bias, block, [=](int i) { return ids[i]; }, visit);
}

// The same of the drafts before the row.
template <typename Visit>
__device__ inline void visit_drafts(const Adjustment& a, int block, Visit visit) {
    visit_named(a, a.num_before, block, [&](int i) { return integer_at(a.drafts, i); }, visit);
}

// A byte for each of a lane's logits.
struct Bytes {
    u32 words[PER_LANE / 4];
    __device__ u32 at(int j) const { return words[j / 4] >> (8 * (j % 4)) & 255; }
    __device__ u32 any() const { return words[0] | words[1] | words[2] | words[3]; }
    // A bit for each that is not 0 or, of those that are `named` ones: those of a word come together at its upper end.
    __device__ u32 bits(bool only_named = false) const {
        u32 bits = 0;
#pragma unroll
        for (int i = 0; i < PER_LANE / 4; ++i) {
            const u32 others = only_named ? 0 : (words[i] & 0x7f7f7f7fu) + 0x7f7f7f7fu;
            const u32 set = (words[i] | others) >> 7 & 0x01010101u;
            bits |= (set * 0x10204080u >> 28) << (4 * i);
        }
        return bits;
    }
    __device__ void put(int j, u32 value) {
#pragma unroll
        for (int i = 0; i < PER_LANE / 4; ++i) words[i] |= i == j / 4 ? value << (8 * (j % 4)) : 0;
    }
};

// What is known beforehand of a request's ids, whatever the row: a mark each, 0 if nothing changes its logit.
enum Mark : u32 {
    NAMED = 128,  // it is biased, or a draft that some rows count
    IN_PROMPT = 64,
    MANY = 32,  // how often it is in the output so far is looked up, else the mark says it
};
constexpr u32 ALL_NAMED = 0x80808080u, ALL_MANY = 0x20202020u;

// Eight neighbouring ids in the text, on their way.
struct Seen {
    uint4 counts[2];  // in the output
    u32 in_prompt[2];  // a byte each
    bool whole;        // else they are loaded one by one when they are asked for

    __device__ void load(const Adjustment& a, int first) {
        const u64 places = reinterpret_cast<u64>(a.prompt_mask + first) % 8 |
                           reinterpret_cast<u64>(a.output_counts + first) % 16;
        whole = places == 0 && first + 8 <= a.num_ids;
        const bool wanted = whole && a.output_counts;
        load_once_if(wanted, reinterpret_cast<const uint4*>(a.output_counts + first), counts[0]);
        load_once_if(wanted, reinterpret_cast<const uint4*>(a.output_counts + first) + 1, counts[1]);
        load_pair_if(wanted, reinterpret_cast<const u32*>(a.prompt_mask + first), in_prompt[0], in_prompt[1]);
    }
    // Their marks; `named` has a bit for each.
    __device__ u64 marks(const Adjustment& a, int first, u32 named) const {
        u32 seen[8] = {counts[0].x, counts[0].y, counts[0].z, counts[0].w,
                       counts[1].x, counts[1].y, counts[1].z, counts[1].w};
        u32 words[2] = {in_prompt[0] * IN_PROMPT, in_prompt[1] * IN_PROMPT};
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            if (!whole && a.output_counts && first + j < a.num_ids) {
                seen[j] = static_cast<u32>(a.output_counts[first + j]);
                words[j / 4] |= (a.prompt_mask[first + j] ? IN_PROMPT : 0u) << (8 * (j % 4));
            }
            const u32 mark = (seen[j] < MANY ? seen[j] : MANY) | (named >> j & 1 ? NAMED : 0u);
            words[j / 4] |= mark << (8 * (j % 4));
        }
        return static_cast<u64>(words[1]) << 32 | words[0];
    }
};

// The lane's marks, loaded if `wanted`. By a warp.
__device__ inline void load_marks_if(bool wanted, u8* marks, int block, Bytes& to) {
    const u32* from = reinterpret_cast<const u32*>(marks + id_of(block, 0));
    load_pair_if(wanted, from, to.words[0], to.words[1]);
    load_pair_if(wanted, from + BLOCK_SIZE / 8, to.words[2], to.words[3]);
}

// A lane's marks where there are only few biases. By a warp.
__device__ COLD Bytes biased_in(const Adjustment& a, int block) {
    Bytes biased = {};
    visit_biased(a, block, [&](int j, int) { biased.put(j, NAMED); });
    return biased;
}

__device__ inline Bytes marks_of(const Adjustment& a, int block) {
    if (!a.marks) return biased_in(a, block);
    Bytes marks = {};
    load_marks_if(true, a.marks, block, marks);
    return marks;
}
