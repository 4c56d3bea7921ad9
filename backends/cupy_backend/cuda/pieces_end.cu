// The second launch behind pieces.cu: a CTA a request takes the statistics of its blocks as they come, decides and
// draws. It may begin when all CTAs of the first have begun, so that those go on whatever it waits for.
#include "finish_announced.cuh"
#include "rivals.cuh"

extern "C" __global__ void __launch_bounds__(CTA_THREADS, CTAS_PER_MULTIPROCESSOR)
    pieces_end(const __grid_constant__ Params p) {
    __shared__ Shared shared;
    const int index = static_cast<int>(blockIdx.x);
    if (warp_id() == 0) {
        const Request request = read_request(p, index, shared.drafts);
        if (lane_id() == 0) shared.request = request;
    }
    copy_params(p, shared);
    meet_in_cta();
    const int count = shared.request.num_drafts * static_cast<int>(p.group);
    finish_samples(p, {p, shared.request}, shared);
    Mass* rivals = reinterpret_cast<Mass*>(rivals_of(p, index, 0));
    take_words(rivals, nullptr, count, thread_id(), CTA_THREADS);
    // What follows in the stream may overwrite what CTAs without a word to tell still read.
    if (thread_id() == 0) wait_for_launch_before();
}
