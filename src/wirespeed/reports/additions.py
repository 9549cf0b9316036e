"""What features add to reports, each by a field of its row in the table of features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..document import Document
from ..features import offered
from ..judging.judged import Judged
from .style import Style

if TYPE_CHECKING:
    from functools import _SingleDispatchCallable

    from markupsafe import Markup
    from rich.console import RenderableType


@dataclass(frozen=True)
class Report:
    """What a run that a feature made shows in place of tables.

    Attributes:
        lines: Its lines; the last is the verdict and what it means, separated by a colon.
        body: What a screen shows before the verdict.
        ending: The verdict of a screen, with what to do.
        cases: Name of a part of the machine -> what is wrong with it, and whether that is certain.
        compared: Whether parts were compared with each other, so that those without a fault pass.
    """

    lines: Sequence[str]
    body: Callable[[Style], Sequence[RenderableType]]
    ending: Callable[[Style], Sequence[RenderableType]]
    cases: Mapping[str, Sequence[tuple[bool, str]]]
    compared: bool


@dataclass(frozen=True)
class PagePart:
    """A section of the page of a run.

    Attributes:
        name: Its name in the contents of the page.
        id: Its ID, which the index of the run follows.
        before: The section of the core that it precedes.
        testcases: Names of the testcases that it shows: others show their tables only if they are bad.
        markup: Its markup by ID, empty without a page, and level of the heading.
        is_all: Whether the page has no other section but the environment.
        in_notebooks: Whether the table of the run in a notebook shows it, too.
    """

    name: str
    id: str
    before: Literal["machine", "gates", "results"]
    markup: Callable[[str, int], Markup]
    is_all: bool = False
    in_notebooks: bool = False
    testcases: frozenset[str] = frozenset()


def report_of(document: Document) -> Report | None:
    """What the feature that made a run shows of it; None for a run of testcases."""
    return next(filter(None, (report(document) for report in offered("report"))), None)


def page_parts(judged: Judged) -> Iterator[PagePart]:
    """Yield the sections that features add to the page of a run."""
    yield from filter(None, (part(judged) for part in offered("page_part")))


def covered(parts: Iterable[PagePart]) -> frozenset[str]:
    """The testcases that some sections show."""
    return frozenset[str]().union(*(part.testcases for part in parts))


def of_result(function: _SingleDispatchCallable[Any], result: object) -> Callable[..., Any] | None:
    """The function that a feature registers for a result of its own; None if there is none."""
    for _ in offered("results"):
        pass  # they register when they are imported
    found = function.dispatch(type(result))
    return None if found is function.dispatch(object) else found
