// Reading a request's rows: a warp takes a batch of blocks of one row after the other, and fetches the
// next one while it looks at one. Results do not depend on how rows are cut into stretches.
#pragma once
#include "stretch.cuh"

template <typename A, typename B>
constexpr bool SAME = false;
template <typename A>
constexpr bool SAME<A, A> = true;
constexpr bool SAME_LOGITS = SAME<TargetLogit, DraftLogit>;

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
    Mass* stats;  // of its first block
    float scale;
    int count;
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
    const int block = lane_id() / 16;
    const float max = block ? partials[1].max : partials[0].max;
    float sum = 0.0f;
    if (!GREEDY) {
        sum = add_halves(partials[0].sum, partials[1].sum, 16);
#pragma unroll
        for (int distance = 8; distance; distance /= 2)
            sum += __shfl_xor_sync(ALL_LANES, sum, distance);
        sum = __fmul_rn(sum, correction_of(max, batch.scale));
    }
    if (lane_id() % 16 == 0 && block < batch.count) batch.stats[block * CTA_WARPS] = {max, sum};
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
    Place place = find_part(p, request, stretch, stretch.first_part, warp, false);
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
    Stretch stretch;
    int warp;
    Place place;       // of the batch on its way
    const char* data;  // its first block's, the lane's first logit
    Mass* stats;
    float scale;
    Slot ring[DEPTH];

    template <typename Places>
    __device__ void enter(
        const Params& p, const Request& request, const Places& places, int part) {
        place = find_part(p, request, stretch, part, warp, true);
        if (place.left == 0) return;
        const int row = place.part / 2;
        const i64 element = static_cast<i64>(place.first) * BLOCK_SIZE + lane_id() * 8;
        if (is_draft(place.part)) {
            data = reinterpret_cast<const char*>(draft_row(p, request, row).data + element);
            stats = places.draft_stats(row) + place.first;
            scale = request.draft_scale;
        } else {
            data = reinterpret_cast<const char*>(target_row(p, request, row).data + element);
            stats = places.target_stats(row) + place.first;
            scale = request.scale;
        }
    }

    __device__ Batch batch() const {
        return {stats, scale, place.left < DEPTH ? place.left : DEPTH, is_draft(place.part)};
    }

    template <typename Places>
    __device__ void advance(const Params& p, const Request& request, const Places& places) {
        place.left -= DEPTH;
        const bool target = SAME_LOGITS || !is_draft(place.part);
        data += DEPTH * STEP * (target ? sizeof(TargetLogit) : sizeof(DraftLogit));
        stats += DEPTH * CTA_WARPS;
        if (place.left <= 0) enter(p, request, places, next_part(request, place.part));
    }

    // The batch's i-th block, if it has so many. What a row's last block lacks is nothing.
    __device__ void fetch(int i) {
        const bool draft = is_draft(place.part);
        if (place.left == i + 1 && place.rest < BLOCK_SIZE)
            fill(ring[i], draft ? NOTHING<DraftLogit> : NOTHING<TargetLogit>);
        const int wanted = (place.left - 1 - i) * STEP + place.rest - lane_id() * 8;
        if (SAME_LOGITS || !draft)
            load_raw_if<TargetLogit>(wanted, data + i * STEP * sizeof(TargetLogit), ring[i].words);
        if (!SAME_LOGITS && draft)
            load_raw_if<DraftLogit>(wanted, data + i * STEP * sizeof(DraftLogit), ring[i].words);
    }

    template <typename Places>
    __device__ void open(
        const Params& p, const Request& request, const Places& places, const Stretch& of) {
        stretch = of;
        warp = warp_id();
        enter(p, request, places, of.first_part);
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
    __device__ void drain(const Params& p, const Request& request, const Places& places) {
        while (place.left > 0) {
            const Batch come = batch();
            advance(p, request, places);
            Partial partials[DEPTH] = {};
#pragma unroll
            for (int i = 0; i < DEPTH; ++i) {
                if (i == 0 || come.count > 1) partials[i] = partial_of(come, ring[i]);
                fetch(i);
            }
            store(come, partials);
        }
        read_piecewise(p, request, places, stretch);
    }
};
