// A cluster of CTAs that looks at one row, each at its own piece. The first CTA leads: it finds the
// row's law, and has the others count logits for it.
#pragma once
#include "bounds.cuh"

constexpr int MAX_TEAM = 8;

struct Team {
    int size;  // a power of two
    int rank;
    __device__ bool leads() const { return rank == 0; }
    __device__ Piece piece_of(const Row& row) const {
        const int num_blocks = row.num_blocks(), each = (num_blocks + size - 1) / size;
        const int begin = Min{}(rank * each, num_blocks);
        return {row, begin, Min{}(begin + each, num_blocks)};
    }
};

constexpr int NUM_BINS = 2048;

// Bins of logits in [low, high], in their order: bits of the key of logit * 2^(-126 - exponent). With
// exponent -126 these are digits of the logit's own key. Any other makes logits below 2^exponent
// denormal, so that bins there are equally wide, and a row around 0 needs few.
struct Bins {
    float low;
    float high;
    float factor;       // 2^(-126 - exponent)
    float up;           // 2^exponent, or 1 where the factor is
    float single_from;  // bins of logits that are so large hold equal ones: 0 for all, infinity for none
    int exponent;
    int shift;
    u32 first;

    __device__ u32 bin_of(float logit) const {
        const float scaled = __fmaf_rn(logit, factor, 0.0f);  // -0 is 0
        return (float_key(scaled) >> shift) - first;
    }
    // What a key of scaled logits stands for.
    __device__ float logit_at(u32 key) const {
        return __fmul_rn(__fmul_rn(key_float(key), exponent == -126 ? 1.0f : 8.507059173e37f), up);
    }
    // The largest logit of a bin, or more.
    __device__ float top_of(u32 bin) const {
        const u64 end = static_cast<u64>(first + bin + 1) << shift;
        return fminf(logit_at(static_cast<u32>(end - 1)), high);
    }
    // The logit of a bin that is counted there.
    __device__ float logit_of(u32 bin) const {
        const u32 digits = first + bin;
        return logit_at(digits >> (31 - shift) ? digits << shift : (digits + 1) * (1u << shift) - 1);
    }
    __device__ bool fit(int new_exponent, int new_shift, int idle) {
        exponent = new_exponent;
        shift = new_shift;
        factor = exponent > 0 ? __uint_as_float(1u << (23 - exponent))
                              : __uint_as_float(static_cast<u32>(1 - exponent) << 23);
        if (exponent == -126) factor = 1.0f;
        up = exponent == -126 ? 1.0f : ldexpf(1.0f, exponent);
        single_from = shift > idle ? INFINITY : exponent == -126 ? 0.0f : up;
        first = 0;
        first = bin_of(low);
        return bin_of(high) < NUM_BINS;
    }

    // The finest that fit, but no finer than logits whose `idle` low bits are 0. By a warp.
    __device__ static Bins of(float low, float high, int idle) {
        Bins bins = {};
        bins.low = low;
        bins.high = high;
        const u32 span = float_key(high) - float_key(low);
        int shift = 32 - __clz(static_cast<int>(span | 1)) - 12;
        if (shift < idle) shift = idle;
        while (!bins.fit(-126, shift, idle)) ++shift;
        if (shift <= 16) return bins;
        const int largest =
            static_cast<int>(float_key(fmaxf(fabsf(low), fabsf(high))) >> 23 & 255) - 127;
        const int mine = largest - 31 + lane_id();
        const bool fits = mine >= -100 && mine <= 22 && bins.fit(mine, 16, idle);
        const u32 fitting = __ballot_sync(ALL_LANES, fits);
        if (fitting) bins.fit(largest - 32 + __ffs(static_cast<int>(fitting)), 16, idle);
        else bins.fit(-126, shift, idle);
        return bins;
    }
};

enum Task { COUNT, END };

// What the leader has the CTAs of a cluster do.
struct Command {
    int task;
    bool by_number;
    bool by_mass;
    Law law;
    Bins bins;
};

// The start of the shared memory that a launch asks for, before the bins.
struct Head {
    u64 copy_barriers[MAX_CHUNKS];
    Command command;
    u32 in_vain;  // counts what is not to be counted
    u32 skips;    // the row is not looked at
    float part;   // of what the cluster adds up
};
constexpr int HEAD_BYTES = 256;
static_assert(sizeof(Head) <= HEAD_BYTES, "bins begin there");

__device__ inline Head& cta_head() { return *reinterpret_cast<Head*>(asked_shared_memory()); }
__device__ inline u32* bin_words() { return asked_shared_memory() + HEAD_BYTES / 4; }
__device__ inline char* asked_place(i64 place) {
    return reinterpret_cast<char*>(asked_shared_memory()) + place;
}

// Lets every CTA of the cluster know what to do. By the leader, whose threads must agree.
__device__ inline void command(const Team& team, const Command& given) {
    __shared__ Command told;
    if (thread_id() == 0) told = given;
    __syncthreads();
    constexpr int words = sizeof(Command) / sizeof(u32);
    for (int i = thread_id(); i < words * team.size; i += CTA_THREADS) {
        u32* to = reinterpret_cast<u32*>(in_peer(&cta_head().command, i / words));
        to[i % words] = reinterpret_cast<const u32*>(&told)[i % words];
    }
    cluster_sync();
}

// What the leader thinks of a thing that may change meanwhile, for all CTAs alike.
__device__ inline bool agree(const Team& team, bool mine) {
    if (team.leads() && thread_id() == 0) cta_head().skips = mine;
    cluster_sync();
    const bool agreed = *in_peer(&cta_head().skips, 0) != 0;
    cluster_sync();
    return agreed;
}

// The sum over all CTAs, for all of them.
__device__ inline float team_sum(const Team& team, float mine) {
    mine = cta_reduce(mine, Add{});
    if (thread_id() == 0) cta_head().part = mine;
    cluster_sync();
    float sum = 0.0f;
    for (int rank = 0; rank < team.size; ++rank) sum += *in_peer(&cta_head().part, rank);
    cluster_sync();
    return sum;
}
