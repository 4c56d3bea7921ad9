// The kernel of adapters/streamed_products, called as a function of the host.
#define CLUSTER SPLITS
#include "product.cu"

static const Arguments* arguments;

extern "C" void run_product(const Arguments* all, unsigned seed, int waiting_of_four) {
    arguments = all;
    run_all([] { product(*arguments); }, seed, waiting_of_four);
}
