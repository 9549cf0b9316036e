// Dependent loads by one thread of one block. The other blocks exit; they only place it on its multiprocessor.

extern "C" __global__ void chase(void** start, u32 accesses, u32 block, void*** ends) {
    if (blockIdx.x != block) return;
    void** p = start;
    for (u32 i = 0; i < accesses; ++i) p = (void**)*p;
    ends[block] = p;
}

// The same by bulk copies: each copies the node to which the last one's pointer leads into shared memory.
extern "C" __global__ void chase_bulk(void** start, u32 accesses, u32 block, void*** ends) {
#if __CUDA_ARCH__ >= 900
    if (blockIdx.x != block) return;
    __shared__ __align__(16) void** node[2];
    __shared__ u64 done;
    const u32 data = (u32)__cvta_generic_to_shared(node), barrier = (u32)__cvta_generic_to_shared(&done);
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    void** p = start;
    for (u32 i = 0; i < accesses; ++i) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;" ::"r"(barrier) : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 16, [%2];" ::"r"(data),
            "l"(p), "r"(barrier)
            : "memory");
        wait_for(barrier, i % 2);
        p = *(void** volatile*)node;
    }
    ends[block] = p;
#endif
}
