"""JUnit XML for CI systems: failed testcases, and values below the expected range."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Sequence

from ..document import Status, TestcaseResult
from ..judging.gates import GateResult
from ..judging.inventory import Missing
from ..judging.judged import Judged
from ..judging.omissions import UNVERIFIED, is_verified
from ..judging.verdict import Judgement, Verdict
from ..results.read_many import Unreadable
from ..statistics import grouped
from ..terminal import visible
from ..units import fitting, many
from .additions import Report, report_of
from .check_texts import applicable, gate_text
from .checked_runs import CheckedRun
from .explanations import explanations
from .style import SIMULATED, Style
from .testcase_texts import data_word, verification
from .values import number

#: Maximum number of values listed for a testcase.
_LISTED = 20


def render(judged: Judged, style: Style) -> str:
    """A file with one suite (``part``)."""
    return suites([part(judged, style)])


def joined(runs: Sequence[CheckedRun], unreadable: Sequence[Unreadable], style: Style) -> str:
    """The suites of several runs, and of the files that cannot be read."""
    return suites([run.part for run in runs], unreadable)


def suites(elements: Sequence[ET.Element], unreadable: Sequence[Unreadable] = ()) -> str:
    """Suites as a file, with a suite that has an error for each file that cannot be read."""
    elements = [*elements, *map(_unreadable, unreadable)]
    totals = {
        name: str(sum(int(element.get(name, 0)) for element in elements))
        for name in ("tests", "failures", "errors", "skipped")
    }
    seconds = math.fsum(float(element.get("time", 0)) for element in elements)
    root = ET.Element("testsuites", {"name": "wirespeed", **totals, "time": f"{seconds:.3f}"})
    root.extend(elements)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def suite(
    name: str, cases: Sequence[ET.Element], properties: Iterable[tuple[str, str]] = (), time: str = "0",
    **attributes: str,
) -> ET.Element:  # fmt: skip
    """A suite with the numbers of its cases and the properties that are not empty."""
    counts = {
        name: str(sum(case.find(tag) is not None for case in cases))
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    }
    element = ET.Element(
        "testsuite", {"name": name, "tests": str(len(cases)), **counts, "time": time, **attributes}
    )
    add_properties(element, properties)
    element.extend(cases)
    return element


def add_properties(element: ET.Element, properties: Iterable[tuple[str, str]]) -> None:
    """Add the properties that are not empty."""
    if known := [(name, value) for name, value in properties if value]:
        of_element = ET.SubElement(element, "properties")
        for name, value in known:
            ET.SubElement(of_element, "property", name=name, value=visible(value))


def case_of(name: str, kind: str = "", time: str = "0") -> ET.Element:
    """A case without an outcome; ``kind`` is the part of the name of its class behind ``wirespeed``."""
    classname = f"wirespeed.{kind}" if kind else "wirespeed"
    return ET.Element("testcase", classname=classname, name=visible(name), time=time)


def add_outcome(case: ET.Element, tag: str, *lines: str, most: int = _LISTED) -> None:
    """Add a failure, an error or a skip to a testcase; the first line is its message."""
    more = [f"and {len(lines) - most} more"] if len(lines) > most else []
    text = visible("\n".join((*lines[:most], *more)))
    ET.SubElement(case, tag, message=visible(lines[0]), type=tag).text = text


def _unreadable(file: Unreadable) -> ET.Element:
    case = case_of(file.file)
    add_outcome(case, "error", str(file))
    return suite("wirespeed", [case])


def part(judged: Judged, style: Style) -> ET.Element:
    """A suite with one case per testcase.

    Each case, and the suite for the run, has its verdict as a property. A testcase that fails is a failure;
    one that broke off for an error is an error. A waived testcase is skipped, one that was not judged, and
    one that passed without verification or, unless that is allowed, on a simulated machine.
    """
    document, check = judged.document, judged.check
    unjudged = (one for one in check.judgements if not one.verdict.is_judged or one.verdict.is_failure)
    why = grouped((judgement.key.testcase, judgement) for judgement in unjudged)
    cases = [
        _case(result, check.testcases[result.name], why.get(result.name, []), judged)
        for result in document.testcases
    ]
    if document.interrupted and not check.stale:
        case = case_of("the run")
        add_outcome(case, "error", f"run interrupted: {document.interrupted}")
        cases.append(case)
    if own := report_of(document):
        cases += _parts(own, judged)
    cases += [_absent(absence) for absence in check.missing if absence.verdict.is_failure]
    for compared in check.gates:
        cases += [_gate(result, compared.gates.name, judged) for result in applicable(compared)]
    facts = {"version": document.version, "machine": document.machine.name, "cpu": document.machine.cpu,
             "gpus": ", ".join(gpu.model for gpu in document.machine.gpus), "driver": document.machine.driver,
             "command": document.command, "simulated": SIMULATED if document.simulated else "",
             "imported": document.origin}  # fmt: skip
    warnings = [("warning", text) for text in explanations(document, lacking=check.missing)]
    causes = [("cause", found.line) for found in (judged.diagnosis.findings if style.checked else ())]
    words = [("verdict", str(check.verdict)), ("data", verification(document))]
    words += [("lacking", text) for text in judged.by.lacking]
    return suite(
        "wirespeed", cases, [*words, *warnings, *causes, *facts.items()], f"{document.seconds:.3f}",
        hostname=visible(document.hostname), timestamp=visible(document.started).removesuffix("Z"),
    )  # fmt: skip


def _case(result: TestcaseResult, verdict: Verdict, why: list[Judgement], judged: Judged) -> ET.Element:
    """A case; ``why`` are the values of the testcase that failed or were not judged."""
    document = judged.document
    case = case_of(result.name, time=f"{result.seconds:.3f}")
    add_properties(case, (("verdict", str(verdict)), ("data", data_word(document, result))))
    values = [judgement for judgement in why if judgement.verdict is verdict and judgement.value is not None]
    broken = "" if result.status.good else f"{result.status}: {result.reason}"
    if verdict.is_failure and result.status.is_failure:
        add_outcome(case, "failure" if result.status is Status.FAILED else "error", broken)
    elif verdict.is_failure:
        add_outcome(case, "failure", *map(_text_of, values or why))
    elif not verdict.is_judged:
        add_outcome(case, "skipped", broken or result.reason or (values[0].why if values else verdict.word))
    elif judged.proves_nothing or is_verified(document, result) is False:
        add_outcome(case, "skipped", SIMULATED if judged.proves_nothing else UNVERIFIED)
    if text := _values(result):
        ET.SubElement(case, "system-out").text = visible(text)
    return case


def _parts(own: Report, judged: Judged) -> Iterator[ET.Element]:
    """Yield a case for each part of the machine that a report of a feature names."""
    for name, texts in own.cases.items():
        case = case_of(name, "qualify")
        if any(confirmed for confirmed, _ in texts):
            ordered = sorted(texts, key=lambda found: not found[0])
            add_outcome(case, "failure", *(text for _, text in ordered), most=len(ordered))
        elif judged.proves_nothing:
            add_outcome(case, "skipped", SIMULATED)
        elif not own.compared:
            add_outcome(case, "skipped", Verdict.NOT_JUDGED.word)
        yield case


def _absent(absence: Missing) -> ET.Element:
    """A failed case for something that should be there and is not."""
    case = case_of(" ".join(filter(None, (absence.host, absence.part, *absence.where))), "inventory")
    add_outcome(case, "failure", str(absence))
    return case


def _gate(result: GateResult, name: str, judged: Judged) -> ET.Element:
    """A case for a gate; skipped if it says nothing about the machine."""
    gate = result.gate
    case = ET.Element(
        "testcase",
        classname=visible(f"gates.{name}"),
        name=visible(f"{gate.measures}: at least {gate.at_least}"),
        time="0",
    )
    if result.verdict is not Verdict.PASS:
        tag = "failure" if result.verdict is Verdict.FAIL else "skipped"
        add_outcome(case, tag, gate_text(result))
    elif judged.proves_nothing:
        add_outcome(case, "skipped", SIMULATED)
    return case


def _text_of(judgement: Judgement) -> str:
    """Place and value of a cell, and why it is too low."""
    scale, unit = fitting(judgement.unit, [judgement.value or 0.0])
    value = "no value" if judgement.value is None else f"{number(judgement.value, scale)} {unit}"
    text = f"{judgement.key.place}: {value}, {judgement.why}"
    if judgement.least:
        text += f", expected at least {number(judgement.least, scale)}"
    return text + (f": {judgement.culprit}" if judgement.culprit else "")


def _values(result: TestcaseResult) -> str:
    """One line per table: the number of values and their range."""
    lines = []
    for table in result.tables:
        if values := table.values():
            scale, unit = fitting(table.unit, values)
            extent = f"{number(min(values), scale)} to {number(max(values), scale)} {unit}"
            lines.append(f"{table.title}: {many(len(values), 'value')}, {extent}")
    return "\n".join(lines)
