// The verification kernels as functions of the host.
#include "host_builtins.h"
#include "narrow.cu"
#include "wide.cu"

template <typename Kernel>
void start(const void* packed, int blocks, Kernel kernel) {
    Params params;
    std::memcpy(&params, packed, sizeof params);
    host::launch(blocks, CTA_THREADS, [&] { kernel(params); });
}

extern "C" void run_wide(const void* packed, int blocks) { start(packed, blocks, wide); }
extern "C" void run_narrow(const void* packed, int blocks) { start(packed, blocks, narrow); }
extern "C" int params_size() { return sizeof(Params); }
