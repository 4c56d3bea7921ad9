// What is fixed when a kernel is compiled; the macros come from variant.py.
#pragma once

#ifndef KERNEL_WARPS
#define KERNEL_WARPS 16
#define KERNEL_MEETS_IN_MEMORY 0
#define KERNEL_MEETS_TWICE 0
#endif

constexpr int CTA_WARPS = KERNEL_WARPS;

enum Policy { STRICT, PROBABILISTIC, BLOCK, SYNTHETIC, TYPICAL, RELAXED, FLY };

constexpr Policy POLICY = VARIANT_POLICY;
constexpr bool FILTERED = VARIANT_FILTERED;  // some request has a filter
constexpr bool ADJUSTED = VARIANT_ADJUSTED;  // some request has bias or penalties
constexpr bool GREEDY = VARIANT_GREEDY;      // all requests are greedy: no exponential is needed
constexpr bool DENSE = VARIANT_DENSE;        // drafts come with logits that the policy looks at
constexpr int BERTH_BYTES = VARIANT_BERTHS;  // of a narrow CTA, for blocks on their way; 0: they are in registers

constexpr bool LOSSY_IN_Q = POLICY == TYPICAL || POLICY == RELAXED || POLICY == FLY;
constexpr bool SAMPLES_EVERY_ROW = POLICY == STRICT || POLICY == FLY;
constexpr bool HAS_RESIDUAL = POLICY == PROBABILISTIC || POLICY == BLOCK;
constexpr bool TESTS_RATIO = HAS_RESIDUAL;  // p against q at each draft token
// Whether a row's verdict waits for the whole draft.
constexpr bool JUDGES_WHOLE_DRAFT = POLICY == BLOCK || POLICY == FLY;
// Whether CTAs that share a request tell one of them what they found; else all of them wait, or count.
constexpr bool ANNOUNCED = !FILTERED && POLICY != BLOCK;
// Whether rows are judged by what is known of their laws, which are found where that leaves two answers.
constexpr bool JUDGES_OPEN_ROWS = FILTERED && POLICY == PROBABILISTIC;
// Some warps meet while others are elsewhere, and all of them meet later. Hardware allows for that at its
// barriers, but racecheck loses count: teams meet elsewhere, or all of a CTA meet twice.
constexpr bool MEETS_IN_MEMORY = KERNEL_MEETS_IN_MEMORY;
constexpr bool MEETS_TWICE = KERNEL_MEETS_TWICE;
constexpr bool SELECTS = FILTERED || POLICY == RELAXED;
