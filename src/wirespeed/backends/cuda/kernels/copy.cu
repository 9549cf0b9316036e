// Copies with ordinary loads and stores, `passes` times over the whole buffer.

// One element per thread: the grid must cover the buffer.
extern "C" __global__ void __launch_bounds__(1024)
    copy_cover(char* to, const char* from, u64 bytes, u32 passes) {
    const u64 i = thread_index();
    for (u32 pass = 0; pass < passes; ++pass) {
        if (i < bytes / 16) store16((uint4*)to + i, load16((const uint4*)from + i));
        copy_tail(to, from, bytes, i);
    }
}

// Any grid: each thread strides over the buffer.
template <int LOADS>
__device__ __forceinline__ void copy_any(char* to, const char* from, u64 bytes, u32 passes) {
    for (u32 pass = 0; pass < passes; ++pass) {
        copy_strided<LOADS>((uint4*)to, (const uint4*)from, thread_index(), thread_count(), bytes / 16);
        copy_tail(to, from, bytes, thread_index());
    }
}

extern "C" __global__ void __launch_bounds__(1024)
    copy_stride(char* to, const char* from, u64 bytes, u32 passes) {
    copy_any<4>(to, from, bytes, passes);
}

extern "C" __global__ void __launch_bounds__(1024)
    copy_stride_deep(char* to, const char* from, u64 bytes, u32 passes) {
    copy_any<8>(to, from, bytes, passes);
}

// Both directions at once: even warps copy the first `bytes`, odd warps copy as many back, starting at `offset`.
// The grid must have at least two warps, and blocks of whole warps.
extern "C" __global__ void __launch_bounds__(1024)
    copy_split(char* to, char* from, u64 bytes, u64 offset, u32 passes) {
    const u64 warp = thread_index() / 32, warps = thread_count() / 32;
    const bool back = warp % 2;
    char* const target = back ? from + offset : to;
    const char* const origin = back ? to + offset : from;
    const u64 first = warp / 2 * 32 + threadIdx.x % 32;
    const u64 step = (back ? warps / 2 : (warps + 1) / 2) * 32;
    for (u32 pass = 0; pass < passes; ++pass) {
        copy_strided<4>((uint4*)target, (const uint4*)origin, first, step, bytes / 16);
        copy_tail(target, origin, bytes, first);
    }
}
