"""Compare block lists in host memory with a C program that copies the same lists with memcpy.

Samples of both alternate on the same CPUs, with pools of the same size in huge pages, and as many copies.
Prints the median rate of each and the ratio, which should be at least 0.95.

    python -P benchmarks/blocks.py [--rounds 15]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from wirespeed.backends.host import discover
from wirespeed.backends.host.backend import HostBackend
from wirespeed.hardware.topology import Machine
from wirespeed.measurement import Measurement
from wirespeed.model import BlockList, Engine, Executor, Memory, MemoryKind, Method, Transfer
from wirespeed.options import RunOptions
from wirespeed.units import GB, KIB, MIB, format_size

#: Minimum of the rate over the rate of the C program.
GOAL = 0.95
#: Block size and number of blocks of each list.
LISTS = ((KIB, 16), (KIB, 1024), (KIB, 65536), (16 * KIB, 1024), (16 * KIB, 16384), (MIB, 16), (MIB, 256))
#: Time of a sample, in s.
SAMPLE_S = 0.02
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

enum { HUGE_PAGE = 2 << 20, MOST = 1024 };
static char *from, *to;
static size_t block, blocks, copies, *list;
static int threads, cpus[MOST];
static atomic_int arrived;
static pthread_barrier_t gate;
static struct { double start, end; char pad[48]; } times[MOST];

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (pthread_setaffinity_np(pthread_self(), sizeof set, &set)) exit(3);
}

static char *pool(size_t bytes, int value) {
  char *p = mmap(0, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) exit(4);
  p = (char *)(((size_t)p + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
  madvise(p, bytes, MADV_HUGEPAGE);
  memset(p, value, bytes);
  return p;
}

static void *serve(void *argument) {
  int me = (int)(size_t)argument;
  pin(cpus[me]);
  for (;;) {
    pthread_barrier_wait(&gate);
    if (me < threads) {
      size_t first = blocks * me / threads, last = blocks * (me + 1) / threads;
      atomic_fetch_add(&arrived, 1);
      while (atomic_load(&arrived) < threads) sched_yield();
      times[me].start = now();
      for (size_t n = 0; n < copies; n++)
        for (size_t i = first; i < last; i++) memcpy(to + list[2 * i + 1], from + list[2 * i], block);
      times[me].end = now();
    }
    pthread_barrier_wait(&gate);
  }
  return 0;
}

/* arguments: bytes of a pool, most blocks, CPUs; each line "block blocks copies threads" gets a time in s */
int main(int n, char **arguments) {
  size_t bytes = strtoull(arguments[1], 0, 10), most = strtoull(arguments[2], 0, 10);
  int all = n - 3;
  for (int i = 0; i < all; i++) cpus[i] = atoi(arguments[3 + i]);
  pin(cpus[0]);
  from = pool(bytes, 1), to = pool(bytes, 0);
  list = malloc(2 * most * sizeof *list);
  pthread_barrier_init(&gate, 0, all + 1);
  for (int i = 0; i < all; i++) {
    pthread_t thread;
    if (pthread_create(&thread, 0, serve, (void *)(size_t)i)) return 5;
  }
  size_t wanted_block, wanted_blocks;
  while (scanf("%zu %zu %zu %d", &wanted_block, &wanted_blocks, &copies, &threads) == 4) {
    if (wanted_block != block || wanted_blocks != blocks) { /* two random permutations */
      block = wanted_block, blocks = wanted_blocks;
      for (int column = 0; column < 2; column++) {
        for (size_t i = 0; i < blocks; i++) list[2 * i + column] = i * block;
        for (size_t i = blocks - 1; i; i--) {
          size_t j = rand() % (i + 1), t = list[2 * i + column];
          list[2 * i + column] = list[2 * j + column], list[2 * j + column] = t;
        }
      }
    }
    atomic_store(&arrived, 0);
    pthread_barrier_wait(&gate);
    pthread_barrier_wait(&gate);
    double start = times[0].start, end = times[0].end;
    for (int i = 1; i < threads; i++) {
      if (times[i].start < start) start = times[i].start;
      if (times[i].end > end) end = times[i].end;
    }
    printf("%.9f\n", end - start);
    fflush(stdout);
  }
  return 0;
}
"""


def seconds_in_c(process: subprocess.Popen[str], block: int, blocks: int, copies: int, threads: int) -> float:
    """Copy a list several times in the C program; return the time in s."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{block} {blocks} {copies} {threads}\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise SystemExit(f"the C program ended with code {process.wait()}")
    return float(answer)


def compare(process: subprocess.Popen[str], backend: HostBackend, machine: Machine, rounds: int) -> bool:
    """Print a line per list and method; return whether all meet the goal."""
    node = max(machine.numa, key=lambda n: len(n.cores))
    memory, met = Memory(node.name, MemoryKind.PAGEABLE), True
    print(f"{machine.cpu}, {rounds} rounds, GB/s")
    print(f"{'list':>18}{'method':>8}{'C':>9}{'ours':>9}{'ratio':>8}")
    for block, blocks in LISTS:
        for method, cpus in ((Method.LOOP, node.cores[:1]), (Method.KERNEL, node.cores)):
            transfer = Transfer(
                memory, memory, Executor(node.name, cpus=cpus), Engine.CPU, block * blocks,
                scattered=BlockList(method, block, blocks),
            )  # fmt: skip
            theirs, ours = [], []
            with backend.prepare(Measurement((transfer,), ()), RunOptions()) as prepared:
                copies = max(1, round(SAMPLE_S / max(prepared.sample(1).seconds[0], 1e-7)))
                for _ in range(rounds + 1):
                    theirs.append(seconds_in_c(process, block, blocks, copies, len(cpus)))
                    ours.append(prepared.sample(copies).seconds[0])
                prepared.verify()
            c, mine = (copies * block * blocks / GB / statistics.median(t[1:]) for t in (theirs, ours))
            met &= mine / c >= GOAL
            print(f"{format_size(block):>8} x {blocks:6} {method:>8}{c:9.2f}{mine:9.2f}{mine / c:8.3f}")
    return met


def main() -> int:
    """Run the comparison; return exit code 1 if a ratio misses the goal, 2 without gcc."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="number of samples (15)")
    options = parser.parse_args()
    if shutil.which("gcc") is None:
        print("the C program requires gcc (apt install gcc, dnf install gcc)", file=sys.stderr)
        return 2
    machine = discover(Machine(""))
    cores = max((node.cores for node in machine.numa), key=len)
    backend = HostBackend(machine)
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "blocks.c"), Path(folder, "blocks")
        source.write_text(C_PROGRAM)
        subprocess.run(
            ["gcc", "-O3", "-march=native", "-pthread", str(source), "-o", str(program)], check=True
        )
        sizes = max(block * blocks for block, blocks in LISTS), max(blocks for _, blocks in LISTS)
        command = [str(program), *map(str, sizes), *map(str, cores)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        ) as process:
            try:
                met = compare(process, backend, machine, options.rounds)
            finally:
                process.kill()
                backend.close()
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
