// Copies of scattered blocks: block i goes from from[i] to to[i], both in memory that the GPU can access. Sizes are
// multiples of 64.

// Bytes that a warp copies at a time: four elements of 16 bytes of each thread.
#define PIECE 2048u

// Each warp copies pieces of blocks in turn, so that few large blocks use as many warps as many small ones.
extern "C" __global__ void __launch_bounds__(1024)
    copy_blocks(const u64* __restrict__ to, const u64* __restrict__ from, u64 block, u32 blocks) {
    const u32 lane = threadIdx.x % 32, per_block = (u32)((block + PIECE - 1) / PIECE);
    const u32 pieces = per_block * blocks, warps = (u32)(thread_count() / 32);
    for (u32 piece = (u32)(thread_index() / 32); piece < pieces; piece += warps) {
        const u32 at = piece / per_block;
        const u64 begin = (u64)(piece - at * per_block) * PIECE;
        const u64 left = block - begin;
        copy_strided<4>((uint4*)(to[at] + begin), (const uint4*)(from[at] + begin), lane, 32,
                        (left < PIECE ? left : PIECE) / 16);
    }
}

// The same by bulk copies through shared memory: each thread drives a ring of stages (see bulk.cu) and copies a run
// of successive pieces of `chunk` bytes, so that it reads each line of the lists once.
extern "C" __global__ void copy_blocks_bulk(const u64* __restrict__ to, const u64* __restrict__ from, u64 block,
                                            u32 blocks, u32 chunk) {
    constexpr u32 STAGES = 8, LAG = STAGES / 2;
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) char shared[];
    const u32 data = (u32)__cvta_generic_to_shared(shared + (u64)threadIdx.x * STAGES * chunk);
    const u32 barriers =
        (u32)__cvta_generic_to_shared(shared + (u64)blockDim.x * STAGES * chunk) + threadIdx.x * STAGES * 8;
    for (u32 s = 0; s < STAGES; ++s)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers + 8 * s) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();

    const u32 per_block = (u32)((block + chunk - 1) / chunk);
    const u64 pieces = (u64)per_block * blocks;
    const u32 first = (u32)(pieces * thread_index() / thread_count());
    const u32 total = (u32)(pieces * (thread_index() + 1) / thread_count()) - first;

    auto offset = [&](u32 piece) { return (u64)(piece % per_block) * chunk; };
    auto size = [&](u32 piece) {
        const u64 left = block - offset(piece);
        return (u32)(left < chunk ? left : chunk);
    };
    auto load = [&](u32 k) {
        const u32 stage = k % STAGES, barrier = barriers + 8 * stage, piece = first + k;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(size(piece))
                     : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                data + stage * chunk),
            "l"(from[piece / per_block] + offset(piece)), "r"(size(piece)), "r"(barrier)
            : "memory");
    };

    for (u32 k = 0; k < STAGES && k < total; ++k) load(k);
    for (u32 k = 0; k < total; ++k) {
        const u32 stage = k % STAGES, parity = k / STAGES % 2, piece = first + k;
        wait_for(barriers + 8 * stage, parity);
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                         to[piece / per_block] + offset(piece)),
                     "r"(data + stage * chunk), "r"(size(piece))
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LAG) : "memory");
        if (k >= LAG && k - LAG + STAGES < total) load(k - LAG + STAGES);
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

// Fills the source of a list, so that its blocks make one pattern (contents.cu) in the destination, which begins at
// `base`.
extern "C" __global__ void __launch_bounds__(1024)
    fill_blocks(const u64* __restrict__ to, const u64* __restrict__ from, u64 base, u64 block, u32 blocks, u64 key) {
    const u64 per_block = block / 8, words = per_block * blocks;
    for (u64 i = thread_index(); i < words; i += thread_count()) {
        const u64 at = i / per_block, word = i % per_block, index = (to[at] - base) / 8 + word;
        ((u64*)from[at])[word] = key + index * 0x9E3779B97F4A7C15ull;
    }
}
