"""Find out whether MPI can send GPU memory, in a process that may crash.

An MPI library without this support treats a device address as a host address and crashes. Its own
description is not sufficient: Open MPI over UCX may support GPU memory without saying so. So a separate
process sends a few bytes from the GPU to itself.

    python -m wirespeed.backends.cuda.mpi_aware ORDINAL
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Mapping

from ...errors import WirespeedError

#: Variables by which a launcher marks a process as one of several; they are removed for the test process.
_OF_LAUNCHERS = (
    "OMPI_COMM_WORLD", "OMPI_UNIVERSE", "OMPI_APP", "OMPI_FIRST_RANK", "OMPI_NUM_APP", "OMPI_FILE_LOCATION",
    "OMPI_MCA_orte", "OMPI_MCA_ess", "OMPI_MCA_pmix", "OMPI_MCA_prte", "PMIX_", "PMI_", "PMI2_", "PRTE_",
    "SLURM_", "HYDI_", "MPIR_", "PALS_",
)  # fmt: skip
_RIGHT, _WRONG, _NO_MPI = 0, 3, 4
_TEST_BYTES = 2**20
_TEST_LIMIT_S = 30.0


def unaware(ordinal: int, timeout: float, environment: Mapping[str, str] = os.environ) -> str:
    """Return why MPI cannot send GPU memory; empty if it can.

    Parameters
    ----------
    ordinal : int
        CUDA's number of the GPU.
    """
    alone = {k: v for k, v in environment.items() if not k.startswith(_OF_LAUNCHERS)}
    limit = min(timeout, _TEST_LIMIT_S)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", __name__, str(ordinal)], env=alone, capture_output=True, text=True,
            timeout=limit, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"a process that tried to send GPU memory with MPI did not end within {limit:g} s"
    return verdict(done.returncode, done.stderr)


def verdict(code: int, said: str) -> str:
    """Interpret the end of the test process; empty if MPI can send GPU memory."""
    last = (said.strip().splitlines() or [""])[-1]
    hint = "for Open MPI: install the wheel libucx-cu13 and give --mca pml ucx, see `wirespeed help clusters`"
    if code == _RIGHT:
        return ""
    if code == _WRONG:
        return f"this MPI is not GPU-aware: data sent from a GPU arrived wrong; {hint}"
    if code < 0:
        return f"this MPI is not GPU-aware: the test process ended with signal {-code}; {hint}"
    if code == _NO_MPI:
        return f"could not test whether this MPI is GPU-aware: {last}"
    return f"this MPI is not GPU-aware: the test process failed: {last or f'exit code {code}'}; {hint}"


def _try(ordinal: int) -> int:
    """Send GPU memory to this process itself, and compare the received data."""
    from cuda.bindings import driver

    from ...worlds.mpi import library
    from .driver import check

    try:
        mpi = library()
    except WirespeedError as error:
        print(error, file=sys.stderr)
        return _NO_MPI
    check(driver.cuInit, 0)
    device = check(driver.cuDeviceGet, ordinal)
    check(driver.cuCtxSetCurrent, check(driver.cuDevicePrimaryCtxRetain, device))
    source, destination = (int(check(driver.cuMemAlloc, _TEST_BYTES)) for _ in range(2))
    sent, found = (ctypes.c_uint8 * _TEST_BYTES)(*b"\x5a" * _TEST_BYTES), (ctypes.c_uint8 * _TEST_BYTES)()
    check(driver.cuMemcpyHtoD, source, ctypes.addressof(sent), _TEST_BYTES)
    check(driver.cuMemcpyHtoD, destination, ctypes.addressof(found), _TEST_BYTES)
    check(driver.cuCtxSynchronize)
    to, origin = (mpi.memory.fromaddress(address, _TEST_BYTES) for address in (destination, source))
    mpi.COMM_SELF.Sendrecv([origin, mpi.BYTE], 0, 0, [to, mpi.BYTE], 0, 0)
    check(driver.cuMemcpyDtoH, ctypes.addressof(found), destination, _TEST_BYTES)
    return _RIGHT if bytes(found) == bytes(sent) else _WRONG


if __name__ == "__main__":
    sys.exit(_try(int(sys.argv[1])))
