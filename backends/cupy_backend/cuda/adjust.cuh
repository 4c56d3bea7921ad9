// Logit bias, penalties and masks, applied while logits are loaded. Compiled in only if some request of
// the batch has any.
#pragma once
#include "law.cuh"

// The id of a lane's j-th logit: two runs of eight.
__device__ inline int id_of(int block, int j) {
    return block * BLOCK_SIZE + (j / 8) * (BLOCK_SIZE / 2) + lane_id() * 8 + j % 8;
}

// Which of its lane's logits is at a place in its block.
__device__ inline int j_of(u32 place) { return static_cast<int>(place / (BLOCK_SIZE / 2) * 8 + place % 8); }

// The changes of one row of one request. Null pointers: the batch has no such change.
struct Adjustment {
    const i64* bias_ids;
    const float* bias_values;
    int num_bias;
    const bool* prompt_mask;
    const int* output_counts;
    float repetition;
    float presence;
    float frequency;
    Integers drafts;  // of the request
    int num_before;   // drafts before the row, which count as output
    int num_ids;
    u32* marks;  // of the request, see mark_block; null: there are only few biases

    __device__ bool changes() const { return num_bias > 0 || output_counts; }
};

// Sets forbidden logits to -inf; NaN and +inf stay, so that they are found later.
__device__ inline float forbidden(float logit) { return logit < INFINITY ? -INFINITY : logit; }

// Without a branch, so that many such loads can be in flight at once.
__device__ inline i64 integer_at(const Integers& integers, i64 index) {
    const int* words = reinterpret_cast<const int*>(integers.data + index * integers.stride);
    const int low = words[0], high = words[integers.wide];
    const i64 whole = static_cast<i64>(static_cast<u64>(high) << 32 | static_cast<u32>(low));
    return integers.wide ? whole : low;
}

// One rounding per operation, never contracted, as the contract says. `count` is that of the output so far.
__device__ inline float penalised(const Adjustment& a, float logit, bool in_prompt, int count) {
    if (in_prompt || count > 0)
        logit = logit > 0.0f ? __fdiv_rn(logit, a.repetition) : __fmul_rn(logit, a.repetition);
    logit = __fsub_rn(logit, __fmul_rn(a.frequency, static_cast<float>(count)));
    return count > 0 ? __fsub_rn(logit, a.presence) : logit;
}

__device__ inline int drafts_equal(const Adjustment& a, i64 id) {
    int count = 0;
#pragma unroll 1
    for (int i = 0; i < a.num_before; ++i) count += integer_at(a.drafts, i) == id;
    return count;
}

// Calls visit(j, i) in the lane whose j-th logit the i-th of a list of ids names. By a warp. Lanes share out the list
// in parts, because neighbours in it often name logits of one lane, which can only be visited in turn.
template <typename IdAt, typename Visit>
__device__ inline void visit_named(
    const Adjustment& a, int count, int block, IdAt id_at, Visit visit) {
    const i64 begin = static_cast<i64>(block) * BLOCK_SIZE, left = a.num_ids - begin;
    const u64 size = static_cast<u64>(left < BLOCK_SIZE ? left : BLOCK_SIZE);
    const int each = (count + LANES - 1) / LANES;
#pragma unroll 1
    for (int k = 0; k < each; ++k) {
        const int i = lane_id() * each + k;
        const u64 place = static_cast<u64>(i < count ? id_at(i) - begin : -1);
        u32 from = __ballot_sync(ALL_LANES, place < size);
        if (!from) continue;
        // Lanes whose ids name logits of this one.
#pragma unroll
        for (int bit = 1; bit < LANES; bit *= 2) {
            const u32 set = __ballot_sync(ALL_LANES, place / 8 & bit);
            from &= lane_id() & bit ? set : ~set;
        }
#pragma unroll 1
        for (; __any_sync(ALL_LANES, from != 0); from &= from - 1) {
            const int lane = from ? __ffs(static_cast<int>(from)) - 1 : 0;
            const u32 next = __shfl_sync(ALL_LANES, static_cast<u32>(place), lane);
            if (from) visit(j_of(next), lane * each + k);
        }
    }
}

template <typename Visit>
__device__ inline void visit_biased(const Adjustment& a, int block, Visit visit) {
    visit_named(a, a.num_bias, block, [&](int i) { return a.bias_ids[i]; }, visit);
}

// A bit for each of a lane's logits that has a bias. By a warp.
__device__ COLD u32 biased_in(const Adjustment& a, int block) {
    u32 biased = 0;
    visit_biased(a, block, [&](int j, int) { biased |= 1u << j; });
    return biased;
}

// A bit for each of eight neighbouring ids that is in the prompt and, from bit 16 on, for each that is in the
// output.
__device__ inline u32 seen_among(const Adjustment& a, i64 first, int count) {
    u32 seen = 0;
#pragma unroll 1
    for (int j = 0; j < 8 && j < count; ++j)
        seen |= static_cast<u32>(a.prompt_mask[first + j]) << j |
                static_cast<u32>(a.output_counts[first + j] != 0) << (16 + j);
    return seen;
}

// The same by whole words, for `first` a multiple of 8 in rows of whole words.
__device__ inline u32 seen_among_eight(const Adjustment& a, i64 first) {
    const u64 mask = *reinterpret_cast<const u64*>(a.prompt_mask + first);
    const uint4* counts = reinterpret_cast<const uint4*>(a.output_counts + first);
    const uint4 low = counts[0], high = counts[1];
    const u32 words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    u32 seen = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j)
        seen |= ((mask >> (8 * j) & 255) != 0) << j | static_cast<u32>(words[j] != 0) << (16 + j);
    return seen;
}

__device__ inline u32 seen_from(const Adjustment& a, int first) {
    if (!a.output_counts || first >= a.num_ids) return 0;
    const u64 places = reinterpret_cast<u64>(a.prompt_mask + first) % 8 |
                       reinterpret_cast<u64>(a.output_counts + first) % 16;
    if (places == 0 && first + 8 <= a.num_ids) return seen_among_eight(a, first);
    return seen_among(a, first, a.num_ids - first);
}

// What is known beforehand of a block that bias or penalties touch in some row of the request. Each lane has a
// mark: a bit for each of its logits that is touched and, from bit 16 on, how many of the block are. Up to
// MOST_NOTED have a note each behind these.
constexpr int MOST_NOTED = 16;
constexpr int MARK_WORDS = LANES + MOST_NOTED;

enum Note : u32 {
    NAMED = 1u << 31,  // it is biased, or a draft that some rows count
    IN_PROMPT = 1u << 30,
    PLACE = 1u << 21,          // times its place in the block
    MOST_COUNTED = PLACE - 1,  // of the output so far; or 1 + the entry of its bias, 0 for none, if NAMED
};

__device__ inline u32 touched_by(u32 mark) { return mark & 0xffffu; }

__device__ inline bool is_noted(u32 mark) { return mark >> 16 <= MOST_NOTED; }

__device__ inline u32* marks_at(u32* marks, i64 block) { return marks + block * MARK_WORDS; }

__device__ inline u32 place_in(u32 note) { return note / PLACE % BLOCK_SIZE; }

// By a warp.
__device__ inline void mark_block(const Adjustment& a, int block, u32* to) {
    const int first = id_of(block, 0);
    const u32 seen = seen_from(a, first) | seen_from(a, first + BLOCK_SIZE / 2) << 8;
    u32 named = 0;
    const auto name = [&](int j, int) { named |= 1u << j; };
    visit_biased(a, block, name);
    visit_named(a, a.num_before, block, [&](int i) { return integer_at(a.drafts, i); }, name);
    const u32 touched = touched_by(seen | seen >> 16 | named);
    const u32 up_to = static_cast<u32>(warp_sum_up_to(__popc(touched)));
    u32 number = __shfl_sync(ALL_LANES, up_to, LANES - 1);
    u32* notes = to + LANES + up_to - __popc(touched);
    const auto note = [&](int j, u32 what) {
        notes[__popc(touched & ((1u << j) - 1))] = id_of(block, j) % BLOCK_SIZE * PLACE | what;
    };
    bool fits = number <= MOST_NOTED && a.num_bias <= MOST_COUNTED;
#pragma unroll 1
    for (u32 left = fits ? touched : 0; left; left &= left - 1) {
        const int j = __ffs(static_cast<int>(left)) - 1;
        const u32 bit = left & -left;
        const u32 count = seen >> 16 & bit ? static_cast<u32>(a.output_counts[id_of(block, j)]) : 0;
        fits = fits && count <= MOST_COUNTED;
        note(j, named & bit ? NAMED : (seen & bit ? IN_PROMPT : 0) | count);
    }
    if (__any_sync(ALL_LANES, !fits)) number = MOST_NOTED + 1;
    else if (number > 0) visit_biased(a, block, [&](int j, int i) { note(j, NAMED | (1 + i)); });
    to[lane_id()] = touched | number << 16;
}

__device__ inline int block_of(int id) { return static_cast<int>(static_cast<u32>(id) / BLOCK_SIZE); }

// The lane's mark. By a warp.
__device__ inline u32 mark_of(const Adjustment& a, int block) {
    if (a.marks) return marks_at(a.marks, block)[lane_id()];
    return biased_in(a, block) | (MOST_NOTED + 1) << 16;
}

__device__ inline float adjusted(const Adjustment& a, i64 id, u32 note, float logit) {
    bool in_prompt = note & IN_PROMPT;
    int count = static_cast<int>(note & MOST_COUNTED);
    if (note & NAMED) {
        if (count > 0) logit = __fadd_rn(logit, a.bias_values[count - 1]);
        if (!a.output_counts) return logit;
        in_prompt = a.prompt_mask[id];
        count = a.output_counts[id] + drafts_equal(a, id);
    }
    return penalised(a, logit, in_prompt, count);
}

// By a thread.
__device__ COLD float adjust_logit(const Adjustment& a, int id, float logit) {
    u32 note = 0;
    if (a.marks) {
        const u32 place = static_cast<u32>(id) % BLOCK_SIZE;
        const u32* marks = marks_at(a.marks, block_of(id));
        const u32 mark = marks[place / 8 % LANES], number = is_noted(mark) ? mark >> 16 : 0;
        if (!(mark >> j_of(place) & 1)) return logit;
        for (u32 i = 0; i < number; ++i)
            if (place_in(marks[LANES + i]) == place) note = marks[LANES + i];
    }
    if (note == 0) {
        note = NAMED;
        int found = -1;
        // Without a branch, so that several loads are in flight at once.
#pragma unroll 8
        for (int entry = 0; entry < a.num_bias; ++entry) found = a.bias_ids[entry] == id ? entry : found;
        if (found >= 0) logit = __fadd_rn(logit, a.bias_values[found]);
    }
    return adjusted(a, id, note, logit);
}

struct Logits {
    float of[PER_LANE];
};

// Bias and penalties of those of a lane's logits that are marked. By value, as calls would else put logits into memory.
// By a warp.
__device__ COLD Logits adjust_marked(const Adjustment& a, int block, u32 mark, Logits logits) {
    const bool noted = is_noted(mark);
    if (!noted)
        visit_biased(a, block, [&](int j, int entry) {
            const float bias = a.bias_values[entry];
#pragma unroll
            for (int i = 0; i < PER_LANE; ++i)
                logits.of[i] = i == j ? __fadd_rn(logits.of[i], bias) : logits.of[i];
        });
    u32 touched = noted || a.output_counts ? touched_by(mark) : 0, notes = NAMED;
    int next = static_cast<int>(warp_sum_up_to(__popc(touched))) - __popc(touched);
    if (noted && lane_id() < MOST_NOTED) notes = marks_at(a.marks, block)[LANES + lane_id()];
    // One in each lane at a time.
#pragma unroll 1
    for (; __any_sync(ALL_LANES, touched != 0); touched &= touched - 1) {
        const u32 note = __shfl_sync(ALL_LANES, notes, next++ % LANES);
        const int j = touched ? __ffs(static_cast<int>(touched)) - 1 : PER_LANE;
        float logit = 0.0f;
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) logit = i == j ? logits.of[i] : logit;
        if (touched) logit = adjusted(a, id_of(block, j), note, logit);
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) logits.of[i] = i == j ? logit : logits.of[i];
    }
    return logits;
}

__device__ inline void forbid(u32 allowed, float (&logits)[PER_LANE]) {
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j)
        logits[j] = allowed >> j & 1 ? logits[j] : forbidden(logits[j]);
}

// A lane's logits of a block, of which it has the mark. By a warp.
__device__ inline void adjust_block(
    const Adjustment& a, int block, u32 mark, float (&logits)[PER_LANE]) {
    if (!__any_sync(ALL_LANES, touched_by(mark) != 0)) return;
    Logits moved;
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) moved.of[j] = logits[j];
    moved = adjust_marked(a, block, mark, moved);
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) logits[j] = moved.of[j];
}
