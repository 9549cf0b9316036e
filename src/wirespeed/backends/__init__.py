"""The backends: every folder here, and modules that other packages register as ``wirespeed.backends``.
`backend_modules` says which functions a backend may have. A GPU belongs to the backend that discovered it:
its field ``backend`` has the name, and only that backend uses the GPU.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from ..features import FEATURES
from ..hardware.devices import BACKENDS, registered
from .system_files import HERE, TreePath

if TYPE_CHECKING:
    from types import ModuleType

    from ..hardware.facts import Fact
    from ..hardware.topology import Machine
    from ..worlds.base import World
    from .base import Backend
    from .distributed.exchange import Exchange

#: Prefix of the names of simulated machines.
SIMULATED = "simulated:"


def backend_modules() -> list[ModuleType]:
    """The modules of all backends, each of which may have six functions.

    ``discover(machine) -> Machine`` adds the hardware that it discovers, and ``glance(machine) -> Machine``
    does so without slow initialisation. ``facts(machine, root) -> Iterable[Fact]`` reads the facts from which
    ``doctor`` derives causes. ``connect(machine) -> Backend | None`` returns a backend for a Machine, or None
    if it does not support the Machine. ``warm_up()`` starts slow initialisation. None of them may fail if
    hardware or a library is missing; ``Machine.notes`` contains what could not be determined.
    ``open_driver()`` returns the ``GpuDriver`` of the GPUs that it discovered, or raises an error.
    """
    return _own() + [point.load() for point in registered(BACKENDS)]


@lru_cache(maxsize=1)
def _own() -> list[ModuleType]:
    """The modules in this folder, ``host`` first, as the others extend its description; then of features."""
    names_here = (path.parent.name for path in Path(__file__).parent.glob("*/__init__.py"))
    names = sorted(names_here, key=lambda name: (name != "host", name))
    modules = [f"{__name__}.{name}" for name in names]
    return [import_module(name) for name in (*modules, *(f.path() for f in FEATURES if f.backend))]


def warm_up() -> None:
    """Start the slow initialisation of wirespeed's own backends before a measurement on this machine.

    It runs in the background while this process imports modules and discovers the machine, so this function
    must not import much.
    """
    for provider in _own():
        if hasattr(provider, "warm_up"):
            provider.warm_up()


def discover(root: TreePath = HERE, *, glance: bool = False) -> Machine:
    """Discover the hardware of this machine, or of a recorded tree, without measurements.

    Args:
        root: Root of the tree; backends of other packages know only this machine.
        glance: Whether to do without slow initialisation, even if details may then be wrong.
    """
    from dataclasses import replace

    from ..hardware.topology import Machine

    machine = Machine("")
    for provider in _own() if root.tree.recorded else backend_modules():
        if hasattr(provider, "discover"):
            see = getattr(provider, "glance", provider.discover) if glance else provider.discover
            extended = see(machine, root) if provider in _own() else see(machine)
            # It has just discovered the GPUs without a backend.
            gpus = (replace(gpu, backend=gpu.backend or name_of(provider)) for gpu in extended.gpus)
            machine = replace(extended, gpus=tuple(gpus))
    return machine


def name_of(provider: ModuleType) -> str:
    """The name of a backend in ``Gpu.backend``: ``cuda``, or the full name of a module."""
    return provider.__name__.removeprefix(f"{__name__}.")


def describe(spec: str | None = None, *, glance: bool = False) -> Machine:
    """Describe this machine, a simulated one, or one from a file.

    Args:
        spec: None for this machine, ``simulated:NAME``, or a machine file.
        glance: As for ``discover``.

    Returns:
        The description.

    Raises:
        MachineError: If the machine does not exist, or the file describes a different real machine.
    """
    from dataclasses import replace

    from ..errors import MachineError
    from ..hardware.topology import load

    if spec is None:
        return discover(glance=glance)
    spec = str(spec)  # a file may be given as a Path
    if spec.startswith(SIMULATED):
        from . import simulated

        return simulated.parse(spec.removeprefix(SIMULATED))
    if not Path(spec).exists():
        from .simulated.machines import MACHINES

        is_name = spec.partition("+")[0] in MACHINES
        hint = (
            f"did you mean {SIMULATED}{spec}?"
            if is_name
            else f"simulated machines are written {SIMULATED}NAME"
        )
        raise MachineError(f"machine file {spec!r} does not exist; {hint}")
    machine = load(spec)
    if machine.simulated:
        return machine
    here = discover()
    _check_present(machine, here, spec)
    owners = {gpu.bus_id: gpu.backend for gpu in here.gpus}
    return replace(machine, gpus=tuple(replace(gpu, backend=owners[gpu.bus_id]) for gpu in machine.gpus))


def _check_present(wanted: Machine, here: Machine, spec: str) -> None:
    """Reject a file that describes CPUs or GPUs that this machine does not have."""
    from ..errors import MachineError

    lacking = sorted(
        {cpu for n in wanted.numa for cpu in n.cpus} - {cpu for n in here.numa for cpu in n.cpus}
    )
    gpus = {gpu.bus_id for gpu in wanted.gpus} - {gpu.bus_id for gpu in here.gpus}
    here_too = {device.name for device in here.attached}
    others = [device.name for device in chain(*wanted.others.values()) if device.name not in here_too]
    if lacking or gpus or others:
        absent = f"CPU {lacking[0]}" if lacking else f"the GPU at {min(gpus)}" if gpus else others[0]
        raise MachineError(
            f"{spec} describes another machine: {absent} does not exist here; "
            f"use --machine {SIMULATED}{spec} to simulate it"
        )


def facts(machine: Machine, root: TreePath = HERE) -> tuple[Fact, ...]:
    """Read the facts of this machine, of a recorded tree or of a simulated machine, without measurements.

    Args:
        machine: The machine.
        root: Folder that contains ``sys`` and ``proc``.
    """
    asked = _own() if root.tree.recorded else backend_modules()
    own = [provider for provider in asked if (name_of(provider) == "simulated") is machine.simulated]
    readers = (provider.facts for provider in own if hasattr(provider, "facts"))
    return tuple(fact.checked() for read in readers for fact in read(machine, root))


def connect(machine: Machine) -> list[Backend]:
    """The backends that support a Machine."""
    connected = (provider.connect(machine) for provider in backend_modules() if hasattr(provider, "connect"))
    return [backend for backend in connected if backend is not None]


def join(world: World, machine: Machine, local: Machine, exchange: Exchange) -> Backend:
    """The backend for the collectives of a job: NCCL if each rank has a GPU, else MPI.

    Args:
        world: The processes of the job.
        machine: The machine of all ranks.
        local: The host of this process, as this process discovered it.
        exchange: The exchange of the job.
    """
    from ..hardware.devices import GPU, kind_of
    from . import mpi, nccl

    if all(kind_of(rank.device) is GPU for rank in machine.ranks):
        return nccl.join(world, machine, local, exchange)
    return mpi.join(world, exchange)
