"""Peer access of a run: a verdict for each pair, the settings with which programs compute now, the causes."""

from __future__ import annotations

from functools import partial

from ...judging.judged import Judged
from ...peer_access import PEER_ACCESS, Attempt, Pair, PeerAccess, PeerMechanism, PeerVerdict
from ...reports.additions import PagePart
from ...reports.html.templates import made
from ...terminal import one_line
from ...units import GB
from .causes import find_peers, told

#: CSS class of a pair that is not as it should be.
_CSS = {
    PeerVerdict.HANGS: "w4 bad", PeerVerdict.FAILS: "w4 bad", PeerVerdict.WRONG: "w4 bad",
    PeerVerdict.SLOW: "w2 low", PeerVerdict.NOT_TRIED: "none", PeerVerdict.NOT_OFFERED: "none",
}  # fmt: skip


def part(judged: Judged) -> PagePart | None:
    """The section of the page of a run; None if it tried none, or measured other paths and all pairs work."""
    document = judged.document
    found = find_peers(document)
    if found is None or not found.access.attempts:
        return None
    is_all = all(result.name == PEER_ACCESS for result in document.testcases)
    if not (is_all or found.verdict.is_bad):
        return None
    gpus = found.access.gpus
    rows = [(gpu, [_shown(found.access, (gpu, other)) for other in gpus]) for gpu in gpus]
    view = {"findings": found, "gpus": gpus, "rows": rows, "is_all": is_all}
    markup = partial(made, f"{__package__}:page.html", "peers", view)
    return PagePart("Peer access", "peers", "gates", markup, is_all=is_all, in_notebooks=True)


def _shown(access: PeerAccess, pair: Pair) -> tuple[str, str, str]:
    """Class, title and text of a pair: its rate if it works, else the verdict."""
    if pair not in access.pairs:
        return "none", "", ""
    verdict, deciding = access.verdicts[pair], access.deciding(pair)
    title = told(deciding) if deciding and verdict is not PeerVerdict.WORKS else ""
    return _CSS.get(verdict, ""), one_line(title), _text(verdict, access.pairs[pair])


def _text(verdict: PeerVerdict, attempts: tuple[Attempt, ...]) -> str:
    """The verdict on a pair; of one that works the rate of its copy, if it was measured."""
    rate = next((a.rate for a in attempts if a.mechanism is PeerMechanism.COPY and a.rate), None)
    works = verdict in (PeerVerdict.WORKS, PeerVerdict.SLOW)
    return f"{rate / GB:.1f}" if works and rate else str(verdict)
