// Readers of the narrow kernel beside a row's verdict.
#include "host_builtins.h"
#include "narrow.cu"

// Reads rows 0 and 1 of the first request; the verdict on row 0 is there before row 1 is begun.
static void read_two_rows(const Params& p, int verdict, Mass* target, Mass* draft) {
    __shared__ Shared shared;
    const LocalPlaces places = {target, draft, num_blocks_of(p.vocab_size), num_blocks_of(p.draft_vocab_size)};
    if (warp_id() == 0) {
        const Request request = read_request(p, 0, shared.drafts);
        if (lane_id() == 0) shared.request = request;
    }
    if (thread_id() < KEPT_ROWS) shared.verdicts[thread_id()] = thread_id() == 0 ? verdict : PASSES;
    meet_in_cta();
    if (warp_id() < CTA_WARPS - READERS) return;
    ReaderOf<(BERTH_BYTES > 0)>::Type reader;
    reader.begin(p, shared, places, Course{0, 2, false});
    for (int row = 0; row < 2; ++row) reader.read(p, shared, places, row);
    reader.end();
}

extern "C" void run_readers(const void* packed, int fails, Mass* target, Mass* draft) {
    Params params;
    std::memcpy(&params, packed, sizeof params);
    host::launch(1, CTA_THREADS, [&] { read_two_rows(params, fails ? FAILS : PASSES, target, draft); });
}
extern "C" int params_size() { return sizeof(Params); }
