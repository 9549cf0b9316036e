"""The table of kinds of devices, and the one function that parses names of devices.

Another package adds a kind by an entry point of the group ``wirespeed.devices`` that names a ``DeviceKind``.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache

from ..errors import MachineError
from ..extensions import DEVICES, registered
from .gpu import GPU
from .kind import DeviceKind
from .numa import NUMA

_NAME = re.compile(r"([a-z]+)(\d+)", re.ASCII)


#: The kinds of devices of this package.
KINDS = (NUMA, GPU)


def kinds() -> tuple[DeviceKind, ...]:
    """Return all kinds of devices: those of this package, then those of other packages by name."""
    return *KINDS, *_registered(tuple(sys.path))


def added() -> tuple[DeviceKind, ...]:
    """Return the kinds whose devices are in ``Machine.others``: all but NUMA nodes and GPUs."""
    return tuple(kind for kind in kinds() if kind not in (NUMA, GPU))


@lru_cache(maxsize=1)
def _registered(path: tuple[str, ...]) -> tuple[DeviceKind, ...]:
    del path  # part of the cache key
    loaded: list[DeviceKind] = [point.load() for point in registered(DEVICES)]
    return tuple(sorted(loaded, key=lambda kind: kind.name))


def parse(name: str) -> tuple[DeviceKind, int] | None:
    """Return the kind and the number of a device; None if it is the name of no device.

    Args:
        name: Name of a device, without its rank or host: ``gpu0``.
    """
    match = _NAME.fullmatch(name)
    kind = next((kind for kind in kinds() if match and kind.name == match[1]), None)
    return (kind, int(match[2])) if match and kind else None


def _parsed(name: str) -> tuple[DeviceKind, int]:
    parsed = parse(name)
    if parsed is None:
        known = ", ".join(f"{kind.name}0" for kind in kinds())
        raise MachineError(f"{name!r} is not the name of a device; names of devices are such as {known}")
    return parsed


def kind_of(name: str) -> DeviceKind:
    """Return the kind of a device by its name.

    Raises:
        MachineError: If no kind has such a name.
    """
    return _parsed(name)[0]


def number_of(name: str) -> int:
    """Return the number of a device by its name: 3 of ``gpu3``.

    Raises:
        MachineError: If no kind has such a name.
    """
    return _parsed(name)[1]


def is_host(name: str) -> bool:
    """Return whether a name is that of a NUMA node, or of another device whose memory is that of CPUs."""
    parsed = parse(name)
    return parsed is not None and parsed[0].is_host
