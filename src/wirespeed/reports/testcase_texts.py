"""Texts on the testcases of a run: the number of each verdict, whether data was verified, and buffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ..document import Document, Status, TestcaseResult
from ..judging.check import Check
from ..judging.omissions import is_verified
from ..judging.verdict import Verdict
from ..peer_access import PeerVerdict
from ..testcases.base import DEFAULT_SIZE
from ..testcases.table import TABLE
from ..units import format_size, format_time, many

#: What is known of data of which some is wrong.
WRONG_DATA = "wrong data"


def counted(verdicts: Iterable[Verdict]) -> str:
    """How often each verdict occurs, what was not judged last; empty for none."""
    counts = Counter(verdicts)
    ordered = sorted(Verdict, key=lambda verdict: not verdict.is_judged)
    return ", ".join(f"{counts[verdict]} {verdict.word}" for verdict in ordered if counts[verdict])


def data_word(document: Document, result: TestcaseResult) -> str:
    """What is known of the data of a testcase: verified, or why there is none."""
    if result.status is not Status.PASSED:
        return WRONG_DATA if result.status is Status.FAILED else str(result.status)
    return _verification(document, result)


def verification(document: Document) -> str:
    """Whether the data of a run is right; empty for a log of another tool that does not say."""
    wrong = any(result.status is Status.FAILED for result in document.testcases)
    wrong |= document.peers is not None and PeerVerdict.WRONG in document.peers.verdicts.values()
    return WRONG_DATA if wrong else _verification(document)


def _verification(document: Document, result: TestcaseResult | None = None) -> str:
    """Whether the data of a run or testcase was verified; empty if another tool does not say."""
    words = {True: "data verified", False: "data not verified", None: ""}
    measured = any(table.cells for one in document.testcases for table in one.tables if table.values())
    return words[is_verified(document, result)] if measured else ""


def buffers(document: Document, result: TestcaseResult) -> str:
    """The size of the buffers of a testcase if it is not the default: ``1 MiB buffers``; else empty.

    Of another tool's log, if all of its values are of one size. Curves over the size say it themselves.
    """
    if any(table.is_curve for table in result.tables):
        return ""
    case = next((case for case in TABLE if case.name == result.name), None)
    if document.imported:
        sizes = {cell.bytes for table in result.tables for cell in table.cells if cell.value is not None}
        size = sizes.pop() if len(sizes) == 1 else 0
        default = case.size if case and isinstance(case.size, int) else DEFAULT_SIZE
    else:
        asked = document.options.get("size")
        size = asked if isinstance(asked, int) and case and not case.fixed_size else 0
        default = DEFAULT_SIZE
    return f"{format_size(size)} buffers" if size and size != default else ""


def closing(document: Document, check: Check) -> str:
    """The verdict on a run, how many testcases have each, and whether the data was verified."""
    verdicts = [check.testcases[result.name] for result in document.testcases]
    counts = f"{many(len(verdicts), 'testcase')}: {counted(verdicts)}" if verdicts else "nothing was run"
    data = verification(document)
    ending = document.origin or f"in {format_time(document.seconds)}"
    return f"{check.verdict.heading}  {counts}" + (f" · {data}" if data else "") + f" · {ending}"
