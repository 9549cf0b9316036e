"""The kernels over NCCL's device API, compiled for the host, with NCCL's headers as far as they use them."""

from __future__ import annotations

import ctypes
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from wirespeed.backends.nccl.calls import source

#: ``ncclDevCommRequirements`` and ``ncclDevComm`` here.
MOST_RANKS = 8
_HEADER = """
#define __device__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __NV_ATOMIC_RELAXED 0
#define __NV_ATOMIC_ACQUIRE 0
#define __NV_ATOMIC_RELEASE 0
#define __NV_ATOMIC_ACQ_REL 0
#define __NV_THREAD_SCOPE_SYSTEM 0
#define __nv_atomic_thread_fence(order, scope) ((void)0)
#define __ldg(from) (*(from))
struct Dim { unsigned x; };
static Dim blockIdx, threadIdx, blockDim, gridDim;

typedef _Float16 Float16;
static unsigned short add_halves(unsigned short a, unsigned short b) {
    union { unsigned short bits; Float16 value; } left = {a}, right = {b};
    left.value += right.value;
    return left.bits;
}
static unsigned add_lanes(unsigned a, unsigned b) {
    return add_halves(a, b) | (unsigned)add_halves(a >> 16, b >> 16) << 16;
}
static unsigned __vadd4(unsigned a, unsigned b) {
    unsigned sums = 0;
    for (int at = 0; at < 32; at += 8) sums |= (((a >> at) + (b >> at)) & 255) << at;
    return sums;
}
"""
_NCCL = """
namespace nccl { namespace utility { template <typename T> T loadConst(T const *from) { return *from; } } }
struct ncclWindow { char *bases[8]; };
typedef ncclWindow *ncclWindow_t;
struct ncclDevCommRequirements { int lsaBarrierCount; };
struct ncclDevComm { int lsaRank, lsaSize; };
struct ncclCoopCta {};
struct ncclTeamTagLsa {};
template <typename Coop> struct ncclLsaBarrierSession {
    ncclLsaBarrierSession(Coop, const ncclDevComm &, ncclTeamTagLsa, unsigned) {}
    void sync(Coop, cuda::memory_order) {}
};
inline void *ncclGetLsaPointer(ncclWindow_t window, unsigned long offset, int rank) {
    return window->bases[rank] + offset;
}
"""
_LAUNCH = """
#define LAUNCH(name) \\
    extern "C" void launch_##name( \\
        unsigned blocks, ncclWindow_t source, uint64_t source_at, ncclWindow_t target, uint64_t target_at, \\
        uint64_t count, ncclDevComm comm \\
    ) { \\
        gridDim.x = blocks; \\
        for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) \\
            for (threadIdx.x = 0; threadIdx.x < THREADS; threadIdx.x++) \\
                name(source, source_at, target, target_at, count, comm); \\
    }
LAUNCH(all_reduce_1)
LAUNCH(all_reduce_2)
LAUNCH(alltoall_1)
LAUNCH(alltoall_2)
"""
#: Instructions of a GPU -> functions of the header.
_INSTRUCTIONS = {
    'asm("add.f16 %0, %0, %1;" : "+h"(a.bits) : "h"(b.bits))': "a.bits = add_halves(a.bits, b.bits)",
    'asm("add.f16x2 %0, %0, %1;" : "+r"(a.bits) : "r"(b.bits))': "a.bits = add_lanes(a.bits, b.bits)",
}


class Window(ctypes.Structure):
    """A window: the addresses of a buffer of all ranks."""

    _fields_ = (("bases", ctypes.c_void_p * 8),)


class DevComm(ctypes.Structure):
    """A device communicator."""

    _fields_ = (("rank", ctypes.c_int), ("size", ctypes.c_int))


@cache
def module(folder: Path, element: str) -> ctypes.CDLL:
    """Return the kernels for elements of a type."""
    headers = folder / "nccl_device"
    (headers / "impl").mkdir(parents=True, exist_ok=True)
    (headers / "utility.h").write_text(_NCCL)
    for name in ("comm", "core", "lsa_barrier", "ptr"):
        (headers / "impl" / f"{name}__funcs.h").touch()
    text = source(element)
    for instruction, call in _INSTRUCTIONS.items():
        assert instruction in text
        text = text.replace(instruction, call)
    file, library = folder / f"{element}.cpp", folder / f"{element}.so"
    file.write_text(_HEADER + text + _LAUNCH)
    subprocess.run(
        ["g++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", f"-I{folder}", "-o", library, file], check=True
    )
    return ctypes.CDLL(str(library))


def launch(kernels: ctypes.CDLL, name: str, blocks: int, arguments: tuple[Any, ...]) -> None:
    """Run all threads of a kernel one after the other."""
    function = getattr(kernels, f"launch_{name}")
    function.argtypes = [ctypes.c_uint, *[ctypes.c_uint64] * 5, DevComm]
    function(blocks, *arguments)
