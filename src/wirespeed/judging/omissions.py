"""What a judgement did not cover: data that was not verified, what was not measured or not compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from ..document import REQUESTED, Document, TestcaseResult
from ..errors import UsageError, WirespeedError
from ..results.baseline import Entry
from ..results.cells import Key, Placed
from ..terminal import one_line
from ..testcases import TABLE, Testcase
from ..testcases.coverage import COVERING
from ..units import format_size, format_time, many
from .expectations import plan_options

#: Maximum number of testcases that a text names.
_NAMED = 2


@dataclass(frozen=True)
class BaselineUse:
    """How a baseline was used.

    Attributes:
        compared: Number of values that were compared with it.
        absent: Testcase -> number of values that the baseline lacks.
        uncertain: Testcase -> number of values for which the runs of the baseline differ too much.
        unmeasured: Testcase -> number of values of the baseline that the run lacks.
    """

    compared: int
    absent: Mapping[str, int]
    uncertain: Mapping[str, int]
    unmeasured: Mapping[str, int]

    @property
    def notes(self) -> tuple[str, ...]:
        """What was not compared, for people; empty if everything was."""
        return tuple(
            f"{many(sum(counts.values()), 'value')} not compared, {why}: {_named(counts)}"
            for counts, why in (
                (self.absent, "not in the baseline"),
                (self.uncertain, "the runs of the baseline differ too much"),
                (self.unmeasured, "not in this run"),
            )
            if counts
        )


def baseline_use(entries: Mapping[Key, Entry], cells: Iterable[Placed]) -> BaselineUse:
    """Return how a baseline was used.

    Args:
        entries: What the baseline says about the model of the machine.
        cells: The cells of the run that are judged.

    Raises:
        UsageError: If no value of the run could be compared.
    """
    measured = {placed.key for placed in cells if placed.cell.value is not None}
    compared = sum(key in entries and entries[key].judges for key in measured)
    use = BaselineUse(
        compared,
        _counted(key for key in measured if key not in entries),
        _counted(key for key in measured if key in entries and not entries[key].judges),
        _counted(key for key in entries if key not in measured),
    )
    if not compared:
        why = _why(use, entries, measured)
        raise UsageError(f"no value of this run can be compared with the baseline: {why}")
    return use


def _why(use: BaselineUse, entries: Mapping[Key, Entry], measured: set[Key]) -> str:
    if not measured:
        return "the run has no values"
    if use.uncertain:
        return f"its runs differ too much in {_named(use.uncertain)}; make one from runs that agree"
    sizes = sorted({key.bytes for key in entries if key.bytes} - {0})
    same = {key.testcase for key in entries} & {key.testcase for key in measured}
    if same and sizes:
        return f"it has {', '.join(same)} with other sizes ({format_size(sizes[0])} ...)"
    return f"it has {_named(use.unmeasured)}, the run has {_named(use.absent)}"


def _counted(keys: Iterable[Key]) -> dict[str, int]:
    """Return the number of values of each testcase, by name."""
    counts = Counter(key.testcase for key in keys)
    return {name: counts[name] for name in sorted(counts)}


def _named(counts: Mapping[str, int]) -> str:
    """Return some testcases, and the number of the others."""
    names = list(counts)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return one_line(", ".join(names[:_NAMED]) + more) if names else "nothing"


def doubts(document: Document) -> tuple[str, ...]:
    """Return why values that are as expected are no pass.

    The data were not verified, a requested testcase was not measured, the time limit ended the run before
    all that was requested was measured, or each device once, or an imported log may lack values.
    """
    reasons = [UNVERIFIED] if is_verified(document) is False else []
    several = len({log.file for log in document.imported}) > 1
    of_logs = [
        (f"{log.file}: " if several else "", doubt) for log in document.imported for doubt in log.doubts
    ]
    reasons += dict.fromkeys(file + doubt for file, doubt in of_logs)
    reasons += _not_measured(document)
    omissions, requested = left_out(document), _requested(document)
    if requested:
        values = {result.name for result in document.testcases if _has_value(result)}
        wanted = {name for pattern in requested for name in values if _fits(name, pattern)}
        reason = "not all that was requested was measured"
    else:
        wanted, reason = set(COVERING), "not every device was measured"
    if counts := {name: n for name, n in omissions.items() if name in wanted}:
        reasons.append(f"{reason}: {_no_time(document, counts)}")
    return tuple(reasons)


def left_out(document: Document) -> dict[str, int]:
    """Return the number of values of each testcase for which the time limit of the run left no time."""
    return {result.name: result.left_out for result in document.testcases if result.left_out > 0}


def omitted(document: Document) -> str:
    """Return what the time limit of the run left out, for people; empty if nothing."""
    return _no_time(document, counts) if (counts := left_out(document)) else ""


def _no_time(document: Document, counts: Mapping[str, int]) -> str:
    within = document.options.get("within")
    limit = f" within {format_time(within)}" if isinstance(within, int | float) else ""
    values, cases = many(sum(counts.values()), "value"), many(len(counts), "testcase")
    return f"no time was left{limit} for {values} of {cases}: {_named(counts)}"


#: Said of a run without verification.
UNVERIFIED = "the data was not verified"


def is_verified(document: Document, result: TestcaseResult | None = None) -> bool | None:
    """Return whether the data was verified, of one testcase or of all; None if another tool does not say."""
    verify = document.options.get("verify")
    if isinstance(verify, bool):
        return verify
    if result is None:
        verified = {is_verified(document, tested) for tested in document.testcases if _has_value(tested)}
        return False if False in verified else verified == {True} or None
    if result.collective is None:
        return None
    if any(cell.wrong is not None for table in result.tables for cell in table.cells):
        return True
    return False if document.options.get("checks") == 0 else None


def measurable(document: Document) -> tuple[Testcase, ...]:
    """Return the testcases of the quick tier that have a plan for the machine of a run."""
    return tuple(_planned(document, (case for case in TABLE if case.tier == "quick")))


def unmeasured(document: Document) -> int:
    """Return how many testcases have no value for lack of time, or are of the quick tier and not in the run.

    Those that this machine does not support are not counted.
    """
    done = {result.name for result in document.testcases}
    lacking = _planned(document, (case for case in TABLE if case.tier == "quick" and case.name not in done))
    late = [result for result in document.testcases if result.left_out > 0 and not _has_value(result)]
    return len(lacking) + len(late)


def _planned(document: Document, cases: Iterable[Testcase]) -> list[Testcase]:
    options, plannable = plan_options(document), []
    for case in cases:
        with suppress(WirespeedError):
            plannable += [case] if case.plan(document.machine, options).measurements else []
    return plannable


def _not_measured(document: Document) -> Iterator[str]:
    """Yield the requested testcases that have no value, by reason."""
    by_reason: dict[str, dict[str, int]] = {}
    for pattern in _requested(document):
        results = [result for result in document.testcases if _fits(result.name, pattern)]
        if results and not any(map(_has_value, results)):  # a Document may have only some of its testcases
            reason = next((result.reason for result in results if result.reason), "")
            by_reason.setdefault(reason, {})[pattern] = 1
    for reason, patterns in by_reason.items():
        yield f"{_named(patterns)} measured nothing" + (f": {reason}" if reason else "")


def _requested(document: Document) -> tuple[str, ...]:
    """Return the requested testcases: names, or prefixes and ``*``; none if all of a tier were."""
    requested = document.options.get(REQUESTED)
    return tuple(dict.fromkeys(requested)) if isinstance(requested, list) else ()


def _fits(name: str, pattern: str) -> bool:
    """Return whether a testcase was requested by a name, or by a prefix and ``*``."""
    prefix = pattern.removesuffix("*")
    return name == pattern or (prefix != pattern and name.startswith(prefix))


def _has_value(result: TestcaseResult) -> bool:
    return any(cell.value is not None for table in result.tables for cell in table.cells)
