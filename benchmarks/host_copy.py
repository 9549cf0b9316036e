"""Compare the host backend's copy, triad and pointer chase with a C program with non-temporal stores.

Samples of both alternate on the same CPUs, with buffers of the same size and kind (huge pages on the node of
these CPUs). Prints the median rate of each (of a chase: millions of accesses per second) and the ratio, which
should be at least 0.98.

    python benchmarks/host_copy.py [--size 512MiB] [--rounds 25]
"""

from __future__ import annotations

import argparse
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wirespeed.backends.host import discover
from wirespeed.backends.host.backend import HostBackend
from wirespeed.hardware.devices import NumaNode
from wirespeed.hardware.topology import Machine
from wirespeed.measurement import Measurement
from wirespeed.model import BUFFERS, Engine, Executor, Memory, MemoryKind, Operation, Transfer
from wirespeed.options import RunOptions
from wirespeed.units import GB, format_size, parse_size

#: Minimum of the rate over the rate of the C program.
GOAL = 0.98
#: Accesses of a chase: one copy of `backends/host/bound_transfer.py` for large buffers.
ACCESSES, MILLION = 2**15, 1e6
COMPILE = ["gcc", "-O3", "-march=native", "-pthread"]
C_PROGRAM = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { PAGE = 4096, HUGE_PAGE = 2 << 20, MOST = 1024 };
static double *a, *b, *c;
static size_t words;
static int threads, triad, chase;
static atomic_int arrived;
static pthread_barrier_t gate;
static struct { double start, end; char pad[48]; } times[MOST];
static int cpus[MOST];

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

#if defined __AVX512F__
#define WIDE 8
#define LOAD _mm512_load_pd
#define STREAM _mm512_stream_pd
#define TRIAD(x, y) _mm512_fmadd_pd(_mm512_set1_pd(3), y, x)
#elif defined __AVX2__ && defined __FMA__
#define WIDE 4
#define LOAD _mm256_load_pd
#define STREAM _mm256_stream_pd
#define TRIAD(x, y) _mm256_fmadd_pd(_mm256_set1_pd(3), y, x)
#elif defined __SSE2__
#define WIDE 2
#define LOAD _mm_load_pd
#define STREAM _mm_stream_pd
#define TRIAD(x, y) _mm_add_pd(x, _mm_mul_pd(_mm_set1_pd(3), y))
#endif

static void work(size_t first, size_t last) {
#ifdef WIDE
  if (triad)
    for (size_t i = first; i < last; i += WIDE) STREAM(c + i, TRIAD(LOAD(a + i), LOAD(b + i)));
  else
    for (size_t i = first; i < last; i += WIDE) STREAM(c + i, LOAD(a + i));
  _mm_sfence();
#else
  double *restrict to = c;
  if (triad)
    for (size_t i = first; i < last; i++) to[i] = a[i] + 3 * b[i];
  else
    for (size_t i = first; i < last; i++) to[i] = a[i];
#endif
}

static size_t edge(int thread, int parts) {
  size_t page = PAGE / sizeof(double);
  return thread == parts ? words : words * thread / parts / page * page;
}

static void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (pthread_setaffinity_np(pthread_self(), sizeof set, &set)) exit(3);
}

/* Random cycle through the lines of `a` (Sattolo's algorithm), and 2**15 dependent loads that continue. */
enum { LINE_WORDS = 8, ACCESSES = 1 << 15 };
static void **at;

static void link_lines(void) {
  size_t lines = words / LINE_WORDS, *next = malloc(lines * sizeof *next);
  unsigned long long seed = 88172645463325252ull;
  for (size_t i = 0; i < lines; i++) next[i] = i;
  for (size_t i = lines - 1; i > 0; i--) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    size_t j = seed % i, swapped = next[i];
    next[i] = next[j], next[j] = swapped;
  }
  for (size_t i = 0; i < lines; i++) *(void **)(a + i * LINE_WORDS) = a + next[i] * LINE_WORDS;
  free(next);
  at = (void **)a;
}

static void *serve(void *argument) {
  int me = (int)(size_t)argument;
  pin(cpus[me]);
  for (;;) {
    pthread_barrier_wait(&gate);
    if (me < threads) {
      atomic_fetch_add(&arrived, 1);
      while (atomic_load(&arrived) < threads) sched_yield();
      times[me].start = now();
      if (chase)
        for (int i = 0; i < ACCESSES; i++) at = (void **)*at;
      else
        work(edge(me, threads), edge(me + 1, threads));
      times[me].end = now();
    }
    pthread_barrier_wait(&gate);
  }
  return 0;
}

static double *array(size_t bytes, double value) {
  char *p = mmap(0, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) exit(4);
  p = (char *)(((size_t)p + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
  madvise(p, bytes, MADV_HUGEPAGE);
  double *d = (double *)p;
  for (size_t i = 0; i < bytes / sizeof *d; i++) d[i] = value;
  return d;
}

/* arguments: bytes, CPUs; then lines "operation threads", each answered with its time in s */
int main(int n, char **arguments) {
  size_t bytes = strtoull(arguments[1], 0, 10);
  int most = n - 2;
  words = bytes / sizeof(double);
  for (int i = 0; i < most; i++) cpus[i] = atoi(arguments[2 + i]);
  pin(cpus[0]); /* allocate the arrays on its node */
  a = array(bytes, 1), b = array(bytes, 2), c = array(bytes, 0);
  pthread_barrier_init(&gate, 0, most + 1);
  for (int i = 0; i < most; i++) {
    pthread_t thread;
    if (pthread_create(&thread, 0, serve, (void *)(size_t)i)) return 5;
  }
  char operation[16];
  while (scanf("%15s %d", operation, &threads) == 2) {
    triad = !strcmp(operation, "triad");
    chase = !strcmp(operation, "chase");
    if (chase && !at) link_lines();
    atomic_store(&arrived, 0);
    pthread_barrier_wait(&gate);
    pthread_barrier_wait(&gate);
    double start = times[0].start, end = times[0].end;
    for (int i = 1; i < threads; i++) {
      if (times[i].start < start) start = times[i].start;
      if (times[i].end > end) end = times[i].end;
    }
    if (chase ? !at : c[words - 1] != (triad ? 7 : 1)) return 6;
    printf("%.9f\n", end - start);
    fflush(stdout);
  }
  return 0;
}
"""


@contextmanager
def c_program(size: int, cpus: tuple[int, ...]) -> Iterator[subprocess.Popen[str]]:
    """Compile and start the C program."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "copy.c"), Path(folder, "copy")
        source.write_text(C_PROGRAM)
        subprocess.run([*COMPILE, str(source), "-o", str(program)], check=True)
        command = [str(program), str(size), *map(str, cpus)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        ) as process:
            try:
                yield process
            finally:
                process.kill()


def seconds_in_c(process: subprocess.Popen[str], operation: Operation, threads: int) -> float:
    """Run an operation once in the C program; return its time in s."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{operation} {threads}\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise SystemExit(f"the C program ended with code {process.wait()}")
    return float(answer)


def transfer(node: NumaNode, operation: Operation, size: int, threads: int) -> Transfer:
    """Return the operation as a Transfer."""
    memory = Memory(node.name, MemoryKind.PAGEABLE)
    executor = Executor(node.name, cpus=node.cores[:threads])
    return Transfer(memory, memory, executor, Engine.CPU, size, operation=operation)


def compare(size: int, rounds: int) -> bool:
    """Print a line per operation and number of threads; return whether all meet the goal."""
    machine = discover(Machine(""))
    node = max(machine.numa, key=lambda n: len(n.cores))
    print(f"{machine.cpu}, arrays of {format_size(size)}, {rounds} rounds")
    print("copy and triad: GB/s by the STREAM count; chase: millions of accesses per second")
    print(f"{'':8}{'threads':>8}{'C':>10}{'ours':>10}{'ratio':>8}")
    met = True
    backend = HostBackend(machine)
    try:
        with c_program(size, node.cores) as process:
            for operation in (Operation.COPY, Operation.TRIAD, Operation.CHASE):
                chase = operation is Operation.CHASE
                for threads in sorted({1, 1 if chase else len(node.cores)}):
                    measurement = Measurement((transfer(node, operation, size, threads),), ())
                    theirs, ours = [], []
                    with backend.prepare(measurement, RunOptions()) as prepared:
                        for _ in range(rounds + 1):
                            theirs.append(seconds_in_c(process, operation, threads))
                            ours.append(prepared.sample(1).seconds[0])
                        prepared.verify()
                    counted = ACCESSES / MILLION if chase else size * sum(BUFFERS[operation]) / GB
                    c, mine = (counted / statistics.median(times[1:]) for times in (theirs, ours))
                    met &= mine / c >= GOAL
                    print(f"{operation:8}{threads:8}{c:10.2f}{mine:10.2f}{mine / c:8.3f}")
    finally:
        backend.close()
    return met


def main() -> int:
    """Run the comparison; return exit code 1 if a ratio misses the goal, 2 without gcc."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--size", type=parse_size, default=parse_size("512MiB"), help="size of an array (512MiB)"
    )
    parser.add_argument("--rounds", type=int, default=25, help="number of samples (25)")
    options = parser.parse_args()
    if shutil.which("gcc") is None:
        print("the C program requires gcc (apt install gcc, dnf install gcc)", file=sys.stderr)
        return 2
    if platform.machine() != "x86_64":
        print("note: the C program uses ordinary stores, because gcc has no non-temporal ones for this CPU")
    return 0 if compare(options.size // 4096 * 4096, options.rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
