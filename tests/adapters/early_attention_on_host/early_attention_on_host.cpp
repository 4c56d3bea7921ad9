// The kernel of adapters/early_attention, called as a function of the host; with the shim of one_launch_on_host.
#define CLUSTER 1
#include "device.cuh"

static void let_next_begin() {}
static void await_kernels_before() {}

#include "attend.cu"

static const Arguments* arguments;

extern "C" void run_attend(const Arguments* all, unsigned seed, int waiting_of_four) {
    arguments = all;
    run_all([] { attend(*arguments); }, seed, waiting_of_four);
}
