// At which rows a draft that is judged by two laws certainly ends, by the words of pieces: each says what its blocks
// weigh, and one of a row's what the draft token's logit is. What decides are other numbers, found later.
#pragma once
#include "filters.cuh"
#include "pair_piece.cuh"

constexpr float MOST_WRONG = 1e-4f;   // of weights, relative: more than they are wrong by
constexpr float END_SLACK = 0.01f;    // the same of their logarithms

// What a half of a warp knows of its row, as logarithms to base 2: what the draft token's share of it is not above,
// or, in the draft's half, not below, if that is known.
struct Bound {
    float log2_share;
    bool known;
};

__device__ inline float half_sum(float value) {
#pragma unroll
    for (int distance = HALF / 2; distance; distance /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}

__device__ inline float half_max(float value) {
#pragma unroll
    for (int distance = HALF / 2; distance; distance /= 2)
        value = max_nan(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}

__device__ inline Filters filters_of_half(const Params& p, int request) {
    const bool draft = lane_id() >= HALF;
    if (FILTERED)
        return filters_of(draft ? p.draft : p.target, request, draft ? p.draft_vocab_size : p.vocab_size);
    return {(draft ? p.draft : p.target).temperature[request], 0.0f, 0, 1.0f};
}

// A lane's of a row: a piece's largest logit and its weight, and the piece's mass, relative to the row's largest
// logit; the last lane's of a half are the draft token's, without a mass.
struct Heaviest {
    float logit;
    float weight;
    float mass;
};

// What lies above a logit: no more than `most`, no less than `least`, and no fewer tokens than `number`.
struct AboveIt {
    float most;
    float least;
    float number;
};

__device__ inline AboveIt above_of(const Heaviest& mine, int group) {
    AboveIt above = {};
#pragma unroll 1
    for (int piece = 0; piece < group; ++piece) {
        const int lane = (lane_id() & HALF) | piece;
        const float logit = __shfl_sync(ALL_LANES, mine.logit, lane);
        const float weight = __shfl_sync(ALL_LANES, mine.weight, lane);
        const float mass = __shfl_sync(ALL_LANES, mine.mass, lane);
        if (!(logit > mine.logit)) continue;
        above.most += mass;
        above.least += weight;
        above.number += 1.0f;
    }
    return above;
}

// What top-k and min-p leave of a row at least, its mass being `whole`.
__device__ inline float least_left(
    const Filters& filters, const Heaviest& mine, bool piece, float whole, int group) {
    const bool stays = piece && mine.weight > filters.min_p * (1.0f + MOST_WRONG);
    const float stay = half_sum(stays ? mine.weight : 0.0f);
    const bool few = filters.top_k <= 0 || filters.top_k >= group;
    const float left = cuts_before_top_p(filters) ? fmaxf(few ? stay : 1.0f, 1.0f) : whole;
    return left * (1.0f - MOST_WRONG);
}

// Whether filters certainly keep a lane's logit, or certainly do not.
__device__ inline bool is_surely_in(const Filters& filters, const Heaviest& mine, const AboveIt& above, float left) {
    const float fewer = mine.weight * static_cast<float>(filters.top_k);
    return (filters.top_k <= 0 || above.most < fewer * (1.0f - MOST_WRONG)) &&
           (filters.top_p >= 1.0f || above.most < filters.top_p * left * (1.0f - MOST_WRONG)) &&
           mine.weight > filters.min_p * (1.0f + MOST_WRONG);
}

__device__ inline bool is_surely_out(const Filters& filters, const Heaviest& mine, const AboveIt& above, float whole) {
    return (filters.top_k > 0 && above.number >= static_cast<float>(filters.top_k)) ||
           (filters.top_p < 1.0f && above.least > filters.top_p * whole * (1.0f + MOST_WRONG)) ||
           mine.weight < filters.min_p * (1.0f - MOST_WRONG);
}

// The draft token's share of what filters keep, in the last lane of each half.
__device__ inline Bound filtered_bound(
    const Filters& filters, const Heaviest& mine, bool piece, float log2_own, float whole, int group) {
    const AboveIt above = above_of(mine, group);
    const float left = least_left(filters, mine, piece, whole, group);
    const bool in = is_surely_in(filters, mine, above, left), out = is_surely_out(filters, mine, above, whole);
    const float surely = half_sum(piece && in ? mine.weight : 0.0f);
    const float gone = half_sum(piece && out ? mine.mass : 0.0f);
    if (lane_id() >= HALF) return {log2_own - log2_fast(whole - gone * (1.0f - MOST_WRONG)), in};
    const float kept = fmaxf(fmaxf(surely, 1.0f), filters.top_p < 1.0f ? filters.top_p * left : left);
    return {out ? -INFINITY : log2_own - log2_fast(kept), true};
}

// By a half of a warp, given its row's words by lanes, `piece` for those of pieces. In the last lane.
__device__ inline Bound bound_of(const Filters& filters, const Mass& told, bool piece, int group) {
    const float scale = logit_scale(filters.temperature);
    const float largest = half_max(piece ? told.max : -INFINITY);
    const float log2_own = log2_weight(told.max, largest, scale);
    const float weight = exp2_fast(log2_own);
    const Heaviest mine = {told.max, weight, piece ? weight * told.sum : 0.0f};
    const float whole = half_sum(mine.mass);
    const bool usable = fabsf(largest) < INFINITY && told.max > -INFINITY && whole >= 0.5f;
    Bound bound = {log2_own - log2_fast(whole), true};
    if (FILTERED) bound = filtered_bound(filters, mine, piece, log2_own, whole, group);
    return {bound.log2_share, usable && bound.known};
}

// Whether a pair certainly ends the draft, as far as its pieces have told. By a warp.
__device__ inline bool is_pair_end(const Params& p, const Request& request, int row, const u64* words) {
    const int place = lane_id() % HALF, group = static_cast<int>(p.group);
    const bool piece = place < group, draft = lane_id() >= HALF;
    const bool wanted = (piece || place == TOKEN_WORD) && (!draft || request.dense);
    u64 word = 0;
    load_relaxed_if(wanted, words + lane_id(), word);
    if (!__all_sync(ALL_LANES, word != 0 || !wanted)) return false;
    const Mass told = mass_in(word);
    if (request.strict) {
        const float largest = half_max(piece ? told.max : -INFINITY);
        const float token = __shfl_sync(ALL_LANES, told.max, TOKEN_WORD);
        return __shfl_sync(ALL_LANES, static_cast<int>(token < largest && largest < INFINITY), 0);
    }
    const Bound bound = bound_of(filters_of_half(p, request.index), told, piece, group);
    const float log2_p = __shfl_sync(ALL_LANES, bound.log2_share, TOKEN_WORD);
    const float taken = __shfl_sync(ALL_LANES, bound.log2_share, HALF + TOKEN_WORD);
    const u32 known = __ballot_sync(ALL_LANES, bound.known);
    const bool knows_p = known >> TOKEN_WORD & 1, knows_q = !request.dense || known >> (HALF + TOKEN_WORD) & 1;
    const float log2_q = request.dense ? taken : 0.0f;
    if (!knows_p) return false;
    if (log2_p == -INFINITY) return true;
    const float slack = END_SLACK + 1e-5f * (fabsf(log2_p) + fabsf(log2_q));
    return knows_q && log2_fast(uniform_of(request, row)) > log2_p - log2_q + slack;
}

// Of a piece, whose statistics are at hand. By a warp.
__device__ inline u64 piece_word(const Mass* stats, int count, float scale) {
    float max = -INFINITY, sum = 0.0f;
    for (int i = lane_id(); i < count; i += LANES) max = max_nan(max, stats[i].max);
    max = warp_max(max);
    for (int i = lane_id(); i < count; i += LANES)
        sum += stats[i].sum * exp2_fast(log2_weight(stats[i].max, max, scale));
    return word_with({max, max == -INFINITY ? 0.0f : warp_reduce(sum, Add{})});
}
