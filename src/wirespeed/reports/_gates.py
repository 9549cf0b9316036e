"""Text of ``wirespeed check --gates``: a section for each set of published gates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from ..judging.gate_verdicts import GateResult, GateVerdict
from ..results.published_gates import GateSet
from ..units import displayed, many
from . import Style
from ._grid import number

_COLORS = {
    GateVerdict.FAIL: "bold red", GateVerdict.IMPOSSIBLE: "magenta", GateVerdict.UNCLEAR: "cyan",
    GateVerdict.PASS: "green",
}  # fmt: skip


def section(gates: GateSet, results: Sequence[GateResult], style: Style) -> Iterator[RenderableType]:
    """Yield the applicable gates of a set, the worst first, and the number of the others by reason."""
    yield Text(f"gates of {gates.name} (read {gates.read})", style="bold")
    for verdict, color in _COLORS.items():
        for result in (one for one in results if one.verdict is verdict):
            line = Text(f"{verdict:<12}", style=color)
            yield line.append(f"{result.gate.measures}: at least {result.gate.at_least}", style="default")
            yield from (Padding(Text(text, style="dim"), (0, 0, 0, 2)) for text in _details(result, style))
    other = Counter(one.why for one in results if one.verdict is GateVerdict.NOT_APPLICABLE)
    if other:
        reasons = ", ".join(f"{count} for {why}" for why, count in other.items())
        yield Text(f"{many(other.total(), 'gate')} not applicable: {reasons}", style="dim")


def _details(result: GateResult, style: Style) -> Iterator[str]:
    """Yield the lowest value and its cell, the reason of the verdict, and for ``verbose`` the source."""
    if lowest := result.lowest:
        scale, unit = displayed(lowest.unit)
        value = "no value" if lowest.value is None else f"lowest {number(lowest.value, scale)} {unit}"
        range_ = ""
        if result.expected:
            least, normal = result.expected
            range_ = f"; expected {number(least, scale)} to {number(normal, scale)}"
        yield f"{lowest.key.testcase} {lowest.key.place}: {value}{range_}"
    yield from filter(None, (result.why, result.remark))
    if style.verbose:
        yield result.gate.source
