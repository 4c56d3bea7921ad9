// The last launch: a CTA a request.
#include "outputs.cuh"

extern "C" __global__ void __launch_bounds__(CTA_THREADS, 1024 / CTA_THREADS)
    outputs(const __grid_constant__ Params p) {
    __shared__ Best best;
    __shared__ Decision decision;
    __shared__ KnownRows rows;
    __shared__ float products[MAX_ROWS];
    let_next_launch_begin();
    const Request request = read_request(p, blockIdx.x);
    wait_for_launch_before();
    rows.load(p, request);
    __syncthreads();
    if (warp_id() == 0) {
        const Decision decided = decide(p, request, rows, products);
        if (lane_id() == 0) decision = decided;
    }
    __syncthreads();
    const int token = last_token(best, p, request, rows, decision);
    write_outputs(p, request, rows, decision, token);
}
