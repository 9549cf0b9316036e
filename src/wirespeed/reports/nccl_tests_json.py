"""nccl-tests' JSON (version 3), for programs that read it."""

from __future__ import annotations

import re
from datetime import datetime

import msgspec

from ..results.document import Document, Status
from ..units import GB
from . import Style
from .nccl_tests import Half, average, fast_enough, nccl_version, rows, settings, spread, wrong_rows

_VERSION = 3
_MICRO = 1e-6
_DEVICE = re.compile(r"\s*Rank\s+(\d+) Group\s+(\d+) Pid\s+(\d+) on\s+(\S+) device\s+(\d+) \[([^]]*)\] (.*)")


def render(document: Document, style: Style) -> str:
    """Return one object; what nccl-tests does not say is under ``wirespeed``."""
    del style
    o = document.options
    found = settings(document)
    own: dict[str, object] = {
        "version": document.version,
        "simulated": document.simulated,
        "testcases": [
            {"name": r.name, "status": str(r.status), "reason": r.reason, "warnings": r.warnings}
            for r in document.testcases
        ],
    }
    content: dict[str, object] = {"version": _VERSION, "start_time": _time(document.started)}
    if found:
        own |= {name: o[name] for name in ("ranks", "processes", "hosts", "launcher", "transport", "timeout")}
        content |= {
            "args": o["arguments"],
            "env": o["environment"],
            "nccl_version": nccl_version(document),
            "config": _config(document),
            "results": _results(document),
            "out_of_bounds": {"count": wrong_rows(document), "okay": _text(wrong_rows(document) == 0)},
            "average_bus_bandwidth": _mean(document),
        }
    content["end_time"] = _time(document.ended)
    content["errors"] = [
        *(
            f"{r.name}: {r.reason}"
            for r in document.testcases
            if r.status not in (Status.PASSED, Status.WAIVED)
        ),
        *([document.interrupted] if document.interrupted else []),
    ]
    content["wirespeed"] = own
    return msgspec.json.format(msgspec.json.encode(content), indent=1).decode() + "\n"


def _text(value: bool) -> str:
    """Truth is written as text there."""
    return "true" if value else "false"


def _time(text: str) -> str:
    """Local time, as there; a text that is none as it is."""
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return text


def _config(document: Document) -> dict[str, object]:
    o = document.options
    by_factor = int(str(o["factor"])) > 1
    devices = o["devices"]
    return {
        "nthreads": o["threads"],
        "ngpus": o["gpus"],
        "minimum_bytes": o["first_size"],
        "maximum_bytes": o["last_size"],
        **({"step_factor": o["factor"]} if by_factor else {"step_bytes": o["step"]}),
        "warmup_iters": o["warmup"],
        "iterations": o["iterations"],
        "aggregated_iterations": o["aggregate"],
        "validation": o["checks"],
        "graph": o["graphs"],
        "blocking_collectives": _text(bool(o["blocking"])),
        "per_iter_timing": _text(bool(o["per_iteration"])),
        "per_iter_skip": o["skip"],
        "parallel_init": _text(bool(o["parallel_init"])),
        "devices": [_device(text) for text in devices] if isinstance(devices, list) else [],
    }


def _device(text: str) -> dict[str, object]:
    match = _DEVICE.fullmatch(text)
    assert match is not None, text
    rank, group, pid, host, device, bus, name = match.groups()
    return {
        "rank": int(rank),
        "group": int(group),
        "pid": int(pid),
        "hostname": host,
        "device": int(device),
        "device_hex": bus,
        "device_info": name,
    }


def _results(document: Document) -> list[dict[str, object]]:
    o = document.options
    found = []
    for result, some in rows(document):
        late = {table.key: table for table in result.tables[3:]}
        for j, row in enumerate(some):
            if row.halves[0] is None:
                continue
            entry: dict[str, object] = {
                "size": row.size,
                "count": row.count,
                "type": row.type,
                "redop": row.operator,
                "root": f"{row.root:6d}",
            }
            for place, half in zip(("out_of_place", "in_place"), row.halves, strict=True):
                if half is None:
                    continue
                entry[place] = {
                    "cpu_time" if o["cpu_time"] else "time": half.seconds / _MICRO,
                    "alg_bw": half.algorithm / GB,
                    "bus_bw": half.bus / GB,
                    "nwrong": None if half.wrong is None else float(half.wrong),
                }
                table = late.get(f"late-{place.replace('_', '-')}")
                if o["per_iteration"]:
                    processes = [c.samples for c in table.cells if c.column == j] if table else []
                    entry[f"{place}_per_iter"] = _iterations(half, processes, int(str(o["skip"])))
            found.append(entry | {"actual_iterations": o["iterations"], "experiment_name": ""})
    return found


def _iterations(half: Half, processes: list[tuple[float, ...]], skip: int) -> dict[str, object]:
    s = spread(half.iterations[skip:])
    found: dict[str, object] = {
        "skipped_iterations": skip,
        "min_us": s.min / _MICRO,
        "max_us": s.max / _MICRO,
        "avg_us": s.mean / _MICRO,
        "p50_us": s.p50 / _MICRO,
        "p95_us": s.p95 / _MICRO,
        "p99_us": s.p99 / _MICRO,
        "stdev_us": s.deviation / _MICRO,
        "cv_pct": s.cv,
        "times_us": [t / _MICRO for t in half.iterations],
    }
    if processes:
        found["per_process_max_times_us"] = [[t / _MICRO for t in times] for times in processes]
    return found


def _mean(document: Document) -> dict[str, object]:
    passed = fast_enough(document)
    return {
        "bandwidth": (average(document) or 0.0) / GB,
        "okay": "unchecked" if passed is None else _text(passed),
    }
