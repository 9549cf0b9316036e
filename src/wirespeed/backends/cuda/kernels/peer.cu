// Attempts of peer access. Memory of another GPU is accessed with system scope, and nothing waits without a limit.

// backends/test_data.py defines the words.
__device__ __forceinline__ u64 word(u64 key, u64 index) { return key + index * 0x9E3779B97F4A7C15ull; }

__device__ __forceinline__ void put(u64* at, u64 value) {
    asm volatile("st.volatile.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
__device__ __forceinline__ u64 get(const u64* at) {
    u64 value;
    asm volatile("ld.volatile.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}
__device__ __forceinline__ void release(u32* flag, u32 value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
__device__ __forceinline__ u32 acquire(const u32* flag) {
    u32 value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}
__device__ __forceinline__ u64 nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

// Waits until a flag has a value; false if that takes longer than a limit.
__device__ __forceinline__ bool seen(const u32* flag, u32 value, u64 limit_ns) {
    const u64 start = nanoseconds();
    while (acquire(flag) != value)
        if (nanoseconds() - start > limit_ns) return false;
    return true;
}

// Writes a pattern.
extern "C" __global__ void peer_store(u64* to, u64 words, u64 key) {
    for (u64 i = thread_index(); i < words; i += thread_count()) put(to + i, word(key, i));
    __threadfence_system();
}

// Reads memory of another GPU into memory of this one.
extern "C" __global__ void peer_load(u64* to, const u64* from, u64 words) {
    for (u64 i = thread_index(); i < words; i += thread_count()) put(to + i, get(from + i));
    __threadfence_system();
}

// Counts wrong words: found[0] all of them, found[1] those that still have the pattern from before.
extern "C" __global__ void peer_check(const u64* at, u64 words, u64 key, u64 before, u64* found) {
    u64 wrong = 0, stale = 0;
    for (u64 i = thread_index(); i < words; i += thread_count()) {
        const u64 value = get(at + i);
        if (value != word(key, i)) {
            ++wrong;
            stale += value == word(before, i);
        }
    }
    if (wrong) atomicAdd(found, wrong);
    if (stale) atomicAdd(found + 1, stale);
}

// One thread: sets a flag of the other GPU and waits for its answer, again and again.
// result[0]: answers seen; result[1]: time for all but the first round, in ns.
extern "C" __global__ void peer_ping(u32* theirs, const u32* mine, u32 base, u32 rounds, u64 limit_ns, u64* result) {
    u64 start = 0;
    for (u32 i = 1; i <= rounds; ++i) {
        release(theirs, base + i);
        if (!seen(mine, base + i, limit_ns)) break;
        result[0] = i;
        if (i == 1) start = nanoseconds();
    }
    result[1] = nanoseconds() - start;
}

// One thread: waits for the flag of the other GPU and answers. result[0]: flags seen.
extern "C" __global__ void peer_pong(u32* theirs, const u32* mine, u32 base, u32 rounds, u64 limit_ns, u64* result) {
    for (u32 i = 1; i <= rounds; ++i) {
        if (!seen(mine, base + i, limit_ns)) break;
        result[0] = i;
        release(theirs, base + i);
    }
}

// One block: writes each of several blocks of words, then its flag.
extern "C" __global__ void peer_send(u64* data, u32* flags, u32 blocks, u64 words, u64 key, u32 base) {
    for (u32 block = 0; block < blocks; ++block) {
        for (u64 i = threadIdx.x; i < words; i += blockDim.x) put(data + block * words + i, word(key + block, i));
        __threadfence_system();
        __syncthreads();
        if (threadIdx.x == 0) release(flags + block, base + block);
    }
}

// One block: waits for each flag, and compares the words at once.
// result[0]: flags seen; result[1]: words that were wrong when their flag was seen.
extern "C" __global__ void peer_receive(const u64* data, const u32* flags, u32 blocks, u64 words, u64 key, u32 base,
                                        u64 limit_ns, u64* result) {
    __shared__ bool arrived;
    for (u32 block = 0; block < blocks; ++block) {
        if (threadIdx.x == 0) arrived = seen(flags + block, base + block, limit_ns);
        __syncthreads();
        const bool go_on = arrived;
        __syncthreads();
        if (!go_on) return;
        u64 wrong = 0;
        for (u64 i = threadIdx.x; i < words; i += blockDim.x) wrong += get(data + block * words + i) != word(key + block, i);
        if (wrong) atomicAdd(result + 1, wrong);
        if (threadIdx.x == 0) result[0] = block + 1;
    }
}

// Adds 1 to a counter, which other GPUs do at the same time.
extern "C" __global__ void peer_add(u64* counter, u32 times) {
    for (u32 i = 0; i < times; ++i) atomicAdd_system(counter, 1ull);
    __threadfence_system();
}
