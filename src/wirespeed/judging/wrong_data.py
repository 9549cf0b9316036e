"""Which bad values overrides accept.

Wrong data: the devices that all wrong paths of a run have in common, and the other paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import MachineError, UsageError
from ..hardware.network import MachineVertices, Network
from ..hardware.topology import LinkKind, Machine
from ..results.cells import Override, Placed
from ..statistics.summary import grouped
from ..units import many, some
from .verdict import Judgement, Verdict


def accept(
    judged: list[Judgement], cells: Sequence[Placed], overrides: Sequence[Override], machine: Machine
) -> tuple[dict[Override, int], set[int]]:
    """Waive what overrides accept; the first matching override counts.

    Returns:
        Override -> number of cells that it waives.
        The cells that may be slow, waived or not; they are not compared with their peers.
    """
    accepted: dict[Override, int] = {}
    exempt: set[int] = set()
    for override in overrides:
        fitting = [
            i
            for i, (key, cell, *_) in enumerate(cells)
            if judged[i].value and override.fits(key, cell, machine)
        ]
        if not fitting:
            raise UsageError(f"the override of {override} matches no measured value")
        bad = [i for i in fitting if _is_accepted(override, judged[i])]
        exempt.update(bad, (i for i in fitting if judged[i].verdict is Verdict.PASS))
        for i in bad:
            judged[i] = replace(judged[i], verdict=Verdict.WAIVED, why=override.reason)
        accepted[override] = len(bad)
    return accepted, exempt


def _is_accepted(override: Override, judgement: Judgement) -> bool:
    if override.accept is None:
        return judgement.verdict.is_bad
    return judgement.verdict.is_worse and judgement.margin >= override.accept


#: Maximum number of devices that a text names.
_NAMED = 3

#: Source and destinations of a path that delivered wrong data.
_Path = tuple[str, ...]


@dataclass(frozen=True)
class WrongData:
    """Paths that delivered wrong data: those of one device, or all that have no device in common.

    Attributes:
        device: Vertex that explains the wrong data; empty if none does.
        paths: Source and destinations of each path, the most frequent first.
        testcases: Testcases in which wrong data arrived.
        everywhere: Whether these are paths between the device and all other GPUs.
        by_pcie: Whether all paths use PCIe, which settings of the host redirect and translate.
        between_gpus: Whether all paths are between GPUs.
    """

    device: str
    paths: tuple[_Path, ...]
    testcases: tuple[str, ...]
    everywhere: bool = False
    by_pcie: bool = False
    between_gpus: bool = False

    def __str__(self) -> str:
        where = f"in {many(len(self.testcases), 'testcase')}"
        if not self.device:
            first, *others = ("->".join(filter(None, (path[0], "+".join(path[1:])))) for path in self.paths)
            if not others:
                return f"{first} delivers wrong data {where}"
            more = others[0] if len(others) == 1 else many(len(others), "more path")
            return f"{first} and {more} deliver wrong data {where}"
        sends = any(path[0] == self.device and set(path[1:]) != {self.device} for path in self.paths)
        receives = any(path[0] != self.device for path in self.paths)
        how = " and ".join(word for word, holds in (("to", sends), ("from", receives)) if holds)
        peers = list(_peers(self.device, self.paths))
        whom = "all its peers" if self.everywhere else some(peers, _NAMED)
        return f"{self.device} corrupts data {how} {whom} {where}"


def wrong_data(cells: Iterable[Placed], machine: Machine) -> tuple[WrongData, ...]:
    """Return what delivered wrong data, the most frequent first.

    A device explains the wrong data of its paths if it has more of them than most devices at their other
    ends.
    """
    by_path: dict[_Path, dict[str, None]] = {}
    for measured in cells:
        if measured.cell.corrupted:
            source, _, destinations = measured.cell.corrupted.partition("->")
            path = (source, *filter(None, destinations.split("+")))
            by_path.setdefault(path, {})[measured.result.name] = None
    paths = sorted(by_path, key=lambda path: -len(by_path[path]))
    of_device = grouped((end, path) for path in paths for end in dict.fromkeys(path))
    gpus = {gpu.name for gpu in MachineVertices(machine).gpus}
    left, result, network = dict.fromkeys(paths), [], Network(machine)

    def found(device: str, own: tuple[_Path, ...], everywhere: bool = False) -> WrongData:
        by_pcie = all(_is_pcie(path, network) for path in own)
        between = all(gpus.issuperset(path) for path in own)
        return WrongData(device, own, _testcases(own, by_path), everywhere, by_pcie, between)

    for device in sorted(of_device, key=lambda device: -len(of_device[device])):
        own = [path for path in of_device[device] if path in left]
        peers = _peers(device, own)
        fewer = sum(len(of_device[peer]) < len(of_device[device]) for peer in peers)
        if len(own) > 1 and fewer and 2 * fewer > len(peers):
            everywhere = device in gpus and len(gpus) > 1 and peers.keys() >= gpus - {device}
            result.append(found(device, tuple(own), everywhere))
            left = {path: None for path in left if path not in own}
    if left:
        result.append(found("", tuple(left)))
    return tuple(sorted(result, key=lambda wrong: -len(wrong.paths)))


def _is_pcie(path: _Path, network: Network) -> bool:
    """Return whether the route of a path uses PCIe; False if it is unknown."""
    try:
        routes = [network.route(path[0], end) for end in path[1:]]
    except MachineError:
        return False
    return all(LinkKind.PCIE in {network.links[link].kind for link in route} for route in routes)


def _peers(device: str, paths: Iterable[_Path]) -> dict[str, None]:
    return {end: None for path in paths for end in path if end != device}


def _testcases(paths: Iterable[_Path], by_path: Mapping[_Path, Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for path in paths for name in by_path[path]))
