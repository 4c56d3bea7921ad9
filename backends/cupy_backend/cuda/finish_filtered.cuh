// What a request's only CTA does where rows are filtered: it takes statistics as they come, a warp a row, finds what
// they tell of laws, decides and draws. Rows behind the first that does not pass may lack statistics.
#pragma once
#include "noise.cuh"
#include "together.cuh"

// By a warp.
__device__ inline void take_statistics(Mass* words, Mass* to, int num_blocks) {
    constexpr int count = Statistics::COUNT;
#pragma unroll 1
    for (int from = 0; from < num_blocks; from += count * LANES) {
        Arriving<count> arriving;
        const int first = from + lane_id();
        arriving.load(words, num_blocks, first, LANES);
        arriving.take(words, num_blocks, first, LANES);
#pragma unroll
        for (int i = 0; i < count; ++i)
            if (first + i * LANES < num_blocks) to[first + i * LANES] = mass_in(arriving.words[i]);
    }
    __syncwarp();
}

// Every warp another row.
__device__ inline void note_arriving_laws(const Params& p, Shared& shared) {
    const GlobalPlaces places = {p, shared.request};
    const Parts parts(shared.request);
#pragma unroll 1
    for (int part = warp_id(); part < parts.count; part += CTA_WARPS) {
        const int row = parts.row(part);
        const bool draft = parts.draft(part);
        Mass* stats = stats_of(places, place_of(row, draft));
        take_statistics(draft ? places.announced_draft(row) : places.announced(row), stats,
                        num_blocks_of(draft ? p.draft_vocab_size : p.vocab_size));
        note_law(shared, stats, row, draft);
    }
}

// The target's own samples, a team a row, up to the first that differs from the draft.
__device__ inline int sample_noted_rows(
    const Params& p, const GlobalPlaces& places, Shared& shared, const KnownNoise& noise, Verdict& verdict) {
    constexpr int teams = CTA_WARPS / DrawTeam::WARPS;
    const int num_rows = shared.request.num_rows;
    for (int first = 0; first < num_rows; first += teams) {
        const int row = first + warp_id() / DrawTeam::WARPS;
        if (row < num_rows && shared.target_laws[row].is_usable())
            target_token(shared, row, places.target_stats(row), noise.of_row(p, row));
        meet_in_cta();
        const int end = first + teams < num_rows ? first + teams : num_rows;
        const int failed = first_failure(shared, first, end, verdict);
        if (failed < end) return failed;
    }
    return num_rows;
}

// The first row that does not pass, when all that has to be known of laws is.
__device__ inline int judge_noted_rows(
    const Params& p, const GlobalPlaces& places, Shared& shared, Scratch& scratch, const KnownNoise& noise,
    Verdict& verdict) {
    verdict = PASSES;
    if (shared.request.strict) return sample_noted_rows(p, places, shared, noise, verdict);
    const int first = first_failure(shared, 0, shared.request.num_rows, verdict);
    if (!asks_for_laws(shared, first, verdict)) return first;
    const Judged judged = judge_open(shared, scratch, noise, first, verdict);
    verdict = judged.verdict;
    return judged.first;
}

__device__ inline void finish_filtered(const Params& p, Shared& shared, Scratch& scratch, KnownNoise& noise) {
    const GlobalPlaces places = {p, shared.request};
    if (warp_id() == CTA_WARPS - 1) gather_evidence(p, shared);
    find_noise(p, shared.request, noise, shared.request.num_rows);
    meet_in_cta();
    note_arriving_laws(p, shared);
    meet_in_cta();
    Verdict verdict;
    const int first = judge_noted_rows(p, places, shared, scratch, noise, verdict);
    const Decision found = decide(p, shared, first, verdict);
    if (thread_id() == 0) shared.decision = found;
    meet_in_cta();
    const int row = shared.decision.num_accepted, ending = shared.decision.ending;
    const Mass* stats = places.target_stats(row);
    if (shared.foregone != static_cast<int>(NO_TOKEN)) {
        finish_foregone(shared);
    } else if (ending == FROM_RESIDUAL) {
        finish_row(shared, row, stats, noise.of_row(p, row));
    } else if (ending == FROM_TARGET && is_kept_in_part(shared, row)) {
        finish_kept(shared, row, stats);
    } else if (warp_id() < DrawTeam::WARPS) {
        finish_from_target(shared, stats, noise.of_row(p, row));
    }
}
