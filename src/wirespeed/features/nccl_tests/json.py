"""nccl-tests' JSON (version 3), for programs that read it or search its text, written as by ``src/util.cu``
of nccl-tests: without blanks, numbers with six decimals, slashes escaped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from ...collectives.options import OPTIONS
from ...document import UNFINISHED, RankInfo, Status
from ...judging.judged import Judged
from ...reports.records import picked
from ...reports.style import Style
from ...tables import LATE, Half
from ...units import GB, MICRO
from .closing import short
from .iterations import first_of_processes, processes_of
from .view import TestRun, View, has_collectives, short_bus, spread

_VERSION = 3


def render(judged: Judged, style: Style) -> str:
    """One object; additional information is under ``wirespeed``."""
    document = judged.document
    own: dict[str, object] = {
        "version": document.version,
        "simulated": document.simulated,
        "testcases": [
            picked(result, "name status reason warnings", status=str(result.status))
            for result in document.testcases
        ],
    }
    content: dict[str, object] = {"version": _VERSION, "start_time": _time(document.started)}
    if has_collectives(document) or "operation" in document.options:
        view = View(document)
        options, wrong = view.given, view.wrong_rows
        own |= picked(options, "ranks processes hosts launcher transport timeout")
        content |= {
            "args": options.arguments,
            "env": options.environment,
            "nccl_version": view.nccl_version,
            "config": _config(view),
            "results": list(_results(view)),
        }
        if view.is_complete:
            content |= {
                "out_of_bounds": {"count": wrong, "okay": _text(wrong == 0)},
                "average_bus_bandwidth": _mean(view),
            }
    errors = [
        *(
            f"{result.name}: {result.reason}"
            for result in document.testcases
            if result.status not in (Status.PASSED, Status.WAIVED)
        ),
        *([document.interrupted] if document.interrupted else []),
    ]
    content["errors"] = errors or [""]  # the last error of NCCL, which is empty without one
    if document.interrupted != UNFINISHED:
        content["end_time"] = _time(document.ended)
    content["wirespeed"] = own
    return _written(content) + "\n"


def _written(value: object) -> str:
    """A value as nccl-tests writes it."""
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{_written(key)}:{_written(one)}' for key, one in value.items())}}}"
    if isinstance(value, str):
        return json.dumps(value).replace("/", "\\/")
    if isinstance(value, Sequence):
        return f"[{','.join(map(_written, value))}]"
    if isinstance(value, float):
        return f"{value:f}" if math.isfinite(value) else '"nan"'
    return json.dumps(value)


def _text(value: bool) -> str:
    return "true" if value else "false"


def _time(text: str) -> str:
    """Local time, as nccl-tests writes it; a text that is not a time is unchanged."""
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError):
        return text


def _config(view: View) -> dict[str, object]:
    options = view.given
    unused = "step" if options.factor > 1 else "factor"
    values = {
        about.json: getattr(options, name) for name, about in OPTIONS.items() if about.json and name != unused
    }
    values["blocking_collectives"] = bool(options.blocking)
    return {
        **{name: _text(value) if isinstance(value, bool) else value for name, value in values.items()},
        "devices": [_device(rank) for rank in first_of_processes(view.document.ranks)],
    }


def _device(rank: RankInfo) -> dict[str, object]:
    return picked(
        rank, "rank group pid hostname device device_hex device_info",
        hostname=short(rank.host), device_hex=short_bus(rank.bus_id), device_info=rank.model,
    )  # fmt: skip


def _results(view: View) -> Iterator[dict[str, object]]:
    """Yield an entry for each size that was measured."""
    options = view.given
    for result, rows in view.rows:
        tables = {table.key: table for table in result.tables}
        for j, row in enumerate(rows):
            if row.halves[0] is None:
                continue
            named = {"redop": row.operator, "root": f"{row.root:6d}"}
            entry: dict[str, object] = picked(row, "size count type redop root", **named)
            for place, key, half in zip(("out_of_place", "in_place"), LATE, row.halves, strict=True):
                if half is None:
                    continue
                entry[place] = {
                    "cpu_time" if options.cpu_time else "time": half.seconds / MICRO,
                    "alg_bw": half.algorithm / GB,
                    "bus_bw": half.bus / GB,
                    "nwrong": None if half.wrong is None else float(half.wrong),
                }
                if options.per_iteration:
                    processes = processes_of(tables.get(key), j)
                    entry[f"{place}_per_iter"] = _iterations(half, processes, options)
            yield entry | {"actual_iterations": options.iterations, "experiment_name": ""}


def _iterations(half: Half, processes: list[tuple[float, ...]], options: TestRun) -> dict[str, object]:
    """The statistics of the iteration times, in µs."""
    s = spread(options.steady(half.iterations))
    times = {"min": s.min, "max": s.max, "avg": s.mean, "p50": s.p50, "p95": s.p95, "p99": s.p99}
    statistics: dict[str, object] = {
        "skipped_iterations": options.skip,
        **{f"{name}_us": time / MICRO for name, time in (times | {"stdev": s.deviation}).items()},
        "cv_pct": s.cv,
        "times_us": [time / MICRO for time in half.iterations],
    }
    if processes:
        statistics["per_process_max_times_us"] = [[time / MICRO for time in times] for times in processes]
    return statistics


def _mean(view: View) -> dict[str, object]:
    """The mean bus bandwidth, in GB/s, and whether it suffices."""
    passed = view.fast_enough
    return {
        "bandwidth": "nan" if view.average is None else view.average / GB,
        "okay": "unchecked" if passed is None else _text(passed),
    }
