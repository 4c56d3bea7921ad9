// A kernel that reads pieces of rows, or one that decides behind it, as a function of the host: KERNEL in
// KERNEL_SOURCE.
#include "host_builtins.h"
#include KERNEL_SOURCE

extern "C" void run(const void* packed, const Index* grid) {
    Params params;
    std::memcpy(&params, packed, sizeof params);
    host::launch(*grid, CTA_THREADS, [&] { KERNEL(params); });
}
extern "C" int params_size() { return sizeof(Params); }
