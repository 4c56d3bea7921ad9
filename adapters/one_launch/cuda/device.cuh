// What a GPU has and C++ has not: a host build replaces this file. Refuses to know what is computed.
#pragma once

typedef unsigned short Half;  // bfloat16
typedef unsigned long long Bits;

struct alignas(16) Line {
    unsigned words[4];
};

#define DYNAMIC_SHARED(name) extern __shared__ __align__(1024) unsigned char name[];

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return unsigned(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ unsigned rank_in_cluster() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ void arrive_in_cluster() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }

__device__ __forceinline__ void await_cluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// So many threads of a CTA, whole warps.
__device__ __forceinline__ void meet(int threads) { asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory"); }

// The same place in another CTA of the cluster.
__device__ __forceinline__ unsigned place_of(const void* pointer, int rank) {
    unsigned place;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(place) : "r"(shared_address(pointer)), "r"(rank));
    return place;
}

// Store in another CTA of the cluster, whose barrier counts the bytes that have come.
__device__ __forceinline__ void send(unsigned place, unsigned word, unsigned barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(place), "r"(word),
                 "r"(barrier)
                 : "memory");
}

__device__ __forceinline__ void send(unsigned place, unsigned first, unsigned second, unsigned barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(place),
                 "r"(first), "r"(second), "r"(barrier)
                 : "memory");
}

__device__ __forceinline__ void send(unsigned place, const Line& line, unsigned barrier) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(place),
        "r"(line.words[0]), "r"(line.words[1]), "r"(line.words[2]), "r"(line.words[3]), "r"(barrier)
        : "memory");
}

// A barrier in shared memory takes one arrival a phase, and the bytes that it expects.
__device__ __forceinline__ void set_up_barrier(const Bits* barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void show_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void arrive(const Bits* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void expect(const Bits* barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void wait_for(const Bits* barrier, unsigned parity) {
    asm volatile(
        "{\n.reg .pred done;\nAGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra AGAIN;\n}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

// Weights are read once, and leave the cache first.
__device__ __forceinline__ Bits read_once() {
    Bits policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

struct alignas(64) Map {
    unsigned char bytes[128];
};

// A box of a matrix, [blocks][rows][64 columns], to shared memory, whose barrier counts the bytes that have come. Its
// lines of 128 bytes have their eight units changed: unit u of line l lies at u ^ l % 8.
__device__ __forceinline__ void copy(void* goal, const Map* map, int row, int block, const Bits* barrier, Bits policy) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
        "[%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_address(goal)),
        "l"(map), "r"(0), "r"(row), "r"(block), "r"(shared_address(barrier)), "l"(policy)
        : "memory");
}

// Have it known before it is used.
__device__ __forceinline__ void expect_map(const Map* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Asked for here, and not where it is first used.
__device__ __forceinline__ Line load_line(const Half* from) {
    Line line;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(line.words[0]), "=r"(line.words[1]), "=r"(line.words[2]), "=r"(line.words[3])
                 : "l"(from));
    return line;
}

// What another thread of the CTA stores.
__device__ __forceinline__ unsigned load_anew(const unsigned* from) { return *reinterpret_cast<const volatile unsigned*>(from); }

__device__ __forceinline__ void store_at_once(unsigned* goal, unsigned number) {
    *reinterpret_cast<volatile unsigned*>(goal) = number;
}

// From shared memory, in the order in which it is asked for.
__device__ __forceinline__ Line load_kept(unsigned from) {
    Line line;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(line.words[0]), "=r"(line.words[1]), "=r"(line.words[2]), "=r"(line.words[3])
                 : "r"(from));
    return line;
}

// A number with a tag that tells that it has come: both arrive at once.
__device__ __forceinline__ void store_tagged(uint2* goal, float number, unsigned tag) {
    asm volatile("st.volatile.global.v2.u32 [%0], {%1, %2};" ::"l"(goal), "r"(__float_as_uint(number)), "r"(tag) : "memory");
}

__device__ __forceinline__ uint2 load_tagged(const uint2* from) {
    uint2 both;
    asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];" : "=r"(both.x), "=r"(both.y) : "l"(from) : "memory");
    return both;
}

__device__ __forceinline__ unsigned word_of(float low, float high) {
    unsigned word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

// Two to the power of a number, to 2 in the last place.
__device__ __forceinline__ float power_of_two(float number) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(number));
    return power;
}

// sums [16 rows, 8 tokens] += rows [16, 16 columns] times tokens [8, 16 columns], by a warp: lane
// 4 g + t has rows g and g + 8 (`more`), token g, and columns 2 t, 2 t + 1 (`low`) and 2 t + 8,
// 2 t + 9 of each; of the sums those of its rows with tokens 2 t and 2 t + 1. Which columns they are
// in truth does not matter, as long as they are the same of rows and tokens.
__device__ __forceinline__ void multiply_add(float (&sums)[4], unsigned low, unsigned more_low, unsigned high,
                                             unsigned more_high, unsigned token_low, unsigned token_high) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(low), "r"(more_low), "r"(high), "r"(more_high), "r"(token_low), "r"(token_high));
}

// A group of four warps takes registers that another has left.
__device__ __forceinline__ void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 232;"); }

__device__ __forceinline__ void leave_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"); }
