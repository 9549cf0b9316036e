"""nccl-tests' JSON (version 3), for programs that read it, and for those that search its text.

It is written as by ``src/util.cu`` of nccl-tests: without blanks, numbers with six decimals, slashes escaped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime

from ..collectives.options import OPTIONS
from ..document import RankInfo, Status
from ..judging.judged import Judged
from ..tables import LATE, Half
from ..units import GB
from .nccl_tests_view import Given, View, has_collectives, is_complete, short, short_bus, spread, steady
from .style import Style

_VERSION = 3
_MICRO = 1e-6


def render(judged: Judged, style: Style) -> str:
    """One object; additional information is under ``wirespeed``."""
    document = judged.document
    del style
    own: dict[str, object] = {
        "version": document.version,
        "simulated": document.simulated,
        "testcases": [
            {
                "name": result.name,
                "status": str(result.status),
                "reason": result.reason,
                "warnings": result.warnings,
            }
            for result in document.testcases
        ],
    }
    content: dict[str, object] = {"version": _VERSION, "start_time": _time(document.started)}
    if has_collectives(document):
        view = View(document)
        options, wrong = view.given, view.wrong_rows
        own |= {
            "ranks": options.ranks,
            "processes": options.processes,
            "hosts": options.hosts,
            "launcher": options.launcher,
            "transport": options.transport,
            "timeout": options.timeout,
        }
        content |= {
            "args": options.arguments,
            "env": options.environment,
            "nccl_version": view.nccl_version,
            "config": _config(view),
            "results": _results(view),
        }
        if is_complete(view):
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


def first_of_processes(ranks: Sequence[RankInfo]) -> list[RankInfo]:
    """The first rank of each process, which are those that nccl-tests lists."""
    first: dict[tuple[str, int], RankInfo] = {}
    for rank in ranks:
        first.setdefault((rank.host, rank.pid), rank)
    return list(first.values())


def _device(rank: RankInfo) -> dict[str, object]:
    return {
        "rank": rank.rank,
        "group": rank.group,
        "pid": rank.pid,
        "hostname": short(rank.host),
        "device": rank.device,
        "device_hex": short_bus(rank.bus_id),
        "device_info": rank.model,
    }


def _results(view: View) -> list[dict[str, object]]:
    """One entry for each size that was measured."""
    options = view.given
    entries = []
    for result, rows in view.rows:
        tables = {table.key: table for table in result.tables}
        for j, row in enumerate(rows):
            if row.halves[0] is None:
                continue
            entry: dict[str, object] = {
                "size": row.size,
                "count": row.count,
                "type": row.type,
                "redop": row.operator,
                "root": f"{row.root:6d}",
            }
            for place, key, half in zip(("out_of_place", "in_place"), LATE, row.halves, strict=True):
                if half is None:
                    continue
                entry[place] = {
                    "cpu_time" if options.cpu_time else "time": half.seconds / _MICRO,
                    "alg_bw": half.algorithm / GB,
                    "bus_bw": half.bus / GB,
                    "nwrong": None if half.wrong is None else float(half.wrong),
                }
                late = tables.get(key)
                if options.per_iteration:
                    processes = [cell.samples for cell in late.cells if cell.column == j] if late else []
                    entry[f"{place}_per_iter"] = _iterations(half, processes, options)
            entries.append(entry | {"actual_iterations": options.iterations, "experiment_name": ""})
    return entries


def _iterations(half: Half, processes: list[tuple[float, ...]], options: Given) -> dict[str, object]:
    """The statistics of the iteration times, in µs."""
    s = spread(steady(half.iterations, options.iterations, options.skip))
    statistics: dict[str, object] = {
        "skipped_iterations": options.skip,
        "min_us": s.min / _MICRO,
        "max_us": s.max / _MICRO,
        "avg_us": s.mean / _MICRO,
        "p50_us": s.p50 / _MICRO,
        "p95_us": s.p95 / _MICRO,
        "p99_us": s.p99 / _MICRO,
        "stdev_us": s.deviation / _MICRO,
        "cv_pct": s.cv,
        "times_us": [time / _MICRO for time in half.iterations],
    }
    if processes:
        statistics["per_process_max_times_us"] = [[time / _MICRO for time in times] for times in processes]
    return statistics


def _mean(view: View) -> dict[str, object]:
    """The mean bus bandwidth, in GB/s, and whether it suffices."""
    passed = view.fast_enough
    return {
        "bandwidth": "nan" if view.average is None else view.average / GB,
        "okay": "unchecked" if passed is None else _text(passed),
    }
