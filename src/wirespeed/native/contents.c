/* The contents of buffers before and after a sample: patterns of words, of integers as doubles, and of pairs of
 * integers as floats, as backends/test_data.py defines them. Arithmetic with these integers is exact. This file
 * is compiled once for each set of vector instructions. */
#include "wirespeed.h"

#include <string.h>

enum { WORDS, DOUBLES, FLOATS };

/* An integer below 2**48: 15 times it plus another one is exact as a double. */
static inline double whole(uint64_t word) { return (double)(int64_t)(word >> 16); }

/* An integer below 2**20: 15 times it plus another one is exact as a float. */
static inline float small(uint64_t word) { return (float)(int32_t)(word & 0xFFFFF); }

static inline uint64_t bits_of(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

/* a times the first number plus b times the second one; or the first word. */
static inline uint64_t value(int kind, uint64_t first, uint64_t second, int64_t a, int64_t b) {
    if (kind == DOUBLES) {
        double number = (double)a * whole(first) + (double)b * whole(second);
        memcpy(&first, &number, sizeof first);
    } else if (kind == FLOATS) {
        float low = (float)a * small(first >> 16) + (float)b * small(second >> 16);
        float high = (float)a * small(first >> 40) + (float)b * small(second >> 40);
        first = bits_of(low) | bits_of(high) << 32;
    }
    return first;
}

/* Write the pattern whose first word is given. */
static void fill(uint64_t *words, int64_t count, int kind, uint64_t word) {
    switch (kind) { /* a loop for each kind, so that each becomes one of vectors */
    case DOUBLES:
        for (int64_t i = 0; i < count; i++, word += WS_STEP)
            words[i] = value(DOUBLES, word, word, 1, 0);
        break;
    case FLOATS:
        for (int64_t i = 0; i < count; i++, word += WS_STEP)
            words[i] = value(FLOATS, word, word, 1, 0);
        break;
    default:
        for (int64_t i = 0; i < count; i++, word += WS_STEP)
            words[i] = word;
    }
}

/* The number of words that are not the result of an operation, whose sources begin with the two words. */
static int64_t count_wrong(const uint64_t *words, int64_t count, int kind, uint64_t step, uint64_t first,
                           uint64_t second, int64_t a, int64_t b) {
    int64_t wrong = 0;
    switch (kind) {
    case DOUBLES:
        for (int64_t i = 0; i < count; i++, first += step, second += step)
            wrong += words[i] != value(DOUBLES, first, second, a, b);
        break;
    case FLOATS:
        for (int64_t i = 0; i < count; i++, first += step, second += step)
            wrong += words[i] != value(FLOATS, first, second, a, b);
        break;
    default:
        for (int64_t i = 0; i < count; i++, first += step)
            wrong += words[i] != first;
    }
    return wrong;
}

const struct ws_contents WS_NAMED(ws_contents);
const struct ws_contents WS_NAMED(ws_contents) = {fill, count_wrong};
