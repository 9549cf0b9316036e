"""Upgrade Documents of older versions, which wrote sentences instead of fields.

Schema 1 kept the state of the hardware as names with units and values. Its first Documents also kept the
types, operators and roots of collectives, their ranks and the numbers of wrong elements as text only. Text
that does not have the form of that version is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from ..document import (
    SCHEMA,
    SKEW,
    THROTTLED,
    Cell,
    CollectiveInfo,
    Document,
    RankInfo,
    Table,
    TestcaseResult,
)

_SETTING = re.compile(r"(\w+)\|(\w*)\|(-?\d{1,18})")
_RANK = re.compile(
    r" Rank +(\d{1,18}) Group +(-?\d{1,18}) Pid +(\d{1,18}) on +(\S+) device +(-?\d{1,18}) \[([^]]*)\] (.*)"
)
_WRONG = re.compile(r"(\d{1,18}) elements are wrong")
#: Parts of the name of a reading: host, device, quantity and unit.
_READING = re.compile(r"(?:(\S+): )?(?:((?:gpu|numa)\d+) )?(.*?)(?: \[([^]]*)\])?", re.DOTALL)
_OF_CPU = re.compile(r"(frequency|governor) of CPU (\d+)")
_RENAMED = {
    "clocks held back by": THROTTLED,
    "skew of the gate, median": SKEW,
    "skew of the gate, largest": "start skew, largest",
}
_COUNTERS = {
    "PCIe replays", "corrected ECC errors", "uncorrected ECC errors", "NVLink CRC errors", "NVLink replays",
    "NVLink recoveries",
}  # fmt: skip


def from_schema_1(raw: Any) -> Any:
    """Return a decoded Document of schema 1 with its states as quantities and its transports as lists."""
    for result in _items(raw, "testcases"):
        for cell in (cell for table in _items(result, "tables") for cell in _items(table, "cells")):
            if isinstance(cell, dict) and isinstance(means := cell.get("means"), str):
                cell["means"] = means.split(", ") if means else []
        readings = ((reading, "state") for reading in _items(result, "readings"))
        for owner, key in ((result, "state_before"), (result, "state_after"), *readings):
            if isinstance(owner, dict) and isinstance(state := owner.get(key), dict):
                owner[key] = [_quantity(name, value) for name, value in state.items()]
    return raw


def _items(owner: Any, key: str) -> Iterator[Any]:
    found = owner.get(key) if isinstance(owner, dict) else None
    return iter(found if isinstance(found, list) else ())


def _quantity(text: str, value: Any) -> dict[str, Any]:
    match = _READING.fullmatch(text)
    assert match
    host, device, name, unit = match.groups("")
    if of_cpu := _OF_CPU.fullmatch(name):
        name, device = of_cpu[1], f"cpu{of_cpu[2]}"
    name = _RENAMED.get(name, name)
    if name == THROTTLED and isinstance(value, str):
        value = [] if value == "nothing" else value.split(", ")
    counter = name in _COUNTERS
    return {"device": device, "name": name, "value": value, "unit": unit, "host": host, "counter": counter}


def upgraded(document: Document) -> Document:
    """Return a Document of the current schema with its fields filled from older text, if there is any."""
    document = replace(document, schema=SCHEMA)
    options = dict(document.options)
    settings = options.pop("settings", None)
    operation, ranks = options.get("operation"), options.get("ranks")
    if not (isinstance(settings, list) and isinstance(operation, str) and isinstance(ranks, int)):
        return document
    if ranks < 0:
        return document
    found = list(document.testcases)
    for i, (result, text) in enumerate(zip(found, settings, strict=False)):
        match = _SETTING.fullmatch(text)
        if match and result.collective is None:
            type, label, root = match.groups()
            operator = "" if label == "none" else label
            found[i] = _collective(
                result,
                CollectiveInfo(operation, type, ranks, operator, int(root)),
                bool(options.get("checks")),
            )
    lines = options.get("devices")
    devices = [_RANK.fullmatch(line) for line in lines] if isinstance(lines, list) else []
    infos = tuple(_rank(*match.groups()) for match in devices if match)
    if infos and len(infos) == len(devices):
        del options["devices"]
        document = replace(document, ranks=infos)
    return replace(document, options=options, testcases=tuple(found))


def _rank(rank: str, group: str, pid: str, host: str, device: str, bus_id: str, model: str) -> RankInfo:
    return RankInfo(int(rank), int(group), int(pid), host, int(device), bus_id, model)


def _collective(result: TestcaseResult, info: CollectiveInfo, checks: bool) -> TestcaseResult:
    from ..testcases.collective_ops import OPERATIONS

    operation = OPERATIONS.get(info.operation)
    places = (checks, checks and operation is not None and operation.checks_in_place)
    tables = tuple(_counted(table, places) if table.key == "time" else table for table in result.tables)
    return replace(result, collective=info, tables=tables)


def _counted(table: Table, places: tuple[bool, bool]) -> Table:
    return replace(table, cells=tuple(replace(cell, wrong=_wrong(cell, places)) for cell in table.cells))


def _wrong(cell: Cell, places: tuple[bool, bool]) -> int | None:
    if cell.value is None or not places[min(cell.row, 1)]:
        return None
    match = _WRONG.fullmatch(cell.reason)
    if match:
        return int(match[1])
    return None if cell.reason else 0
