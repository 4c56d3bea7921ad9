// Where the CTAs of a launch meet in device memory. Control words are 0 before a launch, and the
// last who needs one puts it back to 0.
#pragma once
#include "request.cuh"

constexpr int MAX_COUNTED = 1024;   // distinct logits of a row that are counted
constexpr int MAX_SHARED_ROWS = 8;  // of a request, that its CTAs count together
constexpr int MAX_SHARING = 160;    // requests whose CTAs do; there is no room for more that have two

// Of one request.
struct Control {
    u32* arrived;  // CTAs that have read their share
    u32* counted;  // CTAs that have counted their share of rows that statistics leave open
    u32* left;     // CTAs that need nothing more
    u32* counts;   // [MAX_SHARED_ROWS, MAX_COUNTED], or null
};

constexpr int CONTROL_HEAD = 2;  // words: the next request
constexpr int REQUEST_WORDS = 3;

__device__ inline Control control_of(const Params& p, i64 request) {
    u32* words = p.control + CONTROL_HEAD;
    u32* counters = words + request * REQUEST_WORDS;
    u32* counts = words + p.num_reqs * REQUEST_WORDS + request * MAX_SHARED_ROWS * MAX_COUNTED;
    return {counters, counters + 1, counters + 2, request < MAX_SHARING ? counts : nullptr};
}
