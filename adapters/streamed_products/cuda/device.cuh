// What a GPU has and C++ has not. Refuses to know what is computed.
#pragma once

typedef unsigned short Half;  // bfloat16
typedef unsigned long long Bits;

#define DYNAMIC_SHARED(name) extern __shared__ __align__(1024) unsigned char name[];

struct alignas(64) Map {
    unsigned char bytes[128];
};

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return unsigned(__cvta_generic_to_shared(pointer));
}

// The kernel behind may be started; it does not wait for less than the end of this one.
__device__ __forceinline__ void let_next_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// Until all that kernels before have written can be read.
__device__ __forceinline__ void await_kernels_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// So many threads of a CTA, whole warps.
__device__ __forceinline__ void meet(int threads) { asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory"); }

__device__ __forceinline__ void set_up_barrier(const Bits* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void show_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void arrive(const Bits* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Threads of a warp may come one by one.
__device__ __forceinline__ void arrive_in_cluster() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }

__device__ __forceinline__ void await_cluster() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

// The same place in another CTA of the cluster.
__device__ __forceinline__ unsigned place_of(const void* pointer, int rank) {
    unsigned place;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(place) : "r"(shared_address(pointer)), "r"(rank));
    return place;
}

// Store in another CTA of the cluster, whose barrier counts the bytes that have come.
__device__ __forceinline__ void send(unsigned place, float first, float second, float third, float fourth, unsigned barrier) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(place),
        "f"(first), "f"(second), "f"(third), "f"(fourth), "r"(barrier)
        : "memory");
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

// A box of rows, see `maps`, to shared memory, whose barrier counts the bytes that have come. Its lines of 128 bytes
// have their eight units changed: unit u of line l lies at u ^ l % 8.
__device__ __forceinline__ void copy_rows(void* goal, const Map* map, int group, int block, const Bits* barrier,
                                          Bits policy) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
        "[%1, {%2, %2, %4, %2, %3}], [%5], %6;" ::"r"(shared_address(goal)),
        "l"(map), "r"(0), "r"(group), "r"(block), "r"(shared_address(barrier)), "l"(policy)
        : "memory");
}

// All tokens' numbers in some columns.
__device__ __forceinline__ void copy_tokens(void* goal, const Map* map, int block, const Bits* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
        "[%1, {%2, %2, %3}], [%4];" ::"r"(shared_address(goal)),
        "l"(map), "r"(0), "r"(block), "r"(shared_address(barrier))
        : "memory");
}

// Have it known before it is used.
__device__ __forceinline__ void expect_map(const Map* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Where a group of four warps finds lines of 128 bytes of rows or tokens: eight lie together, and the next eight so
// many bytes further.
__device__ __forceinline__ Bits lines_at(unsigned address, int apart) {
    return Bits(address >> 4 & 0x3fff) | Bits(1) << 16 | Bits(apart >> 4) << 32 | Bits(1) << 62;
}

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void await_products() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }

// sums [64 rows, tokens] += rows [64, 16 columns] times tokens [tokens, 16 columns], by four warps: lane 4 g + t of warp
// w has rows 16 w + g and 16 w + g + 8, tokens 8 i + 2 t and 8 i + 2 t + 1: sums[4 i] and [4 i + 1], [4 i + 2] and [4 i + 3].
__device__ __forceinline__ void multiply_add(float (&sums)[8], Bits rows, Bits tokens) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, "
        "%8, %9, 1, 1, 1, 0, 0;"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]), "+f"(sums[7])
        : "l"(rows), "l"(tokens));
}

__device__ __forceinline__ void multiply_add(float (&sums)[16], Bits rows, Bits tokens) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "%16, %17, 1, 1, 1, 0, 0;"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]), "+f"(sums[7]), "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]), "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15])
        : "l"(rows), "l"(tokens));
}

__device__ __forceinline__ void multiply_add(float (&sums)[32], Bits rows, Bits tokens) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, 1, 1, 1, 0, 0;"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]), "+f"(sums[7]), "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]), "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15]), "+f"(sums[16]), "+f"(sums[17]), "+f"(sums[18]), "+f"(sums[19]), "+f"(sums[20]), "+f"(sums[21]), "+f"(sums[22]), "+f"(sums[23]), "+f"(sums[24]), "+f"(sums[25]), "+f"(sums[26]), "+f"(sums[27]), "+f"(sums[28]), "+f"(sums[29]), "+f"(sums[30]), "+f"(sums[31])
        : "l"(rows), "l"(tokens));
}

__device__ __forceinline__ float float_of(Half number) { return __uint_as_float(unsigned(number) << 16); }

__device__ __forceinline__ float low_of(unsigned word) { return __uint_as_float(word << 16); }

__device__ __forceinline__ float high_of(unsigned word) { return __uint_as_float(word & 0xffff0000u); }

__device__ __forceinline__ unsigned word_of(float low, float high) {
    unsigned word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}
