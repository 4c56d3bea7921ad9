// The kernel of adapters/one_launch, called as a function of the host.
#include "forward.cu"

struct Arguments {
    const Layer* layers;
    const Map* maps;
    const Half *embedding, *norm, *angles;
    long long max_len;
    float scale, eps;
    const long long* token_ids;
    long long token_stride;
    const long long* positions;
    long long position_stride;
    const long long *slot, *first_is_new;
    Half* logits;
    uint2* parts;
    unsigned* last_tag;
};

static const Arguments* arguments;

static void call() {
    const Arguments& all = *arguments;
    forward(all.layers, all.maps, all.embedding, all.norm, all.angles, all.max_len, all.scale, all.eps, all.token_ids,
            all.token_stride, all.positions, all.position_stride, all.slot, all.first_is_new, all.logits, all.parts,
            all.last_tag);
}

extern "C" void run_forward(const Arguments* all, unsigned seed, int waiting_of_four) {
    arguments = all;
    run_all(call, seed, waiting_of_four);
}
