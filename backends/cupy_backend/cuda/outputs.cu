// The launch that ends requests whose last token is drawn once all verdicts are known: one CTA per request,
// with more warps than reading CTAs.
#include "outputs.cuh"

extern "C" __global__ void __launch_bounds__(CTA_THREADS, 1024 / CTA_THREADS)
    outputs(const __grid_constant__ Params p) {
    __shared__ Ending ending;
    let_next_launch_begin();
    const Request request = read_request(p, blockIdx.x);
    wait_for_launch_before();
    end_request<true>(ending, p, request);
}
