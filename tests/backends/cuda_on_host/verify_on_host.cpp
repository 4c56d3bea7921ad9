// The verification kernels as functions of the host.
#include "host_builtins.h"
#include "foregone.cuh"

// Whether draws may be foregone, and by how many CTAs they were.
static bool lets_be_foregone = true;
static std::atomic<int> num_foregone;

template <typename... Arguments>
bool watch_foregone(Arguments&&... arguments) {
    const bool foregone = lets_be_foregone && is_foregone(arguments...);
    num_foregone += foregone && thread_id() == 0;
    return foregone;
}

#define is_foregone watch_foregone
#include "narrow.cu"
#ifdef HAS_WIDE
#include "wide.cu"
#endif
#ifdef HAS_ROWWISE
#include "rowwise.cu"
#endif

template <typename Kernel>
void start(const void* packed, const Index& grid, Kernel kernel) {
    Params params;
    std::memcpy(&params, packed, sizeof params);
    host::launch(grid, CTA_THREADS, [&] { kernel(params); });
}

#ifdef HAS_WIDE
extern "C" void run_wide(const void* packed, const Index* grid) { start(packed, *grid, wide); }
#endif
#ifdef HAS_ROWWISE
extern "C" void run_rowwise(const void* packed, const Index* grid) { start(packed, *grid, rowwise); }
#endif
extern "C" void run_narrow(const void* packed, const Index* grid) { start(packed, *grid, narrow); }
extern "C" int params_size() { return sizeof(Params); }
extern "C" void let_be_foregone(int may_be) { lets_be_foregone = may_be; }
extern "C" int take_num_foregone() { return num_foregone.exchange(0); }
