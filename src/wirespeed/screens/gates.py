"""Text of ``wirespeed check --gates``: a section for each set of published gates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from ..judging.gate_verdicts import GateComparison, GateResult, GateVerdict
from ..reports import Style
from ..reports.findings import applicable, gate_parts
from ..reports.signs import SIGNS
from ..units import many


def section(compared: GateComparison, style: Style) -> Iterator[RenderableType]:
    """The applicable gates of a set, the worst first, and the number of the others by reason."""
    gates, results = compared.gates, compared.results
    yield Text(f"published thresholds of {gates.name} (read {gates.read})", style="bold")
    for result in applicable(compared):
        line = Text().append(f"{result.verdict:<12}", style=SIGNS[result.verdict].style)
        yield line.append(f"{result.gate.measures}: at least {result.gate.at_least}")
        yield from (Padding(Text(text, style="dim"), (0, 0, 0, 2)) for text in _details(result, style))
    other = Counter(result.why for result in results if result.verdict is GateVerdict.NOT_APPLICABLE)
    if other:
        reasons = ", ".join(f"{count} for {why}" for why, count in other.items())
        yield Text(f"{many(other.total(), 'threshold')} not applicable: {reasons}", style="dim")
    if not compared.compared:
        yield Text(f"no threshold of {gates.name} was compared; this is not a pass", style="bold yellow")


def _details(result: GateResult, style: Style) -> Iterator[str]:
    """What was measured and why, and for ``verbose`` the source."""
    yield from gate_parts(result)
    if style.verbose:
        yield result.gate.source
