"""The signs of causes in the facts of a host, their weight, and their places."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from ...data.causes import Cause, Weight
from ...hardware.facts import Facts
from ...hardware.link_graph import MachineVertices
from ...hardware.topology import Machine


def heaviest(signs: Iterable[Sign], cause: Cause) -> Weight:
    """The heaviest weight of signs of a cause: a defect, then a device in use."""
    weights = {sign.weight or cause.weight for sign in signs}
    return next((weight for weight in Weight if weight in weights), cause.weight)


@dataclass(frozen=True)
class Sign:
    """Something in the facts that speaks for a cause.

    Attributes:
        device: Device that it is about; empty for the host.
        text: What was found, as a sentence without a full stop.
        weight: Whether it is a defect on its own; None for the weight of the cause.
        host: Host that it is about; empty for the host of the first process.
        at: PCI address for the command that confirms it; empty for the address of the device.
        settings: Settings that it is about, ``NAME=value``: of the runs of a log, those with one of them.
    """

    device: str
    text: str
    weight: Weight | None = None
    host: str = ""
    at: str = ""
    settings: tuple[str, ...] = ()


def devices_at(machine: Machine, place: str, hosts: Collection[str]) -> set[tuple[str, str]]:
    """Host and name of the GPUs at a place that facts are about; a NUMA node stands for itself.

    Facts name the hosts in ``hosts``, and always the first, whose name is empty.
    """
    vertices = MachineVertices(machine)
    there = vertices.gpus_at(place) or (vertices.of(place),)
    return {(vertex.host, vertex.device) for vertex in there if not vertex.host or vertex.host in hosts}


def speaking(
    signs: Iterable[Sign], machine: Machine, place: str, hosts: Collection[str], *, of_all: bool
) -> list[Sign]:
    """The signs of a cause that speak for it at a place: those about its host or a device there.

    With ``of_all``, signs of devices count only together: a slow GPU does not accuse its switch.
    """
    local = devices_at(machine, place, hosts)
    of_hosts = {(host, "") for host, _ in local}
    about = [sign for sign in signs if (sign.host, sign.device) in local | of_hosts or sign.device == place]
    is_partial = of_all and all(sign.device for sign in about)
    return [] if is_partial and not local <= {(sign.host, sign.device) for sign in about} else about


#: Yields what the facts of one host contain.
Evidence = Callable[[Machine, Facts], Iterator[Sign]]
