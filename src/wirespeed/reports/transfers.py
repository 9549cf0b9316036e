"""The transfers of a run as a file for ``wirespeed run -f``, which you can edit."""

from __future__ import annotations

from ..document import Document
from ..errors import UsageError, WirespeedError
from ..judging.judged import Judged
from ..judging.omissions import plan_options, tested
from ..language.syntax import heading, testcase_text
from ..language.toml_file import loads
from ..terminal import one_line
from ..testcases import Testcase
from .style import Style


def render(judged: Judged, style: Style) -> str:
    """The testcases of a run that measured transfers; comments say why others are missing."""
    document, machine = judged.document, judged.document.machine
    options = plan_options(document)
    parts = [heading(machine)]
    if document.imported:
        parts.append(_comment(f"the values of the run were {document.origin}; the machine may be assumed"))
    cases: dict[str, Testcase] = {}
    try:
        cases = {case.name: case for case in _defined(document)}
    except UsageError as error:
        parts.append(_comment(f"the transfers of the run cannot be read: {error}"))
    for result in document.testcases:
        case = cases.get(result.name) or tested(result)
        if case is None:
            parts.append(_comment(f"{result.name} is not a testcase of this version"))
            continue
        try:
            parts.append(testcase_text(case, case.plan(machine, options), machine))
        except WirespeedError as error:  # also of a machine that is no longer a valid description
            parts.append(_comment(str(error)))
    return "\n".join(parts)


def _comment(text: str) -> str:
    return f"# {one_line(text)}\n"


def _defined(document: Document) -> list[Testcase]:
    """The testcases that the run was given in the language."""
    texts = document.options.get("transfers")
    if not isinstance(texts, list):
        return []
    return [case for text in texts for case in loads(text, judged=False).testcases]
