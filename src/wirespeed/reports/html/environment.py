"""The environment of a run: software, devices, and the options in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from ...document import Document
from ...hardware.devices import Gpu
from ...options import RunOptions, declared
from ...statistics import grouped
from ...terminal import first_clause
from ...units import format_size, format_time, many

#: Options that other rows show, or that say nothing to people.
_ELSEWHERE = {
    "testcases", "transfers", "rule", "precision", "time_budget", "testcase_budget", "fewest_samples",
    "samples", "copies", "rounds",
}  # fmt: skip
#: The options of a run, each with its default and its declaration.
_OPTIONS = {entry.name: (entry.default, about) for entry, about in declared(RunOptions)}


def _text(value: Any) -> str:
    """A value of any option: texts and numbers as they are, lists with commas."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    if value is True or value is False:
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _written(name: str, value: Any) -> str:
    """The value of an option, a number with its unit; what only files of others have is as it is."""
    metavar = _OPTIONS[name][1].metavar if name in _OPTIONS else ""
    if type(value) in (int, float) and (metavar == "TIME" or name.endswith("size")):
        return format_time(value) if metavar == "TIME" else format_size(value)
    return _text(value)


#: Options that count what takes part in a job, and their nouns.
_JOB = {"ranks": ("rank",), "processes": ("process", "processes"), "hosts": ("host",)}
#: Options that every run has, shown also with their default: what they say belongs to every result.
_ALWAYS = {"tier", "verify"}


def surroundings(document: Document) -> list[tuple[str, str]]:
    """Names and values of the environment, without empty ones."""
    machine, options = document.machine, document.options
    found = document.qualification
    rows = {
        "wirespeed": document.version,
        "command": document.command,
        "begun": document.started,
        "ended": document.ended,
        "duration": format_time(document.seconds) if document.seconds and not document.simulated else "",
        "written by" if found else "host": document.hostname,
        "machine": "" if found else machine.name,
        "CPU": machine.cpu,
        "kernel": machine.kernel,
        "Python": document.python,
        "NVIDIA driver": machine.driver,
        "driver CUDA version": f"{machine.cuda // 1000}.{machine.cuda % 1000 // 10}" if machine.cuda else "",
        "transparent huge pages": machine.transparent_huge_pages,
        "libraries": ", ".join(f"{name} {version}" for name, version in document.libraries.items()),
        "stopping rule": _rule(options),
        **dict(_options(options)),
        "notes": "; ".join(machine.notes),
    }
    rows |= _devices(document)
    return [(name, text) for name, text in rows.items() if text]


def _devices(document: Document) -> dict[str, str]:
    """The GPUs, those of one kind in one row, and the other devices."""
    kinds = grouped((_kind(gpu), gpu) for gpu in document.machine.gpus)
    rows = {}
    for kind, gpus in kinds.items():
        names = gpus[0].name if len(gpus) == 1 else f"{gpus[0].name} to {gpus[-1].name}"
        if len(kinds) > 1 and len(gpus) > 1:
            names = ", ".join(gpu.name for gpu in gpus)
        places = ", ".join(
            f"{gpu.bus_id} (numa{gpu.numa})" if gpu.bus_id else f"numa{gpu.numa}" for gpu in gpus
        )
        of_all = " of the node that wrote this" if document.qualification else ""
        rows[names] = f"{f'{len(gpus)} × ' if len(gpus) > 1 else ''}{kind}{of_all}; {places}"
    for device in chain(*document.machine.others.values()):
        rows[device.name] = f"{device.about}, {format_size(device.memory_bytes)}"
    return rows


def _kind(gpu: Gpu) -> str:
    memory = format_size(gpu.memory_bytes) if gpu.memory_bytes else ""
    capability = f"compute capability {gpu.compute_capability}" if gpu.compute_capability else ""
    return ", ".join(part for part in (gpu.model, memory, capability) if part)


def _rule(options: Mapping[str, Any]) -> str:
    """When samples stop, as a sentence; empty for runs without a rule, such as logs."""
    rounds = options.get("rounds")
    ending = f"; {many(rounds, 'round')}" if isinstance(rounds, int) and rounds else ""
    precision, budget, least = (options.get(name) for name in ("precision", "time_budget", "fewest_samples"))
    samples, copies = options.get("samples"), options.get("copies")
    if options.get("rule") == "precise" and isinstance(precision, float):
        budget = f", or after {_written('time_budget', budget)} per value" if budget else ""
        least = f"; at least {_text(least)} samples" if least else ""
        return f"at a 95% interval of ±{100 * precision:g}%{budget}{least}{ending}"
    if options.get("rule") == "fixed" and isinstance(samples, int) and isinstance(copies, int):
        return f"{many(samples, 'sample')} of {many(copies, 'copy', 'copies')}{ending}"
    return ""


def _options(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield name and value, in words, of the options that differ from their default."""
    jobs = []
    for key, value in options.items():
        if key in _JOB and type(value) is int:
            jobs.append(many(value, *_JOB[key]))
        elif key not in _ELSEWHERE and (key in _ALWAYS or not _is_default(key, value)):
            name = first_clause(_OPTIONS[key][1].help) if key in _OPTIONS else key.replace("_", " ")
            yield name, _written(key, value)
    if jobs:
        yield "processes", ", ".join(jobs)


def _is_default(name: str, value: Any) -> bool:
    """Whether an option has its default, or is off or empty."""
    return value == _OPTIONS[name][0] if name in _OPTIONS else value in (None, False, 0, "", [])
