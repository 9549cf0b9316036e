// Holds a stream until a host word reaches a value (as serial numbers compare), or until the time is over.

extern "C" __global__ void spin(const volatile u32* word, u32 value, u64 nanoseconds) {
    u64 start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    while ((int)(*word - value) < 0) {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (now - start > nanoseconds) return;
    }
}

// Tells the host, or another process, that a stream has come here.
extern "C" __global__ void tell(volatile u32* word, u32 value) {
    *word = value;
    __threadfence_system();
}
