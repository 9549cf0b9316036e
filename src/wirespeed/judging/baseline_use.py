"""What a baseline compared in a run, and why it did not compare the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..errors import UsageError
from ..results.baseline import BaselineCell
from ..results.cells import Key, Placed
from ..terminal import one_line
from ..units import format_size, many, some

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
        """What was not compared, in words; empty if everything was."""
        return tuple(
            f"{many(sum(counts.values()), 'value')} not compared, {why}: {named_testcases(counts)}"
            for counts, why in (
                (self.absent, "not in the baseline"),
                (self.uncertain, "the runs of the baseline differ too much"),
                (self.unmeasured, "not in this run"),
            )
            if counts
        )


def baseline_use(entries: Mapping[Key, BaselineCell], cells: Iterable[Placed]) -> BaselineUse:
    """How a baseline was used.

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


def _why(use: BaselineUse, entries: Mapping[Key, BaselineCell], measured: set[Key]) -> str:
    if not measured:
        return "the run has no values"
    if use.uncertain:
        return f"its runs differ too much in {named_testcases(use.uncertain)}; make one from runs that agree"
    sizes = sorted({key.bytes for key in entries if key.bytes} - {0})
    same = {key.testcase for key in entries} & {key.testcase for key in measured}
    if same and sizes:
        return f"it has {', '.join(same)} with other sizes ({format_size(sizes[0])} ...)"
    return f"it has {named_testcases(use.unmeasured)}, the run has {named_testcases(use.absent)}"


def _counted(keys: Iterable[Key]) -> dict[str, int]:
    """The number of values of each testcase, by name."""
    counts = Counter(key.testcase for key in keys)
    return {name: counts[name] for name in sorted(counts)}


def named_testcases(counts: Mapping[str, int]) -> str:
    """Some testcases, and the number of the others."""
    return one_line(some([*counts], _NAMED)) or "nothing"
