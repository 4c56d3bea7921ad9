// What the last CTA of a request does: it takes all statistics and finishes. All CTAs of the launch are on the
// device at once, so that the others go on whatever it waits for.
#pragma once
#include "announced_rows.cuh"

// By one warp, which has the decision.
__device__ inline void end_with(const Shared& shared, const Decision& decision) {
    const i64 token = decision.ending == FROM_TARGET
        ? static_cast<i64>(shared.tokens[decision.num_accepted])
        : NO_TOKEN;
    for (int place = lane_id(); place <= shared.params.max_spec_len; place += LANES)
        write_outputs(shared, decision, token, place);
}

// The same of a request of few rows that is judged by equality. A lane has a row; what it needs for that is asked
// for before the row's sample is known.
struct Emission {
    i64* emitted;
    float* variation;
    int* status;
    int* num_accepted;
    int drafted;
    int num_drafts;
    int status_before;
    int invalid_status;
    bool is_there;

    __device__ static bool has_room(const Params& p) { return p.max_spec_len < LANES; }
    __device__ static Emission of(const Shared& shared) {
        const Params& p = shared.params;
        const Request& request = shared.request;
        const int lane = lane_id(), width = static_cast<int>(p.max_spec_len) + 1;
        const i64 first = static_cast<i64>(request.index) * width;
        return {p.token_ids + first + lane, p.variation, p.status + request.index,
                p.num_accepted ? p.num_accepted + request.index : nullptr, shared.drafts[lane],
                request.num_drafts, request.status, static_cast<int>(p.invalid_status), lane < width};
    }
    // All rows up to `end` have samples, and all pass or one of them is the first that does not.
    __device__ void write(const Shared& shared, int end) const {
        const int lane = lane_id(), token = shared.tokens[lane];
        const float max = shared.target_laws[lane].max;
        const bool flawed = lane < end && !(max > -INFINITY && max < INFINITY);
        const bool differs = lane < end && lane < num_drafts && token != drafted;
        const u32 all_flawed = __ballot_sync(ALL_LANES, flawed);
        const u32 failed = __ballot_sync(ALL_LANES, flawed || differs);
        const int kept = failed ? __ffs(static_cast<int>(failed)) - 1 : num_drafts;
        const bool stopped = end == 0 || (all_flawed >> kept & 1);
        if (is_there) *emitted = lane < kept ? drafted : lane == kept && !stopped ? token : -1;
        if (lane == 0) *status = status_before | (stopped ? invalid_status : 0);
        if (lane == 0 && num_accepted) *num_accepted = kept;
        if (is_there && variation) variation[shared.request.index * (shared.params.max_spec_len + 1) + lane] = 0.0f;
    }
};

// The target's own samples of all rows, a team a row, up to the first that differs from the draft; `known` as for
// sample_row.
__device__ inline void finish_samples(
    const Params& p, const GlobalPlaces& places, Shared& shared, const KnownNoise* known = nullptr) {
    constexpr int teams = CTA_WARPS / DrawTeam::WARPS;
    const int num_rows = shared.request.num_rows;
    Verdict verdict = PASSES;
    int failed = 0;
#pragma unroll 1
    for (int first = 0, end = 0;; first = end) {
        const int row = first + warp_id() / DrawTeam::WARPS;
        end = first + teams < num_rows ? first + teams : num_rows;
        if (row < end) sample_row(p, places, shared, row, known);
        meet_in_cta();
        if (end == num_rows && warp_id() > 0) return;
        if (end == num_rows && Emission::has_room(p)) return Emission::of(shared).write(shared, end);
        failed = first_failure(shared, first, end, verdict);
        if (end == num_rows) break;
        if (failed == end) continue;
        const int rest = (num_rows - end) * num_blocks_of(p.vocab_size);
        take_words(places.announced(end), nullptr, rest, thread_id(), CTA_THREADS);
        if (warp_id() > 0) return;
        break;
    }
    end_with(shared, decide(p, shared, failed, verdict));
}

constexpr int BONUS_TEAM = 2;     // draws the bonus token before anybody knows whether it is wanted
constexpr int EVIDENCE_WARP = 7;  // those before it find laws
constexpr int NOISE_TEAM = 3;

// Every warp another row of those that draft tokens are judged by.
__device__ inline void find_announced_laws(
    const Params& p, const GlobalPlaces& places, Shared& shared, KnownNoise& known) {
    const bool dense = DENSE && shared.request.dense;
    const int count = shared.request.num_drafts * (dense ? 2 : 1);
#pragma unroll 1
    for (int part = warp_id(); part < count; part += EVIDENCE_WARP) {
        const int row = dense ? part / 2 : part;
        const bool draft = dense && part % 2;
        const Law law = find_announced_law(p, places, shared, known, row, draft);
        if (lane_id() > 0) continue;
        if (DENSE && draft)
            shared.draft_laws[row] = law;
        else
            shared.target_laws[row] = law;
    }
}

// `is_known`: noise of a request that is judged by equality has been found.
__device__ inline void finish_announced(const Params& p, Shared& shared, KnownNoise& known, bool is_known) {
    const GlobalPlaces places = {p, shared.request};
    if (POLICY == STRICT || shared.request.strict)
        return finish_samples(p, places, shared, POLICY == STRICT && is_known ? &known : nullptr);
    const int bonus = shared.request.num_drafts, team = warp_id() / DrawTeam::WARPS;
    if (team == BONUS_TEAM) {
        if (shared.request.num_rows > 0) sample_row(p, places, shared, bonus);
    } else if (team == NOISE_TEAM) {
        if (POLICY != SYNTHETIC) find_noise(p, shared.request, known, bonus, NOISE_TEAM);
    } else if (warp_id() == EVIDENCE_WARP) {
        gather_evidence(p, shared);
    } else {
        find_announced_laws(p, places, shared, known);
    }
    meet_in_cta();
    Verdict verdict = PASSES;
    const int first = first_failure(shared, 0, shared.request.num_rows, verdict);
    const Decision decision = decide(p, shared, first, verdict);
    const int row = decision.num_accepted;
    // A draft that synthetic acceptance ends has its bonus row there.
    if (POLICY == SYNTHETIC || decision.ending == STOPPED || (decision.ending == FROM_TARGET && row == bonus)) {
        if (warp_id() == 0) end_with(shared, decision);
        return;
    }
    if (thread_id() == 0) shared.decision = decision;
    const Mass* kept = known.stats_of_row(p, row);
    const Mass* stats = kept != nullptr ? kept : places.target_stats(row);
    const Noise* noise = known.of_row(p, row);
    if (POLICY == PROBABILISTIC && decision.ending == FROM_RESIDUAL)
        return finish_row(shared, row, stats, noise);
    if (warp_id() >= DrawTeam::WARPS) return;
    my_team<DrawTeam>().sync();
    const Row<TargetLogit> target = target_row(p, shared.request, row);
    if (kept == nullptr || !can_draw_quickly(target)) return finish_from_target(shared, stats, noise);
    // Beyond the row's blocks no noise was found: a NaN there would win.
    const int quad = my_team<DrawTeam>().thread();
    Noise mine = {};
    if (!shared.request.greedy && 4 * quad < target.num_blocks()) mine = noise[quad];
    finish_quickly(p, shared, target, row, stats, mine);
}
