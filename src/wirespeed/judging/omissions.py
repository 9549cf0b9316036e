"""What a judgement did not cover: data that was not verified, and what was not measured or not compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

from ..document import REQUESTED, Document, Status, TestcaseResult
from ..errors import WirespeedError
from ..hardware.topology import Machine
from ..options import PlanOptions, Tier
from ..testcases.selections import COVERING
from ..testcases.table import TABLE, Testcase
from ..units import format_time, many
from .baseline_use import named_testcases
from .replanned import plan_options


def doubts(document: Document) -> tuple[str, ...]:
    """Why values that are as expected are no pass.

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
    """The number of values of each testcase for which the time limit of the run left no time."""
    return {result.name: result.left_out for result in document.testcases if result.left_out > 0}


def omitted(document: Document) -> str:
    """What the time limit of the run left out, in words; empty if nothing."""
    return _no_time(document, counts) if (counts := left_out(document)) else ""


def _no_time(document: Document, counts: Mapping[str, int]) -> str:
    within = document.options.get("within")
    limit = f" within {format_time(within)}" if isinstance(within, int | float) else ""
    values, cases = many(sum(counts.values()), "value"), many(len(counts), "testcase")
    return f"no time was left{limit} for {values} of {cases}: {named_testcases(counts)}"


#: Said of a run without verification.
UNVERIFIED = "the data was not verified"


def is_verified(document: Document, result: TestcaseResult | None = None) -> bool | None:
    """Whether the data was verified, of one testcase or of all; None if another tool does not say."""
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
    """The testcases of the quick tier that have a plan for the machine of a run."""
    return _measurable(document.machine, plan_options(document))


@lru_cache(maxsize=2)
def _measurable(machine: Machine, asked: PlanOptions) -> tuple[Testcase, ...]:
    plannable = list[Testcase]()
    # There are n² pairs of devices, and one with a path suffices.
    chosen = replace(asked, sample_peers=1), asked
    for case in TABLE:
        with suppress(WirespeedError):
            if case.tier == "quick" and any(case.plan(machine, options).measurements for options in chosen):
                plannable.append(case)
    return tuple(plannable)


def unmeasured(document: Document) -> int:
    """How many testcases have no value for lack of time, or are of the quick tier and not in the run.

    Those that this machine does not support are not counted.
    """
    lacking = {case.name for case in not_run(document)}
    late = [result for result in document.testcases if result.left_out > 0 and not _has_value(result)]
    return len(late) + (sum(case.name in lacking for case in measurable(document)) if lacking else 0)


def not_run(document: Document, tier: Tier = "quick") -> list[Testcase]:
    """The testcases of a tier that a run lacks."""
    done = {result.name for result in document.testcases}
    return [case for case in TABLE if case.tier == tier and case.name not in done]


def _not_measured(document: Document) -> Iterator[str]:
    """Yield the requested testcases that have no value, by reason; all of a log that has no value."""
    by_reason: dict[str, dict[str, int]] = {}
    patterns = _requested(document)
    if document.imported and not any(map(_has_value, document.testcases)):
        patterns = tuple(result.name for result in document.testcases)
    for pattern in patterns:
        results = [result for result in document.testcases if _fits(result.name, pattern)]
        # A Document may have only some of its testcases; one that Ctrl-C ended says so itself.
        ended = any(result.status is Status.INTERRUPTED for result in results)
        if results and not ended and not any(map(_has_value, results)):
            reason = next((result.reason for result in results if result.reason), "")
            by_reason.setdefault(reason, {})[pattern] = 1
    for reason, named in by_reason.items():
        yield f"{named_testcases(named)} measured nothing" + (f": {reason}" if reason else "")


def _requested(document: Document) -> tuple[str, ...]:
    """The requested testcases: names, or prefixes and ``*``; none if all of a tier were."""
    requested = document.options.get(REQUESTED)
    return tuple(dict.fromkeys(requested)) if isinstance(requested, list) else ()


def _fits(name: str, pattern: str) -> bool:
    """Whether a testcase was requested by a name, or by a prefix and ``*``."""
    prefix = pattern.removesuffix("*")
    return name == pattern or (prefix != pattern and name.startswith(prefix))


def _has_value(result: TestcaseResult) -> bool:
    return any(cell.value is not None for table in result.tables for cell in table.cells)
