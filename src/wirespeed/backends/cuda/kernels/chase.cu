// Dependent loads by one thread of one block. The other blocks exit; they only place it on its multiprocessor.

extern "C" __global__ void chase(void** start, u32 accesses, u32 block, void*** ends) {
    if (blockIdx.x != block) return;
    void** p = start;
    for (u32 i = 0; i < accesses; ++i) p = (void**)*p;
    ends[block] = p;
}
