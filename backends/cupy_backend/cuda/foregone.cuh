// Draws of which every law that a row may still have makes the same token, so that none is looked for. Up to a
// factor a token weighs p - y q, p and q being its shares of what the target and the draft keep at most, and y the
// same for all: a straight line. Statistics tell between what y lies, and what is surely kept. A token that at
// both ends, with all that may be taken from it, is ahead of all others with no more than is surely taken from
// them, is ahead in between: a line's lead on sums of max(line, 0) is concave. Code that is run this seldom
// comes from memory: there is little of it, and none for rows that are rarely seen.
#pragma once
#include "finish.cuh"
#include "settle.cuh"

constexpr int MAX_RUNNERS = LANES;
constexpr float WEIGHT_SLACK = 1e-4f;  // of p and q: more than they are wrong by
constexpr float SCORE_SLACK = 2e-3f;   // the same of scores
constexpr float MOST_SPREAD = 0.5f;   // of log2 of y: draws are hardly known beyond that
constexpr float LEAST_WEIGHT = 1e-18f;  // of what can be known to win

// What a token or a block weighs at both ends of y: no less than `own`, no more than `other`.
struct Chances {
    float own[2];
    float other[2];
};

// One draw, from rows that can be read by whole vectors. In shared memory.
struct Contest {
    const TargetLogit* target;
    const DraftLogit* draft;
    int vocab_size;
    Law target_law;  // sums are the most that they may be
    Law draft_law;
    float lowest;        // logit that the target's law may keep
    float lowest_taken;  // the same of the draft's
    float steps[2];      // log2 of y, less the draft's sum
    DrawKey key;
    bool takes;  // a residual is drawn from
    u32 num_runners;
    u64 best;  // the racer with the largest own score, ~0 once there is no room
    u32 blocks[MAX_RUNNERS];
    int tokens[MAX_RUNNERS];  // the only ones that may be kept, or NO_TOKEN
    float scores[4][MAX_RUNNERS];  // logarithms of chances, less the block's noise
};

// What is known of a row's law besides what is surely kept.
struct Doubt {
    float lowest;
    float spread;
};

__device__ inline Doubt doubt_of(Shared& shared, int row, bool draft) {
    const int place = place_of(row, draft);
    if (!is_open(shared, place)) return {law_of(shared, row, draft).threshold, 0.0f};
    return {shared.lowest[place], shared.spreads[place]};
}

// By a thread.
__device__ inline void set_laws(Contest& contest, Shared& shared, int row) {
    const Doubt target = doubt_of(shared, row, false);
    contest.target_law = shared.target_laws[row];
    contest.lowest = target.lowest;
    contest.steps[0] = -target.spread - RANGE_SLACK;
    contest.steps[1] = RANGE_SLACK;
    if (row >= shared.request.num_drafts) return;
    const Doubt draft = doubt_of(shared, row, true);
    const Law law = shared.draft_laws[row];
    contest.draft_law = law;
    contest.lowest_taken = draft.lowest;
    contest.steps[0] -= law.log2_sum;
    contest.steps[1] += draft.spread - law.log2_sum;
}

// By a thread. The target is null where rows cannot be read by whole vectors.
__device__ inline void set_rows(Contest& contest, const Shared& shared, int row) {
    const Params& p = shared.params;
    const Request& request = shared.request;
    const Row<TargetLogit> target = target_row(p, request, row);
    bool direct = is_direct(target);
    contest.takes = row < request.num_drafts;
    contest.key = contest.takes ? recover_key(request, row) : target_key(p, request, row);
    contest.vocab_size = static_cast<int>(p.vocab_size);
    contest.num_runners = 0;
    contest.best = 0;
    if (contest.takes) {
        const Row<DraftLogit> draft = draft_row_in_target_ids(p, request, row);
        direct = direct && is_direct(draft);
        contest.draft = draft.data;
    }
    contest.target = direct ? target.data : nullptr;
}

__device__ inline void add_token(const Contest& contest, int id, Chances& sums) {
    const float logit = to_float(contest.target[id]);
    const Law& law = contest.target_law;
    const float p = exp2_fast(log2_weight(logit, law.max, law.scale) - law.log2_sum);
    float most_taken[2] = {}, least_taken[2] = {};
    if (contest.takes) {
        const Law& draft = contest.draft_law;
        const float taken = to_float(contest.draft[id]);
        const float log2_q = log2_weight(taken, draft.max, draft.scale);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float q = exp2_fast(log2_q + contest.steps[i]);
            most_taken[i] = taken >= contest.lowest_taken ? q * (1.0f + WEIGHT_SLACK) : 0.0f;
            least_taken[i] = taken >= draft.threshold ? q * (1.0f - WEIGHT_SLACK) : 0.0f;
        }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
        sums.other[i] += fmaxf(p * (1.0f + WEIGHT_SLACK) - least_taken[i], 0.0f);
    const float own = p * (1.0f - WEIGHT_SLACK);
    if (!(logit >= law.threshold) || !(own > most_taken[1])) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) sums.own[i] += own - most_taken[i];
}

// Bits: which of a lane's logits of a block may be kept.
__device__ inline u32 find_kept(const Contest& contest, int block) {
    constexpr int vectors = PER_LANE / PER_VECTOR<TargetLogit>;
    constexpr u32 nothing = NOTHING<TargetLogit>;
    const int id = block * BLOCK_SIZE + lane_id() * 8;
    uint4 words[vectors];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int there = id + half * (BLOCK_SIZE / 2);
        uint4* const mine = words + half * (vectors / 2);
#pragma unroll
        for (int i = 0; i < vectors / 2; ++i) mine[i] = uint4{nothing, nothing, nothing, nothing};
        if (contest.takes && there < contest.vocab_size) prefetch(contest.draft + there);
        fetch_eight(there < contest.vocab_size, contest.target + there, mine);
    }
    u32 kept = 0;
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j)
        if (unpack_at<TargetLogit>(words, j) >= contest.lowest &&
            static_cast<int>(id_of(block, lane_id(), j)) < contest.vocab_size)
            kept |= 1u << j;
    return kept;
}

// Of four values of each lane: lanes have the sum of the first, eight on of the second, and so on.
__device__ inline float sum_in_eighths(const float (&values)[4]) {
    const bool upper = lane_id() & 16, second = lane_id() & 8;
    float sums[2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
        sums[i] = (upper ? values[2 + i] : values[i]) +
                  __shfl_xor_sync(ALL_LANES, upper ? values[i] : values[2 + i], 16);
    float sum = (second ? sums[1] : sums[0]) +
                __shfl_xor_sync(ALL_LANES, second ? sums[0] : sums[1], 8);
#pragma unroll
    for (int distance = 4; distance; distance /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, distance);
    return sum;
}

// Reads a block and enters it. By a warp.
__device__ inline void enter_block(Contest& contest, int block, float noise) {
    const u32 kept = find_kept(contest, block);
    Chances chances = {};
    int token = 0;
#pragma unroll 1
    for (u32 left = kept; left; left &= left - 1) {
        token = static_cast<int>(id_of(block, lane_id(), __ffs(static_cast<int>(left)) - 1));
        add_token(contest, token, chances);
    }
    __syncwarp();
    const float weight = sum_in_eighths(
        {chances.own[0], chances.own[1], chances.other[0], chances.other[1]});
    const bool is_own = lane_id() < 16;
    const float score = is_own && weight < LEAST_WEIGHT ? -INFINITY : log2_fast(weight) - noise;
    const u32 count = __reduce_add_sync(ALL_LANES, static_cast<u32>(__popc(kept)));
    const u32 last = __reduce_max_sync(ALL_LANES, static_cast<u32>(token));
    const float least = fminf(score, __shfl_xor_sync(ALL_LANES, score, 8));
    u32 place = 0;
    if (lane_id() == 0) place = atomicAdd(&contest.num_runners, 1u);
    place = __shfl_sync(ALL_LANES, place, 0);
    const bool fits = place < MAX_RUNNERS;
    if (fits && lane_id() % 8 == 0) contest.scores[lane_id() / 8][place] = score;
    if (lane_id() > 0) return;
    if (fits) {
        contest.blocks[place] = static_cast<u32>(block);
        contest.tokens[place] = count == 1 ? static_cast<int>(last) : static_cast<int>(NO_TOKEN);
    }
    atomicMax(&contest.best, fits ? racer(least, static_cast<u32>(block)) : ~0ull);
}

// The blocks that can win are read: every warp looks at every sixteenth. First all read their best, then those
// that can beat what was found: which ones does not depend on who is faster, so that CTAs of a request agree.
__device__ inline void enter_blocks(
    Contest& contest, const Mass* stats, bool is_lone, const Noise* known_noise) {
    const int block = warp_id() + lane_id() * CTA_WARPS;
    float noise = 0.0f;
    u64 most = 0;
    if (block * BLOCK_SIZE < contest.vocab_size) {
        Law law = contest.target_law;
        law.threshold = contest.lowest;
        noise = known_noise ? known_noise[block / 4].of[block % 4]
                            : log2_exponential(random_word(contest.key, BLOCK_LEVEL, block));
        const float share = log2_mass(kept_of(stats[block], law, is_lone), law) - law.log2_sum;
        most = racer_with(noise, block, share + RESIDUAL_SLACK);
    }
    u64 known = 0;
#pragma unroll 1
    for (bool begins = true;; begins = false) {
        const u64 next = warp_reduce(most, Max{});
        const volatile u32& entered = contest.num_runners;
        const bool fit = __shfl_sync(ALL_LANES, entered, 0) <= MAX_RUNNERS;
        const bool can_win = fit && next > known;
        if (can_win) {
            const int read = static_cast<int>(racer_id(next));
            enter_block(contest, read, __shfl_sync(ALL_LANES, noise, read / CTA_WARPS));
            if (read == block) most = 0;
        }
        __syncwarp();
        if (begins) {
            meet_in_cta();
            known = contest.best;
            meet_in_cta();
        } else if (!can_win) {
            break;
        }
    }
}

// The place of the best block if that is ahead of all others, or -1. By a warp.
__device__ inline int place_ahead(const Contest& contest) {
    if (contest.best == 0 || contest.best == ~0ull) return -1;
    const bool here = lane_id() < static_cast<int>(contest.num_runners);
    const bool is_best = here && contest.blocks[lane_id()] == racer_id(contest.best);
    const int best = __ffs(static_cast<int>(__ballot_sync(ALL_LANES, is_best))) - 1;
    bool behind = true;
#pragma unroll
    for (int end = 0; end < 2; ++end)
        behind = behind && (!here || is_best ||
                            contest.scores[2 + end][lane_id()] < contest.scores[end][best] - SCORE_SLACK);
    return __all_sync(ALL_LANES, behind) ? best : -1;
}

// The token of a block that is ahead of its others, where there are some. By a team.
__device__ COLD i64 token_ahead(const Contest& contest, u64* slots) {
    const DrawTeam team = my_team<DrawTeam>();
    const int first = static_cast<int>(racer_id(contest.best)) * BLOCK_SIZE + 4 * team.thread();
    u64 best = 0, other = 0;
#pragma unroll 1
    for (int pass = 0; pass < 2; ++pass) {
        u64 mine = 0;
#pragma unroll 1
        for (int id = first; id < first + 4 && id < contest.vocab_size; ++id) {
            if (!(to_float(contest.target[id]) >= contest.lowest)) continue;
            if (pass > 0 && static_cast<u32>(id) == racer_id(best)) continue;
            Chances chances = {};
            add_token(contest, id, chances);
            const float weight = pass > 0 ? fmaxf(chances.other[0], chances.other[1])
                                          : fminf(chances.own[0], chances.own[1]);
            const float noise = log2_exponential(random_word(contest.key, TOKEN_LEVEL, id));
            if (pass > 0 || weight >= LEAST_WEIGHT)
                mine = Max{}(mine, racer_with(noise, static_cast<u32>(id), log2_fast(weight)));
        }
        mine = team_reduce(team, slots, mine, Max{});
        (pass > 0 ? other : best) = mine;
    }
    const auto score_of = [](u64 entered) { return key_float(static_cast<u32>(entered >> 32)); };
    const bool ahead = best != 0 && (other == 0 || score_of(other) < score_of(best) - SCORE_SLACK);
    return ahead ? static_cast<i64>(racer_id(best)) : NO_TOKEN;
}

// Whether it is worth while to look for the draw that a row ends in before its laws.
__device__ inline bool may_be_foregone(const Shared& shared, int row, Verdict verdict) {
    if (ADJUSTED || num_blocks_of(shared.params.vocab_size) > MAX_BLOCKS) return false;
    if (verdict != FAILS) return verdict == PASSES;
    float spread = 0.0f;
#pragma unroll
    for (int draft = 0; draft < 2; ++draft)
        if (is_open(shared, row, draft)) spread += shared.spreads[place_of(row, draft)];
    return DENSE && shared.request.dense && spread < MOST_SPREAD;
}

// Whether the draw that a row ends in is known without its laws; its token is `shared.foregone` then. By a
// whole CTA. `noise` is that of the row's blocks or null.
__device__ COLD bool is_foregone(
    Shared& shared, Scratch& scratch, int row, const Mass* stats, const Noise* noise) {
    static_assert(sizeof(Contest) <= sizeof(Scratch));
    Contest& contest = reinterpret_cast<Contest&>(scratch);
    if (thread_id() == 0) set_laws(contest, shared, row);
    if (thread_id() == LANES) set_rows(contest, shared, row);
    meet_in_cta();
    if (contest.target) enter_blocks(contest, stats, shared.is_lone[row], noise);
    meet_in_cta();
    if (warp_id() < DrawTeam::WARPS) {
        const int place = place_ahead(contest);
        i64 token = place < 0 ? NO_TOKEN : contest.tokens[place];
        if (place >= 0 && token == NO_TOKEN) token = token_ahead(contest, shared.slots);
        if (thread_id() == 0) shared.foregone = static_cast<int>(token);
    }
    meet_in_cta();
    return shared.foregone != static_cast<int>(NO_TOKEN);
}

// Behind a decision.
__device__ COLD void finish_foregone(const Shared& shared) {
    if (warp_id() < DrawTeam::WARPS) write_outputs(shared, shared.foregone);
}
