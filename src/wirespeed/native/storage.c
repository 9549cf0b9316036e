/* Reads and writes of the blocks of a file: each thread makes one call at a time, or one thread keeps several in the
 * queues of an io_uring (include/uapi/linux/io_uring.h of Linux). Python opens the file, with O_DIRECT if it can, and
 * makes the queues. The first and the last word of a block depend on its place in the file. */
#include "wirespeed.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>
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

/* The queues of an io_uring: its end of submissions, and the begin and the end of completions. */
struct ws_ring {
    int64_t descriptor;
    _Atomic uint32_t *submitted;
    int64_t submission_mask;
    struct ws_submission *submissions;
    _Atomic uint32_t *taken, *completed;
    int64_t completion_mask;
    const struct ws_completion *completions;
};

_Static_assert(sizeof(struct ws_moved) == 7 * 8, "a row of Python's table of results");

struct ws_submission {
    uint8_t operation, flags;
    uint16_t priority;
    int32_t descriptor;
    int64_t offset, address;
    uint32_t size, call_flags;
    uint64_t slot, unused[3];
};

struct ws_completion {
    uint64_t slot;
    int32_t moved; /* a negative error number if it failed */
    uint32_t flags;
};

_Static_assert(sizeof(struct ws_submission) == 64 && sizeof(struct ws_completion) == 16, "entries of Linux");

/* A call that moved fewer bytes than it should. */
enum { SHORT = -1 };
/* System calls and operations of io_uring. */
enum { IO_URING_ENTER = 426, GET_EVENTS = 1, READ = 22, WRITE = 23 };

WS_EXPORT int64_t ws_draw(const struct ws_blocks *all);
WS_EXPORT int64_t ws_move_next(const struct ws_blocks *all, uint64_t *buffer, struct ws_moved *moved);
WS_EXPORT void ws_move_all(const struct ws_blocks *all, uint64_t *buffer, struct ws_moved *moved);
WS_EXPORT void ws_move_by_ring(const struct ws_blocks *all, const struct ws_ring *ring, uint64_t *const *buffers,
                               int64_t *slots, int64_t depth, struct ws_moved *moved);

/* Take the next block: where it is in the file; -1 if there is none. */
int64_t ws_draw(const struct ws_blocks *all) {
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
    const int64_t offset = ws_draw(all);
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

static long enter(const struct ws_ring *ring, int64_t submissions, int waits) {
    return syscall(IO_URING_ENTER, (int)ring->descriptor, (unsigned)submissions, (unsigned)waits,
                   waits ? GET_EVENTS : 0, NULL, (size_t)0);
}

/* As `ws_move_all`, by one thread with a call at a time for each of `depth` buffers, which have a report each; the
 * times are in the first. `slots` has room for one word per buffer. */
void ws_move_by_ring(const struct ws_blocks *all, const struct ws_ring *ring, uint64_t *const *buffers, int64_t *slots,
                     int64_t depth, struct ws_moved *moved) {
    int64_t spare = depth, queued = 0, flying = 0, goes_on = 1;
    for (int64_t i = 0; i < depth; i++)
        slots[i] = i;
    moved->start = ws_now_ns();
    uint32_t tail = atomic_load(ring->submitted), head = atomic_load(ring->taken);
    for (;;) {
        while (goes_on && spare) {
            const int64_t offset = ws_draw(all);
            if (offset < 0) {
                goes_on = 0;
                break;
            }
            const int64_t slot = slots[--spare];
            mark(all, buffers[slot], offset);
            moved[slot].at = offset;
            ring->submissions[tail & ring->submission_mask] = (struct ws_submission){
                .operation = all->writes ? WRITE : READ,
                .descriptor = (int32_t)all->descriptor,
                .offset = offset,
                .address = (int64_t)(intptr_t)buffers[slot],
                .size = (uint32_t)all->block,
                .slot = (uint64_t)slot,
            };
            tail++;
            queued++;
            if (spare) { /* submit each one, as fio does: of several, the kernel would hold the first until the last */
                atomic_store_explicit(ring->submitted, tail, memory_order_release);
                const long entered = enter(ring, queued, 0);
                if (entered > 0) {
                    queued -= entered;
                    flying += entered;
                }
            }
        }
        if (!queued && !flying)
            break;
        atomic_store_explicit(ring->submitted, tail, memory_order_release);
        const long entered = enter(ring, queued, 1);
        if (entered >= 0) {
            queued -= entered;
            flying += entered;
        } else if (errno != EINTR && errno != EAGAIN && errno != EBUSY) {
            moved->error = errno;
            break;
        }
        const uint32_t end = atomic_load_explicit(ring->completed, memory_order_acquire);
        for (; head != end; head++) {
            const struct ws_completion *done = &ring->completions[head & ring->completion_mask];
            struct ws_moved *mine = &moved[done->slot];
            if (done->moved == all->block) {
                check(all, buffers[done->slot], mine->at, mine);
            } else {
                mine->error = done->moved < 0 ? -done->moved : SHORT;
                goes_on = 0;
            }
            slots[spare++] = (int64_t)done->slot;
            flying--;
        }
        atomic_store_explicit(ring->taken, head, memory_order_release);
    }
    moved->end = ws_now_ns();
}
