"""The end of nccl-tests' text: the summary of a complete run, or its lines for a run that failed."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from enum import IntEnum

from ...document import RankInfo, Status
from ...terminal import one_line
from ...units import GB
from .view import View

#: Stands for the position in the source of nccl-tests, ``FILE:LINE``, that its lines of failures have.
_PLACE = "wirespeed:0"
#: Units of the use of memory: largest first, in bytes.
_MEMORY_UNITS = ((2**30, " GB"), (2**20, " MB"), (2**10, " KB"))


class Result(IntEnum):
    """Exit code of nccl-tests' programs: its ``testResult_t``; those that no run here has are left out."""

    SUCCESS = 0
    INTERNAL_ERROR = 1  #: of wirespeed, the job or the output
    CUDA_ERROR = 2  #: there is no GPU
    NCCL_ERROR = 3  #: of the library, the driver or a GPU; a rank that ended; nothing was measured
    TIMEOUT = 4
    NOT_IMPLEMENTED = 5  #: fewer GPUs than ranks, or what the library does not have
    WRONG_RESULTS = 7  #: wrong data, or a mean bus bandwidth below the requested one


def result_of(view: View) -> Result:
    """The exit code of a run that nobody interrupted."""
    if not view.is_complete:
        late = any(result.status is Status.TIMED_OUT for result in view.document.testcases)
        return Result.TIMEOUT if late else Result.NCCL_ERROR
    good = not view.wrong_rows and view.fast_enough is not False
    return Result.SUCCESS if good and view.document.good else Result.WRONG_RESULTS


def footer(view: View) -> str:
    """The lines after the last size."""
    lines = _summary(view) if view.is_complete else [*failure(view), *_transport(view), *_notes(view)]
    return "".join(f"{line}\n" for line in lines)


def _summary(view: View) -> list[str]:
    """The end of a complete run."""
    document, errors, passed = view.document, view.wrong_rows, view.fast_enough
    verdict = "" if passed is None else "OK" if passed else "FAILED"
    average = "-nan" if view.average is None else _general(view.average / GB)  # 0 / 0, as C prints it
    lines = [
        *_transport(view),
        f"# {'Out of bounds values':<20} : {errors} {'FAILED' if errors else 'OK'}",
        f"# {'Avg bus bandwidth':<20} : {average} {verdict}",
        "#",
        f"# Collective test concluded: {view.given.program}",
    ]
    if memory := document.device_memory:
        parts = [f"{one_line(name)} {_memory(size)}" for name, size in memory.items()]
        lines.append(
            f"# {'GPU memory usage':<20} : {' | '.join([*parts, f'Total  {_memory(sum(memory.values()))}'])}"
        )
    return [*lines, "#", "", *_notes(view)]


def _general(value: float) -> str:
    """A number as C's ``%g`` prints it, but never with an exponent: parsers read ``8.95075e-05`` as 8.95."""
    text = f"{value:g}"
    return text if "e" not in text else f"{Decimal(text):f}"


def failure(view: View) -> list[str]:
    """The lines with which nccl-tests ends a run that failed, which programs look for.

    Args:
        view: The run.
    """
    document = view.document
    rank = document.ranks[0] if document.ranks else RankInfo(0, 0, 0, document.host, 0, "", "")
    host = one_line(short(rank.host))
    waived = [r for r in document.testcases if r.status is Status.WAIVED and not document.interrupted]
    stop = next((r for r in document.testcases if not r.status.good), next(iter(waived), None))
    lines = []
    if stop is not None and stop.status is Status.TIMED_OUT:
        lines.append(f"{host}: Test timeout ({view.given.timeout:.0f}s) {_PLACE}")
    elif stop is not None and stop.status is not Status.INTERRUPTED:
        reason = one_line(stop.reason)  # the words for the status and, behind " / ", the last error
        lines.append(failed(rank.host, "NCCL", f"{reason}{'' if ' / ' in reason else ' / '}"))
    return [*lines, stopped(host, rank.pid)]


def failed(host: str, library: str, reason: str) -> str:
    """The line of nccl-tests for an error of a library, which is NCCL or CUDA there."""
    return f"{one_line(short(host))}: Test {library} failure {_PLACE} '{reason}'"


def stopped(host: str, pid: int) -> str:
    """The line with which every failure of nccl-tests ends.

    Args:
        host: Name of the host.
        pid: Number of the process.
    """
    return f" .. {one_line(short(host))} pid {pid}: Test failure {_PLACE}"


def short(host: str) -> str:
    """The name of a host without its domain, as nccl-tests prints it."""
    return host.partition(".")[0]


def _transport(view: View) -> Iterator[str]:
    """Yield a comment that nccl-tests does not have, with what moves the bytes."""
    if view.given.transport:
        yield f"# Transport: {one_line(view.given.transport)}"


def _notes(view: View) -> Iterator[str]:
    """Yield further comments: warnings, and why something is missing.

    They follow the end, because programs take the first line with "bandwidth" or "FAILED" for the result.
    """
    document = view.document
    for result in document.testcases:
        name = one_line(result.name)
        yield from (f"# {name}: warning: {one_line(text)}" for text in result.warnings)
        if result.status is not Status.PASSED:
            yield f"# {name}: {result.status}: {one_line(result.reason)}"
    if document.interrupted:
        yield f"# the run ended early: {one_line(document.interrupted)}"
    if document.simulated:
        yield "# SIMULATED: no hardware was measured"


def _memory(size: int) -> str:
    """A number of bytes in three digits."""
    amount, unit = next(
        ((size / least, unit) for least, unit in _MEMORY_UNITS if abs(size) >= least), (size, " B")
    )
    decimals = 2 if abs(amount) < 10 else 1 if abs(amount) < 100 else 0
    return f"{amount:.{decimals}f}{unit}"
