// Two kernels of the host: one whose threads wait for each other, one that lacks the barrier.
#include "host_builtins.h"

constexpr int THREADS = 64;

template <bool WAITS>
void pass_on(int* out) {
    __shared__ int values[THREADS];
    const int me = static_cast<int>(thread_id());
    values[me] = 0;
    __syncthreads();
    values[me] = me + 1;
    if (WAITS) __syncthreads();
    out[me] = values[(me + 37) % THREADS];
}

extern "C" void pass_on_with_barrier(int* out) {
    host::launch(1, THREADS, [=] { pass_on<true>(out); });
}
extern "C" void pass_on_without_barrier(int* out) {
    host::launch(1, THREADS, [=] { pass_on<false>(out); });
}
