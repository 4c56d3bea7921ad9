// The randomness of races among a request's blocks, found while its CTAs wait for each other.
#pragma once
#include "finish.cuh"

constexpr int NOISE_ROWS = 8;      // whose noise is found beforehand
constexpr int NOISE_BLOCKS = 512;  // of rows that have no more
constexpr int STATS_ROWS = ANNOUNCED ? 4 : 1;  // whose statistics are kept

struct KnownNoise {
    Noise quads[NOISE_ROWS][NOISE_BLOCKS / 4];
    Mass stats[STATS_ROWS][ANNOUNCED ? NOISE_BLOCKS : 1];

    // Of a row's blocks, or null.
    __device__ Mass* stats_of_row(const Params& p, int row) {
        const bool kept = ANNOUNCED && row < STATS_ROWS && num_blocks_of(p.vocab_size) <= NOISE_BLOCKS;
        return kept ? stats[row] : nullptr;
    }

    // That of a row's blocks, or null.
    __device__ const Noise* of_row(const Params& p, int row) const {
        const bool known = row < NOISE_ROWS && num_blocks_of(p.vocab_size) <= NOISE_BLOCKS;
        return known ? quads[row] : nullptr;
    }
};

// Which draw a row ends in if it is the request's last.
__device__ inline DrawKey ending_key(const Params& p, const Request& request, int row) {
    const bool from_residual = HAS_RESIDUAL && !request.strict && row < request.num_drafts;
    return from_residual ? recover_key(request, row) : target_key(p, request, row);
}

// Of so many rows, by teams from `first_team` on, a team a row and a thread a quad, to be read behind a
// barrier.
__device__ inline void find_noise(
    const Params& p, const Request& request, KnownNoise& known, int num_rows, int first_team = 0) {
    static_assert(4 * DrawTeam::THREADS == NOISE_BLOCKS);
    const int quad = static_cast<int>(thread_id()) % DrawTeam::THREADS;
    const int num_blocks = num_blocks_of(p.vocab_size);
    if (GREEDY || request.greedy || num_blocks > NOISE_BLOCKS || 4 * quad >= num_blocks) return;
#pragma unroll 1
    for (int row = warp_id() / DrawTeam::WARPS - first_team;
         row < num_rows && row < NOISE_ROWS;
         row += CTA_WARPS / DrawTeam::WARPS - first_team)
        known.quads[row][quad] = noise_of(ending_key(p, request, row), BLOCK_LEVEL, quad);
}
