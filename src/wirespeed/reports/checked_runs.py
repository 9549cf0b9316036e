"""What the reports of many checked runs need of each run, and what they say of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..judging.judged import Judged
from ..judging.run_summary import OF_RUNS, RunSummary, run_summary
from ..results.read_many import Unreadable
from ..statistics import grouped
from ..units import many, some

#: In place of the verdict of a file that cannot be read.
ERROR = "ERROR"


@dataclass(frozen=True)
class CheckedRun:
    """What the reports of many runs need of one run.

    Attributes:
        node: Its summary.
        remarks: What its row says about gates and the baseline.
        part: What it adds to the report, in the form that the format requires.
    """

    node: RunSummary
    remarks: tuple[str, ...]
    part: Any = None

    @classmethod
    def of(cls, judged: Judged, part: Any) -> CheckedRun:
        """What a judged run contributes, with ``part`` in the form of a format."""
        return cls(run_summary(judged), tuple(_remarks(judged)), part)


def counted_words(nodes: Sequence[RunSummary], unreadable: Sequence[Unreadable]) -> str:
    """How many runs have each verdict, the worst first: ``4 runs: 1 FAIL, 3 PASS``."""
    counts = Counter([node.word for node in nodes] + [ERROR] * len(unreadable))
    first, *others = (verdict.heading for verdict in OF_RUNS)
    total = ", ".join(f"{counts[word]} {word}" for word in (first, ERROR, *others) if counts[word])
    return f"{many(counts.total(), 'run')}: {total}"


def _remarks(judged: Judged) -> Iterator[str]:
    """What the row of a run says about its gates and its baseline."""
    if failed := sum(len(compared.failures) for compared in judged.check.gates):
        yield f"{many(failed, 'threshold')} not met"
    yield from judged.by.lacking
    if judged.check.baseline:
        yield from (f"baseline: {text}" for text in judged.check.baseline.notes)


#: Maximum number of names of files with the same error, and of errors.
_NAMED_FILES, _MOST_ERRORS = 3, 8


def errors_of(unreadable: Sequence[Unreadable]) -> list[str]:
    """A text for each file that cannot be read; for many with the same error, their number and some names."""
    texts = list[str]()
    for kind, files in grouped((file.kind, file) for file in unreadable).items():
        if len(files) <= _NAMED_FILES:
            texts += map(str, files)
        else:
            names = some([file.file for file in files], _NAMED_FILES)
            texts.append(f"{len(files)} files ({names}): {kind}")
    if (more := len(texts) - _MOST_ERRORS) > 0:
        return [*texts[:_MOST_ERRORS], f"and {many(more, 'more error')}"]
    return texts


def unique_names(files: Sequence[str]) -> list[str]:
    """The names of the files, with their folders if the names are not unique."""
    names = [Path(file).name for file in files]
    return names if len(set(names)) == len(names) else list(files)
