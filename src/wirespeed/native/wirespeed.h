/* The C functions of wirespeed, which Python calls through ctypes: what the files share. There is no Python API
 * in them. Addresses and sizes are not checked here, but once, in the Python module that declares a function. */
#ifndef WIRESPEED_H
#define WIRESPEED_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Functions that Python calls; all others are hidden. */
#define WS_EXPORT __attribute__((visibility("default")))

/* CLOCK_MONOTONIC in ns: the clock of all times. */
static inline int64_t ws_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Tell the core that it is spinning, so that its sibling thread runs faster. */
static inline void ws_spin_hint(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Difference between successive words of a pattern; see backends/test_data.py. */
#define WS_STEP UINT64_C(0x9E3779B97F4A7C15)

/* How stores use the caches: as usual, bypassing them, or as the C library's memcpy does. */
enum { WS_CACHED, WS_STREAMED, WS_BY_LIBRARY };

/* An entry of a list: the offsets of a block in the source and in the destination, in bytes. */
struct ws_entry {
    int64_t source, destination;
};

/* The kernels that exist in several builds, one for each set of vector instructions. Sweeps: destination, first
 * and second source, scalar, bytes (whole lines of 64), and whether their stores bypass the caches. */
typedef void ws_sweep(char *to, const char *first, const char *second, int64_t scalar, int64_t size, int streaming);

struct ws_kernels {
    const char *name;
    ws_sweep *copy, *scale, *add, *triad, *saxpy, *write;
    uint64_t (*sum)(const char *from, int64_t size);
};

struct ws_contents {
    void (*fill)(uint64_t *words, int64_t count, int kind, uint64_t word);
    int64_t (*count_wrong)(const uint64_t *words, int64_t count, int kind, uint64_t step, uint64_t first,
                           uint64_t second, int64_t a, int64_t b);
};

/* The builds that were chosen for this CPU. */
const struct ws_kernels *ws_kernels(void);
const struct ws_contents *ws_contents(void);

/* Names of one build: WS_NAMED(ws_kernels) is ws_kernels_avx2 where -DWS_BUILD=avx2. */
#define WS_JOIN_(name, build) name##_##build
#define WS_JOIN(name, build) WS_JOIN_(name, build)
#define WS_NAMED(name) WS_JOIN(name, WS_BUILD)
#define WS_TEXT_(word) #word
#define WS_TEXT(word) WS_TEXT_(word)

#endif
