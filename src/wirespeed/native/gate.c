/* The gate at which threads wait for each other before a sample. It may be in memory that processes share. */
#include "gate.h"

#include <sched.h>

WS_EXPORT int64_t ws_open_gate(struct ws_gate *gate, int64_t expected);
WS_EXPORT int64_t ws_clock(void);

enum { SPINS_PER_CLOCK_CHECK = 64 }; /* about 2 us */

int ws_turn(int64_t *spins) {
    ws_spin_hint();
    return ++*spins % SPINS_PER_CLOCK_CHECK == 0;
}

/* Wait until a word is no smaller than a value, the sample is cancelled or the time is over. */
static int64_t spin(struct ws_gate *gate, const struct ws_row *row, int64_t least) {
    const int64_t deadline = ws_now_ns() + ws_load(&gate->timeout_ns);
    int64_t spins = 0;
    while (ws_load(row) < least) {
        const int64_t cancelled = ws_load(&gate->cancel);
        if (cancelled != WS_DONE)
            return cancelled;
        if (ws_turn(&spins)) {
            if (ws_now_ns() > deadline) {
                ws_store(&gate->cancel, WS_TIMED_OUT);
                return WS_TIMED_OUT;
            }
            sched_yield(); /* there may be fewer cores than threads */
        }
    }
    return WS_DONE;
}

/* Wait until all threads have arrived; the last one opens the gate. The outcome. */
int64_t ws_arrive(struct ws_gate *gate) {
    if (atomic_fetch_add(&gate->arrived.word, 1) + 1 != ws_load(&gate->expected))
        return spin(gate, &gate->released, 1);
    const int64_t status = ws_load(&gate->cancel);
    if (status == WS_DONE)
        ws_store(&gate->released, ws_now_ns());
    return status;
}

/* Open a gate that no thread opens, after the expected number of arrivals; the outcome. */
int64_t ws_open_gate(struct ws_gate *gate, int64_t expected) {
    const int64_t status = spin(gate, &gate->arrived, expected);
    if (status == WS_DONE)
        ws_store(&gate->released, ws_now_ns());
    return status;
}

int64_t ws_wait(struct ws_gate *gate, double due, int load) {
    int64_t spins = 0, status = ws_load(&gate->cancel);
    while (status == WS_DONE && (double)ws_now_ns() < due && (!load || ws_load(&gate->running) > 0)) {
        if (ws_turn(&spins))
            sched_yield();
        status = ws_load(&gate->cancel);
    }
    return status;
}

/* The clock of all times, in ns. */
int64_t ws_clock(void) { return ws_now_ns(); }
