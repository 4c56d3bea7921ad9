// The kernels of a variant as functions of the host.
#include "host_builtins.h"

#include "accept.cu"
#include "closer.cu"
#include "greedy.cu"
#include "logprobs.cu"
#include "marks.cu"
#include "outputs.cu"
#include "statistics.cu"
#include "thresholds.cu"

#define RUN(kernel)                                                                \
    extern "C" void run_##kernel(const void* packed, unsigned x, unsigned y) {     \
        Params params;                                                             \
        std::memcpy(&params, packed, sizeof params);                               \
        host::launch(Index{x, y, 1}, CTA_THREADS, [&params] { kernel(params); });  \
    }

RUN(marks)
RUN(greedy)
RUN(statistics)
RUN(thresholds)
RUN(closer)
RUN(accept)
RUN(outputs)
RUN(logprobs)

extern "C" int params_size() { return sizeof(Params); }
