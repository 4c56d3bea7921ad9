// Reads a row once: a warp has its next blocks in flight while it sums up one. For filters, logits are
// counted at the same time.
#pragma once
#include "statistics.cuh"

// Whether logits are counted, and which: filters keep none that are too far below the largest logit. A CTA
// shares the largest one that its warps have seen.
struct Counting {
    u32* largest;  // its key; null: none are
    float reach;
    // Whether a block with this largest logit must be counted. By a warp.
    __device__ bool wants(float max) const {
        if (!largest) return false;
        if (reach == INFINITY) return true;
        const u32 key = float_key(max), before = *static_cast<volatile u32*>(largest);
        if (lane_id() == 0 && key > before) atomicMax(largest, key);
        return __any_sync(ALL_LANES, max >= key_float(before) - reach);  // lanes may see different ones
    }
};

// Enters a block into the race for a row's first largest logit. By a warp that knows the leader.
__device__ inline void enter_largest(
    u64& leader, int block, float max, const float (&logits)[PER_LANE]) {
    if (key_of(max) < static_cast<u32>(leader >> 32)) return;
    int first = (block + 1) * BLOCK_SIZE;
#pragma unroll
    for (int j = PER_LANE - 1; j >= 0; --j) first = logits[j] == max ? id_of(block, j) : first;
    leader = Max{}(leader, racer(__fadd_rn(max, 0.0f), -warp_max_signed(-first)));
}

// How a row is read, and what is stored about its blocks.
struct Reading {
    float scale;
    bool greedy;  // masses are not needed
    Counting counting;
    Mass* stats;
    u64* leader;  // null: statistics are told, else only who leads the race for the largest logit
    float* moments;  // null: entropies are not needed

    // By a warp, of a block whose largest logit is `max`.
    __device__ void tell(int block, float max, const float (&logits)[PER_LANE]) const {
        if (leader) return enter_largest(*leader, block, max, logits);
        const Mass mass = block_mass(logits, max, scale, greedy);
        if (lane_id() == 0) stats[block] = mass;
        if (!moments) return;
        const float moment = block_moment(logits, max, scale);
        if (lane_id() == 0) moments[block] = moment;
    }
};

// Stores a block's statistics, and counts its logits; those with marks are listed, too, if `lists`. By a warp.
__device__ inline void look_at(
    const Reading& reading, int block, const float (&logits)[PER_LANE], const Bytes& marks, bool lists) {
    const float max = block_max(logits);
    if (reading.counting.wants(max)) {
        count_logits(logits);
        if (lists) list_logits(marks.bits(), logits);
        else tell_coarse(logits);
    }
    reading.tell(block, max, logits);
}

// How many blocks of a warp are in flight while as many are summed up. Wide logits need more registers, and so do
// rows that begin between vectors: a load without registers would be waited for.
template <typename T, Change change, bool between>
constexpr int DEPTH = sizeof(T) == 4 || change == ANY_CHANGE || between ? 1 : 2;

// The next lane's words, and in the last lane others of the first. By a warp.
__device__ inline u32 from_next(u32 word, u32 other) {
    return __shfl_sync(ALL_LANES, lane_id() == 0 ? other : word, (lane_id() + 1) % LANES);
}

__device__ inline uint4 from_next(const uint4& words, const uint4& others) {
    return {from_next(words.x, others.x), from_next(words.y, others.y), from_next(words.z, others.z),
            from_next(words.w, others.w)};
}

// The blocks that a warp has in flight, of a row that is read by whole vectors. `between`: blocks begin between these,
// and the first lane also loads the vector in which the next block begins.
template <typename T, Change change, bool between>
struct Flow {
    static constexpr int depth = DEPTH<T, change, between>;
    uint4 words[depth][2 * VECTORS<T>];
    uint4 after;
    Bytes marks[depth];
    u32 allowed[depth][2];  // a byte for eight of the lane's logits
    u32 shift;         // bytes from a vector to the block that begins in it
    const char* data;  // the vector of the lane's first logit of the first block on its way
    const u8* mask;    // the lane's first byte of that block, if the row is masked
    int end;           // of the piece's ids
    int step;          // logits between a warp's blocks

    __device__ void open(const Row& row, u8* ids_marks, int first, int warps, int end) {
        const int id = id_of(first, 0);
        data = row.data + static_cast<i64>(id) * sizeof(T);
        shift = between ? static_cast<u32>(reinterpret_cast<u64>(data) % 16) : 0;
        data -= shift;
        this->end = end * BLOCK_SIZE < row.num_ids ? end * BLOCK_SIZE : row.num_ids;
        step = warps * BLOCK_SIZE;
        if (change) mask = row.allowed + id / 8;
#pragma unroll
        for (int i = 0; i < depth; ++i) {
            allowed[i][0] = allowed[i][1] = 255;
            fetch(row, first + i * warps, i, i);
        }
        if (!ids_marks) return;
        wait_for_launch_before();
#pragma unroll
        for (int i = 0; i < depth; ++i) fetch_marks(ids_marks, first + i * warps, i);
    }

    // The address is computed anew, because registers are scarce.
    __device__ void fetch_marks(u8* ids_marks, int block, int slot) {
        load_marks_if(ids_marks && left_from(block) > 0, ids_marks, block, marks[slot]);
    }

    // Logits from a block on.
    __device__ int left_from(int block) const { return end - block * BLOCK_SIZE; }

    // A bit for each of the lane's logits.
    __device__ u32 allowed_at(int slot) const { return allowed[slot][0] | allowed[slot][1] << 8; }

    // The `ahead`-th block from the first on. Where there is no logit, bits of a mask stay what they were.
    __device__ void fetch(const Row& row, int block, int ahead, int slot) {
        const int left = left_from(block), here = left - lane_id() * 8;
        if (left > 0 && left < BLOCK_SIZE) {
#pragma unroll
            for (int i = 0; i < 2 * VECTORS<T>; ++i)
                words[slot][i] = uint4{NOTHING<T>, NOTHING<T>, NOTHING<T>, NOTHING<T>};
            __syncwarp();  // keeps what is rare a branch
        }
        const char* from = data + static_cast<i64>(ahead) * step * sizeof(T);
        const bool masked = change == MASK || (change == ANY_CHANGE && row.is_masked());
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int begin = half * (BLOCK_SIZE / 2);
#pragma unroll
            for (int i = 0; i < VECTORS<T>; ++i)
                load_once_if(begin < here, reinterpret_cast<const uint4*>(from + begin * sizeof(T)) + i,
                             words[slot][half * VECTORS<T> + i]);
            if (between && half)
                load_once_if(lane_id() == 0 && left > 0, reinterpret_cast<const uint4*>(from + BLOCK_SIZE * sizeof(T)), after);
            if (change)
                load_byte_if(masked && begin < here, mask + (ahead * step + begin) / 8, allowed[slot][half]);
        }
    }

    // Makes vectors of the lane's logits from those that they begin between. By a warp.
    __device__ void realign() {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int first = half * VECTORS<T>, last = first + VECTORS<T> - 1;
            const uint4 end = from_next(words[0][first], half ? after : words[0][VECTORS<T>]);
#pragma unroll
            for (int i = first; i < last; ++i) words[0][i] = shifted(words[0][i], words[0][i + 1], shift);
            words[0][last] = shifted(words[0][last], end, shift);
        }
    }

    __device__ void advance() {
        data += static_cast<i64>(depth) * step * sizeof(T);
        mask += depth * step / 8;
    }

    // As they are, two logits a word.
    __device__ void pairs_to(int slot, u32 (&pairs)[PER_LANE / 2]) const {
        if constexpr (IS_BF16<T>) {
#pragma unroll
            for (int j = 0; j < PER_LANE / 2; ++j) {
                const uint4& vector = words[slot][j / 4];
                pairs[j] = j % 4 == 0 ? vector.x : j % 4 == 1 ? vector.y : j % 4 == 2 ? vector.z : vector.w;
            }
        }
    }

    __device__ void unpack_to(int slot, float (&logits)[PER_LANE]) const {
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j)
            logits[j] = unpack<T>(words[slot] + j / 8 * VECTORS<T>, j % 8);
    }
};

// Of two logits a word, by a lane.
__device__ inline float largest_of_pairs(const u32 (&pairs)[PER_LANE / 2]) {
    u32 largest = pairs[0];
#pragma unroll
    for (int j = 1; j < PER_LANE / 2; ++j) largest = max_nan_of_pairs(largest, pairs[j]);
    return max_nan(__uint_as_float(largest << 16), __uint_as_float(largest & 0xffff0000u));
}

// The same as forbid() of two logits a word.
__device__ inline void forbid_in_pairs(u32 allowed, u32 (&pairs)[PER_LANE / 2]) {
    const u32 forbidden = neither(allowed, allowed << 15, 0xffff0000u);
#pragma unroll
    for (int j = 0; j < PER_LANE / 2; ++j) {
        const u32 signs = forbidden << (7 - 2 * (j % 4));
        const u32 lowest = j < 4 ? lowest_by_even_bytes(signs) : lowest_by_odd_bytes(signs);
        pairs[j] = lowered_pair(pairs[j], lowest);
    }
}

// The same as look_at() of two logits a word.
__device__ inline void look_at_pairs(const Reading& reading, int block, const u32 (&pairs)[PER_LANE / 2]) {
    float logits[PER_LANE];
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j)
        logits[j] = __uint_as_float(j % 2 ? pairs[j / 2] & 0xffff0000u : pairs[j / 2] << 16);
    const float max = warp_max(largest_of_pairs(pairs));
    if (reading.counting.wants(max)) {
#pragma unroll
        for (int j = 0; j < PER_LANE / 2; ++j) count_pair(pairs[j]);
    }
    reading.tell(block, max, logits);
}

// Reads every `warps`-th block of the piece from `first` on. Without marks, `named` is the block of a biased id, one
// per lane. By a warp.
template <typename T, Change change, bool between>
__device__ inline void stream(
    const Row& row, int first, int warps, int end, int named, const Reading& reading) {
    constexpr bool changes = change == ANY_CHANGE;
    Flow<T, change, between> flow = {};
    constexpr int depth = flow.depth;
    u8* const ids_marks = changes ? row.adjustment->marks : nullptr;
    flow.open(row, ids_marks, first, warps, end);
    for (; flow.left_from(first) > 0; flow.advance()) {
#pragma unroll
        for (int i = 0; i < depth; ++i) {
            const int block = first + i * warps;
            float logits[PER_LANE];
            u32 pairs[PER_LANE / 2];
            if (between) flow.realign();
            flow.unpack_to(i, logits);
            flow.pairs_to(i, pairs);
            const u32 allowed = change ? flow.allowed_at(i) : 0;
            Bytes marks = flow.marks[i];
            flow.fetch(row, block + depth * warps, i + depth, i);
            if (changes) flow.fetch_marks(ids_marks, block + depth * warps, i);
            if (flow.left_from(block) <= 0) continue;
            if constexpr (IS_BF16<T> && !changes) {
                if (change) forbid_in_pairs(allowed, pairs);
                look_at_pairs(reading, block, pairs);
            } else {
                if (changes && __any_sync(ALL_LANES, marks.any() != 0 || named == block))
                    change_logits(*row.adjustment, block, marks, logits);
                if (change && __any_sync(ALL_LANES, allowed != 0xffffu)) forbid(allowed, logits);
                look_at(reading, block, logits, marks, changes && IS_BF16<T>);
            }
        }
        first += depth * warps;
    }
}

// Reads a block of a row that is not whole. By a warp.
__device__ inline void read_block(const Row& row, int block, const Reading& reading) {
    Coming coming = {};
    float logits[PER_LANE];
    coming.fetch(row, block);
    coming.take(row, block, logits);
    look_at(reading, block, logits, coming.marks, LISTS_BESIDE && row.type == BF16);
}

// Reads every CTA_WARPS-th block from `first` on, whole ones with vectors that lie in the row. By a warp.
template <bool between>
__device__ inline void stream_blocks(const Row& row, int first, int end, const Reading& reading) {
    int named = -1;
    if (row.is_changed() && !row.is_marked() && lane_id() < row.adjustment->num_bias)
        named = static_cast<int>(row.adjustment->bias_ids[lane_id()] / BLOCK_SIZE);
    by_type(row.type, [&](auto type) {
        using T = decltype(type);
        if (row.is_changed()) stream<T, ANY_CHANGE, between>(row, first, CTA_WARPS, end, named, reading);
        else if (row.is_masked()) stream<T, MASK, between>(row, first, CTA_WARPS, end, -1, reading);
        else stream<T, NO_CHANGE, between>(row, first, CTA_WARPS, end, -1, reading);
    });
}

// Whether blocks that begin between vectors are streamed, too; with wide logits or changes registers are too few.
constexpr bool STREAMS_BETWEEN = ALL_NARROW && MOST_CHANGE != ANY_CHANGE;

// Reads a piece of a row. By a CTA, whose warps take turns.
__device__ inline void read_piece(const Row& row, const Piece& piece, const Reading& reading) {
    const int first = piece.begin + warp_id();
    if (row.is_whole()) return stream_blocks<false>(row, first, piece.end, reading);
    if (row.is_marked()) wait_for_launch_before();
    const Piece inner = STREAMS_BETWEEN ? row.inner_blocks() : Piece{0, 0};
    const int end = inner.end < piece.end ? inner.end : piece.end;
#pragma unroll 1
    for (int block = first; block < piece.end; block += CTA_WARPS) {
        if (block < inner.begin || block >= end) {
            read_block(row, block, reading);
        } else {
            if constexpr (STREAMS_BETWEEN) stream_blocks<true>(row, block, end, reading);
            block += (end - 1 - block) / CTA_WARPS * CTA_WARPS;
        }
    }
}

// Reads all of a piece. By a CTA, also if its threads have nothing to read. Waits for marks where they are first
// needed, at the latest here.
__device__ inline void read_all(const Row& row, const Piece& piece, const Reading& reading, bool reads) {
    if (reads) read_piece(row, piece, reading);
    wait_for_launch_before();
}
