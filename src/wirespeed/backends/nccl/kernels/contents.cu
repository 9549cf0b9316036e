// Fills and verifies like backends/test_data.py, on a GPU. The file includes nothing.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

// Elements of the array that is filled or compared: how wide, and of what kind.
struct Format {
    u32 bytes;
    u32 exponent;  // bits; 0 for integers
    u32 mantissa;
    u32 operation;  // 0 sum, 1 prod, 2 max, 3 min, 4 avg, 5 mulsum, 6: bits as they are
    u32 ranks;
    u32 highest;
    double tolerance;
};

enum { SUM, PROD, MAX, MIN, AVG, MULSUM, BITS };
enum { FACTORS = 12 };

// Word `index` of a rank's pattern; see backends/word_pattern.py and `key` in backends/test_data.py.
__device__ static u64 word(u32 seed, u32 rank, u64 index) {
    return seed * 0xBF58476D1CE4E5B9ull + rank * 0x94D049BB133111EBull + index * 0x9E3779B97F4A7C15ull;
}

__device__ static u64 bits(Format f, u32 seed, u32 rank, u64 index) {
    return word(seed, rank, index) >> (64 - 8 * f.bytes);
}

__device__ static double number(Format f, u32 seed, u32 rank, u64 index) {
    const u32 x = (u32)(word(seed, rank, index) >> 32);
    if (f.operation == PROD) {
        const int doubled = rank < FACTORS && (x & 1);
        if (rank % 2) return f.exponent && doubled ? 0.5 : 1.0;
        return doubled ? 2.0 : 1.0;
    }
    return (double)(x % (f.highest + 1));
}

__device__ static int bias(u32 exponent) { return (1 << (exponent - 1)) - 1; }

// A number of 0 or more that the format holds exactly, and not as a subnormal.
__device__ static u64 encode(Format f, double v) {
    if (!f.exponent) return (u64)(s64)v;
    if (v == 0) return 0;
    const u64 b = (u64)__double_as_longlong(v);
    const u64 power = (b >> 52) - 1023 + bias(f.exponent);
    return power << f.mantissa | (b & 0xFFFFFFFFFFFFFull) >> (52 - f.mantissa);
}

// Any floating-point number; infinities become a NaN.
__device__ static double decode(Format f, u64 b) {
    const u64 fraction = b & ((1ull << f.mantissa) - 1);
    const u32 power = (u32)(b >> f.mantissa) & ((1u << f.exponent) - 1);
    const double sign = (b >> (8 * f.bytes - 1)) & 1 ? -1 : 1;
    // e4m3 has no infinities: of its largest exponent only the last pattern is not a number.
    const int finite = f.exponent == 4 ? !(power == 15 && fraction == 7) : power != (1u << f.exponent) - 1;
    if (!finite) return __longlong_as_double((s64)0x7FF8000000000000ull);
    const double scaled = (double)(power ? fraction | 1ull << f.mantissa : fraction);
    const int shift = (int)(power ? power : 1) - bias(f.exponent) - (int)f.mantissa;
    if (shift >= -1022 && shift <= 1023) return sign * scaled * __longlong_as_double((s64)(u64)(shift + 1023) << 52);
    // Subnormals of double and numbers near them: in two steps.
    return sign * scaled * __longlong_as_double((s64)(u64)(shift + 200 + 1023) << 52) * __longlong_as_double((s64)(u64)(1023 - 200) << 52);
}

__device__ static u64 load(const char* at, u64 i, u32 bytes) {
    if (bytes == 1) return ((const u8*)at)[i];
    if (bytes == 2) return ((const u16*)at)[i];
    if (bytes == 4) return ((const u32*)at)[i];
    return ((const u64*)at)[i];
}

__device__ static void store(char* at, u64 i, u32 bytes, u64 b) {
    if (bytes == 1) ((u8*)at)[i] = (u8)b;
    else if (bytes == 2) ((u16*)at)[i] = (u16)b;
    else if (bytes == 4) ((u32*)at)[i] = (u32)b;
    else ((u64*)at)[i] = b;
}

// Writes what a rank sends.
extern "C" __global__ void fill(char* at, u64 count, Format f, u32 seed, u32 rank) {
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
        store(at, i, f.bytes, f.operation == BITS ? bits(f, seed, rank, i) : encode(f, number(f, seed, rank, i)));
}

__device__ static int differs(Format f, u64 got, u32 seed, int source, u64 index) {
    if (source >= 0) return got != bits(f, seed, source, index);
    double result = number(f, seed, 0, index);
    for (u32 rank = 1; rank < f.ranks; ++rank) {
        const double v = number(f, seed, rank, index);
        if (f.operation == PROD) result *= v;
        else if (f.operation == MAX) result = v > result ? v : result;
        else if (f.operation == MIN) result = v < result ? v : result;
        else if (f.operation == MULSUM) result += v * (1 + rank % 2);
        else result += v;
    }
    if (!f.exponent) {
        u64 whole = (u64)(s64)result;
        if (f.operation == AVG) whole /= f.ranks;
        const u64 mask = f.bytes == 8 ? ~0ull : (1ull << 8 * f.bytes) - 1;
        return got != (whole & mask);
    }
    if (f.operation == AVG) result /= f.ranks;
    const double error = decode(f, got) - result;
    return !((error < 0 ? -error : error) <= f.tolerance * result);  // so that a NaN is wrong too
}

// Counts the elements that are not those from `start` of rank `source`; below 0: of all ranks, reduced.
extern "C" __global__ void compare(const char* at, u64 count, Format f, u32 seed, int source, u64 start, u64* wrong) {
    const u64 step = (u64)gridDim.x * blockDim.x;
    u64 found = 0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
        found += differs(f, load(at, i, f.bytes), seed, source, start + i);
    if (found) atomicAdd(wrong, found);
}
