// Reading a request's rows: a warp takes a batch of blocks of one row after the other, and fetches the
// next one while it looks at one. Results do not depend on how rows are cut into stretches.
#pragma once
#include "stretch.cuh"

constexpr int LARGEST_LOGIT =
    sizeof(TargetLogit) > sizeof(DraftLogit) ? sizeof(TargetLogit) : sizeof(DraftLogit);
constexpr int RAW_WORDS = PER_LANE * LARGEST_LOGIT / 16;
constexpr int DEPTH = 2;  // blocks of a batch
constexpr int STEP = CTA_WARPS * BLOCK_SIZE;  // elements between a warp's blocks

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

// Halves of a warp add up different values: lanes without the bit `distance` the first one.
__device__ inline float add_halves(float first, float second, int distance) {
    const bool takes_second = lane_id() & distance;
    const float kept = takes_second ? second : first;
    return kept + __shfl_xor_sync(ALL_LANES, takes_second ? first : second, distance);
}

// Both blocks' statistics, the first half of the warp the first one's; sums as warp_reduce adds them.
__device__ inline void store(const Batch& batch, const Partial (&partials)[DEPTH]) {
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
    if (lane % 16 == 0 && block < batch.left) *batch.stats = {max, sum};
}

template <typename T>
__device__ COLD Mass load_mass(Row<T> row, int block, float scale) {
    float logits[PER_LANE];
    load_block(row, block, logits);
    return block_mass(logits, scale);
}

// Parts whose rows cannot be read by whole vectors, or are adjusted.
template <typename Places>
__device__ inline void read_piecewise(
    const Params& p, const Request& request, const Places& places, const Stretch& stretch) {
    const int warp = warp_id();
    Place place = find_part(p, request, stretch, first_part(p, request, stretch), warp, false);
    while (place.left > 0) {
        const int row = place.part / 2;
        const bool draft = is_draft(place.part);
        const AdjustedRow target(p, request, row);
        Mass* stats = draft ? places.draft_stats(row) : places.target_stats(row);
        for (int i = 0; i < place.left; ++i) {
            const int block = place.first + i * CTA_WARPS;
            const Mass mass = draft
                ? load_mass(draft_row(p, request, row), block, request.draft_scale)
                : load_mass(target.row, block, request.scale);
            if (lane_id() == 0) stats[block] = mass;
        }
        place = find_part(p, request, stretch, next_part(request, place.part), warp, false);
    }
}

// What a warp has on its way, and what lies behind that.
struct Flow {
    int left;          // blocks of the row, from the batch on its way on
    int partial;       // the same if the last of them is not whole, else none
    int reach;         // the lane's elements from its first one on, gaps between blocks among them
    const char* data;  // of the batch's first block, the lane's first logit
    Mass* stats;       // the lane's of the batch
    float scale;
    bool draft;
    Slot ring[DEPTH];

    template <typename Places>
    __device__ void enter(
        const Params& p, const Request& request, const Places& places, Cursor& cursor, int part) {
        const Place place = find_part(p, request, cursor.stretch, part, warp_id(), true);
        left = place.left;
        reach = partial = 0;
        if (left == 0) return;
        const int lane = lane_id();
        partial = place.rest < BLOCK_SIZE ? left : -1;
        reach = (left - 1) * STEP + place.rest - lane * 8;
        draft = is_draft(place.part);
        const int row = place.part / 2;
        const i64 element = static_cast<i64>(place.first) * BLOCK_SIZE + lane * 8;
        data = draft ? reinterpret_cast<const char*>(draft_row(p, request, row).data + element)
                     : reinterpret_cast<const char*>(target_row(p, request, row).data + element);
        stats = draft ? places.draft_stats(row) : places.target_stats(row);
        stats += place.first + lane / 16 * CTA_WARPS;
        scale = draft ? request.draft_scale : request.scale;
        __syncwarp();
        if (lane == 0) cursor.part = place.part;
        __syncwarp();
    }

    __device__ Batch batch() const { return {stats, scale, left, draft}; }

    template <typename Places>
    __device__ void advance(
        const Params& p, const Request& request, const Places& places, Cursor* cursors) {
        left -= DEPTH;
        partial -= DEPTH;
        reach -= DEPTH * STEP;
        data += DEPTH * STEP *
                (SAME_LOGITS || !draft ? sizeof(TargetLogit) : sizeof(DraftLogit));
        stats += DEPTH * CTA_WARPS;
        if (left > 0) return;
        Cursor& cursor = cursors[warp_id()];
        enter(p, request, places, cursor, next_part(request, cursor.part));
    }

    // The batch's i-th block, if it has so many. What a row's last block lacks is nothing.
    __device__ void fetch(int i) {
        if (partial == i + 1) fill(ring[i], draft ? NOTHING<DraftLogit> : NOTHING<TargetLogit>);
        const int wanted = reach - i * STEP;
        if (SAME_LOGITS || !draft)
            load_raw_if<TargetLogit>(wanted, data + i * STEP * sizeof(TargetLogit), ring[i].words);
        if (!SAME_LOGITS && draft)
            load_raw_if<DraftLogit>(wanted, data + i * STEP * sizeof(DraftLogit), ring[i].words);
    }

    template <typename Places>
    __device__ void open(
        const Params& p, const Request& request, const Places& places, Cursor* cursors,
        const Stretch& stretch) {
        Cursor& cursor = cursors[warp_id()];
        __syncwarp();
        if (lane_id() == 0) cursor.stretch = stretch;
        __syncwarp();
        enter(p, request, places, cursor, first_part(p, request, stretch));
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

    // All that was opened and fetched. No function may be called while blocks are on their way: they
    // would have to be waited for to be saved.
    template <typename Places>
    __device__ void drain(
        const Params& p, const Request& request, const Places& places, Cursor* cursors) {
        while (left > 0) {
            const Batch come = batch();
            advance(p, request, places, cursors);
            Partial partials[DEPTH] = {};
#pragma unroll
            for (int i = 0; i < DEPTH; ++i) {
                if (i == 0 || come.left > 1) partials[i] = partial_of(come, ring[i]);
                fetch(i);
            }
            store(come, partials);
        }
        read_piecewise(p, request, places, cursors[warp_id()].stretch);
    }
};
