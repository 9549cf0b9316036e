"""Page of ``wirespeed compare``: several runs before, several after, and what changed."""

from __future__ import annotations

from collections.abc import Sequence

from ...results.compare import Comparison
from ...results.many_files import Unreadable
from ...units import many
from ..comparisons import CHANGED, counted, moved, not_compared, notes, pairing, remarks, side_of
from ..signs import SIGNS, css_of, marked
from ..style import SIMULATED
from .templates import rendered, source

#: Maximum number of rows of a table of changes, and of cells that did not change.
_MOST_ROWS = 1000


def sides_page(comparison: Comparison, unreadable: Sequence[Unreadable] = ()) -> str:
    """A page that works offline.

    Args:
        comparison: The comparison.
        unreadable: The files that cannot be read.
    """
    changed = comparison.those(*CHANGED)
    others = [change for change in comparison.changes if change.outcome not in CHANGED]
    worst = next((outcome for outcome in CHANGED if comparison.those(outcome)), None)
    word = "CHANGED" if changed else "SAME" if comparison.compared else "NOT COMPARED"
    return rendered(
        "sides.html", source("style.css"), title=f"{word} · comparison",
        word=word,
        css=SIGNS[worst].css if worst else "pass" if comparison.compared else "unknown",
        summary=counted(comparison, unreadable),
        simulated=SIMULATED if comparison.simulated else "",
        sides=[
            (name, side_of(side), list(remarks(side)))
            for name, side in (("A, before", comparison.before), ("B, after", comparison.after))
        ],
        remarks=[
            *(f"unreadable: {file}" for file in unreadable),
            *(remark for remark in (*pairing(comparison), not_compared(comparison)) if remark),
        ],
        differences=list(map(str, comparison.differences)),
        tables=[
            (title, [
                (change.key.testcase, change.key.place, css_of(change.outcome),
                 marked(change.outcome), moved(change), change.reason)
                for change in changes[:_MOST_ROWS]
            ], many(len(changes) - _MOST_ROWS, "more value") if len(changes) > _MOST_ROWS else "")
            for title, changes in (("Changes, the worst first", changed), ("Values without a change", others))
            if changes
        ],
        notes=list(notes(comparison)),
    )  # fmt: skip
