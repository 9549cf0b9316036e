"""The environment of a run: software, devices, and the options in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from ...document import Document
from ...hardware.devices import Gpu
from ...options import RunOptions, declared
from ...statistics import grouped
from ...units import format_size, format_time, many

#: Options that other rows show, or that say nothing to people.
_ELSEWHERE = {
    "testcases", "transfers", "rule", "precision", "time_budget", "testcase_budget", "fewest_samples",
    "samples", "copies", "rounds",
}  # fmt: skip
#: Defaults of the options of a run: what has its default is not shown.
_DEFAULTS = {entry.name: entry.default for entry, _ in declared(RunOptions)}


def _text(value: Any) -> str:
    """A value of any option: texts and numbers as they are, lists with commas."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    if value is True or value is False:
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _with(format_: Callable[[float], str]) -> Callable[[Any], str]:
    """Format a number; other values, which only files of others have, as they are."""
    return lambda value: format_(value) if type(value) in (int, float) else _text(value)


_size, _time = _with(format_size), _with(format_time)
#: Option -> its name in texts, and how its value is written.
_WORDS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "tier": ("preset", _text),
    "size": ("buffer size", _size),
    "blocks": ("blocks of copy kernels", _text),
    "threads": ("threads per block", _text),
    "local_copy": ("local copies in tables of pairs", _text),
    "pageable": ("pageable host memory", _text),
    "parallel_pairs": ("pairs measured concurrently", _text),
    "sample_peers": ("sampled columns per row", _text),
    "within": ("maximum time of the run", _time),
    "verify": ("verification", lambda value: "after every sample" if value else "off"),
    "use_mean": ("mean instead of median", _text),
    "affinity": ("threads pinned to cores", _text),
    "virtual_memory": ("memory by cuMemCreate", _text),
    "all_engines": ("all copy engines", _text),
    "huge_pages": ("huge pages required", _text),
    "timeout": ("maximum time of a stage", _time),
    "seed": ("random seed", _text),
    "environment": ("environment variables", _text),
    "transport": ("between processes", _text),
    "launcher": ("launched by", _text),
    "share": ("requested transport", _text),
    "machine": ("simulated cluster", _text),
    "first_size": ("smallest size", _size),
    "last_size": ("largest size", _size),
}
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
        budget = f", or after {_time(budget)} per value" if budget else ""
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
            name, written = _WORDS.get(key, (key.replace("_", " "), _text))
            yield name, written(value)
    if jobs:
        yield "processes", ", ".join(jobs)


def _is_default(name: str, value: Any) -> bool:
    """Whether an option has its default, or is off or empty."""
    return value == _DEFAULTS[name] if name in _DEFAULTS else value in (None, False, 0, "", [])
