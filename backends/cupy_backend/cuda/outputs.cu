// The last launch behind `accept`: a CTA a request.
#include "outputs.cuh"

extern "C" __global__ void __launch_bounds__(CTA_THREADS, 1024 / CTA_THREADS)
    outputs(const __grid_constant__ Params p) {
    __shared__ Ending ending;
    let_next_launch_begin();
    const Request request = read_request(p, blockIdx.x);
    wait_for_launch_before();
    end_request(ending, p, request);
}
