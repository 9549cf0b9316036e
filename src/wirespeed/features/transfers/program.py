"""The program of transfers that start together: a testcase that plans them on a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import UsageError
from ...hardware.topology import Machine
from ...measurement import Axis, Measurement, Place, Reduce, Unit
from ...model import Engine, Role, Transfer
from ...options import PlanOptions
from ...testcases.table import Layout, Plan, Testcase, WaivedCell
from ...units import some
from .parser import parse
from .resolve import Labelled, resolve
from .syntax import Line, RunSetting

#: Name of the testcase.
NAME = "transfers"
#: Keys of the tables if there are rates and latencies.
RATES, TIMES = "bandwidth", "latency"
#: Which bytes count.
_COUNTS = "every copied byte once"


@dataclass(frozen=True)
class Program:
    """Transfers that start together.

    Attributes:
        testcase: The testcase that measures them.
        text: The transfers as text, for the Document.
        line: The parsed line; None if the transfers were given as such.
    """

    testcase: Testcase
    text: str
    line: Line | None = None

    def settings(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of the run that the line contains: option -> value.

        Args:
            options: Options of the run.

        Raises:
            LanguageError: If two transfers, or a transfer and an option, contain different values.
        """
        settings: dict[str, RunSetting] = {}
        for setting in self.line.settings if self.line else ():
            values = (settings.setdefault(setting.name, setting).value, options.get(setting.name))
            if self.line and (other := [value for value in values if value not in (None, setting.value)]):
                raise self.line.source.error(
                    f"this applies to the whole run, which already has {setting.name} {other[0]}",
                    *setting.span,
                )
        return {name: setting.value for name, setting in settings.items()}


def of_line(text: str) -> Program:
    """The program of a line.

    Raises:
        LanguageError: If it is invalid.
    """
    line, words = parse(text), " ".join(text.split())

    def works(machine: Machine, options: PlanOptions) -> Sequence[Labelled]:
        found = resolve(line, machine, options.size)
        if all(each.work.role is Role.LOAD for each in found):
            raise line.source.error("nothing is measured: every transfer is a load", 0, len(text))
        return found

    return Program(_testcase(words, works), words, line)


def of_transfers(transfers: Iterable[Transfer]) -> Program:
    """The program of transfers of the model."""
    given = list(transfers)

    def works(machine: Machine, options: PlanOptions) -> Sequence[Labelled]:
        known = {device.name for device in (*machine.devices, *machine.numa)}
        for transfer in given:
            for name in (*(end.device for end in transfer.ends), transfer.executor.device):
                if name not in known:
                    raise UsageError(
                        f"{transfer}: this machine has no {name}; it has {some(sorted(known), 16)}"
                    )
        if all(transfer.role is Role.LOAD for transfer in given):
            raise UsageError("nothing is measured: give a transfer that is no load")
        return [Labelled(transfer, _label(transfer)) for transfer in given]

    text = "; ".join(map(str, given))
    return Program(_testcase(text, works), text)


def _label(transfer: Transfer) -> str:
    if transfer.operation.is_latency:
        return f"{transfer.executor.device} from {transfer.source}"
    return transfer.way


def _testcase(text: str, works: Callable[[Machine, PlanOptions], Sequence[Labelled]]) -> Testcase:
    """The testcase of works that a function finds on a machine."""

    def plan(machine: Machine, case: Testcase, options: PlanOptions) -> Plan:
        return _plan(machine, works(machine, options))

    return Testcase(NAME, text, plan, "", Engine.CE, counts=_COUNTS, written=True)


def _plan(machine: Machine, works: Sequence[Labelled]) -> Plan:
    """The plan of works that start together; what the machine cannot do is waived."""
    values = list(_values(works))
    units = list(dict.fromkeys(unit for _, unit, _ in values))
    layouts, places = [], []
    for unit in units:
        kind = TIMES if unit is Unit.TIME else RATES
        key = kind if len(units) > 1 else ""
        of_unit = [(label, place) for label, of, place in values if of is unit]
        labels = _unique([label for label, _ in of_unit])
        places += [replace(place, table=key, row=row) for row, (_, place) in enumerate(of_unit)]
        rows = Axis("transfer", tuple(labels))
        layouts.append(Layout(key, f"{NAME}: {kind}", rows, Axis("", (kind,)), unit))
    started = tuple(each.work for each in works)
    if reason := _barrier(machine, started):
        return Plan(tuple(layouts), (), tuple(WaivedCell(p.table, p.row, p.column, reason) for p in places))
    return Plan(tuple(layouts), (Measurement(started, tuple(places)),))


def _unique(labels: Sequence[str]) -> list[str]:
    """The labels; one that was there before has its number behind it."""
    counts: dict[str, int] = {}
    unique = []
    for label in labels:
        number = counts[label] = counts.get(label, 0) + 1
        unique.append(label if number == 1 else f"{label} #{number}")
    return unique


def _values(works: Sequence[Labelled]) -> Iterator[tuple[str, Unit, Place]]:
    """Yield label, unit and place of each measured work, then of the sum of several rates."""
    rates = []
    for i, each in enumerate(works):
        if each.work.role is Role.LOAD:
            continue
        if each.work.operation.is_latency:
            yield each.label, Unit.TIME, Place("", 0, 0, Reduce.LATENCY, (i,))
        else:
            rates.append(i)
            yield each.label, Unit.RATE, Place("", 0, 0, Reduce.FIRST, (i,))
    if len(rates) > 1:
        yield "sum", Unit.RATE, Place("", 0, 0, Reduce.SUM, tuple(rates))


def _barrier(machine: Machine, works: Sequence[Transfer]) -> str:
    """Why a GPU cannot reach the memory of another; empty if all can."""
    peers = {gpu.name: gpu.peers for gpu in machine.gpus}
    for work in works:
        if work.executor.rank is None and work.executor.device in peers:
            executor = work.executor.device
            for end in work.ends:
                if end.device in peers and end.device != executor and end.device not in peers[executor]:
                    return f"{executor} has no peer access to {end.device}"
    return ""
