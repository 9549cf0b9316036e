/* The operations over whole buffers: copy, and the kernels of STREAM and BabelStream (scale, add, triad; saxpy in
 * single precision), writing a constant and summing. Destinations larger than the caches are written with
 * non-temporal stores, which do not read a line in order to write it. This file is compiled once for each set of
 * vector instructions. Buffers consist of whole lines of 64 bytes and begin at one. */
#include "wirespeed.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Bytes of a vector; on arm64 two registers, as STNP stores a pair. */
#if defined(__AVX512F__)
#define WIDTH 64
#elif defined(__AVX2__) || defined(__aarch64__)
#define WIDTH 32
#else
#define WIDTH 16
#endif
/* Bytes of an iteration with usual stores, of a line, and from what is read to what is fetched meanwhile; the number of
 * independent sums: those of 512 bytes. */
#define BLOCK 256
#define LINE 64
#define AHEAD 2048
#define SUMS (512 / WIDTH > 16 ? 16 : 512 / WIDTH)
#define UNROLLED _Pragma("GCC unroll 16")

typedef uint64_t words __attribute__((vector_size(WIDTH), may_alias));
typedef double doubles __attribute__((vector_size(WIDTH), may_alias));
typedef float floats __attribute__((vector_size(WIDTH), may_alias));

/* Store a vector without reading its line into the caches. */
static inline void stream(void *to, words value) {
#if defined(__AVX512F__)
    _mm512_stream_si512((__m512i *)to, (__m512i)value);
#elif defined(__AVX2__)
    _mm256_stream_si256((__m256i *)to, (__m256i)value);
#elif defined(__x86_64__)
    _mm_stream_si128((__m128i *)to, (__m128i)value);
#elif defined(__aarch64__)
    typedef uint64_t half __attribute__((vector_size(16)));
    union {
        words whole;
        half part[2];
    } pair = {value};
    __asm__ volatile("stnp %q1, %q2, %0" : "=m"(*(words *)to) : "w"(pair.part[0]), "w"(pair.part[1]));
#else
    *(words *)to = value;
#endif
}

static inline void keep(void *to, words value) { *(words *)to = value; }

/* Non-temporal stores are not ordered like others on x86-64; on arm64 the release after a sample orders them. */
static inline void fence(void) {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

/* The memory of a vector of one type, at an offset in a buffer. */
#define AT(type, base) (*(const type *)((base) + i))

/* One value for each vector, in unrolled blocks of which all values are read before the first is written: within the
 * caches, reads and writes in turns are slower. The barrier keeps the compiler from calling memcpy or memset. */
#define LOOP(store, block, before, value)                                                                              \
    for (; begin + block <= end; begin += block) {                                                                     \
        words values[block / WIDTH];                                                                                   \
        before;                                                                                                        \
        UNROLLED for (int k = 0; k < block / WIDTH; k++) {                                                             \
            const int64_t i = begin + k * WIDTH;                                                                       \
            (void)i;                                                                                                   \
            values[k] = (words)(value);                                                                                \
        }                                                                                                              \
        UNROLLED for (int k = 0; k < block / WIDTH; k++) store(to + begin + k * WIDTH, values[k]);                     \
        __asm__ volatile("" ::: "memory");                                                                             \
    }

/* Non-temporal stores are made line by line. What is read is fetched AHEAD of it: a copy with vectors of 64 bytes
 * gains a quarter by that, as one load of a line hardly makes the CPU fetch the next ones (measured). */
#define SWEEP(name, type, element, fetch, value)                                                                       \
    static void name(char *to, const char *first, const char *second, int64_t scalar, int64_t size, int streaming) {   \
        const type spread = (element)scalar - (type){0};                                                               \
        int64_t begin = 0, end = size;                                                                                 \
        (void)first, (void)second, (void)spread;                                                                       \
        if (streaming) {                                                                                               \
            end = size - AHEAD;                                                                                        \
            LOOP(stream, LINE, fetch, value)                                                                           \
            end = size;                                                                                                \
            LOOP(stream, LINE, (void)0, value)                                                                         \
            fence();                                                                                                   \
        } else {                                                                                                       \
            LOOP(keep, BLOCK, (void)0, value)                                                                          \
            LOOP(keep, LINE, (void)0, value)                                                                           \
        }                                                                                                              \
    }

#define FETCH __builtin_prefetch(first + begin + AHEAD)
SWEEP(copy, words, uint64_t, FETCH, AT(words, first))
SWEEP(write, words, uint64_t, (void)0, spread)
SWEEP(scale, doubles, double, FETCH, spread *AT(doubles, first))
SWEEP(add, doubles, double, FETCH, AT(doubles, first) + AT(doubles, second))
SWEEP(triad, doubles, double, FETCH, AT(doubles, first) + spread * AT(doubles, second))
SWEEP(saxpy, floats, float, FETCH, spread *AT(floats, first) + AT(floats, second))

/* The wrapping sum of all words; the loads are independent of each other. */
static uint64_t sum(const char *from, int64_t size) {
    words sums[SUMS] = {{0}};
    int64_t i = 0;
    for (; i + SUMS * WIDTH <= size; i += SUMS * WIDTH)
        UNROLLED for (int k = 0; k < SUMS; k++) sums[k] += *(const words *)(from + i + k * WIDTH);
    for (; i < size; i += WIDTH)
        sums[0] += AT(words, from);
    for (int k = 1; k < SUMS; k++)
        sums[0] += sums[k];
    uint64_t total = 0;
    for (size_t lane = 0; lane < WIDTH / sizeof total; lane++)
        total += sums[0][lane];
    return total;
}

const struct ws_kernels WS_NAMED(ws_kernels);
const struct ws_kernels WS_NAMED(ws_kernels) = {WS_TEXT(WS_BUILD), copy, scale, add, triad, saxpy, write, sum};
