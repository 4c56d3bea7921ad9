// Reading a request's rows: each warp takes every sixteenth block of a stretch and keeps several on
// their way while it looks at one. Results do not depend on how rows are cut into stretches.
#pragma once
#include "workspace.cuh"

template <typename A, typename B>
constexpr bool SAME = false;
template <typename A>
constexpr bool SAME<A, A> = true;
constexpr bool SAME_LOGITS = SAME<TargetLogit, DraftLogit>;

constexpr int LARGEST_LOGIT =
    sizeof(TargetLogit) > sizeof(DraftLogit) ? sizeof(TargetLogit) : sizeof(DraftLogit);
constexpr int RAW_WORDS = PER_LANE * LARGEST_LOGIT / 16;
constexpr int DEPTH = RAW_WORDS > 2 || POLICY == BLOCK ? 2 : 3;  // blocks on their way

// A block on its way, a lane's share.
struct Slot {
    uint4 words[RAW_WORDS];
};

// Before anything was fetched.
__device__ inline void clear(Slot (&ring)[DEPTH]) {
#pragma unroll
    for (int i = 0; i < DEPTH; ++i)
#pragma unroll
        for (int word = 0; word < RAW_WORDS; ++word) ring[i].words[word] = uint4{0, 0, 0, 0};
}

__device__ inline int length_of_pair(const Params& p, const Request& request) {
    return num_blocks_of(p.vocab_size) +
           (DENSE && request.dense ? num_blocks_of(p.draft_vocab_size) : 0);
}

__device__ inline int length_of_request(const Params& p, const Request& request) {
    if (request.num_rows == 0) return 0;
    return request.num_drafts * length_of_pair(p, request) + num_blocks_of(p.vocab_size);
}

// Parts are rows: 2 * i is the request's i-th target row, 2 * i + 1 the draft row beside it.
__device__ inline int next_part(const Request& request, int part) {
    return part % 2 == 0 && request.has_draft_row(part / 2) ? part + 1 : part / 2 * 2 + 2;
}

// Of a request's blocks, rows one behind the other, those in [begin, end), which lie in parts up to
// `end_part`.
struct Stretch {
    int begin;
    int end;
    int first_part;
    int end_part;
};

__device__ inline Stretch stretch(const Params& p, const Request& request, int begin, int end) {
    if (begin >= end) return {0, 0, 0, 0};
    const int pair = length_of_pair(p, request);
    const int first = begin / pair, last = (end - 1) / pair;
    return {begin, end, 2 * (first < request.num_drafts ? first : request.num_drafts),
            2 * (last < request.num_drafts ? last : request.num_drafts) + 2};
}

// A target row and the draft row beside it.
__device__ inline Stretch stretch_of_row(const Params& p, const Request& request, int row) {
    const int begin = row * length_of_pair(p, request);
    return {begin, 0x7fffffff, 2 * row, row < request.num_rows ? 2 * row + 2 : 2 * row};
}

// A warp's blocks of a part: every sixteenth from the first, the last one of `rest` elements.
struct Share {
    int first;
    int count;
    int rest;
};

template <typename T>
__device__ inline Share share_of(const Row<T>& row, int part_begin, const Stretch& stretch) {
    const int length = row.num_blocks();
    int low = stretch.begin - part_begin, high = stretch.end - part_begin;
    if (low < 0) low = 0;
    if (high > length) high = length;
    Share share;
    share.first = low + ((warp_id() - (part_begin + low - stretch.begin)) & (CTA_WARPS - 1));
    share.count = high > share.first ? (high - share.first + CTA_WARPS - 1) / CTA_WARPS : 0;
    share.rest = BLOCK_SIZE;
    const int last = share.first + (share.count - 1) * CTA_WARPS;
    if (last == length - 1) share.rest = static_cast<int>(row.vocab_size - (length - 1ll) * BLOCK_SIZE);
    return share;
}

__device__ inline int begin_of_part(const Params& p, const Request& request, int part) {
    return part / 2 * length_of_pair(p, request) + (part % 2 ? num_blocks_of(p.vocab_size) : 0);
}

// A part that a warp reads: where its next block is, and where that one's statistics go.
struct Place {
    int part;
    int left;  // blocks of the part
    int rest;
};

// To a part that has a block for this warp and can be read by whole vectors (or cannot, if so
// asked), if there is one left; hands it on.
template <typename Enter>
__device__ inline void settle(
    const Params& p, const Request& request, const Stretch& stretch, bool direct, Place& place,
    Enter enter) {
    while (place.left == 0 && place.part < stretch.end_part) {
        const int row = place.part / 2, begin = begin_of_part(p, request, place.part);
        if (place.part % 2) {
            const Row<DraftLogit> part = draft_row(p, request, row);
            const Share share = share_of(part, begin, stretch);
            if (is_direct(part) == direct && share.count > 0) {
                place = {place.part, share.count, share.rest};
                enter(part, share.first, row, true);
                return;
            }
        } else {
            const Row<TargetLogit> part = target_row(p, request, row);
            const Share share = share_of(part, begin, stretch);
            if ((is_direct(part) && !ADJUSTED) == direct && share.count > 0) {
                place = {place.part, share.count, share.rest};
                enter(part, share.first, row, false);
                return;
            }
        }
        place.part = next_part(request, place.part);
    }
}

// Where a warp fetches.
struct Source {
    Place place;
    const char* data;  // the lane's first logit of the next block

    __device__ void settle_in(const Params& p, const Request& request, const Stretch& stretch) {
        settle(p, request, stretch, true, place, [&](const auto& row, int first, int, bool) {
            const i64 element = static_cast<i64>(first) * BLOCK_SIZE + lane_id() * 8;
            data = reinterpret_cast<const char*>(row.data + element);
        });
    }
    __device__ void finish_part(const Request& request) {
        if (--place.left == 0) place.part = next_part(request, place.part);
    }
};

__device__ inline void fetch(
    const Params& p, const Request& request, const Stretch& stretch, Source& source, Slot& slot) {
    source.settle_in(p, request, stretch);
    const Place& place = source.place;
    const int valid = place.left == 1 ? place.rest : BLOCK_SIZE;
    const int wanted = place.left > 0 ? valid - lane_id() * 8 : 0;
    const bool draft = place.part % 2;
    if (SAME_LOGITS || !draft) load_raw_if<TargetLogit>(wanted, source.data, slot.words);
    if (!SAME_LOGITS && draft) load_raw_if<DraftLogit>(wanted, source.data, slot.words);
    if (place.left == 0) return;
    const int size = SAME_LOGITS || !draft ? sizeof(TargetLogit) : sizeof(DraftLogit);
    source.data += CTA_WARPS * BLOCK_SIZE * size;
    source.finish_part(request);
}

// Where a warp's statistics go.
struct Sink {
    Place place;
    Mass* stats;
    float scale;

    template <typename Places>
    __device__ void settle_in(
        const Params& p, const Request& request, const Places& places, const Stretch& stretch) {
        settle(p, request, stretch, true, place,
               [&](const auto&, int first, int row, bool draft) {
                   scale = draft ? request.draft_scale : request.scale;
                   stats = (draft ? places.draft_stats(row) : places.target_stats(row)) + first;
               });
    }
};

template <typename T>
__device__ inline Mass mass_of(const Slot& slot, int valid, float scale) {
    RawBlock<T> raw;
#pragma unroll
    for (int i = 0; i < PER_LANE / PER_VECTOR<T>; ++i) raw.words[i] = slot.words[i];
    if (valid < BLOCK_SIZE) cut_off(raw, valid);
    return block_mass(raw, scale);
}

// Statistics of a block that has come, if there is one left.
template <typename Places>
__device__ inline void consume(
    const Params& p, const Request& request, const Places& places, const Stretch& stretch,
    Sink& sink, const Slot& slot) {
    Place& place = sink.place;
    if (place.left == 0) return;
    const int valid = place.left == 1 ? place.rest : BLOCK_SIZE;
    const Mass mass = SAME_LOGITS || place.part % 2 == 0
                          ? mass_of<TargetLogit>(slot, valid, sink.scale)
                          : mass_of<DraftLogit>(slot, valid, sink.scale);
    if (lane_id() == 0) *sink.stats = mass;
    sink.stats += CTA_WARPS;
    if (--place.left == 0) {
        place.part = next_part(request, place.part);
        sink.settle_in(p, request, places, stretch);
    }
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
    Place place = {stretch.first_part, 0, 0};
    while (true) {
        settle(p, request, stretch, false, place,
               [&](const auto& row, int first, int index, bool draft) {
                   const float scale = draft ? request.draft_scale : request.scale;
                   Mass* stats = draft ? places.draft_stats(index) : places.target_stats(index);
                   AdjustedRow target(p, request, index);
                   for (int i = 0; i < place.left; ++i) {
                       const int block = first + i * CTA_WARPS;
                       const Mass mass = draft ? load_mass(row, block, scale)
                                               : load_mass(target.row, block, scale);
                       if (lane_id() == 0) stats[block] = mass;
                   }
               });
        if (place.left == 0) return;
        place = {next_part(request, place.part), 0, 0};
    }
}

// The blocks that are on their way.
struct Flow {
    Stretch stretch;
    Source source;
    Slot ring[DEPTH];

    __device__ void open(const Params& p, const Request& request, const Stretch& of) {
        stretch = of;
        source = {{of.first_part, 0, 0}, nullptr};
        clear(ring);
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) fetch(p, request, stretch, source, ring[i]);
    }

    // All that was opened. No function may be called while blocks are on their way: they would have
    // to be waited for to be saved.
    template <typename Places>
    __device__ void drain(const Params& p, const Request& request, const Places& places) {
        Sink sink = {{stretch.first_part, 0, 0}, nullptr, 0.0f};
        sink.settle_in(p, request, places, stretch);
        while (sink.place.left > 0) {
#pragma unroll
            for (int i = 0; i < DEPTH; ++i) {
                consume(p, request, places, stretch, sink, ring[i]);
                fetch(p, request, stretch, source, ring[i]);
            }
        }
        read_piecewise(p, request, places, stretch);
    }
};
