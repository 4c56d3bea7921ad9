// The few instructions that C++ has no name for; a host build replaces this file.
#pragma once

#define COLD __noinline__  // inlined everywhere it would fill the instruction cache

#define INFINITY __int_as_float(0x7f800000)

__device__ inline float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ inline float log2_fast(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ inline float max_nan(float a, float b) {
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}

__device__ inline int warp_max_signed(int value) {
    int y;
    asm volatile("redux.sync.max.s32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(value));
    return y;
}

__device__ inline float half_bits_to_float(unsigned short bits) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(bits));
    return y;
}

// Adds 1 to a counter that begins again at 0 behind `last`, and orders what was stored before.
__device__ inline unsigned int increment_acq_rel(unsigned int* address, unsigned int last) {
    unsigned int before;
    asm volatile("atom.inc.acq_rel.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(address), "r"(last)
                 : "memory");
    return before;
}

__device__ inline unsigned int load_relaxed(const unsigned int* address) {
    unsigned int value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}

// Once every CTA has come here, the next launch may begin, if it was made to overlap.
__device__ inline void let_next_launch_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Until the launch before has ended, which it always has before sm_90.
__device__ inline void wait_for_launch_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Into registers that keep what they held unless it is wanted. A branch around a load would have
// its result copied, and so waited for.
__device__ inline void load_once_if(bool wanted, const uint4* address, uint4& v) {
    asm volatile(
        "{ .reg .pred p; setp.ne.u32 p, %5, 0;"
        "@p ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4]; }"
        : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
        : "l"(address), "r"(static_cast<unsigned int>(wanted)));
}

// The shared memory that a launch asks for beside what is declared.
__device__ inline unsigned int* asked_shared_memory() {
    extern __shared__ __align__(128) unsigned int asked[];
    return asked;
}

// Clusters: CTAs that can read each other's shared memory. Before sm_90 a cluster is one CTA.
__device__ inline int cluster_rank() {
    unsigned int rank = 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return static_cast<int>(rank);
}

__device__ inline void cluster_sync() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
#else
    __syncthreads();
#endif
}

// Where a CTA of the cluster has what this one has at `mine` in shared memory.
template <typename T>
__device__ inline T* in_peer(T* mine, int rank) {
#if __CUDA_ARCH__ >= 900
    unsigned long long address;
    asm("mapa.u64 %0, %1, %2;"
        : "=l"(address)
        : "l"(reinterpret_cast<unsigned long long>(mine)), "r"(rank));
    return reinterpret_cast<T*>(address);
#else
    return mine;
#endif
}

// Copies from global to shared memory that run beside the threads, from sm_90 on.
#if __CUDA_ARCH__ >= 900
constexpr bool HAS_BULK_COPIES = true;
#else
constexpr bool HAS_BULK_COPIES = false;
#endif

__device__ inline unsigned int shared_address(const void* place) {
    return static_cast<unsigned int>(__cvta_generic_to_shared(place));
}

// A barrier that one thread arrives at, with the bytes that copies will bring.
__device__ inline void open_copy_barrier(unsigned long long* barrier) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
#endif
}

// Makes the barriers known to copies.
__device__ inline void publish_copy_barriers() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Multiples of 16 bytes, between places that are multiples of 16.
__device__ inline void start_bulk_copy(
    void* to, const void* from, unsigned int bytes, unsigned long long* barrier) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
    if (bytes == 0) return;
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
#endif
}

__device__ inline void wait_for_copies(unsigned long long* barrier) {
#if __CUDA_ARCH__ >= 900
    unsigned int done = 0;
    while (!done)
        asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;"
            "selp.u32 %0, 1, 0, p; }"
            : "=r"(done)
            : "r"(shared_address(barrier))
            : "memory");
#endif
}
