// Touched logits that are noted: the stream leaves them out of their blocks, and here a thread adds those of a
// block, with all that is done to them.
#pragma once
#include "reading.cuh"

constexpr int NOTES_EACH = 4;  // loaded at a time

// A block's mass with one logit more.
__device__ inline Mass with_logit(const Mass& mass, float logit, float scale) {
    const float max = max_nan(mass.max, logit);
    if (!(max > -INFINITY)) return {max, 0.0f};
    const float others = exp2_fast(log2_weight(mass.max, max, scale));
    return {max, __fmaf_rn(mass.sum, others, exp2_fast(log2_weight(logit, max, scale)))};
}

// By a thread.
__device__ inline void add_logit(const Row& row, int id, float logit, const Reading& reading, Mass& mass) {
    if (!row.allows(id)) logit = forbidden(logit);
    if (reading.leader) *reading.leader = Max{}(*reading.leader, racer(__fadd_rn(logit, 0.0f), id));
    else mass = with_logit(mass, logit, reading.scale);
    if (!reading.counting.wants_one(logit)) return;
    count_one(logit, 1);
    if (row.type == BF16) list_logit(logit);
}

// A few notes of a block, and the logits that they are of, as the model gave them.
struct Noted {
    uint4 notes;
    float logits[NOTES_EACH];

    __device__ u32 note(int i) const { return i == 0 ? notes.x : i == 1 ? notes.y : i == 2 ? notes.z : notes.w; }
    __device__ int id(int block, int i) const {
        return block * BLOCK_SIZE + static_cast<int>(place_in(note(i)));
    }
    __device__ void load(const Row& row, int block, int count) {
#pragma unroll
        for (int i = 0; i < NOTES_EACH; ++i) {
            const int element = i < count ? row.element_of(id(block, i)) : -1;
            logits[i] = by_type(row.type, [&](auto type) { return load_element<decltype(type)>(row, element); });
        }
    }
};

// By a CTA, behind a barrier.
__device__ inline void read_touched(const Row& row, const Piece& piece, const Reading& reading) {
    if (!row.is_marked()) return;
#pragma unroll 1
    for (int block = piece.begin + thread_id(); block < piece.end; block += CTA_THREADS) {
        const u32* marks = marks_at(row.adjustment->marks, block);
        const uint4* notes = reinterpret_cast<const uint4*>(marks + LANES);
        Noted noted = {notes[0]};  // on its way with how many there are
        Mass mass = {};
        if (reading.stats) mass = reading.stats[block];
        const int number = static_cast<int>(marks[0] >> 16);
        if (number == 0 || number > MOST_NOTED) continue;
#pragma unroll 1
        for (int first = 0; first < number; first += NOTES_EACH) {
            if (first > 0) noted.notes = notes[first / NOTES_EACH];
            noted.load(row, block, number - first);
#pragma unroll
            for (int i = 0; i < NOTES_EACH; ++i) {
                if (first + i >= number) continue;
                const int id = noted.id(block, i);
                const float logit = adjusted(*row.adjustment, id, noted.note(i), noted.logits[i]);
                add_logit(row, id, logit, reading, mass);
            }
        }
        if (reading.stats) reading.stats[block] = mass;
    }
}

// Reads all of a piece. By a CTA; threads that have nothing to read only come to the barrier. Waits for marks where
// they are first needed, at the latest here.
__device__ inline void read_all(const Row& row, const Piece& piece, const Reading& reading, bool reads) {
    if (reads) read_piece(row, piece, reading);
    wait_for_launch_before();
    if (MOST_CHANGE != ANY_CHANGE) return;
    __syncthreads();
    if (reads) read_touched(row, piece, reading);
}
