"""What Python asks of machines and of runs, as commands do; a run may be a file, and ``check`` measures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from .document import Document
from .errors import UsageError
from .judging import diagnosis
from .judging import judge as judging
from .judging.check import Check
from .judging.criteria import Criteria
from .judging.diagnosis import Diagnosis
from .judging.explain_steps import Adaptive
from .judging.gates import GateComparison, compare_gates, load
from .judging.judged import Judged
from .reports import Style
from .reports import render as rendered
from .results import compare as comparing
from .results.baseline import Baseline
from .results.compare import Comparison
from .results.inventory import Inventory, parse_inventory
from .results.opening import open_run
from .thresholds.changes import LEAST_CHANGE, TOLERANCE

if TYPE_CHECKING:
    from .hardware.topology import Machine
    from .judging.gates import GateSetName
    from .reports import Report
    from .results.overrides import Override
    from .testcases.table import Testcase

#: A run: a Document, or the file of a saved run or of a log of another tool.
Run: TypeAlias = Document | str | Path
_PLAIN = Style()


def opened(run: Run) -> Document:
    """The Document of a run that may be a file.

    Raises:
        UsageError: If it is neither, or the file cannot be read.
    """
    if isinstance(run, Document):
        return run
    if isinstance(run, str | Path):
        return open_run(run)
    raise UsageError(f"a run is a Document or the name of a file, not {type(run).__name__}")


def several(runs: Run | Iterable[Run]) -> list[Document]:
    """The Documents of one run or of several."""
    return list(map(opened, [runs] if isinstance(runs, Document | str | Path) else runs))


def _inventory(expect: str | Inventory | None) -> Inventory | None:
    return parse_inventory(expect) if isinstance(expect, str) else expect


def judge(
    run: Run,
    overrides: Sequence[Override] = (),
    baseline: Baseline | None = None,
    tolerance: float = TOLERANCE,
    ignore_busy: bool = False,
    expected: str | Inventory | None = None,
) -> Check:
    """Judge every value of a run, and find what explains low ones.

    A rate is compared with the limit of its links, with its expected range and, if given, with its baseline,
    which can only tighten the range; a latency only with its baseline. Values that fail because of a setting,
    another process or the configuration of the host are warnings.

    Args:
        run: The run, or its file.
        overrides: Accepted deviations.
        baseline: Values of good machines of the same model.
        tolerance: A value fails if it is below its baseline by more than this fraction.
        ignore_busy: Whether to judge values of devices that another process used, too.
        expected: What each host of the machine should have, such as ``"gpus=8"``.

    Raises:
        UsageError: If the file cannot be read, an override matches no value, or the baseline is for a
            different kind of machine.
    """
    by = Criteria(tuple(overrides), baseline, tolerance, ignore_busy, _inventory(expected))
    return Judged(opened(run), by).check


def diagnose(run: Run, check: Check | None = None) -> Diagnosis:
    """Find the causes that explain the slow values of a run, or that its readings speak for.

    Args:
        run: The run, or its file.
        check: The verdicts on it; None for those of ``judge(run)``.

    Raises:
        UsageError: If the file cannot be read.
    """
    return diagnosis.diagnose(opened(run), check)


def gates(run: Run, name: GateSetName | str | Path, check: Check | None = None) -> GateComparison:
    """Compare a run with published thresholds.

    Args:
        run: The run, or its file.
        name: Name of a set that wirespeed contains, or a TOML file.
        check: The verdicts on the run; None for those of ``judge(run)``.

    Raises:
        UsageError: If there is no such set or file, or a file is invalid.
    """
    document = opened(run)
    return compare_gates(load(str(name)), document, (check or judging.judge(document)).judgements)


def compare(
    before: Run | Iterable[Run],
    after: Run | Iterable[Run],
    least: float = LEAST_CHANGE,
    *,
    ignore_busy: bool = False,
) -> Comparison:
    """Compare one run or several before with one or several after.

    Args:
        before, after: The runs, or their files.
        least: Minimum relative change.
        ignore_busy: Whether to compare values of devices that another process used, too.

    Raises:
        UsageError: If a file cannot be read, a side has no run, or no value is on both sides.
    """
    return comparing.compare(several(before), several(after), least, ignore_busy=ignore_busy)


def baseline(runs: Run | Iterable[Run]) -> Baseline:
    """Make a baseline from runs of good machines.

    Args:
        runs: Complete runs without failures, or their files.

    Raises:
        UsageError: If a file cannot be read, a run failed, or the runs of one model differ too much.
    """
    from .results.baseline import make

    return make(several(runs))


def render(run: Run | Judged, format: str | Report = "table", style: Style = _PLAIN) -> str:
    """A run as text.

    Args:
        run: The run or its file, or what ``check`` returned.
        format: Name of a format, of this package or another one, or a function ``report(document, style) ->
            str``.
        style: Width, colour and verbosity.

    Raises:
        UsageError: If the format does not exist, or the file cannot be read.
    """
    return rendered(run if isinstance(run, Judged) else opened(run), format, style)


def check(
    testcases: Iterable[str | Testcase] = (),
    *,
    machine: str | Machine | None = None,
    overrides: Sequence[Override] = (),
    baseline: Baseline | None = None,
    tolerance: float = TOLERANCE,
    ignore_busy: bool = False,
    expected: str | Inventory | None = None,
    **options: Any,
) -> Judged:
    """Measure this machine, and judge whether it is as fast as its hardware allows: ``wirespeed check``.

    Without testcases, peer access is tried first, and the quick preset is measured. Unlike the command, it
    adds nothing to the history.

    Args:
        testcases: Names of testcases, nvbandwidth indices, or your own Testcases.
        machine, overrides, baseline, tolerance, ignore_busy, expected: As for ``run`` and ``judge``.
        **options: Other arguments and options of ``run``.

    Returns:
        The run with its verdicts, causes and key figures.

    Raises:
        UsageError: If an argument is invalid; nothing has been measured.
        RunInterrupted: On Ctrl-C; it carries the Document.
    """
    from .api import machine_named, run
    from .results.overrides import check_links

    by = Criteria(tuple(overrides), baseline, tolerance, ignore_busy, _inventory(expected))
    target = machine_named(machine)
    check_links(by.overrides, target)
    if by.baseline:
        by.baseline.entries(target)
    cases = (testcases,) if isinstance(testcases, str) else tuple(testcases)
    chosen = bool(cases or options.get("prefixes"))
    settings: dict[str, Any] = {"tier": "quick", "try_peers": not chosen} | options
    return Judged(run(cases, machine=target, **settings), by)


def doctor(
    run: Run | None = None,
    *,
    machine: str | Machine | None = None,
    root: str | Path | None = None,
    measure: bool = True,
    expected: str | Inventory | None = None,
    **options: Any,
) -> Judged:
    """Find what may explain slow paths, as ``check --explain``; ``diagnosis`` of the result has the causes.

    Args:
        run: A run or its file to examine; None to examine a machine.
        machine: As for ``run``.
        root: Folder of a recorded system to examine in place of this one.
        measure: Whether to measure what would show the defects that the system reports.
        expected: What each host of the machine should have, such as ``"gpus=8"``.
        **options: Options of ``run``, if it measures.

    Raises:
        UsageError: If an argument is invalid, or a file cannot be read.
    """
    from .api import described
    from .api import run as measured

    wanted = _inventory(expected)
    if run is not None:
        if machine is not None or root is not None or options:
            raise UsageError("doctor examines a run or a machine, not both: omit one of them")
        return Judged(opened(run), Criteria(expected=wanted))
    if root is not None or not measure:
        if options:
            raise UsageError(f"nothing is measured: omit {', '.join(options)}")
        return Judged(described(machine, root=root), Criteria(expected=wanted))
    adaptive = Adaptive(Criteria(expected=wanted))
    settings: dict[str, Any] = {"tier": "quick"} | options
    document = measured(machine=machine, following=adaptive, try_peers=True, **settings)
    found = adaptive.concluded
    return found.renewed(document) if found else Judged(document, Criteria(expected=wanted))
