// Logprobs of what a verification emitted, a CTA per emitted token.
#include "logprobs.cuh"

extern "C" __global__ void __launch_bounds__(CTA_THREADS, 1)
    logprobs(const __grid_constant__ LogprobParams p) {
    __shared__ Scratch scratch;
    __shared__ Groups groups;
    const i64 num_places = p.batch.num_reqs * (p.batch.max_spec_len + 1);
    for (i64 place = blockIdx.x; place < num_places; place += gridDim.x) {
        const i64 token = p.batch.token_ids[place];
        if (token < 0)
            write_nothing(p, place);
        else
            write_logprobs(p, scratch, groups, place, token);
        meet_in_cta();
    }
}
