// Touched logits that are noted: the stream leaves them out of their blocks, and here a thread adds those of a
// block, with all that is done to them.
#pragma once
#include "reading.cuh"

constexpr int NOTES_EACH = 4;  // loaded at a time

// What is told of a block.
struct Tally {
    Mass mass;
    float moment;

    __device__ void add(float logit, float scale) {
        const float max = max_nan(mass.max, logit);
        if (max > -INFINITY) {
            const float below = fmaxf(log2_weight(mass.max, max, scale), LEAST_EXPONENT);
            const float mine = fmaxf(log2_weight(logit, max, scale), LEAST_EXPONENT);
            const float others = exp2_fast(below), weight = exp2_fast(mine);
            moment = __fmaf_rn(others, __fmaf_rn(below, mass.sum, moment), __fmul_rn(weight, mine));
            mass.sum = __fmaf_rn(mass.sum, others, weight);
        }
        mass.max = max;
    }
};

// By a thread.
__device__ inline void add_logit(const Row& row, int id, float logit, const Reading& reading, Tally& tally) {
    if (!row.allows(id)) logit = forbidden(logit);
    if (reading.leader) *reading.leader = Max{}(*reading.leader, racer(__fadd_rn(logit, 0.0f), id));
    else tally.add(logit, reading.scale);
    if (!reading.counting.wants_one(logit)) return;
    count_one(logit, 1);
    if (row.type == BF16) list_logit(logit);
}

// A few notes of a block, and the logits that they are of, as the model gave them.
struct Noted {
    u32 notes[NOTES_EACH];
    float logits[NOTES_EACH];

    __device__ static int id_of(int block, u32 note) {
        return block * BLOCK_SIZE + static_cast<int>(note / PLACE % BLOCK_SIZE);
    }
    __device__ void load(const Row& row, int block, const u32* from, int count) {
        const uint4 four = *reinterpret_cast<const uint4*>(from);
        const u32 words[NOTES_EACH] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < NOTES_EACH; ++i) {
            notes[i] = words[i];
            const int element = i < count ? row.element_of(id_of(block, notes[i])) : -1;
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
        const int number = static_cast<int>(marks[0] >> 16);
        Tally tally = {};
        if (reading.stats) tally.mass = reading.stats[block];
        if (reading.moments) tally.moment = reading.moments[block];
#pragma unroll 1
        for (int first = 0; first < number && number <= MOST_NOTED; first += NOTES_EACH) {
            Noted noted;
            noted.load(row, block, marks + LANES + first, number - first);
#pragma unroll
            for (int i = 0; i < NOTES_EACH; ++i) {
                const int id = Noted::id_of(block, noted.notes[i]);
                if (first + i >= number) continue;
                const float logit = adjusted_as_noted(*row.adjustment, id, noted.notes[i], noted.logits[i]);
                add_logit(row, id, logit, reading, tally);
            }
        }
        if (number == 0 || number > MOST_NOTED) continue;
        if (reading.stats) reading.stats[block] = tally.mass;
        if (reading.moments) reading.moments[block] = tally.moment;
    }
}

// All of a piece. By a CTA; threads that have nothing to read only come to the barrier.
__device__ inline void read_all(const Row& row, const Piece& piece, const Reading& reading, bool reads) {
    if (reads) read_piece(row, piece, reading);
    if (MOST_CHANGE != ANY_CHANGE) return;
    __syncthreads();
    if (reads) read_touched(row, piece, reading);
}
