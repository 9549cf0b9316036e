/* Timed tables of calls of C functions, such as those of MPI and NCCL, whose addresses and arguments Python has put
 * into rows of words. The library itself is linked with none of them. Also here: the functions of wirespeed that such
 * tables call between the others. */
#include "wirespeed.h"

#include <string.h>

/* MPI_Sendrecv has twelve arguments. */
enum { MOST_ARGUMENTS = 12 };

/* A function with fewer arguments ignores the rest, and an `int` argument is the lower half of a word, by the calling
 * conventions of x86-64 (System V) and arm64. */
typedef int32_t ws_function(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                            int64_t, int64_t);

struct ws_call {
    ws_function *function;
    int64_t words[MOST_ARGUMENTS];
};

struct ws_table {
    const struct ws_call *calls;
    int64_t count;
};

struct ws_lap {
    int64_t start, between, end;
};

WS_EXPORT int64_t ws_call_all(const struct ws_call *calls, int64_t count);
WS_EXPORT int64_t ws_call_timed(const struct ws_table tables[3], struct ws_lap *laps, int64_t count, int64_t rounds);
WS_EXPORT int32_t ws_copy(char *to, const char *from, int64_t size);
WS_EXPORT int32_t ws_copy_list(char *const *to, const char *const *from, int64_t size, int64_t count);
WS_EXPORT int32_t ws_wait_until(const volatile int64_t *time_ns);

/* Make the calls; the index of the first one that failed with its status above it, or -1. */
int64_t ws_call_all(const struct ws_call *calls, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const int64_t *w = calls[i].words;
        const int32_t status =
            calls[i].function(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11]);
        if (status)
            return i | (int64_t)(status & INT32_MAX) << 32;
    }
    return -1;
}

/* Make the calls of the first table, then in each lap those of the second in rounds, and those of the third. A lap
 * receives the starts of the second and the third, and the end. The result is that of `ws_call_all`, for the calls of
 * the three tables in a row; all ends at the first that failed. */
int64_t ws_call_timed(const struct ws_table tables[3], struct ws_lap *laps, int64_t count, int64_t rounds) {
    int64_t failed = ws_call_all(tables[0].calls, tables[0].count);
    if (failed >= 0)
        return failed;
    for (struct ws_lap *lap = laps; lap < laps + count; lap++) {
        lap->start = ws_now_ns();
        for (int64_t round = 0; round < rounds; round++) {
            failed = ws_call_all(tables[1].calls, tables[1].count);
            if (failed >= 0)
                return tables[0].count + failed;
        }
        lap->between = ws_now_ns();
        failed = ws_call_all(tables[2].calls, tables[2].count);
        if (failed >= 0)
            return tables[0].count + tables[1].count + failed;
        lap->end = ws_now_ns();
    }
    return -1;
}

/* Copy bytes. */
int32_t ws_copy(char *to, const char *from, int64_t size) {
    memcpy(to, from, (size_t)size);
    return 0;
}

/* Copy the blocks of a list, whose addresses are in two arrays. */
int32_t ws_copy_list(char *const *to, const char *const *from, int64_t size, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        memcpy(to[i], from[i], (size_t)size);
    return 0;
}

/* Wait until a time, which is read again and again. */
int32_t ws_wait_until(const volatile int64_t *time_ns) {
    while (ws_now_ns() < *time_ns)
        ;
    return 0;
}
