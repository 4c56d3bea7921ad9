// The kernels of a variant that have so many warps, as functions of the host.
#include "host_builtins.h"

#define RUN(kernel)                                                                                     \
    extern "C" void run_##kernel(const void* packed, unsigned x, unsigned y, int cluster, int shared) { \
        Params params;                                                                                  \
        std::memcpy(&params, packed, sizeof params);                                                    \
        host::launch(Index{x, y, 1}, cluster, CTA_THREADS, shared, [&params] { kernel(params); });      \
    }

#if KERNEL_WARPS == 8
#include "logprobs.cu"
#include "rows.cu"
RUN(logprobs)
RUN(rows)
#else
#include "accept.cu"
RUN(accept)
#endif

extern "C" int params_size() { return sizeof(Params); }
