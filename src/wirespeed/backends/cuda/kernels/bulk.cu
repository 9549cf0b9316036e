// Bulk asynchronous copies: memory -> shared memory -> memory, compute capability 9.0 or later.
//
// Each thread drives its own ring of stages. A load completes on the mbarrier of its stage. A store must have
// read its stage before the next load writes it. LAG stores may still be reading.

template <int STAGES>
__device__ __forceinline__ void copy_ring(char* to, const char* from, u64 bytes, u32 chunk, u32 passes) {
    constexpr int LAG = STAGES / 2;
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) char shared[];
    char* const ring = shared + (u64)threadIdx.x * STAGES * chunk;
    const u32 data = (u32)__cvta_generic_to_shared(ring);
    const u32 barriers =
        (u32)__cvta_generic_to_shared(shared + (u64)blockDim.x * STAGES * chunk) + threadIdx.x * STAGES * 8;
    for (u32 s = 0; s < STAGES; ++s)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers + 8 * s) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();

    const u64 whole = bytes / 16 * 16;
    const u64 chunks = (whole + chunk - 1) / chunk;
    const u64 begin = thread_index() * chunk, stride = thread_count() * chunk;
    const u64 mine = begin < whole ? (chunks - thread_index() - 1) / thread_count() + 1 : 0;
    const u64 total = mine * passes;

    auto size = [&](u64 at) { return (u32)(whole - at < chunk ? whole - at : chunk); };
    auto after = [&](u64 at) { return at + stride < whole ? at + stride : begin; };
    u64 loading = begin, storing = begin;
    auto load = [&](u64 k) {
        const u32 stage = k % STAGES, barrier = barriers + 8 * stage;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(size(loading))
                     : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                data + stage * chunk),
            "l"(from + loading), "r"(size(loading)), "r"(barrier)
            : "memory");
        loading = after(loading);
    };

    for (u64 k = 0; k < STAGES && k < total; ++k) load(k);
    for (u64 k = 0; k < total; ++k) {
        const u32 stage = k % STAGES, parity = k / STAGES % 2;
        wait_for(barriers + 8 * stage, parity);
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to + storing),
                     "r"(data + stage * chunk), "r"(size(storing))
                     : "memory");
        storing = after(storing);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LAG) : "memory");
        if (k >= LAG && k - LAG + STAGES < total) load(k - LAG + STAGES);
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    if (thread_index() == 0)
        for (u32 i = 0; i < 16; ++i) copy_tail(to, from, bytes, i);
#endif
}

extern "C" __global__ void copy_bulk(char* to, const char* from, u64 bytes, u32 chunk, u32 passes) {
    copy_ring<8>(to, from, bytes, chunk, passes);
}

// More and smaller pieces: faster if few blocks push to a peer.
extern "C" __global__ void copy_bulk_fine(char* to, const char* from, u64 bytes, u32 chunk, u32 passes) {
    copy_ring<16>(to, from, bytes, chunk, passes);
}
