"""The plan of a saved run, derived again from its machine, options and names of testcases, because a newer
version may know better what is expected of its values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any

from msgspec.structs import replace

from ..collectives.data_types import BY_NAME
from ..collectives.operations import OPERATIONS, Setting
from ..data import efficiencies
from ..document import Document, TestcaseResult
from ..errors import UsageError, WirespeedError
from ..features import functions
from ..hardware.limits import Allowance, allowances, by_transport
from ..hardware.link_graph import Network
from ..hardware.topology import Machine
from ..measurement import Measurement
from ..model import Engine
from ..options import PlanOptions, declared
from ..results.cells import Key, key_of, without_number
from ..results.imported_limits import allowed, with_cores
from ..tables import BUSBW, Cell
from ..testcases.collectives import collective, members
from ..testcases.table import TABLE, Testcase
from ..version import __version__

#: Returns what links allow for each Place of a Measurement, from the Measurement and its testcase.
_Bounds = Callable[[Measurement, str], list[Allowance]]
#: Key of a cell, without its size -> its Measurement, and the index of its Place.
Plans = Mapping[Key, tuple[Measurement, int]]


def renewed(document: Document) -> Document:
    """A Document of another version with the limits and expected ranges of this version.

    Cells that are not in today's plan (sweeps, collectives, testcases of other packages) are unchanged.
    """
    return document if document.version == __version__ else _limited(document)


def with_host_memory(document: Document, capacity: float) -> Document:
    """A saved run with this capacity of host memory, in B/s, for each NUMA node without one.

    The limits and expected ranges of all cells follow from it.
    """
    machine = document.machine.with_host_memory(capacity)
    return document if machine == document.machine else _limited(replace(document, machine=machine))


def _limited(document: Document) -> Document:
    """A Document with the limits and expected ranges that follow from its machine."""
    network, plans = Network(document.machine), planned(document)
    allow = allowed if document.imported else measured_allowances
    bounds = cache(lambda measurement, name: allow(network, measurement, name))  # one for all its cells
    return replace(
        document, testcases=tuple(_renewed(result, plans, bounds) for result in document.testcases)
    )


def measured_allowances(network: Network, measurement: Measurement, _: str) -> list[Allowance]:
    return allowances(network, measurement, efficiencies())


def planned(document: Document) -> Plans:
    """How each cell of a run was measured, by making its plan again."""
    options = plan_options(document)
    machine = with_cores(document.machine) if document.imported else document.machine
    cases = []
    for result in document.testcases:
        case = _swept(result, machine, bool(document.imported)) or tested(result)
        if case is None or not result.tables:
            continue
        with suppress(WirespeedError):  # the recorded machine is no longer a valid description
            sized = _sized(machine, result, case, options) if document.imported else options
            cases.append(_of_feature(result, case, sized))
    # The plan does not depend on most of what differs between nodes of one model.
    gpus = tuple(dataclasses.replace(gpu, uuid="") for gpu in machine.gpus)
    alike = dataclasses.replace(machine, host="", kernel="", driver="", gpus=gpus, faults=(), notes=())
    return _planned(alike, tuple(dict.fromkeys(cases)))


def _of_feature(result: TestcaseResult, case: Testcase, options: PlanOptions) -> tuple[Testcase, PlanOptions]:
    """A testcase of a feature with the sizes of its tables; others as they are."""
    found = (repeated(result, case, options) for repeated in functions("judging", "planned"))
    return next((plan for plan in found if plan is not None), (case, options))


@lru_cache(maxsize=2)
def _planned(machine: Machine, cases: tuple[tuple[Testcase, PlanOptions], ...]) -> Plans:
    """Plan testcases, each with its options; of many saved runs, most have the same plan."""
    plans: dict[Key, tuple[Measurement, int]] = {}
    for case, options in cases:
        with suppress(WirespeedError):
            plan = case.plan(machine, options)
            labels = {layout.key: (layout.rows.labels, layout.columns.labels) for layout in plan.tables}
            for whole in plan.measurements:
                for measurement in whole.separate() if whole.independent else (whole,):
                    for i, place in enumerate(measurement.places):
                        rows, columns = labels[place.table]
                        key = Key(case.name, place.table, rows[place.row], columns[place.column])
                        plans[key] = measurement, i
    return plans


def _sized(machine: Machine, result: TestcaseResult, case: Testcase, options: PlanOptions) -> PlanOptions:
    """The options of an imported testcase: each log has its own buffer size."""
    plan = case.plan(machine, options)
    counted = {place.table: m.counted(place) for m in plan.measurements for place in m.places}
    planned_size = next((t.bytes for m in plan.measurements for t in m.transfers), 0)
    for table in result.tables:
        logged_size = next((cell.bytes for cell in table.cells if cell.bytes), 0)
        if logged_size and counted.get(table.key):
            return dataclasses.replace(options, size=round(planned_size * logged_size / counted[table.key]))
    return options


def _swept(result: TestcaseResult, machine: Machine, is_imported: bool) -> Testcase | None:
    """The testcase of a collective over the sizes of a result; None if it is no known collective."""
    info = result.collective
    columns = next((table.columns for table in result.tables if table.key == BUSBW), None)
    if not info or not columns or info.operation not in OPERATIONS or info.type not in BY_NAME:
        return None
    every = tuple(range(len(members(machine))))
    fits = len(every) == info.ranks if is_imported else len(every) >= info.ranks
    among = info.members or (every[: info.ranks] if fits else ())
    arguments = info.operation, info.type, info.operator, info.root
    # Of an unknown number of ranks, nothing is judged.
    return _collective(arguments, result.name, info.ranks or 1, among, tuple(map(int, columns.values)))


@lru_cache(maxsize=64)  # equal ones for `_planned`
def _collective(
    arguments: tuple[str, str, str, int],
    name: str,
    ranks: int,
    among: tuple[int, ...],
    sizes: tuple[int, ...],
) -> Testcase:
    operation, type, operator, root = arguments
    setting = Setting(OPERATIONS[operation], BY_NAME[type], operator, root)
    case = collective(setting, name, ranks=ranks, among=among)
    assert case.swept is not None
    return dataclasses.replace(case, pattern=case.swept(sizes))


def tested(result: TestcaseResult) -> Testcase | None:
    """The testcase of a result, with its name and the engine that it used; None if this version has none."""
    case = next((case for case in TABLE if case.name in (result.name, without_number(result.name))), None)
    if case is None:
        return None
    is_bulk = case.engine is Engine.SM and result.engine == Engine.SM_BULK
    return dataclasses.replace(case, name=result.name, engine=Engine.SM_BULK if is_bulk else case.engine)


def plan_options(document: Document) -> PlanOptions:
    """The options that changed the plan; what is wrong in the Document has its default."""
    options = PlanOptions()
    for field, about in declared(PlanOptions):
        value: Any = document.options.get(field.name)
        if value is not None and (about.parse or isinstance(value, bool)):
            with suppress(UsageError):
                options = dataclasses.replace(options, **{field.name: value})
    return options


def _renewed(result: TestcaseResult, plans: Plans, bounds: _Bounds) -> TestcaseResult:
    """A result with new limits for the cells that a plan measures in the same way."""
    tables = []
    for table in result.tables:
        cells = []
        for cell in table.cells:
            there = plans.get(key_of(result, table, cell)._replace(bytes=0))
            if there and there[0].transfers and is_of(cell, *there):
                with suppress(WirespeedError):
                    measurement, index = there
                    bound = bounds(measurement, result.name)[index]
                    bound = by_transport(bound, measurement, measurement.places[index], cell.means)
                    cell = replace(cell, **vars(bound))
            cells.append(cell)
        tables.append(replace(table, cells=tuple(cells)))
    return replace(result, tables=tuple(tables))


def is_of(cell: Cell, measurement: Measurement, index: int) -> bool:
    """Whether a cell was measured with the buffers of a Measurement's place.

    A copy by a kernel may make several passes over the buffer.
    """
    place = measurement.places[index]
    if measurement.collective:
        return cell.bytes in (0, measurement.collective.counted)
    size = measurement.counted(place)
    return cell.bytes > 0 and cell.bytes % size == 0 if size else cell.bytes == 0
