// The launch before rows are read if some request has penalties or many biases: marks ids, once for all rows.
#include "request.cuh"

constexpr int MARKED_BLOCKS = 8;       // of a CTA: more would be one chain of loads after the other
constexpr int MARKING_THREADS = 1280;  // of a multiprocessor, so that many loads are in flight
constexpr int MARKED_IDS = MARKED_BLOCKS * BLOCK_SIZE;

// Sets a bit for each of a CTA's ids, from `begin` on, that is a draft or biased, and stores its bias, from where
// `biases` begin on; null: there are none. By a CTA.
__device__ inline void find_named(const Adjustment& a, i64 begin, float* biases, u32* named) {
    for (int i = thread_id(); i < MARKED_IDS / 32; i += CTA_THREADS) named[i] = 0;
    __syncthreads();
    const auto name = [&](i64 id, float bias) {
        const u64 place = static_cast<u64>(id - begin);
        if (place >= MARKED_IDS || id >= a.num_ids) return;
        atomicOr(named + place / 32, 1u << place % 32);
        if (biases) biases[place] = bias;
    };
    // No logit changes by -0.
    for (int i = thread_id(); i < a.num_before; i += CTA_THREADS) name(integer_at(a.drafts, i), -0.0f);
    __syncthreads();
    for (int i = thread_id(); i < a.num_bias; i += CTA_THREADS) name(a.bias_ids[i], a.bias_values[i]);
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(CTA_THREADS, MARKING_THREADS / CTA_THREADS)
    marks(const __grid_constant__ Params p) {
    __shared__ u32 named[MARKED_IDS / 32];
    let_next_launch_begin();
    const i64 index = blockIdx.x, slot = p.slot_ids.data ? integer_at(p.slot_ids, index) : index;
    const i64 num_ids = (p.vocab_size + BLOCK_SIZE - 1) / BLOCK_SIZE * BLOCK_SIZE;
    const Adjustment a = changes_of(p, index, entry_of(p, index), slot, static_cast<int>(p.max_spec_len));
    const int begin = static_cast<int>(blockIdx.y) * MARKED_IDS;
    constexpr int each = MARKED_IDS / (8 * CTA_THREADS);
    Seen seen[each] = {};
#pragma unroll
    for (int i = 0; i < each; ++i) seen[i].load(a, begin + 8 * (thread_id() + i * CTA_THREADS));
    find_named(a, begin, p.bias_ids ? p.biases + index * num_ids + begin : nullptr, named);
    u64* marks = reinterpret_cast<u64*>(p.marks + index * num_ids + begin);
#pragma unroll
    for (int i = 0; i < each; ++i) {
        const int group = thread_id() + i * CTA_THREADS, first = begin + 8 * group;
        const u32 bits = reinterpret_cast<const u8*>(named)[group];
        if (first < num_ids) marks[group] = seen[i].marks(a, first, bits);
    }
}
