"""Verdicts as reports show them. A testcase that the user interrupted is not a failure of the machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ..document import Document, Status
from .verdicts import Check, Judgement, Verdict

INTERRUPTED = "interrupted"
_FAILED = (Verdict.IMPLAUSIBLE, Verdict.FAIL)


@dataclass(frozen=True)
class Outcomes:
    """One word each: a verdict, or ``interrupted``.

    Parameters
    ----------
    run : str
        The whole run.
    testcases : dict[str, str]
        Testcase name -> its word.
    judgements : tuple[str, ...]
        One word for each judgement, in order.
    cells : tuple[str, ...]
        The words for single cells, without those for a whole testcase or run.
    """

    run: str
    testcases: dict[str, str]
    judgements: tuple[str, ...]
    cells: tuple[str, ...]


def outcomes(document: Document, check: Check) -> Outcomes:
    """Return the words for a Check of a Document."""
    ended = {result.name for result in document.testcases if result.status is Status.INTERRUPTED}
    words = tuple(INTERRUPTED if _by_user(one, ended) else str(one.verdict) for one in check.judgements)
    bad = [
        one.key.testcase
        for one, word in zip(check.judgements, words, strict=True)
        if one.verdict in _FAILED and word != INTERRUPTED
    ]
    bad += [one.part for one in check.missing if one.verdict in _FAILED]
    testcases = {
        name: INTERRUPTED if name in ended and name not in bad else str(verdict)
        for name, verdict in check.testcases.items()
    }
    cells = tuple(word for one, word in zip(check.judgements, words, strict=True) if one.key.column)
    return Outcomes(INTERRUPTED if ended and not bad else str(check.verdict), testcases, words, cells)


def _by_user(judgement: Judgement, ended: set[str]) -> bool:
    """Return whether a value is missing because the user interrupted the run."""
    key = judgement.key
    return bool(ended) and judgement.value is None and (not key.testcase or key.testcase in ended)


def counted(words: Iterable[str]) -> str:
    """Count each word, the worst first."""
    counts = Counter(words)
    order = [*map(str, Verdict), INTERRUPTED]
    return ", ".join(f"{counts[word]} {word}" for word in order if counts[word])
