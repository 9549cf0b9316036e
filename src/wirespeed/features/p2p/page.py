"""Peer access of a run: a verdict for each pair, the settings with which programs compute now, the causes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ...document import Document
from ...judging.judged import Judged
from ...judging.verdict import Verdict
from ...peer_access import PEER_ACCESS, Attempt, Pair, PeerMechanism, PeerVerdict
from ...reports.additions import PagePart
from ...reports.html.tables import fragment
from ...terminal import one_line
from ...units import GB
from .causes import PeerFindings, find_peers, told

#: CSS class of a pair that is not as it should be.
_CSS = {
    PeerVerdict.HANGS: "w4 bad", PeerVerdict.FAILS: "w4 bad", PeerVerdict.WRONG: "w4 bad",
    PeerVerdict.SLOW: "w2 low", PeerVerdict.NOT_TRIED: "none", PeerVerdict.NOT_OFFERED: "none",
}  # fmt: skip


@dataclass(frozen=True)
class PeerView:
    """What a page shows of the attempts.

    Attributes:
        verdict: The verdict on all pairs.
        findings: Sentence, settings, causes.
        gpus: The GPUs: the columns.
        rows: Each GPU with class, title and text of each pair: its rate if it works, else the verdict.
        is_all: Whether the run tried only peer access; otherwise it is shown if pairs do not work.
    """

    verdict: Verdict
    findings: PeerFindings
    gpus: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...]
    is_all: bool


def part(judged: Judged) -> PagePart | None:
    """The section of the page of a run; None without a view."""
    view = peer_view(judged.document)
    if view is None:
        return None
    markup = partial(fragment, f"{__package__}:page.html", "peers", {}, view)
    return PagePart("Peer access", "peers", "gates", markup, is_all=view.is_all, in_notebooks=True)


def peer_view(document: Document) -> PeerView | None:
    """The peer access of a run; None if it tried none, or measured other paths and all pairs work."""
    found = find_peers(document)
    if found is None or not found.access.attempts:
        return None
    access, gpus, pairs = found.access, found.access.gpus, found.access.pairs
    verdicts = access.verdicts

    def shown(pair: Pair) -> tuple[str, str, str]:
        if pair not in pairs:
            return "none", "", ""
        verdict, deciding = verdicts[pair], access.deciding(pair)
        title = told(deciding) if deciding and verdict is not PeerVerdict.WORKS else ""
        return _CSS.get(verdict, ""), one_line(title), _text(verdict, pairs[pair])

    rows = tuple((gpu, tuple(shown((gpu, other)) for other in gpus)) for gpu in gpus)
    is_all = all(result.name == PEER_ACCESS for result in document.testcases)
    if not (is_all or found.verdict.is_bad):
        return None
    return PeerView(found.verdict, found, gpus, rows, is_all)


def _text(verdict: PeerVerdict, attempts: tuple[Attempt, ...]) -> str:
    """The verdict on a pair; of one that works the rate of its copy, if it was measured."""
    rate = next((a.rate for a in attempts if a.mechanism is PeerMechanism.COPY and a.rate), None)
    works = verdict in (PeerVerdict.WORKS, PeerVerdict.SLOW)
    return f"{rate / GB:.1f}" if works and rate else str(verdict)
