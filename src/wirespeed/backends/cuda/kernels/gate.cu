// Holds a stream until a host word reaches a value (compared as serial numbers), or until the time-out.

extern "C" __global__ void spin(const volatile u32* word, u32 value, u64 nanoseconds) {
    u64 start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    while ((int)(*word - value) < 0) {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (now - start > nanoseconds) return;
    }
}

// Signals to the host, or to another process, that a stream has reached this point.
extern "C" __global__ void tell(volatile u32* word, u32 value) {
    *word = value;
    __threadfence_system();
}
