/* The timed work of a thread: it waits at the gate, repeats an operation, and writes its times. A load runs until
 * no measured thread does. Pacing splits the work into chunks that are due at times from the start. */
#include "gate.h"

#include <string.h>

enum { COPY, SCALE, ADD, TRIAD, SAXPY, READ, WRITE, CHASE, BLOCKS };
enum { ENDLESS = -1, CHASE_STEP = 8 };

/* What a thread reports, in its own row. */
struct ws_result {
    int64_t start, end, amount, carry, status;
};

WS_EXPORT int64_t ws_once(int64_t operation, int64_t streaming, char *to, const char *first, const char *second,
                          int64_t scalar, int64_t size, int64_t carry);
WS_EXPORT void ws_work(struct ws_gate *gate, struct ws_result *result, int64_t operation, int64_t streaming, char *to,
                       const char *first, const char *second, int64_t scalar, int64_t size, int64_t carry,
                       int64_t copies, int64_t chunk, double pace);

/* A pointer chase: each word is the address of the next one. */
static int64_t chase(int64_t at, int64_t accesses) {
    void **here = (void **)(uintptr_t)at;
    for (int64_t i = 0; i < accesses; i += CHASE_STEP)
        for (int k = 0; k < CHASE_STEP; k++)
            here = *here;
    return (int64_t)(uintptr_t)here;
}

static void copy_blocks(char *to, const char *from, const struct ws_entry *entries, int64_t block, int64_t count,
                        int64_t how) {
    ws_sweep *const copy = ws_kernels()->copy;
    for (const struct ws_entry *entry = entries; entry < entries + count; entry++) {
        if (how == WS_BY_LIBRARY)
            memcpy(to + entry->destination, from + entry->source, (size_t)block);
        else
            copy(to + entry->destination, from + entry->source, 0, 0, block, how == WS_STREAMED);
    }
}

/* Run the operation over `size` bytes, follow a cycle for `size` accesses, or copy `size` blocks: then the entries
 * are at `second`, and `scalar` is the size of a block. */
int64_t ws_once(int64_t operation, int64_t streaming, char *to, const char *first, const char *second, int64_t scalar,
                int64_t size, int64_t carry) {
    const struct ws_kernels *kernels = ws_kernels();
    ws_sweep *const sweeps[] = {[COPY] = kernels->copy,   [SCALE] = kernels->scale, [ADD] = kernels->add,
                                [TRIAD] = kernels->triad, [SAXPY] = kernels->saxpy, [WRITE] = kernels->write};
    switch (operation) {
    case READ:
        return (int64_t)((uint64_t)carry + kernels->sum(first, size));
    case CHASE:
        return chase(carry, size);
    case BLOCKS:
        copy_blocks(to, first, (const struct ws_entry *)second, scalar, size, streaming);
        return carry;
    default:
        sweeps[operation](to, first, second, scalar, size, streaming != WS_CACHED);
        return carry;
    }
}

/* One step of the work, at a position in bytes, accesses or blocks. */
static int64_t step_at(int64_t position, int64_t operation, int64_t streaming, char *to, const char *first,
                       const char *second, int64_t scalar, int64_t size, int64_t carry) {
    if (operation == CHASE)
        position = 0; /* it continues where it is */
    if (operation == BLOCKS)
        return ws_once(BLOCKS, streaming, to, first, second + position * (int64_t)sizeof(struct ws_entry), scalar, size,
                       carry);
    return ws_once(operation, streaming, to + position, first + position, second + position, scalar, size, carry);
}

/* Wait at the gate with the other threads, run a transfer, and write the times.
 *
 * copies: number of times to run; ENDLESS for a load, which runs until no measured thread runs.
 * chunk: bytes (accesses of a chase, blocks of a list) after which the thread waits, or a load looks whether to stop.
 * pace: fraction of the time for which it works. */
void ws_work(struct ws_gate *gate, struct ws_result *result, int64_t operation, int64_t streaming, char *to,
             const char *first, const char *second, int64_t scalar, int64_t size, int64_t carry, int64_t copies,
             int64_t chunk, double pace) {
    const int load = copies == ENDLESS, waits = pace < 1;
    int64_t busy = 0, position = 0, amount = 0, done = 0;
    int64_t status = ws_arrive(gate);
    const int64_t start = ws_now_ns();
    while (status == WS_DONE && (load ? size > 0 && ws_load(&gate->running) > 0 : done < copies)) {
        const int64_t begin = waits ? ws_now_ns() : 0;
        const int64_t step = chunk < size - position ? chunk : size - position;
        carry = step_at(position, operation, streaming, to, first, second, scalar, step, carry);
        amount += step;
        position += step;
        if (position == size) {
            position = 0;
            done++;
        }
        if (waits) {
            busy += ws_now_ns() - begin;
            status = ws_wait(gate, (double)start + (double)busy / pace, load);
        } else {
            status = ws_load(&gate->cancel);
        }
    }
    const int64_t end = ws_now_ns();
    if (!load)
        atomic_fetch_sub(&gate->running.word, 1);
    *result = (struct ws_result){start, end, amount, carry, status};
}
