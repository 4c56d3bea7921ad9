// The second launch behind pair_pieces.cu: a CTA a request takes the statistics of its blocks as they come, decides
// and draws. It may begin when all CTAs of the first have begun, so that those go on whatever it waits for.
#include "finish_announced.cuh"
#include "finish_filtered.cuh"
#include "pair_piece.cuh"

// By all threads, when nobody writes or looks at them any more.
__device__ inline void clear_pair_words(const Params& p, const Request& request) {
    u64* words = pair_words_of(p, request.index, 0);
    for (int i = static_cast<int>(thread_id()); i < request.num_drafts * LANES; i += CTA_THREADS) words[i] = 0;
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS, CTAS_PER_MULTIPROCESSOR)
    pair_pieces_end(const __grid_constant__ Params p) {
    __shared__ Shared shared;
    __shared__ KnownNoise noise;
    alignas(16) __shared__ u64 scratch[FILTERED ? (sizeof(Scratch) + 7) / 8 : 1];
    static_assert(sizeof(shared) + sizeof(noise) + sizeof(scratch) <= STATIC_SHARED_BYTES);
    const int index = static_cast<int>(blockIdx.x);
    if (warp_id() == 0) {
        const Request request = read_request(p, index, shared.drafts);
        if (lane_id() == 0) {
            shared.request = request;
            shared.member = {0, 1};
            shared.control = {};
            shared.best = 0;
            shared.foregone = static_cast<int>(NO_TOKEN);
        }
    }
    if (FILTERED) close_all(shared);
    if (FILTERED && warp_id() == 1) gather_filters(p, shared, index);
    copy_params(p, shared);
    meet_in_cta();
    if (FILTERED)
        finish_filtered(p, shared, reinterpret_cast<Scratch&>(scratch), noise);
    else
        finish_announced(p, shared, noise, false);
    // What follows in the stream may overwrite what CTAs of the first launch still read.
    wait_for_launch_before();
    clear_pair_words(p, shared.request);
}
