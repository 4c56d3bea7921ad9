// The verification kernel as a function of the host.
#include "host_builtins.h"
#include "verify.cu"

extern "C" void run(const void* packed, int blocks) {
    Params params;
    std::memcpy(&params, packed, sizeof params);
    host::launch(blocks, CTA_THREADS, [&params] { verify(params); });
}

extern "C" int params_size() { return sizeof(Params); }
