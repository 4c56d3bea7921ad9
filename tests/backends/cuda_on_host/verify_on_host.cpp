// The verification kernels as functions of the host.
#include "host_builtins.h"
#include "narrow.cu"
#ifdef HAS_WIDE
#include "wide.cu"
#endif
#ifdef HAS_ROWWISE
#include "rowwise.cu"
#endif
#ifdef HAS_PIECES
#include "pieces.cu"
#include "pieces_end.cu"
#endif

template <typename Kernel>
void start(const void* packed, int blocks, Kernel kernel) {
    Params params;
    std::memcpy(&params, packed, sizeof params);
    host::launch(blocks, CTA_THREADS, [&] { kernel(params); });
}

#ifdef HAS_WIDE
extern "C" void run_wide(const void* packed, int blocks) { start(packed, blocks, wide); }
#endif
#ifdef HAS_ROWWISE
extern "C" void run_rowwise(const void* packed, int blocks) { start(packed, blocks, rowwise); }
#endif
#ifdef HAS_PIECES
extern "C" void run_pieces(const void* packed, int blocks) { start(packed, blocks, pieces); }
extern "C" void run_pieces_end(const void* packed, int blocks) { start(packed, blocks, pieces_end); }
#endif
extern "C" void run_narrow(const void* packed, int blocks) { start(packed, blocks, narrow); }
extern "C" int params_size() { return sizeof(Params); }
