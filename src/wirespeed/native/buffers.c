/* Work on buffers that is not timed: placing pages, patterns and their comparison, and the cycles of a pointer
 * chase, which any thread can build or check in parts. */
#include "wirespeed.h"

WS_EXPORT void ws_touch(char *base, int64_t begin, int64_t end);
WS_EXPORT void ws_fill(uint64_t *base, int64_t begin, int64_t end, int64_t kind, uint64_t key);
WS_EXPORT void ws_fill_blocks(char *base, const struct ws_entry *entries, int64_t begin, int64_t end, int64_t block,
                              uint64_t key);
WS_EXPORT int64_t ws_count_wrong(const uint64_t *base, int64_t begin, int64_t end, int64_t kind, uint64_t step,
                                 uint64_t first, uint64_t second, int64_t a, int64_t b);
WS_EXPORT int64_t ws_shuffled(int64_t step, int64_t lines, uint64_t key);
WS_EXPORT int64_t ws_cycle(uint64_t *base, int64_t lines, int64_t begin, int64_t end, uint64_t key, int32_t build,
                           int64_t *lowest);

enum { PAGE = 4096, WORDS_OF_LINE = 8 };

/* Make the kernel place every page between two byte offsets. */
void ws_touch(char *base, int64_t begin, int64_t end) {
    for (int64_t offset = begin; offset < end; offset += PAGE)
        *(volatile uint64_t *)(base + offset) = 0;
}

/* Write words begin to end of the pattern of a key to a buffer. */
void ws_fill(uint64_t *base, int64_t begin, int64_t end, int64_t kind, uint64_t key) {
    ws_contents()->fill(base + begin, end - begin, (int)kind, key + (uint64_t)begin * WS_STEP);
}

/* Write to the source of a list, for entries begin to end, what belongs into the destination: the destination of a
 * complete list is then one pattern, each block in its place. */
void ws_fill_blocks(char *base, const struct ws_entry *entries, int64_t begin, int64_t end, int64_t block,
                    uint64_t key) {
    for (const struct ws_entry *entry = entries + begin; entry < entries + end; entry++)
        ws_contents()->fill((uint64_t *)(base + entry->source), block / 8, 0,
                            key + (uint64_t)(entry->destination / 8) * WS_STEP);
}

/* The number of words from begin to end that are not a times the word of one source plus b times that of another;
 * their patterns begin with the keys and change by `step`, or not at all. */
int64_t ws_count_wrong(const uint64_t *base, int64_t begin, int64_t end, int64_t kind, uint64_t step, uint64_t first,
                       uint64_t second, int64_t a, int64_t b) {
    const uint64_t skipped = (uint64_t)begin * step;
    return ws_contents()->count_wrong(base + begin, end - begin, (int)kind, step, first + skipped, second + skipped, a,
                                      b);
}

/* A word that depends on every bit of the key and the index. */
static uint64_t mixed(uint64_t key, uint64_t index) {
    uint64_t word = (key ^ index) * WS_STEP;
    word = (word ^ (word >> 32)) * UINT64_C(0xD6E8FEB86659FD93);
    return word ^ (word >> 29);
}

/* The line that a cycle over a number of lines visits at a step: a keyed permutation of the smallest power of two
 * that holds all lines, repeated while the result is out of range. So a cycle needs neither a table nor an order of
 * construction. */
int64_t ws_shuffled(int64_t step, int64_t lines, uint64_t key) {
    int bits = 1;
    while ((INT64_C(1) << bits) < lines)
        bits++;
    const uint64_t mask = (UINT64_C(1) << bits) - 1;
    uint64_t line = (uint64_t)step;
    do {
        for (uint64_t turn = 0; turn < 4; turn++) {
            const uint64_t word = mixed(key, turn);
            line = (line * (word | 1) + (word >> 7)) & mask;
            line ^= line >> ((bits + 1) / 2);
        }
    } while (line >= (uint64_t)lines);
    return (int64_t)line;
}

/* Build or check the steps begin to end of a cycle; each line holds the address of the next. The number of wrong
 * words, and the index of the first (lowest) one. */
int64_t ws_cycle(uint64_t *base, int64_t lines, int64_t begin, int64_t end, uint64_t key, int32_t build,
                 int64_t *lowest) {
    int64_t wrong = 0, here = ws_shuffled(begin, lines, key);
    *lowest = WORDS_OF_LINE * lines;
    for (int64_t step = begin; step < end; step++) {
        const int64_t following = ws_shuffled(step + 1 < lines ? step + 1 : 0, lines, key);
        const uint64_t value = (uint64_t)(uintptr_t)(base + WORDS_OF_LINE * following);
        if (build) {
            base[WORDS_OF_LINE * here] = value;
        } else if (base[WORDS_OF_LINE * here] != value) {
            wrong++;
            if (WORDS_OF_LINE * here < *lowest)
                *lowest = WORDS_OF_LINE * here;
        }
        here = following;
    }
    return wrong;
}
