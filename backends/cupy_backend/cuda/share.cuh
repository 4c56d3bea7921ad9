// How one of the CTAs that share a request comes to know it, and reads its share.
#pragma once
#include "announced.cuh"
#include "noise.cuh"

// By one warp.
__device__ inline void enter_request(const Params& p, Shared& shared, const Request& request) {
    if (lane_id() > 0) return;
    shared.request = request;
    shared.best = 0;
    shared.foregone = static_cast<int>(NO_TOKEN);
    shared.control = control_of(p, request.index);
}

// By one warp. `request` becomes the true one; whether it has the rows that it was thought to have.
__device__ inline bool publish_request(
    const Params& p, Shared& shared, Request& request) {
    const Request guess = request;
    request = read_request(p, guess.index, shared.drafts);
    enter_request(p, shared, request);
    return has_rows_of(guess, request);
}

// How many of a request's blocks are each CTA's. With all its rows they are dealt out as the host says, whether or
// not anybody guessed it, for a CTA that finishes may count on others to read them all.
__device__ inline int share_of(const Params& p, const Member& member, int blocks) {
    const bool is_whole = blocks == length_of_request(p, guess_request(p, 0));
    return is_whole ? static_cast<int>(p.share) : member.share(blocks);
}

// Statistics of this CTA's share. The request is guessed, so that logits are on their way while it is
// read; a wrong guess is noticed by all warps.
__device__ inline void read_share(
    const Params& p, Shared& shared, const Member& member, i64 index) {
    constexpr int reader = CTA_WARPS - 1;  // no warp has fewer blocks
    Request request = guess_request(p, index);
    u32 inverse = static_cast<u32>(p.inverse);
    Stretch stretch = {};
    if (is_guessable(p)) stretch = member.stretch(static_cast<int>(p.share), length_of_request(p, request));
    Flow flow = {};
#pragma unroll 1
    for (bool known = false;; known = true) {
        const Rows rows = Rows::of(p, request, WrittenPlaces{{p, request}}, inverse, ~0);
        const int next = flow.begin(p, rows, stretch);
        flow.fetch_all();
        flow.remember(rows, next, stretch, shared.cursors);
        if (known) break;
        if (!ANNOUNCED) copy_params(p, shared);
        if (thread_id() == 0) {
            shared.member = member;
            if (ANNOUNCED) shared.flags[0] = member.index == member.count - 1;
        }
        bool right = is_guessable(p);
        if (warp_id() == reader) {
            right = publish_request(p, shared, request) && right;
        } else if (right) {
            right = is_as_guessed(p, request);
            find_scales(request);
        }
        if (right) break;
        meet_in_cta();
        request = shared.request;
        inverse = inverse_of(length_of_pair(p, request));
        const int total = length_of_request(p, request);
        stretch = shared.member.stretch(share_of(p, shared.member, total), total);
    }
    flow.weigh(p, shared.cursors, request.scale, request.draft_scale);
    flow.drain(p, shared.cursors, Never{}, Announce{});
    if (shared.cursors[warp_id()].rows.whole()) return;
    meet_in_cta();
    const int all = length_of_request(p, shared.request);
    const Member& known = shared.member;
    read_piecewise(p, shared.request, shared.cursors[warp_id()].rows,
                   known.stretch(share_of(p, known, all), all), Announce{});
}

// Whether a CTA finishes, and has nothing to read if its request has all its rows.
__device__ inline bool ends_apart(const Params& p, const Member& member) {
    if (!ANNOUNCED || member.index != member.count - 1) return false;
    return member.index * static_cast<int>(p.share) >= length_of_request(p, guess_request(p, 0));
}

// Whether the noise of a request's races is found before anything else is known of it: of a request alone, for it
// would slow whoever reads beside.
__device__ inline bool has_noise_at_once(const Params& p) { return POLICY == STRICT && p.num_reqs == 1; }

// By what each warp itself asks for.
__device__ inline void find_noise_at_once(const Params& p, KnownNoise& noise, i64 index) {
    Request guess = guess_request(p, index);
    guess.seed = static_cast<u64>(p.seeds[index]);
    guess.position = static_cast<u32>(integer_at(p.positions, index));
    guess.strict = true;
    find_noise(p, guess, noise, guess.num_rows);
}

// Such a CTA is ready before statistics come; false if its request has fewer rows.
__device__ inline bool knows_request(
    const Params& p, Shared& shared, KnownNoise& noise, const Member& member, i64 index) {
    if (warp_id() == CTA_WARPS - 1) {  // which mostly has no noise to find
        enter_request(p, shared, read_request(p, index, shared.drafts));
        if (lane_id() == 0) shared.member = member;
    }
    if (has_noise_at_once(p)) find_noise_at_once(p, noise, index);
    copy_params(p, shared);
    meet_in_cta();
    if (shared.request.num_rows > p.max_spec_len && shared.request.dense == DENSE) return true;
    meet_in_cta();
    return false;
}
