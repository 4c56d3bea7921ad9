// How large pieces are. Given by macros: WAY, what becomes of products; TOKENS, at most; ROWS of a tile; SPLITS, CTAs
// that share a tile's columns; BLOCKS of 64 columns in a stage; STAGES of rows, of which AHEAD are on their way, and
// TOKEN_STAGES; SHARED_BYTES.
#pragma once

constexpr int COLUMNS = 64;                            // of a block: a line of 128 bytes
constexpr int SIXTEENS = ROWS / 16;                    // of a tile
constexpr int GROUPS = (ROWS + 63) / 64;               // of four warps, which multiply 64 rows, of which some may not be there
constexpr int CONSUMERS = GROUPS * 128, WARPS = GROUPS * 4;
constexpr int FINDERS = 128;                           // find norms meanwhile
constexpr int THREADS = CONSUMERS + 64 + FINDERS;      // one warp streams weights, and one tokens
constexpr int ROW_BYTES = ROWS * COLUMNS * 2, TOKEN_BYTES = TOKENS * COLUMNS * 2;  // of a block
constexpr int SUMS = TOKENS / 2;                       // of a thread
constexpr int ENDERS = SPLITS < TOKENS / 8 ? SPLITS : TOKENS / 8;  // CTAs, the first of a cluster, that end eight tokens or more
constexpr int OWN = SUMS / ENDERS;                     // of these, that such a CTA ends, and its tokens
constexpr int OWN_TOKENS = TOKENS / ENDERS;
constexpr int LINE_BYTES = ROWS * 2 + 16;              // of a token's numbers, kept for storing
static_assert(AHEAD <= STAGES && ROWS % 16 == 0 && OWN_TOKENS % 8 == 0, "whole tiles");
