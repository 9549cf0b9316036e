"""Which kinds of paths were measured although none of their values could be judged."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from ..document import Status
from ..measurement import Unit
from ..results.cells import Key, Placed
from ..topology import Machine
from ..vertices import MachineVertices
from .judgement import Judgement
from .path_kinds import PathKind, path_kind
from .verdict import Verdict, worst


@dataclass(frozen=True)
class Uncovered:
    """A kind of path of some devices of which no rate was judged, although a rate can be.

    Attributes:
        kind: The kind.
        devices: The devices at its ends; empty for the whole kind.
        verdict: Why not: busy, or unknown.
        why: The same in words.
        of_size: Whether larger buffers would be judged.
    """

    kind: PathKind
    devices: tuple[str, ...]
    verdict: Verdict
    why: str
    of_size: bool = False

    def __str__(self) -> str:
        return f"{self.kind} of {', '.join(self.devices)}" if self.devices else str(self.kind)


def uncovered(
    judged: Sequence[Judgement], cells: Sequence[Placed], small: Container[Key], machine: Machine
) -> tuple[Uncovered, ...]:
    """Return the kinds of paths, and devices, of which no rate was judged, although a rate can be.

    A rate can be judged if only a device in use, a lack of memory or the size of the buffers prevents it. One
    that nothing on this machine limits, such as that of host memory of unknown capacity, cannot.

    Args:
        judged: The judgements on the cells.
        cells: The cells, in the same order.
        small: The cells whose buffers are too small to judge them.
        machine: The machine.
    """
    covered: dict[tuple[PathKind, str], bool] = {}
    lost: dict[tuple[PathKind, str], list[tuple[Judgement, Placed]]] = {}
    kinds = _DeviceKinds(machine)
    for judgement, measured in zip(judged, cells, strict=True):
        if judgement.unit is not Unit.RATE:
            continue
        kind = path_kind(measured.key.testcase, collective=measured.result.collective is not None)
        for device in _ends(measured, kind, kinds):
            place = kind, device
            if judgement.verdict.is_judged or (judgement.verdict is Verdict.WAIVED and judgement.value):
                covered[place] = True
            elif _is_lost(judgement, measured, small):
                lost.setdefault(place, []).append((judgement, measured))
    groups: dict[tuple[PathKind, Verdict, str, bool], list[str]] = {}
    for (kind, device), values in lost.items():
        if (kind, device) not in covered:
            first, measured = min(values, key=lambda value: value[0].verdict.rank)
            size = measured.key in small
            key = kind, worst(one.verdict for one, _ in values), first.why or measured.result.reason, size
            groups.setdefault(key, []).append(device)
    whole = {kind for kind, _ in covered}
    return tuple(
        Uncovered(kind, tuple(filter(None, devices)) if kind in whole else (), verdict, why, of_size)
        for (kind, verdict, why, of_size), devices in groups.items()
    )


def _is_lost(judgement: Judgement, measured: Placed, small: Container[Key]) -> bool:
    """Whether a value would have been judged on an idle machine, with other buffers or more memory."""
    if judgement.verdict is Verdict.BUSY or measured.result.status is Status.NO_MEMORY:
        return judgement.verdict.is_unjudged
    return judgement.verdict is Verdict.UNKNOWN and measured.key in small


class _DeviceKinds(dict[str, str]):
    """The name of the kind of each device of a machine; empty for other vertices and labels."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.links, self._vertices = machine.links, MachineVertices(machine)

    def __missing__(self, name: str) -> str:
        kind = self._vertices.kind(name)
        self[name] = kind.name if kind else ""
        return self[name]


def _ends(measured: Placed, kind: PathKind, kinds: _DeviceKinds) -> list[str]:
    """Return the devices of a kind of path that a cell uses; nothing in particular for the others."""
    links = (kinds.links[index] for index, *_ in measured.cell.links)
    used = {end for link in links for end in (link.source, link.destination)}
    used |= {measured.key.row, measured.key.column}
    return sorted(end for end in used if kind.device and kinds[end] == kind.device) or [""]
