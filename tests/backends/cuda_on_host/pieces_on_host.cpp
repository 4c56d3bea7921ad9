// A kernel that reads pieces of rows, or one that decides behind it, as a function of the host: KERNEL in
// KERNEL_SOURCE.
#include "host_builtins.h"
#include KERNEL_SOURCE

extern "C" void run(const void* packed, int blocks) {
    Params params;
    std::memcpy(&params, packed, sizeof params);
    host::launch(blocks, CTA_THREADS, [&] { KERNEL(params); });
}
extern "C" int params_size() { return sizeof(Params); }
