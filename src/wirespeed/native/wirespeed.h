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

#endif
