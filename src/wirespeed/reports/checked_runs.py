"""What the reports of many checked runs need of each run, and what they say of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..document import Document
from ..judging.fleet import WORDS, FleetNode, node_summary
from ..results.many_files import Unreadable
from ..units import many
from .style import Judged

#: Verdicts of files that cannot be read, and of runs that are left out if there is no room for all.
ERROR, PASS = "ERROR", "PASS"


@dataclass(frozen=True)
class CheckedRun:
    """What the reports of many runs need of one run.

    Attributes:
        node: Its summary.
        remarks: What its row says about gates and the baseline.
        part: What it adds to the report, in the form that the format requires.
    """

    node: FleetNode
    remarks: tuple[str, ...]
    part: Any = None

    @classmethod
    def of(cls, document: Document, judged: Judged, part: Any) -> CheckedRun:
        """What a judged run contributes, with ``part`` in the form of a format."""
        node = node_summary(judged.file, document, judged.check, judged.diagnosis)
        return cls(node, tuple(_remarks(judged)), part)


def counted_words(nodes: Sequence[FleetNode], unreadable: Sequence[Unreadable]) -> str:
    """How many runs have each verdict, the worst first: ``4 runs: 1 FAIL, 3 PASS``."""
    counts = Counter([node.word for node in nodes] + [ERROR] * len(unreadable))
    total = ", ".join(f"{counts[word]} {word}" for word in (WORDS[0], ERROR, *WORDS[1:]) if counts[word])
    return f"{many(counts.total(), 'run')}: {total}"


def _remarks(judged: Judged) -> Iterator[str]:
    """What the row of a run says about its gates and its baseline."""
    if failed := sum(compared.failed for compared in judged.check.gates):
        yield f"{many(failed, 'threshold')} not met"
    if judged.check.baseline:
        yield from (f"baseline: {text}" for text in judged.check.baseline.notes)
