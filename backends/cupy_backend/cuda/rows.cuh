// A row of logits and how its blocks are loaded: 16 logits a lane, the same ones whatever the
// row's type and alignment.
#pragma once
#include "changes.cuh"

struct Bf16 {
    unsigned short bits;
};
struct Fp16 {
    unsigned short bits;
};

__device__ inline float to_float(Bf16 x) { return __uint_as_float(static_cast<u32>(x.bits) << 16); }
__device__ inline float to_float(Fp16 x) { return half_bits_to_float(x.bits); }
__device__ inline float to_float(float x) { return x; }

template <typename T>
constexpr bool IS_BF16 = false;
template <>
constexpr bool IS_BF16<Bf16> = true;

// Calls work(T{}) for the type of a tensor, which most kernels know at compile time.
template <typename Work>
__device__ inline auto by_type(int type, Work work) {
    const int known = ONLY_TYPE == MIXED ? type : ONLY_TYPE;
    if (known == BF16) return work(Bf16{});
    if (known == FP16) return work(Fp16{});
    return work(0.0f);
}

// Blocks [begin, end) of a row.
struct Piece {
    int begin;
    int end;
};

// inverse_map null: id v of [0, num_ids) is element v, if v < num_elements. Otherwise element
// inverse_map[v], unless that is -1. Ids without an element have logit -inf.
struct Row {
    const char* data;
    int type;
    int num_elements;
    int num_ids;
    const int* inverse_map;
    const Adjustment* adjustment;  // null: no bias and no penalties
    const u8* allowed;             // by a mask, a bit per token; null: all are

    __device__ int num_blocks() const { return (num_ids + BLOCK_SIZE - 1) / BLOCK_SIZE; }
    __device__ int element_of(int id) const {
        if (id >= num_ids) return -1;
        if (inverse_map) return inverse_map[id];
        return id < num_elements ? id : -1;
    }
    // Whether some logits may not be values of the row's type.
    __device__ bool is_changed() const {
        return MOST_CHANGE == ANY_CHANGE && adjustment && adjustment->changes();
    }
    // Whether its ids are marked, because more than a few biases change logits.
    __device__ bool is_marked() const { return is_changed() && adjustment->marks; }
    __device__ bool is_masked() const { return ADJUSTED && allowed; }
    __device__ bool allows(int id) const { return !is_masked() || (allowed[id / 8] >> (id % 8) & 1); }
    // A lane's allowed logits in a block, a bit each.
    __device__ u32 allowed_in(int block) const {
        if (!ADJUSTED) return 0xffffu;
        const int first = id_of(block, 0), second = id_of(block, 8);
        u32 low = 255, high = 255;
        load_byte_if(is_masked() && first < num_ids, allowed + first / 8, low);
        load_byte_if(is_masked() && second < num_ids, allowed + second / 8, high);
        return low | high << 8;
    }
    // Blocks of 16-bit logits that are in vectors which all lie in the row.
    __device__ Piece inner_blocks() const {
        const int room = (num_elements < num_ids ? num_elements : num_ids) - 8;
        if (inverse_map || room < 0) return {0, 0};
        return {reinterpret_cast<u64>(data) % 16 != 0, room / BLOCK_SIZE};
    }
    // Whether 16-byte loads read only logits of the row, before adjustment.
    __device__ bool is_whole() const {
        return !inverse_map && reinterpret_cast<u64>(data) % 16 == 0 &&
               num_ids % 8 == 0 && num_elements >= num_ids;
    }
};

template <typename T>
constexpr int VECTORS = sizeof(T) / 2;  // of 16 bytes, that hold eight logits

// The bits of -inf, as often as they fit into a word.
template <typename T>
constexpr u32 NOTHING = 0xff800000u;
template <>
constexpr u32 NOTHING<Bf16> = 0xff80ff80u;
template <>
constexpr u32 NOTHING<Fp16> = 0xfc00fc00u;

// The j-th of eight logits.
template <typename T>
__device__ inline float unpack(const uint4* words, int j) {
    const uint4& vector = words[j * sizeof(T) / 16];
    const int place = j * static_cast<int>(sizeof(T)) % 16 / 4;
    const u32 word = place == 0 ? vector.x : place == 1 ? vector.y : place == 2 ? vector.z : vector.w;
    if constexpr (sizeof(T) == 4) return __uint_as_float(word);
    else return to_float(T{static_cast<unsigned short>(j % 2 ? word >> 16 : word)});
}

template <typename T>
__device__ inline u32 bits_at(const char* data, int j) {
    if constexpr (sizeof(T) == 4) return reinterpret_cast<const u32*>(data)[j];
    return reinterpret_cast<const unsigned short*>(data)[j];
}

// Two neighbouring vectors' sixteen bytes from byte `shift` on.
__device__ inline uint4 shifted(uint4 low, uint4 high, u32 shift) {
    u32 words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 6; ++i) words[i] = shift & 8 ? words[i + 2] : words[i];
#pragma unroll
    for (int i = 0; i < 5; ++i) words[i] = shift & 4 ? words[i + 1] : words[i];
    const u32 bits = shift % 4 * 8;
    return {__funnelshift_r(words[0], words[1], bits), __funnelshift_r(words[1], words[2], bits),
            __funnelshift_r(words[2], words[3], bits), __funnelshift_r(words[3], words[4], bits)};
}

// Up to eight of a lane's logits that begin anywhere. Only vectors that lie in the row are read as such.
template <typename T>
struct Eight {
    uint4 vectors[VECTORS<T> + 1];
    u32 shift;
    int count;

    // By a warp.
    __device__ void load(const Row& row, int first) {
        const int end = row.num_elements < row.num_ids ? row.num_elements : row.num_ids;
        count = end - first < 8 ? end - first : 8;
        const char* data = row.data + static_cast<i64>(first) * sizeof(T);
        shift = static_cast<u32>(reinterpret_cast<u64>(data) % 16);
        const uint4* aligned = reinterpret_cast<const uint4*>(data - shift);
        const int bytes = static_cast<int>(shift) + count * static_cast<int>(sizeof(T));
        const i64 room = static_cast<i64>(end - first) * sizeof(T) + shift;  // from `aligned` on
        const bool fits = data - shift >= row.data && (bytes + 15) / 16 * 16 <= room;
#pragma unroll
        for (int i = 0; i <= VECTORS<T>; ++i) {
            vectors[i] = {};
            load_once_if(fits && count > 0 && 16 * i < bytes, aligned + i, vectors[i]);
        }
        if (__any_sync(ALL_LANES, !fits && count > 0) && !fits) load_one_by_one(data);
    }
    // At the ends of a row.
    __device__ void load_one_by_one(const char* data) {
        constexpr int each = 4 / sizeof(T);  // of a word
        u32 words[4 * VECTORS<T>] = {};
#pragma unroll
        for (int j = 0; j < 8; ++j)
            if (j < count) words[j / each] |= bits_at<T>(data, j) << (j % each * 16);
#pragma unroll
        for (int i = 0; i < VECTORS<T>; ++i)
            vectors[i] = {words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]};
        shift = 0;
    }
    __device__ void unpack_to(float* logits) const {
        uint4 words[VECTORS<T>];
#pragma unroll
        for (int i = 0; i < VECTORS<T>; ++i)
            words[i] = shift ? shifted(vectors[i], vectors[i + 1], shift) : vectors[i];
#pragma unroll
        for (int j = 0; j < 8; ++j) logits[j] = j < count ? unpack<T>(words, j) : -INFINITY;
    }
};

template <typename T>
__device__ inline float load_element(const Row& row, int element) {
    return element < 0 ? -INFINITY : to_float(reinterpret_cast<const T*>(row.data)[element]);
}

// Blocks of any row, before they are adjusted.
template <typename T>
__device__ COLD Logits load_any(Row row, int block) {
    Logits logits;
    if (row.inverse_map) {
#pragma unroll 4
        for (int j = 0; j < PER_LANE; ++j)
            logits.of[j] = load_element<T>(row, row.element_of(id_of(block, j)));
        return logits;
    }
    Eight<T> halves[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) halves[half].load(row, id_of(block, half * 8));
#pragma unroll
    for (int half = 0; half < 2; ++half) halves[half].unpack_to(logits.of + half * 8);
    return logits;
}

// Whether all logits have 16 bits.
constexpr bool ALL_NARROW = ONLY_TYPE == BF16 || ONLY_TYPE == FP16;

// A lane's share of a block on its way, and what changes it. Rows that are not whole are loaded when it is taken.
struct Coming {
    uint4 words[ALL_NARROW ? 2 : 4];
    Bytes marks;
    u32 allowed;

    // By a warp.
    __device__ void fetch(const Row& row, int block) {
        const int first = id_of(block, 0);
        const bool whole = row.is_whole();
        allowed = row.allowed_in(block);
        by_type(row.type, [&](auto type) {
            using T = decltype(type);
            const char* from = row.data + static_cast<i64>(first) * sizeof(T);
#pragma unroll
            for (int i = 0; i < 2 * VECTORS<T>; ++i) {
                const int ahead = i / VECTORS<T> * (BLOCK_SIZE / 2);
                words[i] = uint4{NOTHING<T>, NOTHING<T>, NOTHING<T>, NOTHING<T>};
                load_once_if(whole && first + ahead < row.num_ids,
                             reinterpret_cast<const uint4*>(from + ahead * sizeof(T)) + i % VECTORS<T>,
                             words[i]);
            }
        });
        if (row.is_changed()) marks = marks_of(*row.adjustment, block);
    }
    __device__ void unpack_to(const Row& row, float (&logits)[PER_LANE]) const {
        by_type(row.type, [&](auto type) {
            using T = decltype(type);
#pragma unroll
            for (int j = 0; j < PER_LANE; ++j)
                logits[j] = unpack<T>(words + j / 8 * VECTORS<T>, j % 8);
        });
    }
    // By a warp.
    __device__ void change(const Row& row, int block, float (&logits)[PER_LANE]) const {
        if (row.is_changed()) adjust_block(*row.adjustment, block, marks, logits);
        if (row.is_masked()) forbid(allowed, logits);
    }
    // The logits; -inf where there is none. By a warp. Whole rows need little code: kernels run most of theirs
    // once, and it comes from memory.
    __device__ void take(const Row& row, int block, float (&logits)[PER_LANE]) const {
        if (row.is_whole()) {
            unpack_to(row, logits);
        } else {
            const Logits any =
                by_type(row.type, [&](auto type) { return load_any<decltype(type)>(row, block); });
#pragma unroll
            for (int j = 0; j < PER_LANE; ++j) logits[j] = any.of[j];
        }
        change(row, block, logits);
    }
};

__device__ inline void load_block(const Row& row, int block, float (&logits)[PER_LANE]) {
    Coming coming = {};
    coming.fetch(row, block);
    coming.take(row, block, logits);
}

// A block of two rows, at once.
__device__ inline void load_both(
    const Row& row, const Row& other, int block, float (&logits)[PER_LANE], float (&others)[PER_LANE]) {
    Coming coming = {}, other_coming = {};
    other_coming.fetch(other, block);
    coming.fetch(row, block);
    other_coming.take(other, block, others);
    coming.take(row, block, logits);
}

// As the model gave it; where this is known, less is compiled.
__device__ inline Row unchanged(Row row) {
    row.adjustment = nullptr;
    row.allowed = nullptr;
    return row;
}

__device__ inline float load_logit(const Row& row, int id) {
    const int element = row.element_of(id);
    const bool masked = element >= 0 && row.is_masked();
    u32 allowed = 255;  // on its way with the logit
    if (ADJUSTED) load_byte_if(masked, masked ? row.allowed + id / 8 : nullptr, allowed);
    float logit = by_type(
        row.type, [&](auto type) { return load_element<decltype(type)>(row, element); });
    if (element >= 0 && row.is_changed()) logit = adjust_logit(*row.adjustment, id, logit);
    return allowed >> id % 8 & 1 ? logit : forbidden(logit);
}
