// The argument of every launch, one struct passed by value; params.py reads its fields from this file. A
// pointer may be null if its comment says so.
#pragma once

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

constexpr int BLOCK_SIZE = 512;  // token ids, as in core/race.py
constexpr int LANES = 32;
constexpr int PER_LANE = BLOCK_SIZE / LANES;
constexpr int MAX_DRAFTS = 127;
constexpr int MAX_ROWS = MAX_DRAFTS + 1;

// The change of a row's logits: none, a mask, or also bias and penalties.
enum Change { NO_CHANGE, MASK, ANY_CHANGE };
constexpr Change MOST_CHANGE = static_cast<Change>(VARIANT_CHANGE);  // of a row of the batch
constexpr bool ADJUSTED = MOST_CHANGE != NO_CHANGE;

enum LogitType { BF16, FP16, FP32, MIXED };
constexpr int ONLY_TYPE = VARIANT_LOGITS;  // the type of all logits; MIXED: each tensor has its own

enum Policy { POLICIES };  // the classes of variant.py
enum Stream { TARGET_STREAM, DRAFT_STREAM, ACCEPT_STREAM, RECOVER_STREAM };
enum Level { BLOCK_LEVEL, TOKEN_LEVEL };
enum Status {
    STATUS_OK = 0,
    TARGET_INVALID = 1,
    DRAFT_INVALID = 2,
    DRAFT_TOKEN_INVALID = 4,
    NOTHING_ALLOWED = 8
};

// int32 or int64, any stride, in bytes.
struct Integers {
    const char* data;
    i64 stride;
    i64 wide;
};

struct Recipe {
    const float* temperature;
    const float* min_p;
    const int* top_k;
    const float* top_p;
};

// Of a block or a row: the largest logit, and the sum of 2^((logit - largest) * scale).
struct alignas(8) Mass {
    float max;
    float sum;
};

struct RowFacts;
struct Search;

struct Params {
    const char* target_logits;  // [num_logits, target_elements]
    i64 target_stride;          // bytes, as the next strides of logits
    i64 target_type;
    i64 target_elements;
    const int* target_map;  // [vocab_size]: the element of each id, or -1; null: the same
    i64 vocab_size;
    const char* draft_logits;  // [num_slots, max_spec_len or more, draft_vocab_size]
    i64 draft_slot_stride;
    i64 draft_row_stride;
    i64 draft_type;
    const int* draft_map;  // as target_map
    i64 draft_vocab_size;
    i64 dense;     // drafts have logits that the policy looks at
    i64 filtered;  // some request has a filter
    i64 policy;
    i64 num_reqs;
    i64 max_spec_len;
    i64 ends_early;    // the launch that reads rows ends requests, because every row has its sample
    i64 num_pieces;    // of a target row, or of a draft row if that has more
    i64 piece_blocks;  // the most blocks of a piece
    i64 num_looks;        // launches that look at rows again
    i64 tells_entropies;  // the launch that reads rows stores moments of unchanged rows for entropies
    i64 residual_blocks;  // the most blocks of a CTA that weighs residuals
    Integers slot_ids;  // null data: request i in slot i
    Integers entries;  // of requests among parameters; null data: request i has entry i
    Integers positions;
    Integers cu_num_logits;  // [num_reqs + 1]; null data: a row per request
    Integers draft_token_ids;  // stride: of requests
    i64 draft_step;
    const i64* seeds;
    Recipe target;
    Recipe draft;
    i64 stream;          // of the target's own samples
    i64 draft_index;     // of these
    i64 invalid_status;  // of a row of target_logits
    const bool* prompt_mask;  // [num_slots, vocab_size] or null
    const int* output_counts;
    const i64* bias_ids;  // [entries, num_bias] or null
    const float* bias_values;
    i64 num_bias;
    const u8* allowed_tokens;  // [num_masks, allowed_stride], a bit per token; or null
    i64 allowed_stride;        // bytes
    Integers allowed_rows;     // [num_logits], below 0 for no mask; null data: row i has mask i
    const float* repetition;  // [num_reqs], as the next two; null where prompt_mask is
    const float* presence;
    const float* frequency;
    i64 top_n;
    i64 window;
    i64* token_ids;     // [num_reqs, max_spec_len + 1]
    int* num_accepted;  // or null
    int* status;
    float* total_variation;         // [num_reqs, max_spec_len + 1] or null
    const bool* processed;    // [num_reqs]; this and the next ones: of logprobs
    float* emitted;  // [num_reqs, max_spec_len + 1]
    i64* top_token_ids;       // [num_reqs, max_spec_len + 1, num_logprobs]
    float* top;
    i64 num_logprobs;
    u64* tops;         // [num_reqs, max_spec_len + 1], 0 between calls: largest logits, if all are greedy
    u32* ends;         // [num_reqs], 0 between calls, see publish_end
    u32* arrivals;     // [num_reqs, max_spec_len + 1], 0 between calls, of pieces or of both laws
    u32* counted;      // [num_reqs, max_spec_len + 1, 2], the same of counted pieces of a side
    u32* judged;       // [num_reqs], the same of judged rows
    u32* counts;       // [num_reqs, max_spec_len + 1, 2, ROW_WORDS], 0 between calls; if pieces are
    RowFacts* facts;   // [num_reqs, max_spec_len + 1]
    Search* searches;  // [num_reqs, max_spec_len + 1, 2], if pieces are counted and looked at again
    Mass* target_stats;  // [num_reqs, max_spec_len + 1, target blocks]
    Mass* draft_stats;   // [num_reqs, max_spec_len, draft blocks]
    float* residuals;    // [num_reqs, max_spec_len, target blocks], under BLOCK
    u8* marks;           // [num_reqs, ids of target blocks], with penalties or many biases
    float* biases;       // the same shape, of named ids, with marks and biases
    double epsilon;
    double delta;
    double rates[MAX_DRAFTS];
};
