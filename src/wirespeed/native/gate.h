/* The gate, whose words the Python class HostGate and GPUs use, too: each has its own row, so that no two share a
 * cache line. */
#ifndef WIRESPEED_GATE_H
#define WIRESPEED_GATE_H

#include "wirespeed.h"

#include <stdatomic.h>

/* Outcomes of waiting, in the word `cancel`. */
enum { WS_DONE, WS_CANCELLED, WS_TIMED_OUT };

struct ws_row {
    _Atomic int64_t word;
    int64_t unused[15];
};

struct ws_gate {
    struct ws_row arrived, expected, released, cancel, running, timeout_ns;
};

static inline int64_t ws_load(const struct ws_row *row) {
    return atomic_load_explicit(&((struct ws_row *)row)->word, memory_order_acquire);
}

static inline void ws_store(struct ws_row *row, int64_t value) {
    atomic_store_explicit(&row->word, value, memory_order_release);
}

/* Wait until all threads have arrived; the last one opens the gate. The outcome. */
WS_EXPORT int64_t ws_arrive(struct ws_gate *gate);

/* One turn of a loop that waits; whether it is time to look at the clock and to yield the CPU. */
int ws_turn(int64_t *spins);

/* Wait until a time in ns or the end of the sample; a load also ends when no measured thread runs. The outcome. */
int64_t ws_wait(struct ws_gate *gate, double due, int load);

#endif
