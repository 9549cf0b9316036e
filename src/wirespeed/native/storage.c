/* Reads and writes of the blocks of a file: each thread makes one call at a time. Python opens the file, with O_DIRECT
 * if it can. The first and the last word of a block depend on its place in the file. */
#include "wirespeed.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <unistd.h>

/* What the threads of a sample move together: blocks from `origin` on, in an order of `places` blocks, `count` of them
 * from its element `first` on, of which `*drawn` have been taken. */
struct ws_blocks {
    int64_t writes, descriptor, block, origin;
    const int64_t *order;
    int64_t places, first, count;
    _Atomic int64_t *drawn;
    uint64_t key;
};

/* What a thread, or a buffer, reports: times in ns, an error number and the place of that call, the last block that
 * was moved, the number of blocks with wrong data and the first of them. */
struct ws_moved {
    int64_t start, end, error, at, last, wrong, first_wrong;
};

_Static_assert(sizeof(struct ws_moved) == 7 * 8, "a row of Python's table of results");

/* A call that moved fewer bytes than it should. */
enum { SHORT = -1 };

WS_EXPORT int64_t ws_move_next(const struct ws_blocks *all, uint64_t *buffer, struct ws_moved *moved);
WS_EXPORT void ws_move_all(const struct ws_blocks *all, uint64_t *buffer, struct ws_moved *moved);

/* Take the next block: where it is in the file; -1 if there is none. */
static int64_t next_block(const struct ws_blocks *all) {
    const int64_t i = atomic_fetch_add(all->drawn, 1);
    return i < all->count ? all->origin + all->order[(all->first + i) % all->places] * all->block : -1;
}

static uint64_t word_at(const struct ws_blocks *all, int64_t offset) {
    return all->key + (uint64_t)(offset >> 3) * WS_STEP;
}

/* Write the first and the last word of a block; before a read what it must not find: what an earlier call left there
 * is no proof of this one. */
static void mark(const struct ws_blocks *all, uint64_t *buffer, int64_t offset) {
    const uint64_t inverted = all->writes ? 0 : ~UINT64_C(0);
    buffer[0] = word_at(all, offset) ^ inverted;
    buffer[all->block / 8 - 1] = word_at(all, offset + all->block - 8) ^ inverted;
}

/* Record that a block was moved; after a read compare its first and last word. */
static void check(const struct ws_blocks *all, const uint64_t *buffer, int64_t offset, struct ws_moved *moved) {
    moved->last = offset;
    if (all->writes ||
        (buffer[0] == word_at(all, offset) && buffer[all->block / 8 - 1] == word_at(all, offset + all->block - 8)))
        return;
    if (!moved->wrong++)
        moved->first_wrong = offset;
}

/* Move the next block; whether there was one, and it was moved. */
int64_t ws_move_next(const struct ws_blocks *all, uint64_t *buffer, struct ws_moved *moved) {
    const int64_t offset = next_block(all);
    if (offset < 0)
        return 0;
    mark(all, buffer, offset);
    const int descriptor = (int)all->descriptor;
    const size_t size = (size_t)all->block;
    const ssize_t done =
        all->writes ? pwrite(descriptor, buffer, size, offset) : pread(descriptor, buffer, size, offset);
    if (done != all->block) {
        moved->error = done < 0 ? errno : SHORT;
        moved->at = offset;
        return 0;
    }
    check(all, buffer, offset, moved);
    return 1;
}

/* Move blocks until there is none. */
void ws_move_all(const struct ws_blocks *all, uint64_t *buffer, struct ws_moved *moved) {
    moved->start = ws_now_ns();
    while (ws_move_next(all, buffer, moved))
        ;
    moved->end = ws_now_ns();
}
