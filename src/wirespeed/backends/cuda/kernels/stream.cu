// The STREAM operations on doubles, saxpy on floats, haxpy on halves, pure reads and writes; 16 bytes per thread and step.
// Sizes are multiples of 8 bytes; the first thread handles half an element at the end.


template <typename Function>
__device__ __forceinline__ void each(double* to, const double* a, const double* b, u64 bytes, Function f) {
    union Bits {
        uint4 all;
        double two[2];
    };
    for (u64 i = thread_index(); i < bytes / 16; i += thread_count()) {
        Bits u, v, result;
        u.all = load16(a + 2 * i);
        v.all = b ? load16(b + 2 * i) : u.all;
        result.two[0] = f(u.two[0], v.two[0]);
        result.two[1] = f(u.two[1], v.two[1]);
        store16(to + 2 * i, result.all);
    }
    const u64 last = bytes / 8 - 1;
    if (bytes % 16 && thread_index() == 0) to[last] = f(a[last], b ? b[last] : a[last]);
}

extern "C" __global__ void __launch_bounds__(1024)
    scale(double* to, const double* a, const double*, u64 bytes, double scalar) {
    each(to, a, nullptr, bytes, [=](double x, double) { return scalar * x; });
}

extern "C" __global__ void __launch_bounds__(1024)
    add(double* to, const double* a, const double* b, u64 bytes, double) {
    each(to, a, b, bytes, [](double x, double y) { return x + y; });
}

extern "C" __global__ void __launch_bounds__(1024)
    triad(double* to, const double* a, const double* b, u64 bytes, double scalar) {
    each(to, a, b, bytes, [=](double x, double y) { return x + scalar * y; });
}

extern "C" __global__ void __launch_bounds__(1024)
    saxpy(double* to, const double* a, const double* b, u64 bytes, double scalar) {
    const float s = (float)scalar;
    union Bits {
        double word;
        float two[2];
    };
    each(to, a, b, bytes, [=](double x, double y) {
        Bits u, v;
        u.word = x;
        v.word = y;
        u.two[0] = s * u.two[0] + v.two[0];
        u.two[1] = s * u.two[1] + v.two[1];
        return u.word;
    });
}

extern "C" __global__ void __launch_bounds__(1024)
    haxpy(double* to, const double* a, const double* b, u64 bytes, double scalar) {
    const u32 s = half_of((float)scalar) * 0x10001u;
    union Bits {
        double word;
        u32 pairs[2];
    };
    each(to, a, b, bytes, [=](double x, double y) {
        Bits u, v;
        u.word = x;
        v.word = y;
        for (int i = 0; i < 2; i++)
            asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(v.pairs[i]) : "r"(s), "r"(u.pairs[i]));
        return v.word;
    });
}

extern "C" __global__ void __launch_bounds__(1024) write(u64* to, u64 bytes, u64 value) {
    const uint4 v = {(u32)value, (u32)(value >> 32), (u32)value, (u32)(value >> 32)};
    for (u64 i = thread_index(); i < bytes / 16; i += thread_count()) store16(to + 2 * i, v);
    if (bytes % 16 && thread_index() == 0) to[bytes / 8 - 1] = value;
}

// Adds all words to *sum, to verify that every word was loaded.
extern "C" __global__ void __launch_bounds__(1024) read(const u64* from, u64 bytes, u64* sum) {
    const u64 count = bytes / 16, step = thread_count();
    u64 mine = 0, i = thread_index();
    auto take = [&](uint4 v) { mine += ((u64)v.y << 32 | v.x) + ((u64)v.w << 32 | v.z); };
    for (; i + 3 * step < count; i += 4 * step) {
        const uint4 a = load16(from + 2 * i);
        const uint4 b = load16(from + 2 * (i + step));
        const uint4 c = load16(from + 2 * (i + 2 * step));
        const uint4 d = load16(from + 2 * (i + 3 * step));
        take(a);
        take(b);
        take(c);
        take(d);
    }
    for (; i < count; i += step) take(load16(from + 2 * i));
    if (bytes % 16 && thread_index() == 0) mine += from[bytes / 8 - 1];
    for (u32 distance = 16; distance; distance /= 2) mine += __shfl_down_sync(~0u, mine, distance);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, mine);
}
