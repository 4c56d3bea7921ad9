// What a launch is told, as one struct passed by value. Mirrored field by field in params.py.
// Nothing here computes; a pointer may be null where its comment says so.
#pragma once
#include "variant.cuh"

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

constexpr int BLOCK_SIZE = 512;  // token ids per block, as in core/race.py
constexpr int LANES = 32;
constexpr int PER_LANE = BLOCK_SIZE / LANES;
constexpr int CTA_THREADS = CTA_WARPS * LANES;
constexpr int CTAS_PER_MULTIPROCESSOR = 32 / CTA_WARPS;
constexpr int STATIC_SHARED_BYTES = 48 * 1024;  // what a CTA can have without asking
constexpr int MAX_DRAFTS = 127;
constexpr int MAX_ROWS = MAX_DRAFTS + 1;
constexpr int MAX_RATES = POLICY == SYNTHETIC ? MAX_DRAFTS : 1;

enum Stream { TARGET_STREAM, DRAFT_STREAM, ACCEPT_STREAM, RECOVER_STREAM };
enum Level { BLOCK_LEVEL, TOKEN_LEVEL };
enum Status { STATUS_OK = 0, TARGET_INVALID = 1, DRAFT_INVALID = 2, DRAFT_TOKEN_INVALID = 4 };

// int32 or int64, any stride, in bytes.
struct Integers {
    const void* data;
    i64 stride;
    i64 wide;
};

struct Recipe {
    const float* temperature;
    const float* min_p;
    const int* top_k;
    const float* top_p;
};

struct Mass;

// What is asked for first comes first: the first reader of a line of it waits for memory.
struct Params {
    const void* target_logits;  // [num_logits, vocab_size]
    i64 target_stride;
    i64 vocab_size;
    i64 max_spec_len;
    i64 group;      // CTAs that share a request; 1 in narrow launches
    i64 group_inverse;  // 2^20 by that, rounded up
    i64 share;      // blocks of each, of a request with all its rows
    i64 inverse;    // 2^32 by the blocks of such a request's target row and the draft row beside it
    i64 rows_known;  // every request has max_spec_len + 1 rows, unless row_starts says otherwise
    i64 target_elements;  // of a row of target_logits
    const int* target_map;  // [vocab_size], the element of each id or -1; null: the same
    Mass* announced;  // 0 like control: [num_logits, target blocks]
    u32* control;   // 0 everywhere before and after every step
    Integers slots;  // null data: request i in slot i
    const void* draft_logits;  // [num_slots, >= max_spec_len, draft_vocab_size] or null
    i64 draft_slot_stride;
    i64 draft_row_stride;
    i64 draft_vocab_size;
    Mass* announced_drafts;  // [num_reqs * max_spec_len, draft blocks]
    const i64* seeds;
    Integers positions;
    Integers row_starts;  // [num_reqs + 1]; null data: one row per request
    Integers draft_ids;  // stride: of requests
    i64 draft_ids_step;
    Recipe target;
    Recipe draft;
    i64 num_reqs;
    i64 draft_index;  // of the bonus token
    i64 stream;  // of the bonus token
    i64 invalid_status;  // what a bad row of target_logits is called
    i64* token_ids;  // [num_reqs, max_spec_len + 1]
    int* num_accepted;  // or null
    int* status;
    float* variation;  // [num_reqs, max_spec_len + 1] or null
    u64* rivals;  // 0 like control: [num_reqs, max_spec_len + 1, <= LANES], see row_piece.cuh and pair_piece.cuh
    const int* draft_map;   // the same for draft_logits
    const bool* prompt_mask;  // [num_slots, vocab_size] or null
    i64 prompt_stride;
    const int* output_counts;  // [num_slots, vocab_size] or null
    i64 counts_stride;
    const i64* bias_ids;  // [num_reqs, num_bias] or null
    const float* bias_values;
    i64 num_bias;
    const float* repetition;  // [num_reqs] or null, as the next two
    const float* presence;
    const float* frequency;
    Mass* target_stats;  // as announced
    Mass* draft_stats;   // as announced_drafts
    float* residuals;           // [num_reqs * max_spec_len, target blocks], under BLOCK
    i64 num_logits;
    i64 top_n;
    i64 window;
    double epsilon;
    double delta;
    double rates[MAX_RATES];
};
