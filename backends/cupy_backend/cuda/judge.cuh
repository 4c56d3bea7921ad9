// Stage 3: a row that was streamed becomes a result: its law, the target's own sample where the
// policy wants one, and the verdict on its draft token.
#pragma once
#include "lossy.cuh"

struct Shared {
    u64 slots[WARPS];
    Law laws[2];
    u64 verdicts;
    u32 flag;
    Scratch* scratch;  // one per team, null unless the variant selects
};

__device__ inline const Team target_team() { return {0, WARPS / 2, 2}; }
__device__ inline const Team draft_team() { return {WARPS / 2, WARPS / 2, 3}; }

__device__ inline Mass* target_stats(const Params& p, const Workspace& w, i64 row) {
    return w.target_stats + row * num_blocks_of(p.vocab_size);
}

__device__ inline Mass* draft_stats(const Params& p, const Workspace& w, i64 request, int row) {
    return w.draft_stats +
           (request * p.max_spec_len + row) * num_blocks_of(p.draft_vocab_size);
}

// The laws of both rows, each found by one team, known to all afterwards.
__device__ inline void find_laws(
    const Params& p, const Workspace& w, Shared& shared, const Request& request, int row,
    const Row<TargetLogit>& target, bool dense) {
    const Team team = threadIdx.x < THREADS / 2 ? target_team() : draft_team();
    Scratch* scratch = SELECTS ? shared.scratch + (team.first_warp ? 1 : 0) : nullptr;
    if (team.first_warp == 0) {
        const Law law = row_law(team, shared.slots, scratch, target,
                                target_stats(p, w, request.start + row), p.target, request.index);
        if (team.thread() == 0) shared.laws[0] = law;
    } else if (dense) {
        const Law law = row_law(team, shared.slots, scratch, draft_row(p, request.slot, row),
                                draft_stats(p, w, request.index, row), p.draft, request.index);
        if (team.thread() == 0) shared.laws[1] = law;
    }
    everyone().sync();
}

__device__ inline DrawKey target_key(const Params& p, i64 request, int row) {
    return draw_key(p, request, row, static_cast<u32>(p.stream), static_cast<u32>(p.draft_index));
}

__device__ COLD i64 target_token(
    const Params& p, const Workspace& w, u64* slots, const Request& request, int row,
    const Row<TargetLogit>& target, const Law& law) {
    const Mass* stats = target_stats(p, w, request.start + row);
    if (request.greedy) return greedy_token(slots, target, stats, law);
    return draw_from_law(slots, target, stats, law, target_key(p, request.index, row));
}

__device__ inline float log2_ratio_of(const Pair& pair) {
    const float log2_p = law_log2(pair.target_law, load_logit(pair.target, pair.drafted));
    const float log2_q =
        pair.dense ? law_log2(pair.draft_law, load_logit(pair.draft, pair.drafted)) : 0.0f;
    return log2_ratio(log2_p, log2_q);
}

__device__ inline Pair pair_of(
    const Params& p, const Request& request, int row, const Row<TargetLogit>& target,
    const Law& target_law, const Law& draft_law) {
    const i64 drafted = integer_at(drafts_of(p, request.index), row);
    const Row<DraftLogit> draft = draft_row_in_target_ids(p, request.slot, row);
    return {target, draft, target_law, draft_law, request.dense, drafted, 0.0f};
}

// Whether the row's draft token survives as far as this row tells, which under policies that judge
// whole drafts is always; `result` takes the evidence.
__device__ COLD bool judge_draft(
    const Params& p, const Workspace& w, Shared& shared, const Request& request, int row,
    const Pair& pair, RowResult& result) {
    if (request.strict) return result.token == pair.drafted;
    if (POLICY == SYNTHETIC) return uniform_of(p, request.index, row) < p.rates[row];
    if (POLICY == PROBABILISTIC)
        return accepts(uniform_of(p, request.index, row), log2_ratio_of(pair));
    if (POLICY == BLOCK) {
        result.evidence = log2_ratio_of(pair);
        return true;
    }
    const Mass* stats = target_stats(p, w, request.start + row);
    if (POLICY == FLY) {
        result.evidence = entropy_of(shared.slots, pair.target, stats, pair.target_law);
        result.variation = variation_of(shared.slots, pair, {}, true);
        return true;
    }
    const Leniency leniency =
        leniency_of(p, shared.slots, shared.scratch, pair.target, stats, pair.target_law);
    result.variation = variation_of(shared.slots, pair, leniency, false);
    return forgives(leniency, pair.target_law, load_logit(pair.target, pair.drafted));
}

__device__ inline RowResult judge_usable_row(
    const Params& p, const Workspace& w, Shared& shared, const Request& request, int row,
    const Row<TargetLogit>& target, bool* survives) {
    const Law law = shared.laws[0], draft_law = shared.laws[1];
    RowResult result = {law.max, law.threshold, law.log2_sum, law.usable, 1, -1, 0.0f, 0.0f};
    *survives = false;
    if (!law.usable) return result;
    if (SAMPLES_EVERY_ROW || request.greedy)
        result.token = static_cast<int>(
            target_token(p, w, shared.slots, request, row, target, law));
    *survives = true;
    if (row == request.num_drafts) return result;
    result.draft_usable = !request.dense || draft_law.usable;
    *survives = result.draft_usable;
    if (!*survives) return result;
    const Pair pair = pair_of(p, request, row, target, law, draft_law);
    *survives = judge_draft(p, w, shared, request, row, pair, result);
    return result;
}

// By all compute warps. Returns the request's verdicts before and after this one.
__device__ COLD void judge_row(
    const Params& p, const Workspace& w, const Control& control, Shared& shared,
    const Request& request, int row, u64* before, u64* after) {
    RowResult result = {};
    bool survives = false;
    if (row < request.num_rows) {
        const Adjustment adjustment =
            ADJUSTED ? adjustment_of(p, request.index, request.slot, row) : Adjustment{};
        const Row<TargetLogit> target =
            target_row(p, request.start + row, ADJUSTED ? &adjustment : nullptr);
        find_laws(p, w, shared, request, row, target,
                  request.dense && row < request.num_drafts);
        result = judge_usable_row(p, w, shared, request, row, target, &survives);
    }
    const u64 bits = (survives ? 1ull : 1ull << 32 | 1ull) << row;
    if (threadIdx.x == 0) {
        if (row < request.num_rows) {
            w.rows[request.start + row] = result;
            if (request.dense && row < request.num_drafts) {
                const Law& law = shared.laws[1];
                w.drafts[request.index * p.max_spec_len + row] = {
                    law.max, law.threshold, law.log2_sum, law.usable};
            }
        }
        shared.verdicts = or_acq_rel(control.verdicts + request.index, bits);
    }
    everyone().sync();
    *before = shared.verdicts;
    *after = *before | bits;
    everyone().sync();
}

// Whether enough rows are judged: all, or all up to the first final one.
__device__ inline bool is_decided(u64 verdicts, int num_rows) {
    const u32 judged = static_cast<u32>(verdicts), final = static_cast<u32>(verdicts >> 32);
    const u32 needed = final ? final ^ (final - 1) : ~0u >> (32 - (num_rows ? num_rows : 1));
    return (judged & needed) == needed;
}
