// Verification by several CTAs a request, for batches with fewer requests than the device has room
// for CTAs. All rows are read at once; one of them goes on, the last by its number or by its arrival. Under
// block verification, which needs residuals of many rows, everyone waits for all and comes to the same
// decision. Launches are cooperative.
#include "finish_announced.cuh"
#include "share.cuh"
#include "together.cuh"

// By one warp.
__device__ inline Law find_law(
    const Params& p, const GlobalPlaces& places, const Request& request, int row, bool draft) {
    return draft ? plain_law<true>(places.draft_stats(row), num_blocks_of(p.draft_vocab_size),
                                   request.draft_scale, request.draft_temperature == 0.0f)
                 : plain_law<true>(places.target_stats(row), num_blocks_of(p.vocab_size),
                                   request.scale, request.greedy);
}

// Every warp another row.
__device__ inline void find_laws(
    const Params& p, const GlobalPlaces& places, Shared& shared) {
    const Parts parts(shared.request);
#pragma unroll 1
    for (int part = warp_id(); part < parts.count; part += CTA_WARPS) {
        const int row = parts.row(part);
        const bool draft = parts.draft(part);
        const Law law = find_law(p, places, shared.request, row, draft);
        if (lane_id() > 0) continue;
        if (DENSE && draft)
            shared.draft_laws[row] = law;
        else
            shared.target_laws[row] = law;
    }
}

// The target's own samples, a team a row, up to the first that differs from the draft.
__device__ inline int sample_rows(
    const Params& p, const GlobalPlaces& places, Shared& shared, const KnownNoise& noise,
    Verdict& verdict) {
    const DrawTeam team = my_team<DrawTeam>();
    constexpr int teams = CTA_WARPS / DrawTeam::WARPS;
    const int num_rows = shared.request.num_rows;
    int failed = 0;
    for (int first = 0; first < num_rows; first += teams) {
        const int row = first + warp_id() / DrawTeam::WARPS;
        if (row < num_rows) {
            const Law law = FILTERED ? shared.target_laws[row]
                                     : sampling_law(team, shared.slots, places.target_stats(row),
                                                    num_blocks_of(p.vocab_size),
                                                    shared.request.scale, shared.request.greedy);
            if (!FILTERED && team.thread() == 0) shared.target_laws[row] = law;
            team.sync();
            if (law.is_usable())
                target_token(shared, row, places.target_stats(row), noise.of_row(p, row));
        }
        meet_in_cta();
        const int end = first + teams < num_rows ? first + teams : num_rows;
        failed = first_failure(shared, first, end, verdict);
        if (failed < end) return failed;
    }
    return num_rows;
}

// Which all warps come to, from the first row that does not pass. In shared memory it is to be read
// behind a barrier.
__device__ inline Decision decide_together(
    const Params& p, Shared& shared, int first, Verdict verdict) {
    constexpr bool leaves_notes = POLICY == BLOCK;
    Decision decision;
    if (!leaves_notes || warp_id() == 0) decision = decide(p, shared, first, verdict);
    if (thread_id() == 0) shared.decision = decision;
    if (!leaves_notes && !FILTERED) return decision;
    meet_in_cta();
    return shared.decision;
}

// This CTA's share of one row's residual masses.
__device__ inline void find_masses(Shared& shared) {
    const Member member = shared.member;
    visit_residual(&shared.pair, member.index + member.count * warp_id(),
                   member.count * CTA_WARPS, [&] { return num_blocks_of(shared.params.vocab_size); },
                   [&](int block, float mass) {
                       const GlobalPlaces places = {shared.params, shared.request};
                       places.residuals(shared.pair_row)[block] = mass;
                   });
}

// The share of this CTA of the residuals that are tested. True for the last.
__device__ inline bool find_residuals(Shared& shared) {
    const GlobalPlaces places = {shared.params, shared.request};
#pragma unroll 1
    for (int row = last_candidate(shared, shared.decision.kept); row > 0;) {
        if (thread_id() == 0) set_pair(shared, row, places.target_stats(row));
        meet_in_cta();
        find_masses(shared);
        row = last_candidate(shared, shared.pair_row);
        meet_in_cta();
    }
    return arrive(shared, shared.control.left, shared.member.count);
}

// By a team: the last row that is kept, with its residual's best block if it is not the first.
__device__ COLD void choose_residual(Shared& shared, const KnownNoise& noise) {
    const GlobalPlaces places = {shared.params, shared.request};
    const DrawTeam team = my_team<DrawTeam>();
    const int num_blocks = num_blocks_of(shared.params.vocab_size);
    int row = last_candidate(shared, shared.decision.kept);
    while (!block_keeps(team, shared, places.residuals(row), num_blocks, row))
        row = last_candidate(shared, row);
    if (thread_id() == 0) {
        set_pair(shared, row, places.target_stats(row));
        shared.decision.num_accepted = row;
    }
    if (row > 0)
        find_best_residual(
            shared, places.residuals(row), num_blocks, noise.of_row(shared.params, row));
}

// By the only CTA that is left, under block verification. The first row's residual is never tested, and no
// more of it is read than its race needs.
__device__ COLD void finish_block(Shared& shared, const KnownNoise& noise) {
    const GlobalPlaces places = {shared.params, shared.request};
    if (warp_id() < DrawTeam::WARPS) choose_residual(shared, noise);
    meet_in_cta();
    if (shared.decision.num_accepted == 0)
        finish_row(shared, 0, places.target_stats(0), noise.of_row(shared.params, 0));
    else if (warp_id() < DrawTeam::WARPS)
        finish_from_residual(shared);
}

__device__ inline void forget(const Control& control) {
    *control.arrived = 0;
    *control.counted = 0;
    *control.left = 0;
}

// Whether all of a request's CTAs go on together.
__device__ inline bool waits_for_all(const Shared& shared) {
    return (POLICY == BLOCK || (FILTERED && POLICY == PROBABILISTIC)) && !shared.request.strict;
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS, CTAS_PER_MULTIPROCESSOR)
    wide(const __grid_constant__ Params p) {
    __shared__ Shared shared;
    __shared__ KnownNoise noise;
    alignas(16) __shared__ u64 scratch[FILTERED ? (sizeof(Scratch) + 7) / 8 : 1];
    static_assert(sizeof(shared) + sizeof(noise) + sizeof(scratch) <= STATIC_SHARED_BYTES);
    const u32 index = static_cast<u32>(blockIdx.x) * static_cast<u32>(p.group_inverse) >> 20;
    const GlobalPlaces places = {p, shared.request};
    const Member member = {static_cast<int>(blockIdx.x - index * static_cast<u32>(p.group)),
                           static_cast<int>(p.group)};
    if (FILTERED) close_all(shared);
    const bool apart = ends_apart(p, member) && knows_request(p, shared, noise, member, index);
    if (!apart) {
        read_share(p, shared, member, index);
        if (ANNOUNCED) copy_params(p, shared);
        meet_in_cta();
    }
    if (ANNOUNCED) {
        if (apart || shared.flags[0]) finish_announced(p, shared, noise, apart && has_noise_at_once(p));
        return;
    }
    // The last warps of teams: the noise of few blocks is none of theirs.
    if (thread_id() == CTA_THREADS - LANES) {
        const Control& control = shared.control;
        const bool waits = waits_for_all(shared);
        u32 arrived = add_acq_rel(control.arrived, 1u) + 1;
        const u32 expected = static_cast<u32>(shared.member.count);
        shared.flags[0] = arrived == expected;
        if (!waits && arrived == expected) forget(control);
        while (waits && arrived != expected) arrived = load_acquire(control.arrived);
    } else if (warp_id() == CTA_WARPS - 1 - DrawTeam::WARPS) {
        gather_evidence(p, shared);
    } else if (FILTERED && warp_id() == 2) {
        gather_filters(p, shared, index);
    }
    find_noise(p, shared.request, noise, shared.request.num_rows);
    meet_in_cta();
    if (!waits_for_all(shared) && !shared.flags[0]) return;
    Verdict verdict = PASSES;
    int first;
    bool alone = false;
    if (FILTERED) {
        note_laws(shared);
        meet_in_cta();
        if (has_open_rows(shared))
            settle_open(shared, reinterpret_cast<Scratch&>(scratch), waits_for_all(shared));
    }
    if (shared.request.strict) {
        first = sample_rows(p, places, shared, noise, verdict);
    } else {
        if (!FILTERED) {
            find_laws(p, places, shared);
            meet_in_cta();
        }
        first = first_failure(shared, 0, shared.request.num_rows, verdict);
        if (asks_for_laws(shared, first, verdict)) {
            const Judged judged = judge_open(shared, reinterpret_cast<Scratch&>(scratch), noise, first, verdict);
            if (judged.is_over) return;
            first = judged.first;
            verdict = judged.verdict;
            alone = judged.alone;
        }
    }
    const Decision decision = decide_together(p, shared, first, verdict);
    if (alone) {
        if (thread_id() == 0) forget(shared.control);
    } else if (waits_for_all(shared)) {
        if (POLICY == BLOCK && decision.ending == FROM_RESIDUAL) {
            if (!find_residuals(shared)) return;
            if (has_open_rows(shared)) forget_counts(shared);
            if (thread_id() == 0) forget(shared.control);
            finish_block(shared, noise);
            return;
        }
        if (has_open_rows(shared)) {
            if (!leave_open(shared, reinterpret_cast<Scratch&>(scratch))) return;
            if (thread_id() == 0) forget(shared.control);
        } else {
            // Whoever came last waits for nobody, so the others clear up.
            const u32 others = static_cast<u32>(shared.member.count) - 1;
            const bool last = shared.flags[0];
            if (thread_id() == 0 &&
                (last ? others == 0 : add_acq_rel(shared.control.left, 1u) + 1 == others))
                forget(shared.control);
            if (!last) return;
        }
    }
    const int row = decision.num_accepted;
    const Mass* stats = places.target_stats(row);
    if (JUDGES_OPEN_ROWS && shared.foregone != static_cast<int>(NO_TOKEN)) {
        finish_foregone(shared);
    } else if (POLICY == PROBABILISTIC && decision.ending == FROM_RESIDUAL) {
        finish_row(shared, row, stats, noise.of_row(p, row));
    } else if (decision.ending == FROM_TARGET && is_kept_in_part(shared, row)) {
        finish_kept(shared, row, stats);
    } else if (warp_id() < DrawTeam::WARPS) {
        my_team<DrawTeam>().sync();
        finish_from_target(shared, stats, noise.of_row(p, row));
    }
}
