"""The report of a qualification in all formats, in place of tables."""

from __future__ import annotations

from functools import partial

from ...document import Document
from ...qualification import OF_NODE, Qualification, part_name
from ...reports.additions import Report
from .text import body, ending, evidence, lines


def report(document: Document) -> Report | None:
    """The report of the qualification of a run; None without one."""
    found = document.qualification
    if found is None:
        return None
    shown, last = partial(body, document, found), partial(ending, document, found)
    return Report(lines(document, found), shown, last, _cases(found), found.compared)


def _cases(qualification: Qualification) -> dict[str, list[tuple[bool, str]]]:
    """What is wrong with each node, and with each slow part that is not one node's."""
    nodes = qualification.nodes
    found = {node.name: [(True, node.missing)] if node.missing else [] for node in nodes}
    for culprit in qualification.culprits:
        name = nodes[culprit.nodes[0]].name if culprit.kind in OF_NODE else part_name(culprit, nodes)
        found.setdefault(name, []).append((culprit.confirmed, evidence(culprit, qualification)))
    return found
