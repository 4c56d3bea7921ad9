// The kernels of a variant that have so many warps, as functions of the host.
#include "host_builtins.h"

#define RUN(kernel)                                                                \
    extern "C" void run_##kernel(const void* packed, unsigned x, unsigned y) {     \
        Params params;                                                             \
        std::memcpy(&params, packed, sizeof params);                               \
        host::launch(Index{x, y, 1}, CTA_THREADS, [&params] { kernel(params); });  \
    }

#if KERNEL_WARPS == 4
#include "statistics.cu"
RUN(statistics)
#elif KERNEL_WARPS == 8
#include "thresholds.cu"
RUN(thresholds)
#else
#include "accept.cu"
#include "logprobs.cu"
#include "outputs.cu"
RUN(accept)
RUN(logprobs)
RUN(outputs)
#endif

extern "C" int params_size() { return sizeof(Params); }
