"""The options of an import that would judge more of its values: each is tried before it is advised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...document import TestcaseResult
from ...errors import WirespeedError
from ...hardware.topology import UNKNOWN_GPU, Machine
from ...measurement import Unit
from ...results.imported_limits import MACHINE_OPTION, NICS_OPTION, shares_nvlink
from ...units import Nics, parse_nics
from .assumed_machine import machine_of, networked, sheet_name
from .log import FoundLog
from .nccl_ranks import with_ranks
from .to_document import results

#: A model, the NICs of a host with GPUs, and one NIC, which stand for those that only the user knows.
_SUCH_AS, _NICS, _NIC = "hgx-h100", "8x400G", "1x200G"
#: GPUs of a host whose number the log does not say.
_GPUS = 8


class OnMachine(NamedTuple):
    """Logs on a machine.

    Attributes:
        machine: The machine.
        wrong: What is wrong with its network.
        cases: The results.
        strange: Number of values that are not comparable with testcases.
    """

    machine: Machine
    wrong: Sequence[str]
    cases: Sequence[TestcaseResult]
    strange: int


def placed(logs: Sequence[FoundLog], wanted: str | Machine | None, nics: Nics | None) -> OnMachine:
    """Logs on their machine; they are not changed.

    Args:
        logs: The logs.
        wanted: The machine, as for ``machine_of``.
        nics: The NICs of each host; None: as the logs say.
    """
    machine = machine_of(logs, wanted)
    own = [replace(log, tables=[*log.tables], outcomes={**log.outcomes}) for log in logs]
    if wanted is not None:  # each of its GPUs has a rank, where the logs do not say how many there are
        for log in own:
            log.collectives = [with_ranks(run, len(machine.gpus)) for run in log.collectives]
    machine, wrong = networked(machine, own, nics.rate if nics else None)
    return OnMachine(machine, wrong, *results(machine, own, nics))


def options(
    logs: Sequence[FoundLog],
    machine: str | Machine | None,
    nics: str | None,
    target: Machine,
    cases: Sequence[TestcaseResult],
) -> tuple[str, ...]:
    """The first options with which values would be judged that are not; none if there are none.

    Args:
        logs: The logs.
        machine, nics: The options of the import, as given.
        target: The machine of the import.
        cases: Its results.
    """
    judged, unjudged = _counted(cases)
    for other, given in _candidates(logs, machine, nics, target) if unjudged else ():
        try:
            if _counted(placed(logs, other, parse_nics(given) if given else None).cases)[0] > judged:
                return tuple(
                    f"{option}{value}"
                    for option, value, before in (
                        (MACHINE_OPTION, other, machine),
                        (NICS_OPTION, given, nics),
                    )
                    if value is not None and value != before
                )
        except WirespeedError:
            continue
    return ()


def _counted(cases: Sequence[TestcaseResult]) -> tuple[int, int]:
    """The numbers of rates with and without an expected range."""
    cells = [
        cell for case in cases for table in case.tables if table.unit is Unit.RATE
        for cell in table.cells if cell.value is not None
    ]  # fmt: skip
    judged = sum(cell.expected is not None for cell in cells)
    return judged, len(cells) - judged


def _candidates(
    logs: Sequence[FoundLog], machine: str | Machine | None, nics: str | None, target: Machine
) -> Iterator[tuple[str | Machine | None, str | None]]:
    """Machines and NICs to try, the simplest first: what the log does not name, and one NVLink domain."""
    ranks = max((run.info.ranks for log in logs for run in log.collectives), default=0)
    columns = max((len(table.columns) for log in logs for table in log.tables), default=0)
    unnamed = machine is None and {gpu.model for gpu in target.gpus} <= {UNKNOWN_GPU}
    if unnamed and not any(log.of_other_vendor for log in logs):
        known = [len(target.gpus)] if target.gpus else [columns, ranks if ranks <= _GPUS else 0, _GPUS]
        named = [f"{_SUCH_AS}-{count}" for count in dict.fromkeys(known) if count]
    else:
        is_domain = machine is None and shares_nvlink(target, ranks)
        named = [f"{sheet_name(target)}-{ranks}"] if is_domain else []
    yield from ((other, nics) for other in named)
    if nics is None:
        yield from ((machine, given) for given in ((_NICS, _NIC) if ranks else (_NIC,)))
        yield from ((other, _NICS) for other in named)
