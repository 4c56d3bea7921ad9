// The launch that ends requests where their last token is drawn when all verdicts are known: a CTA a
// request, with more warps than those that read.
#include "outputs.cuh"

extern "C" __global__ void __launch_bounds__(CTA_THREADS, 1024 / CTA_THREADS)
    outputs(const __grid_constant__ Params p) {
    __shared__ Ending ending;
    let_next_launch_begin();
    const Request request = read_request(p, blockIdx.x);
    wait_for_launch_before();
    end_request<true>(ending, p, request);
}
