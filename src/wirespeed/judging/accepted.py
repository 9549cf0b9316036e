"""Which bad values overrides accept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..errors import UsageError
from ..results.cells import Placed
from ..results.overrides import Override
from ..topology import Machine
from .judgement import Judgement
from .verdict import Verdict


def accept(
    judged: list[Judgement], cells: Sequence[Placed], overrides: Sequence[Override], machine: Machine
) -> tuple[dict[Override, int], set[int]]:
    """Waive what overrides accept; the first matching override counts.

    Returns:
        Override -> number of cells that it waives.
        The cells that may be slow, waived or not; they are not compared with their peers.
    """
    accepted: dict[Override, int] = {}
    exempt: set[int] = set()
    for override in overrides:
        fitting = [
            i
            for i, (key, cell, *_) in enumerate(cells)
            if judged[i].value and override.fits(key, cell, machine)
        ]
        if not fitting:
            raise UsageError(f"the override of {override} matches no measured value")
        bad = [i for i in fitting if _is_accepted(override, judged[i])]
        exempt.update(bad, (i for i in fitting if judged[i].verdict is Verdict.PASS))
        for i in bad:
            judged[i] = replace(judged[i], verdict=Verdict.WAIVED, why=override.reason)
        accepted[override] = len(bad)
    return accepted, exempt


def _is_accepted(override: Override, judgement: Judgement) -> bool:
    if override.accept is None:
        return judgement.verdict.is_bad
    return judgement.verdict.is_worse and judgement.margin >= override.accept
