// The logprobs kernel as a function of the host.
#include "host_builtins.h"
#include "logprobs.cu"

extern "C" void run_logprobs(const void* packed, int blocks) {
    LogprobParams params;
    std::memcpy(&params, packed, sizeof params);
    host::launch(blocks, CTA_THREADS, [&params] { logprobs(params); });
}

extern "C" int logprob_params_size() { return sizeof(LogprobParams); }
