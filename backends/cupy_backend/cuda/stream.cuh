// Reading a request's rows: a warp takes a batch of blocks of one row after the other, and fetches the
// next one while it looks at one. Results do not depend on how rows are cut into stretches.
#pragma once
#include "stretch.cuh"

constexpr int LARGEST_LOGIT =
    sizeof(TargetLogit) > sizeof(DraftLogit) ? sizeof(TargetLogit) : sizeof(DraftLogit);
constexpr int RAW_WORDS = PER_LANE * LARGEST_LOGIT / 16;
constexpr int DEPTH = 2;  // blocks of a batch

// A block on its way, a lane's share.
struct Slot {
    uint4 words[RAW_WORDS];
};

__device__ inline void fill(Slot& slot, u32 word) {
#pragma unroll
    for (int i = 0; i < RAW_WORDS; ++i) slot.words[i] = uint4{word, word, word, word};
    __syncwarp();  // keeps what is rare a branch
}

// What is needed of a batch when it has come.
struct Batch {
    Mass* stats;  // the lane's
    float scale;
    int left;  // blocks of the row, its own among them
    bool draft;
};

// Of a block: its largest logit, and a lane's share of its mass.
struct Partial {
    float max;
    float sum;
};

template <typename T>
__device__ inline Partial partial_of(const Slot& slot, float scale) {
    RawBlock<T> raw;
#pragma unroll
    for (int i = 0; i < PER_LANE / PER_VECTOR<T>; ++i) raw.words[i] = slot.words[i];
    const float max = warp_max(lane_max(raw));
    return {max, GREEDY ? 0.0f : lane_mass(raw, max, scale)};
}

__device__ inline Partial partial_of(const Batch& batch, const Slot& slot) {
    return SAME_LOGITS || !batch.draft ? partial_of<TargetLogit>(slot, batch.scale)
                                       : partial_of<DraftLogit>(slot, batch.scale);
}

// What is done with a block's statistics.
struct Keep {
    __device__ void operator()(Mass* place, Mass mass) const { *place = mass; }
};

// Halves of a warp add up different values: lanes without the bit `distance` the first one.
__device__ inline float add_halves(float first, float second, int distance) {
    const bool takes_second = lane_id() & distance;
    const float kept = takes_second ? second : first;
    return kept + __shfl_xor_sync(ALL_LANES, takes_second ? first : second, distance);
}

// Both blocks' statistics, the first half of the warp the first one's; sums as warp_reduce adds them.
template <typename Put>
__device__ inline void store(const Batch& batch, const Partial (&partials)[DEPTH], Put put) {
    const int lane = lane_id(), block = lane / 16;
    const float max = block ? partials[1].max : partials[0].max;
    float sum = 0.0f;
    if (!GREEDY) {
        sum = add_halves(partials[0].sum, partials[1].sum, 16);
#pragma unroll
        for (int distance = 8; distance; distance /= 2)
            sum += __shfl_xor_sync(ALL_LANES, sum, distance);
        sum = __fmul_rn(sum, correction_of(max, batch.scale));
    }
    if (lane % 16 == 0 && block < batch.left) put(batch.stats, Mass{max, sum});
}

template <typename T>
__device__ COLD Mass load_mass(Row<T> row, int block, float scale) {
    float logits[PER_LANE];
    load_block(row, block, logits);
    return block_mass(logits, scale);
}

// What of a stretch cannot be read by whole vectors, or is adjusted. By the CTA's last warps, which take
// turns.
template <int READERS = CTA_WARPS, typename Put = Keep>
__device__ inline void read_piecewise(
    const Params& p, const Request& request, const Rows& rows, const Stretch& stretch, Put put = {}) {
    const int reader = warp_id() - (CTA_WARPS - READERS);
#pragma unroll 1
    for (int block = stretch.begin + reader; block < stretch.end; block += READERS) {
        const Spot spot = rows.spot_of(p, block);
        if (rows.whole(spot.draft)) continue;
        const AdjustedRow target(p, request, spot.row);
        const Mass mass = spot.draft
            ? load_mass(draft_row(p, request, spot.row), spot.place, rows.draft_scale)
            : load_mass(target.row, spot.place, rows.scale);
        if (lane_id() == 0) put(rows.stats_of(p, spot), mass);
    }
}

struct Never {
    __device__ bool operator()() const { return false; }
};

// What a warp has on its way, and what lies behind that. The CTA's last warps take turns.
template <int READERS = CTA_WARPS>
struct Flow {
    static constexpr int STEP = READERS * BLOCK_SIZE;  // elements between a warp's blocks
    int left;          // blocks of the row, from the batch on its way on
    int partial;       // the same if the last of them is not whole, else none
    int reach;         // the lane's elements from its first one on, gaps between blocks among them
    const char* data;  // of the batch's first block, the lane's first logit
    Mass* stats;       // the lane's of the batch
    float scale;
    bool draft;
    Slot ring[DEPTH];

    // The blocks from `next` on that are in one row; those behind them are next.
    __device__ void enter(const Params& p, const Rows& rows, int& next, int end) {
        left = reach = partial = 0;
        Spot spot = {};
        int rest = 0;
        while (left == 0 && next < end) {
            spot = rows.spot_of(p, next);
            const i64 vocab_size = spot.draft ? p.draft_vocab_size : p.vocab_size;
            int behind = num_blocks_of(vocab_size) - spot.place;
            if (behind > end - next) behind = end - next;
            const int turns = static_cast<int>((static_cast<u32>(behind) + READERS - 1) / READERS);
            next += turns * READERS;
            if (rows.whole(spot.draft)) left = turns;
            rest = static_cast<int>(vocab_size) - (spot.place + (turns - 1) * READERS) * BLOCK_SIZE;
        }
        if (left == 0) return;
        const int lane = lane_id();
        partial = rest < BLOCK_SIZE ? left : -1;
        reach = (left - 1) * STEP + (rest < BLOCK_SIZE ? rest : BLOCK_SIZE) - lane * 8;
        draft = spot.draft;
        data = rows.data_of(p, spot) +
               lane * 8 * static_cast<int>(draft ? sizeof(DraftLogit) : sizeof(TargetLogit));
        stats = rows.stats_of(p, spot) + static_cast<u32>(lane) / 16 * READERS;
        scale = draft ? rows.draft_scale : rows.scale;
    }

    __device__ Batch batch() const { return {stats, scale, left, draft}; }

    // To the next batch of the row.
    __device__ void step() {
        left -= DEPTH;
        partial -= DEPTH;
        reach -= DEPTH * STEP;
        data += DEPTH * STEP *
                (SAME_LOGITS || !draft ? sizeof(TargetLogit) : sizeof(DraftLogit));
        stats += DEPTH * READERS;
    }

    __device__ void advance(const Params& p, Cursor* cursors) {
        step();
        if (left > 0) return;
        Cursor& cursor = cursors[warp_id()];
        int next = cursor.next;
        if (next >= cursor.end) return;
        enter(p, cursor.rows, next, cursor.end);
        __syncwarp();
        if (lane_id() == 0) cursor.next = next;
        __syncwarp();
    }

    // The batch's i-th block, if it has so many. What a row's last block lacks is nothing.
    __device__ void fetch(int i) {
        if (partial == i + 1)
            fill(ring[i], SAME_LOGITS || !draft ? NOTHING<TargetLogit> : NOTHING<DraftLogit>);
        const int wanted = reach - i * STEP;
        if (SAME_LOGITS || !draft)
            load_raw_if<TargetLogit>(wanted, data + i * STEP * sizeof(TargetLogit), ring[i].words);
        if (!SAME_LOGITS && draft)
            load_raw_if<DraftLogit>(wanted, data + i * STEP * sizeof(DraftLogit), ring[i].words);
    }

    // A warp's blocks of a stretch.
    __device__ void open(
        const Params& p, const Rows& rows, const Stretch& stretch, Cursor* cursors) {
        remember(rows, begin(p, rows, stretch), stretch, cursors);
    }

    // The next block.
    __device__ int begin(const Params& p, const Rows& rows, const Stretch& stretch) {
        int next = stretch.begin + warp_id() - (CTA_WARPS - READERS);
        enter(p, rows, next, stretch.end);
        return next;
    }

    __device__ void remember(const Rows& rows, int next, const Stretch& stretch, Cursor* cursors) {
        __syncwarp();
        if (lane_id() == 0) cursors[warp_id()] = {rows, next, stretch.end};
        __syncwarp();
    }

    // What was not known when rows were opened.
    __device__ void weigh(
        const Params& p, Cursor* cursors, float target_scale, float draft_scale) {
        Rows& rows = cursors[warp_id()].rows;
        const int entered = cursors[warp_id()].next - READERS;
        scale = rows.spot_of(p, entered).draft ? draft_scale : target_scale;
        __syncwarp();
        if (lane_id() == 0) {
            rows.scale = target_scale;
            rows.draft_scale = draft_scale;
        }
        __syncwarp();
    }

    // Nothing was fetched before.
    __device__ void fetch_all() {
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
#pragma unroll
            for (int word = 0; word < RAW_WORDS; ++word) ring[i].words[word] = uint4{0, 0, 0, 0};
            fetch(i);
        }
    }

    // All that was opened and fetched, unless it is `stopped`. No function may be called while blocks
    // are on their way: they would have to be waited for to be saved.
    template <typename Stopped = Never, typename Put = Keep>
    __device__ void drain(const Params& p, Cursor* cursors, Stopped stopped = {}, Put put = {}) {
        drain_by([&] { advance(p, cursors); }, stopped, put);
    }

    template <typename Advance, typename Stopped, typename Put>
    __device__ void drain_by(Advance go_on, Stopped stopped, Put put) {
        while (left > 0 && !stopped()) {
            const Batch come = batch();
            go_on();
            Partial partials[DEPTH] = {};
#pragma unroll
            for (int i = 0; i < DEPTH; ++i) {
                if (i == 0 || come.left > 1) partials[i] = partial_of(come, ring[i]);
                fetch(i);
            }
            store(come, partials, put);
        }
    }
};

// A warp's blocks of a part of one row, the CTA's warps taking turns.
template <typename T>
struct RowFlow : Flow<> {
    // Statistics of the part's first block are at `places`.
    __device__ void begin_part(const Row<T>& row, const Stretch& part, float row_scale, Mass* places) {
        const int warp = warp_id(), lane = lane_id(), first = part.begin + warp;
        const u32 behind = static_cast<u32>(part.end > first ? part.end - first : 0);
        left = static_cast<int>((behind + CTA_WARPS - 1) / CTA_WARPS);
        const int rest =
            static_cast<int>(row.vocab_size) - (first + (left - 1) * CTA_WARPS) * BLOCK_SIZE;
        partial = rest < BLOCK_SIZE ? left : -1;
        reach = (left - 1) * STEP + (rest < BLOCK_SIZE ? rest : BLOCK_SIZE) - lane * 8;
        draft = !SAME<T, TargetLogit>;
        scale = row_scale;
        data = reinterpret_cast<const char*>(row.data + (first * BLOCK_SIZE + lane * 8));
        stats = places + warp + static_cast<u32>(lane) / 16 * CTA_WARPS;
        fetch_all();
    }
};

// Statistics of a part of a row. By a whole CTA.
template <typename T, typename Put>
__device__ inline void read_part(
    const Row<T>& row, const Stretch& part, float scale, Mass* places, Put put) {
    if (is_direct(row)) {
        RowFlow<T> flow = {};
        flow.begin_part(row, part, scale, places);
        flow.drain_by([&] { flow.step(); }, Never{}, put);
        return;
    }
#pragma unroll 1
    for (int block = part.begin + warp_id(); block < part.end; block += CTA_WARPS) {
        const Mass mass = load_mass(row, block, scale);
        if (lane_id() == 0) put(places + (block - part.begin), mass);
    }
}
