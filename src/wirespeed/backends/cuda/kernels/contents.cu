// Contents of buffers: seeded patterns, and the comparison with the expected contents.

// backends/word_pattern.py defines the words, and the integers for arithmetic with exact results.
__device__ __forceinline__ u64 word(u64 key, u64 index) { return key + index * 0x9E3779B97F4A7C15ull; }
__device__ __forceinline__ double number(u64 key, u64 index) { return (double)(word(key, index) >> 16); }
__device__ __forceinline__ float small_number(u64 key, u64 index, u32 half) {
    return (float)(word(key, index) >> (half ? 40 : 16) & 0xFFFFF);
}
__device__ __forceinline__ u64 floats(float low, float high) {
    return (u64)__float_as_uint(high) << 32 | __float_as_uint(low);
}

// Four halves: y, or y + s x. Integers up to 2048 are exact.
__device__ __forceinline__ int half_number(u64 key, u64 index, u32 place) {
    return (int)(word(key, index) >> (16 + 12 * place) & 0x1FF);
}
__device__ __forceinline__ u64 halves(u64 y, int scalar, u64 x, u64 index) {
    u64 all = 0;
    for (u32 place = 0; place < 4; place++) {
        const int value = half_number(y, index, place) + (scalar ? scalar * half_number(x, index, place) : 0);
        all |= (u64)half_of((float)value) << 16 * place;
    }
    return all;
}

enum Pattern : u32 { BITS, NUMBERS, SMALL_NUMBERS, HALF_NUMBERS };
enum Operation : u32 { COPY, SCALE, ADD, TRIAD, SAXPY, WRITE, HAXPY };

__device__ __forceinline__ u64 pattern(u32 kind, u64 key, u64 index) {
    if (kind == NUMBERS) return __double_as_longlong(number(key, index));
    if (kind == SMALL_NUMBERS) return floats(small_number(key, index, 0), small_number(key, index, 1));
    if (kind == HALF_NUMBERS) return halves(key, 0, 0, index);
    return word(key, index);
}

__device__ __forceinline__ u64 result(u32 operation, u64 a, u64 b, double scalar, u64 i) {
    if (operation == SCALE) return __double_as_longlong(scalar * number(a, i));
    if (operation == ADD) return __double_as_longlong(number(a, i) + number(b, i));
    if (operation == TRIAD) return __double_as_longlong(number(a, i) + scalar * number(b, i));
    if (operation == SAXPY) {
        const float s = (float)scalar;
        return floats(s * small_number(a, i, 0) + small_number(b, i, 0),
                      s * small_number(a, i, 1) + small_number(b, i, 1));
    }
    if (operation == HAXPY) return halves(b, (int)scalar, a, i);
    return operation == WRITE ? a : word(a, i);
}

__device__ __forceinline__ uint4 packed(u64 x, u64 y) {
    return uint4{(u32)x, (u32)(x >> 32), (u32)y, (u32)(y >> 32)};
}

extern "C" __global__ void __launch_bounds__(1024) fill(u64* to, u64 bytes, u32 kind, u64 key) {
    for (u64 i = thread_index(); i < (bytes + 15) / 16; i += thread_count())
        store16(to + 2 * i, packed(pattern(kind, key, 2 * i), pattern(kind, key, 2 * i + 1)));
}

// Compares words with the result of an operation and replaces them by its complement, which no correct copy
// contains: words that the next sample does not write are detected. Without `found`, only writes the complement.
// found[0]: number of wrong words; found[1]: complement of the lowest index of one. Both must be 0 initially.
extern "C" __global__ void __launch_bounds__(1024)
    compare(u64* at, u64 bytes, u32 operation, u64 a, u64 b, double scalar, u64* found) {
    const u64 words = (bytes + 7) / 8;
    const u64 rest = bytes % 8 ? (1ull << 8 * (bytes % 8)) - 1 : ~0ull;  // valid bytes of the last word
    u64 wrong = 0, first = ~0ull;
    for (u64 i = thread_index(); i < (words + 1) / 2; i += thread_count()) {
        const u64 x = result(operation, a, b, scalar, 2 * i), y = result(operation, a, b, scalar, 2 * i + 1);
        if (found) {
            const uint4 v = load16(at + 2 * i);
            const u64 low = ((u64)v.y << 32 | v.x) ^ x, high = ((u64)v.w << 32 | v.z) ^ y;
            const bool low_wrong = low & (2 * i == words - 1 ? rest : ~0ull);
            const bool high_wrong = 2 * i + 1 < words && high & (2 * i + 1 == words - 1 ? rest : ~0ull);
            if ((low_wrong || high_wrong) && !wrong) first = low_wrong ? 2 * i : 2 * i + 1;
            wrong += low_wrong + high_wrong;
        }
        store16(at + 2 * i, packed(~x, ~y));
    }
    if (wrong) {
        atomicAdd(found, wrong);
        atomicMax(found + 1, ~first);
    }
}

// Computes the sum that a read of the pattern must find.
extern "C" __global__ void __launch_bounds__(1024) total(u64 words, u32 kind, u64 key, u64* sum) {
    u64 mine = 0;
    for (u64 i = thread_index(); i < words; i += thread_count()) mine += pattern(kind, key, i);
    for (u32 distance = 16; distance; distance /= 2) mine += __shfl_down_sync(~0u, mine, distance);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, mine);
}
