// Who reads rows while others judge them: a CTA's last warps, until they are told to stop.
#pragma once
#include "berth.cuh"
#include "judge.cuh"

constexpr int READERS = CTA_WARPS - DrawTeam::WARPS;  // warps
constexpr int KEPT_ROWS = 2;  // whose statistics are there at once: one is judged, one is read

// What is read and judged in one go: rows from `first` on up to `end`. `known`: the first one's laws are,
// and the next row is read.
struct Course {
    int first;
    int end;
    bool known;
    __device__ bool begins() const { return first == 0 && !known; }
    // The first row that is read.
    __device__ int first_read() const { return known ? first + KEPT_ROWS : first; }
};

// What judging a row has left to say. Rows take turns, so that nobody asks for a row's when the next
// one's is written.
__device__ inline int* verdict_on(Shared& shared, int row) { return shared.verdicts + (row & (KEPT_ROWS - 1)); }

// What is known of that, by a whole warp.
__device__ inline int verdict_now(Shared& shared, int row) {
    constexpr int passes = PASSES;
    int verdict = passes;
    if (lane_id() == 0) verdict = atomicCAS(verdict_on(shared, row), passes, passes);
    return __shfl_sync(ALL_LANES, verdict, 0);
}

// Whether it is over while a row is being judged; an open row is not. By a whole warp, whose first lane asks.
struct IsStopped {
    int* verdict;
    __device__ int ask() const {
        constexpr int passes = PASSES;
        int said = passes;
        if (lane_id() == 0) said = atomicCAS(verdict, passes, passes);
        return said;
    }
    __device__ static bool says(int said) {
        const int known = __shfl_sync(ALL_LANES, said, 0);
        return known != PASSES && known != OPEN;
    }
    __device__ bool operator()() const { return says(ask()); }
};

// A target row and the draft row beside it, by the readers, whose blocks are on their way in registers.
struct FlowReader {
    template <typename Places>
    __device__ void begin(const Params&, Shared&, const Places&, const Course&) {}

    template <typename Places>
    __device__ void read(const Params& p, Shared& shared, const Places& places, int row) {
        const Request& request = shared.request;
        const Stretch stretch = stretch_of_row(p, request, row);
        const u32 inverse = inverse_of(length_of_pair(p, request));
        const Rows rows = Rows::of(p, request, places, inverse, KEPT_ROWS - 1);
        Flow<READERS> flow = {};
        flow.open(p, rows, stretch, shared.cursors);
        flow.fetch_all();
        flow.drain(p, shared.cursors, IsStopped{verdict_on(shared, row - 1)});
        // With filters, judging takes the registers that would hold these.
        const Rows& known = FILTERED ? shared.cursors[warp_id()].rows : rows;
        if (!known.whole())
            read_piecewise<READERS>(
                p, request, known, FILTERED ? stretch_of_row(p, request, row) : stretch);
    }

    __device__ void end() {}
};

// The same with blocks on their way in shared memory, where the next row's first are while the last of one are looked at.
struct BerthReader {
    Berth<READERS> berth;
    int first;  // batch of the row

    template <typename Places>
    __device__ void begin(const Params& p, Shared& shared, const Places& places, const Course& course) {
        static_assert(BERTH_BYTES == 0 || BERTH_BYTES == 16 * Berth<READERS>::WORDS);
        const u32 inverse = inverse_of(length_of_pair(p, shared.request));
        Cursor& cursor = shared.cursors[warp_id()];
        if (lane_id() == 0)
            cursor = {Rows::of(p, shared.request, places, inverse, KEPT_ROWS - 1), 0, course.end};
        __syncwarp();
        first = 0;
        berth.open(p, shared.request, cursor, course.first_read());
    }

    template <typename Places>
    __device__ void read(const Params& p, Shared& shared, const Places& places, int row) {
        const Request& request = shared.request;
        const Cursor& cursor = shared.cursors[warp_id()];
        const IsStopped stopped = {verdict_on(shared, row - 1)};
#pragma unroll 1
        for (int beside = 0; beside < 2; ++beside) {
            const int blocks = blocks_of_part(p, request, cursor.rows, row, beside);
            const int before = (berth.batch - first) * DEPTH;
            Mass* stats = beside ? places.draft_stats(row) : places.target_stats(row);
            const float scale = beside ? cursor.rows.draft_scale : cursor.rows.scale;
            const Batch come = {stats + before + static_cast<u32>(lane_id()) / 16, scale, blocks - before, beside != 0};
            // What is on its way then is of no part that follows.
            if (berth.drain(p, request, cursor, come, stopped)) return;
            first += batches_of(blocks);
        }
        if (!cursor.rows.whole())
            read_piecewise<READERS>(p, request, cursor.rows, stretch_of_row(p, request, row));
    }

    // Nothing is on its way any more.
    __device__ void end() { wait_for_copies(); }
};

// What readers ask for first, if the request is as it most likely is, comes nearer while it is not known yet. It
// is a target row's, which no slot decides.
__device__ inline void prefetch_first_row(const Params& p, i64 index) {
    if (BERTH_BYTES == 0 || warp_id() < CTA_WARPS - READERS || !p.rows_known) return;
    const Row<TargetLogit> row = target_row(p, guess_request(p, index), 0);
    const u32 first = (warp_id() - (CTA_WARPS - READERS)) * DEPTH * BLOCK_SIZE + lane_id() * PER_LANE;
#pragma unroll
    for (int i = 0; i < DEPTH; ++i) {
        const u32 place = first + i * BLOCK_SIZE;
        if (place < static_cast<u32>(row.num_elements)) prefetch_far(row.data + place);
    }
}

template <bool BERTHS>
struct ReaderOf {
    using Type = FlowReader;
};
template <>
struct ReaderOf<true> {
    using Type = BerthReader;
};
