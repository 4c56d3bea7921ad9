// Reading rows by a CTA's last warps, as Flow does, with blocks on their way in shared memory: each lane copies its own
// vectors and finds them again, so that nobody else is waited for, and the next batch is asked for before one is
// looked at. Warps take turns at batches of neighbouring blocks, numbered through all rows that are read.
#pragma once
#include "stream.cuh"

constexpr int BATCH_WORDS = DEPTH * RAW_WORDS * LANES;  // of 16 bytes
constexpr int NO_END = 0x7fffffff;

__device__ inline int batches_of(int blocks) {
    return static_cast<int>((static_cast<u32>(blocks) + DEPTH - 1) / DEPTH);
}

// Blocks of a target row, or of the draft row beside it, if they are read so.
__device__ inline int blocks_of_part(
    const Params& p, const Request& request, const Rows& rows, int row, bool beside) {
    if (!rows.whole(beside)) return 0;
    if (!beside) return num_blocks_of(p.vocab_size);
    return request.has_draft_row(row) ? num_blocks_of(p.draft_vocab_size) : 0;
}

// The exponents of a batch's blocks, by their largest logits.
__device__ inline void find_exponents(
    const Partial (&partials)[DEPTH], float scale, Exponents (&exponents)[DEPTH]) {
    bool steep = false;
#pragma unroll
    for (int i = 0; i < DEPTH; ++i) {
        exponents[i] = {scale, __fmul_rn(partials[i].max, scale)};
        steep |= !(fabsf(exponents[i].offset) < LARGE_OFFSET);
    }
    if (!steep) return;
#pragma unroll
    for (int i = 0; i < DEPTH; ++i)
        if (!(fabsf(exponents[i].offset) < LARGE_OFFSET)) exponents[i] = steep_exponents(partials[i].max);
}

// All blocks' at once, so that none waits for another; one that is not there is nothing.
template <typename T>
__device__ inline void find_partials(
    const RawBlock<T> (&blocks)[DEPTH], float scale, Partial (&partials)[DEPTH]) {
#pragma unroll
    for (int i = 0; i < DEPTH; ++i) partials[i].max = lane_max(blocks[i]);
#pragma unroll
    for (int i = 0; i < DEPTH; ++i) partials[i].max = warp_max(partials[i].max);
    if (GREEDY) return;
    Exponents exponents[DEPTH];
    find_exponents(partials, scale, exponents);
#pragma unroll
    for (int i = 0; i < DEPTH; ++i)
        partials[i].sum = lane_weights([&](int j) { return exponents[i].of(unpack(blocks[i], j)); });
}

// A warp's place there, and how far it is. Logits of both models have two bytes.
template <int READERS>
struct Berth {
    using T = TargetLogit;
    static constexpr int WORDS = READERS * BATCH_WORDS;  // of a CTA
    static constexpr int STEP = READERS * DEPTH;         // blocks from a warp's batch to its next one
    int batch;      // that was asked for
    int part;       // of that: twice its row, and one more for the draft row beside it
    int end;        // of the part's batches
    int elements;   // of the part, from the lane's first one in the batch on
    const T* data;  // that one

    __device__ static int reader() { return warp_id() - (CTA_WARPS - READERS); }

    // The lane's first vector of a block of the batch; others follow LANES further.
    __device__ static uint4* vectors_of(int block) {
        return asked_shared_memory() + reader() * BATCH_WORDS + block * RAW_WORDS * LANES + lane_id();
    }

    // The part of a batch that lies behind the one at hand, or what lies behind all.
    __device__ void enter(const Params& p, const Request& request, const Cursor& cursor) {
        int begin = end;
        while (batch >= end) {
            const int row = ++part / 2;
            begin = end;
            end = row < cursor.end ? end + batches_of(blocks_of_part(p, request, cursor.rows, row, part % 2)) : NO_END;
        }
        elements = 0;
        if (end == NO_END) return;
        const bool beside = part % 2;
        const int before = (batch - begin) * DEPTH * BLOCK_SIZE + lane_id() * 8;
        elements = static_cast<int>(beside ? p.draft_vocab_size : p.vocab_size) - before;
        data = reinterpret_cast<const T*>(cursor.rows.data_of(p, {part / 2, 0, beside})) + before;
    }

    // What a row's last block lacks is nothing.
    __device__ void ask() const {
        constexpr int half = BLOCK_SIZE / 2;  // between a lane's vectors
        uint4* to = vectors_of(0);
#pragma unroll
        for (int i = 0; i < DEPTH * RAW_WORDS; ++i)
            copy_ahead_if(i * half < elements, reinterpret_cast<const uint4*>(data + i * half), to + i * LANES);
        end_copies();
        if (elements > (DEPTH * RAW_WORDS - 1) * half) return;
        constexpr u32 word = NOTHING<T>;
#pragma unroll
        for (int i = 0; i < DEPTH * RAW_WORDS; ++i)
            if (i * half >= elements) to[i * LANES] = uint4{word, word, word, word};
    }

    // For the warp's first batch of those from a row on, up to the cursor's end.
    __device__ void open(const Params& p, const Request& request, const Cursor& cursor, int row) {
        part = 2 * row - 1;
        end = 0;
        batch = reader();
        enter(p, request, cursor);
        ask();
    }

    __device__ void ask_next(const Params& p, const Request& request, const Cursor& cursor) {
        batch += READERS;
        data += STEP * BLOCK_SIZE;
        elements -= STEP * BLOCK_SIZE;
        if (batch >= end) enter(p, request, cursor);
        ask();
    }

    // The warp's batches of a part, unless it is `stopped`, which is asked for a turn ahead; whether it was. `come`:
    // the next one.
    template <typename Stopped>
    __device__ bool drain(
        const Params& p, const Request& request, const Cursor& cursor, Batch come, const Stopped& stopped) {
        bool stops = false;
        while (come.left > 0 && !stops) {
            const int said = stopped.ask();
            wait_for_copies();
            RawBlock<T> blocks[DEPTH];
#pragma unroll
            for (int i = 0; i < DEPTH; ++i)
#pragma unroll
                for (int word = 0; word < RAW_WORDS; ++word) blocks[i].words[word] = vectors_of(i)[word * LANES];
            ask_next(p, request, cursor);
            Partial partials[DEPTH] = {};
            find_partials(blocks, come.scale, partials);
            store(come, partials, Keep{});
            come.left -= STEP;
            come.stats += STEP;
            stops = stopped.says(said);
        }
        return stops;
    }
};
