"""Collectives among GPUs over NCCL, whose bindings are imported when measuring starts."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...hardware.facts import Fact
    from ...hardware.topology import Machine
    from ...worlds.base import World
    from ..base import Backend
    from ..distributed.exchange import Exchange
    from ..provider import Group, Provider
    from ..system_files import TreePath


def facts(machine: Machine, root: TreePath) -> Iterator[Fact]:
    """Yield the settings of NCCL."""
    from . import debug

    if len(machine.gpus) > 1:
        yield debug.settings(root)


def connect(machine: Machine) -> Backend | None:
    """The backend for collectives among the GPUs of this process; None if there are fewer than two."""
    from .library import GPU_BACKEND

    own = [gpu for gpu in machine.gpus if gpu.backend == GPU_BACKEND]
    if machine.simulated or len(own) < 2:
        return None
    from ...worlds.launchers import alone
    from ..provider import Group

    return _backend(alone(), Group(0, (0,), len(own)), [gpu.bus_id for gpu in own])


def join(world: World, machine: Machine, local: Machine, exchange: Exchange) -> Backend:
    """The backend for the collectives of all ranks of a job, one GPU per rank."""
    from ..provider import Group

    device = machine.ranks[world.rank].device
    bus_ids = [gpu.bus_id for gpu in local.gpus if gpu.name == device]
    return _backend(world, Group(0, tuple(range(world.size)), 1), bus_ids, exchange)


def _backend(world: World, group: Group, bus_ids: list[str], exchange: Exchange | None = None) -> Backend:
    from ..collective_backend import CollectiveBackend

    def why_not() -> str | None:
        from .library import INSTALL_NCCL

        return None if find_spec("nccl") else f"nccl4py is not installed: {INSTALL_NCCL}"

    def make(world: World, group: Group) -> Provider:
        from ...collectives.options import CollectiveOptions
        from .provider import NcclProvider

        return NcclProvider(world, group, CollectiveOptions(threads=len(bus_ids)), bus_ids)

    return CollectiveBackend("nccl", world, group, make, why_not, exchange)


def usable_gpus() -> int:
    """The number of GPUs that this process may use.

    Raises:
        UsageError: If an NVIDIA driver is loaded but the packages that use it are missing.
    """
    if not any(Path(sign).exists() for sign in ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg")):
        return 0
    if not all(find_spec(package) for package in ("cuda", "nccl")) or not find_spec("cuda.bindings"):
        raise UsageError(
            "an NVIDIA driver is loaded, but cuda-bindings or nccl4py is missing: "
            "pip install 'wirespeed[cuda]', or pass --mpi to measure host memory"
        )
    from .provider import count_gpus

    return count_gpus()
