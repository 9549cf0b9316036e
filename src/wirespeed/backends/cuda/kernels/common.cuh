// Shared by all kernels. Prepended to each source, because the sources include no files.

typedef unsigned int u32;
typedef unsigned long long u64;

// Accesses of 16 bytes that bypass the first-level cache, which would serve repeated passes over a small buffer.
__device__ __forceinline__ uint4 load16(const void* address) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address)
                 : "memory");
    return v;
}

__device__ __forceinline__ void store16(void* address, uint4 v) {
    asm volatile("st.global.cg.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w)
                 : "memory");
}

// The bits of a number in half precision.
__device__ __forceinline__ u32 half_of(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

__device__ __forceinline__ u64 thread_index() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ u64 thread_count() { return (u64)gridDim.x * blockDim.x; }

// Copies elements of 16 bytes: first, first + step, ... below count; LOADS loads before their stores.
template <int LOADS>
__device__ __forceinline__ void copy_strided(uint4* to, const uint4* from, u64 first, u64 step, u64 count) {
    u64 i = first;
    for (; i + (LOADS - 1) * step < count; i += LOADS * step) {
        uint4 v[LOADS];
#pragma unroll
        for (int k = 0; k < LOADS; ++k) v[k] = load16(from + i + k * step);
#pragma unroll
        for (int k = 0; k < LOADS; ++k) store16(to + i + k * step, v[k]);
    }
    for (; i < count; i += step) store16(to + i, load16(from + i));
}

// Copies the bytes after the last whole element of 16; must be called with the indices 0 to 15.
__device__ __forceinline__ void copy_tail(char* to, const char* from, u64 bytes, u64 index) {
    const u64 at = bytes / 16 * 16 + index;
    if (at < bytes) to[at] = from[at];
}

#if __CUDA_ARCH__ >= 900
// Waits until the phase of an mbarrier in shared memory with this parity has completed.
__device__ __forceinline__ void wait_for(u32 barrier, u32 parity) {
    u32 done = 0;
    while (!done)
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n"
            "}"
            : "=r"(done)
            : "r"(barrier), "r"(parity)
            : "memory");
}
#endif
