// Stage 3: laws of rows become verdicts on draft tokens, and those a decision. What it needs of
// logits is gathered before, while rows are on their way.
#pragma once
#include "acceptance.cuh"
#include "kept_race.cuh"
#include "stretch.cuh"

enum Verdict { PASSES, FAILS, TARGET_FLAWED, DRAFT_FLAWED, OPEN };
enum Ending { STOPPED, FROM_TARGET, FROM_RESIDUAL };

struct Decision {
    int ending;
    int num_accepted;
    int kept;  // draft tokens that could be judged
    int status;
};

// One of a request's CTAs.
struct Member {
    int index;
    int count;
    // Of so many places, each has a share; the last members have fewer, or none.
    __device__ int share(int total) const { return (total + count - 1) / count; }
    __device__ Stretch stretch(int share, int total) const {
        const int begin = index * share, end = begin + share;
        return {begin < total ? begin : total, end < total ? end : total};
    }
    // Whose a place is.
    __device__ int owner(int total, int place) const { return place / share(total); }
};

// What laws are asked for: the first row that does not pass, as far as is known, and why. `alone`: no other
// CTA of the request goes on, since some were looked for.
struct Asked {
    int first;
    Verdict verdict;
    bool alone;
};

// What a CTA knows of its request. Places that a variant does not use hold nothing.
struct Shared {
    Params params;
    Request request;
    Member member;
    Control control;
    Decision decision;
    int verdicts[2];  // see verdict_on
    Asked asked;
    Pair pair;  // whose residual is looked at
    u64 best;   // the pair's racer for the recovered token's block
    DrawKey recover_key;
    alignas(8) char pair_adjustment[ADJUSTED ? sizeof(Adjustment) : 8];
    int pair_row;
    Cursor cursors[CTA_WARPS];
    u64 slots[(ANNOUNCED ? 3 : 1) * CTA_WARPS];  // of stages that follow each other
    u32 flags[MAX_ROWS / 16];
    Law target_laws[MAX_ROWS];
    Filters filters[FILTERED ? 2 : 1];                 // of the target and of the draft
    bool is_lone[FILTERED ? MAX_ROWS : 1];             // target rows, see FoundLaw
    u32 open[FILTERED ? 2 * MAX_ROWS / LANES : 1];     // bits: laws that statistics leave open
    float sums[FILTERED ? 2 * MAX_ROWS : 1];           // of those, see FoundLaw
    float bounds[FILTERED ? 2 * MAX_ROWS : 1];         // the same
    float spreads[JUDGES_OPEN_ROWS ? 2 * MAX_ROWS : 1];  // the same
    float lowest[JUDGES_OPEN_ROWS ? 2 * MAX_ROWS : 1];   // the same
    Law draft_laws[DENSE ? MAX_DRAFTS : 1];
    int drafts[MAX_DRAFTS];
    int tokens[MAX_ROWS];                               // the target's own samples
    int foregone;  // the last token if it is known without its row's laws, or NO_TOKEN; see foregone.cuh
    float target_logits[MAX_DRAFTS];                    // of the draft tokens
    float draft_logits[DENSE ? MAX_DRAFTS : 1];         // the same
    float uniforms[MAX_DRAFTS];
    float log2_uniforms[POLICY == PROBABILISTIC ? MAX_DRAFTS : 1];
    float products[POLICY == BLOCK ? MAX_ROWS : 1];     // log2 of P_i
    float entropies[POLICY == FLY ? MAX_DRAFTS : 1];
    float variations[LOSSY_IN_Q ? MAX_ROWS : 1];
};

// Functions that are not inlined cannot read a launch's argument where it is. It comes from memory line
// by line, and would be waited for as often: here each warp asks for another line.
__device__ inline void copy_params(const Params& from, Shared& shared) {
    constexpr int words = sizeof(Params) / sizeof(u64), line = 8;
    if (lane_id() >= line) return;
    for (int i = warp_id() * line + lane_id(); i < words; i += CTA_WARPS * line)
        reinterpret_cast<u64*>(&shared.params)[i] = reinterpret_cast<const u64*>(&from)[i];
}

// By one warp.
__device__ inline void gather_evidence(const Params& p, Shared& shared) {
    const Request& request = shared.request;
    if (request.strict || POLICY == FLY || POLICY == SYNTHETIC) return;
    for (int row = lane_id(); row < request.num_drafts; row += LANES) {
        const int drafted = shared.drafts[row];
        const AdjustedRow target(p, request, row);
        shared.target_logits[row] = load_logit(target.row, drafted);
        if (TESTS_RATIO && DENSE && request.dense)
            shared.draft_logits[row] =
                load_logit(draft_row_in_target_ids(p, request, row), drafted);
        if (LOSSY_IN_Q) continue;
        shared.uniforms[row] = uniform_of(request, row);
        if (POLICY == PROBABILISTIC) shared.log2_uniforms[row] = log2f(shared.uniforms[row]);
    }
}

constexpr int NO_PLACE = 2 * MAX_ROWS;

// The bit of a row in `open`.
__device__ inline int place_of(int row, bool draft) { return 2 * row + draft; }

__device__ inline bool is_open(const Shared& shared, int place) {
    return shared.open[place / LANES] >> place % LANES & 1;
}

__device__ inline bool is_open(const Shared& shared, int row, bool draft) {
    return is_open(shared, place_of(row, draft));
}

__device__ inline Law& law_of(Shared& shared, int row, bool draft) {
    return DENSE && draft ? shared.draft_laws[row] : shared.target_laws[row];
}

__device__ inline bool has_open_law(const Shared& shared, int row) {
    return is_open(shared, row, false) || is_open(shared, row, true);
}

// What a logarithm to base 2 is not below and not above.
struct Range {
    float least;
    float most;
};

// Of what the law of an open row, of which little is known, gives a logit.
__device__ inline Range range_of(const Law& law, float lowest, float spread, float logit) {
    const float least = law_log2(law, logit);
    if (!(logit >= lowest)) return {least, least};
    const float most =
        __fsub_rn(log2_weight(logit, law.max, law.scale), __fsub_rn(law.log2_sum, spread));
    return {least, most};
}

__device__ inline Range log2_p_range(const Shared& shared, int row, bool draft) {
    const float logit = draft ? shared.draft_logits[row] : shared.target_logits[row];
    const Law& law = draft ? shared.draft_laws[row] : shared.target_laws[row];
    const int place = place_of(row, draft);
    if (is_open(shared, place))
        return range_of(law, shared.lowest[place], shared.spreads[place], logit);
    const float known = law_log2(law, logit);
    return {known, known};
}

__device__ inline float log2_ratio_of(const Shared& shared, int row) {
    const float log2_p = law_log2(shared.target_laws[row], shared.target_logits[row]);
    float log2_q = 0.0f;
    if (DENSE && shared.request.dense)
        log2_q = law_log2(shared.draft_laws[row], shared.draft_logits[row]);
    return log2_ratio(log2_p, log2_q);
}

constexpr float RANGE_SLACK = 1e-3f;  // of ranges: more than they are wrong by

// Whether a draft token survives, if what is known of open rows tells.
__device__ inline Verdict verdict_of_open(const Shared& shared, int row) {
    const Range p = log2_p_range(shared, row, false);
    Range q = {0.0f, 0.0f};
    if (DENSE && shared.request.dense) q = log2_p_range(shared, row, true);
    const float wanted = shared.log2_uniforms[row];
    if (wanted < log2_ratio(p.least, q.most) - RANGE_SLACK) return PASSES;
    return wanted < log2_ratio(p.most, q.least) + RANGE_SLACK ? OPEN : FAILS;
}

// Whether a row stands in the way, and its draft token falls, as far as the row itself tells. Not
// for lossy policies' own rules.
__device__ inline Verdict verdict_of(const Shared& shared, int row) {
    const Request& request = shared.request;
    if (!shared.target_laws[row].is_usable()) return TARGET_FLAWED;
    if (row == request.num_drafts) return PASSES;
    if (DENSE && request.dense && !shared.draft_laws[row].is_usable()) return DRAFT_FLAWED;
    if (JUDGES_OPEN_ROWS && has_open_law(shared, row)) return verdict_of_open(shared, row);
    bool passes = true;
    if (POLICY == STRICT || request.strict)
        passes = shared.tokens[row] == shared.drafts[row];
    else if (POLICY == PROBABILISTIC)
        passes = shared.log2_uniforms[row] < log2_ratio_of(shared, row);
    return passes ? PASSES : FAILS;
}

// The row that decides, or that is drawn from: the first that does not pass, or the last.
__device__ inline int row_asked_for(const Shared& shared, int first) {
    const int drafts = shared.request.num_drafts;
    return first < drafts ? first : drafts;
}

// Whether laws must be found before what is decided about the first row that does not pass is known.
__device__ inline bool asks_for_laws(const Shared& shared, int first, Verdict verdict) {
    return JUDGES_OPEN_ROWS && (verdict == OPEN || verdict == FAILS || verdict == PASSES) &&
           has_open_law(shared, row_asked_for(shared, first));
}

// The first of the rows up to `end` that does not pass. By one warp.
__device__ inline int first_failure(const Shared& shared, int begin, int end, Verdict& verdict) {
    for (int first = begin; first < end; first += LANES) {
        const int row = first + lane_id();
        const Verdict mine = row < end ? verdict_of(shared, row) : PASSES;
        const u32 failed = __ballot_sync(ALL_LANES, mine != PASSES);
        if (!failed) continue;
        const int lane = __ffs(static_cast<int>(failed)) - 1;
        verdict = static_cast<Verdict>(__shfl_sync(ALL_LANES, static_cast<int>(mine), lane));
        return first + lane;
    }
    verdict = PASSES;
    return end;
}

// log2 of P_i up to `kept`; the same in every lane of the calling warp.
__device__ inline float find_products(Shared& shared, int kept) {
    float product = 0.0f;
    if (lane_id() == 0) shared.products[0] = product;
    for (int row = 0; row < kept; ++row) {
        product = next_log2_product(product, log2_ratio_of(shared, row));
        if (lane_id() == 0) shared.products[row + 1] = product;
    }
    return product;
}

// From the first row that does not pass, num_rows if all do. By one warp; what block verification
// accepts of a draft that falls is found later.
__device__ inline Decision decide(
    const Params& p, Shared& shared, int first, Verdict verdict) {
    const Request& request = shared.request;
    const int kept = first < request.num_drafts ? first : request.num_drafts;
    Decision d = {FROM_TARGET, kept, kept, request.status};
    bool rejected = verdict == FAILS;
    if (POLICY == BLOCK && !request.strict && kept > 0)
        rejected = !accepts(shared.uniforms[kept - 1], find_products(shared, kept));
    if (rejected) {
        if (HAS_RESIDUAL && !request.strict) d.ending = FROM_RESIDUAL;
        return d;
    }
    if (request.num_rows == 0 || verdict == TARGET_FLAWED)
        d.status |= static_cast<int>(p.invalid_status);
    if (verdict == DRAFT_FLAWED) d.status |= DRAFT_INVALID;
    if (d.status != request.status) d.ending = STOPPED;
    return d;
}
