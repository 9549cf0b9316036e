"""The networks of machines in ``nics.toml``."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from importlib.resources import files

import msgspec

from . import READING
from .gpus import sheet_of


class MachineNetwork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table of ``nics.toml``; the comments there describe the fields."""

    gpus: tuple[str, ...]
    count: int
    gbits: float
    source: str
    platform: str = ""
    nic: str = ""


class _Networks(msgspec.Struct, forbid_unknown_fields=True):
    network: tuple[MachineNetwork, ...]


@lru_cache(maxsize=1)
def networks() -> tuple[MachineNetwork, ...]:
    """All tables of ``nics.toml``."""
    text = files(__package__).joinpath("nics.toml").read_text()
    with READING:
        return msgspec.convert(tomllib.loads(text), _Networks).network


def of_platform(platform: str, model: str, count: int) -> MachineNetwork | None:
    """Return the network of a machine of AWS; None if it is unknown, or several have different NICs.

    Args:
        platform: Name of the machine, such as ``p5.48xlarge``; empty if unknown.
        model: Name of its GPUs.
        count: Number of its NICs; 0 if unknown.
    """
    family = platform.lower().partition(".")[0]
    sheet = (sheet_of(model) or ("", None))[0]
    fitting = [
        network
        for network in networks()
        if network.platform
        and (network.platform == family if family else sheet in network.gpus and network.count >= count)
    ]
    fitting = [network for network in fitting if network.count == count] or fitting
    return fitting[0] if len({network.gbits for network in fitting}) == 1 else None


def of_nics(names: set[str], model: str) -> MachineNetwork | None:
    """Return the network of a machine with NICs of these names and GPUs of a model; None if it is unknown."""
    sheet = (sheet_of(model) or ("", None))[0]
    if not names:
        return None
    fitting = (network for network in networks() if network.nic and sheet in network.gpus)
    return next((n for n in fitting if all(name.startswith(n.nic) for name in names)), None)
