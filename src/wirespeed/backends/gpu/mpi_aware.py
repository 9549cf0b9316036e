"""Whether MPI can send GPU memory, tried by a separate process (``python -m wirespeed.backends.gpu.mpi_aware
BACKEND BUS_ID``), which sends a few bytes from the GPU to itself. An MPI library without this support treats
a device address as a host address and crashes, and its own description is not sufficient: Open MPI over UCX
may support GPU memory without saying so.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Mapping

from ...errors import WirespeedError
from ...hardware.devices import Gpu
from .gpu_driver import driver_of

#: Variables by which a launcher marks a process as one of several; they are removed for the test process.
_OF_LAUNCHERS = (
    "OMPI_COMM_WORLD", "OMPI_UNIVERSE", "OMPI_APP", "OMPI_FIRST_RANK", "OMPI_NUM_APP", "OMPI_FILE_LOCATION",
    "OMPI_MCA_orte", "OMPI_MCA_ess", "OMPI_MCA_pmix", "OMPI_MCA_prte", "PMIX_", "PMI_", "PMI2_", "PRTE_",
    "SLURM_", "HYDI_", "MPIR_", "PALS_",
)  # fmt: skip
_RIGHT, _WRONG, _NO_MPI = 0, 3, 4
_TEST_BYTES = 2**20
_TEST_LIMIT_S = 30.0


def unaware(gpu: Gpu, timeout: float, environment: Mapping[str, str] = os.environ) -> str:
    """Why MPI cannot send memory of a GPU; empty if it can."""
    alone = {k: v for k, v in environment.items() if not k.startswith(_OF_LAUNCHERS)}
    limit = min(timeout, _TEST_LIMIT_S)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", __name__, gpu.backend, gpu.bus_id], env=alone, capture_output=True,
            text=True, timeout=limit, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"a process that tried to send GPU memory with MPI did not end within {limit:g} s"
    return verdict(done.returncode, done.stderr)


def verdict(code: int, output: str) -> str:
    """Interpret the end of the test process; empty if MPI can send GPU memory."""
    last = (output.strip().splitlines() or [""])[-1]
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


def _try(backend: str, bus_id: str) -> int:
    """Send GPU memory to this process itself, and compare the received data."""
    from ...worlds.mpi import library

    try:
        mpi = library()
    except WirespeedError as error:
        print(error, file=sys.stderr)
        return _NO_MPI
    driver = driver_of(backend)
    driver.use(driver.open(driver.devices()[bus_id]))
    source, destination = (driver.allocate(_TEST_BYTES) for _ in range(2))
    sent, received = (ctypes.c_uint8 * _TEST_BYTES)(*b"\x5a" * _TEST_BYTES), (ctypes.c_uint8 * _TEST_BYTES)()
    driver.write(source, ctypes.addressof(sent), _TEST_BYTES)
    driver.write(destination, ctypes.addressof(received), _TEST_BYTES)
    driver.synchronize_context()
    to, origin = (mpi.memory.fromaddress(address, _TEST_BYTES) for address in (destination, source))
    mpi.COMM_SELF.Sendrecv([origin, mpi.BYTE], 0, 0, [to, mpi.BYTE], 0, 0)
    driver.read(ctypes.addressof(received), destination, _TEST_BYTES)
    return _RIGHT if bytes(received) == bytes(sent) else _WRONG


if __name__ == "__main__":
    sys.exit(_try(*sys.argv[1:]))
