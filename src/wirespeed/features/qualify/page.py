"""The nodes of a qualification on a page: slow parts, and what to copy."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from functools import partial
from typing import Any

from ...document import Document
from ...judging.advice import Advice
from ...judging.judged import Judged
from ...judging.qualification_verdict import is_over_tcp, next_run, remedy_of, unexplained
from ...judging.verdict import Verdict
from ...qualification import (
    BY_NETWORK,
    OF_NODE,
    PartKind,
    Qualification,
    compact,
    part_name,
)
from ...reports.additions import PagePart
from ...reports.html.templates import made
from ...terminal import one_line
from .text import findings, remarks, values_of

#: Maximum number of slow parts in the table.
_LISTED = 500


def part(judged: Judged) -> PagePart | None:
    """The section of the page of a run; None without a qualification."""
    found = qualified(judged.document)
    if found is None:
        return None
    markup = partial(made, f"{__package__}:page.html", "qualification", found)
    return PagePart("Nodes", "nodes", "results", markup, is_all=True)


def qualified(document: Document) -> dict[str, Any] | None:
    """The template's variables for the nodes; None if the run qualified none."""
    found = document.qualification
    if found is None:
        return None
    return {
        "slow": list(_slow(document, found)),
        "lists": _lists(document, found),
        "lines": [one_line(line) for line in remarks(document, found)],
    }


def _slow(document: Document, found: Qualification) -> Iterator[tuple[str, Verdict, str, str, str, str]]:
    """Name, verdict, evidence, remedy, command and its node of the slow parts and missing nodes."""
    causes = [each for each in findings(document, found) if each.cells]
    over_tcp = is_over_tcp(document, found)
    for culprit in found.culprits[:_LISTED]:
        advice = remedy_of(culprit, over_tcp=over_tcp)
        of_node = culprit.kind in OF_NODE or culprit.kind is PartKind.LOSSY
        node = found.nodes[culprit.nodes[0]].name
        if culprit.limited and culprit.kind is PartKind.PATH:
            advice = unexplained(document, found)
        own = [each for each in causes if each.host == node or each.cause.between or not of_node]
        if culprit.kind in (PartKind.PATH, *BY_NETWORK) and own:
            cause = own[0]
            advice = Advice(cause.cause.remedy, "; ".join(cause.commands))
            node, of_node = cause.host, not cause.cause.between
        yield (
            part_name(culprit, found.nodes),
            Verdict.FAIL if culprit.confirmed else Verdict.WARN,
            values_of(culprit, found),
            advice.do,
            advice.command,
            node if of_node and advice.command else "",
        )
    for missing in [each for each in found.nodes if each.missing][:_LISTED]:
        remedy = "check that it runs, and that its network is up"
        yield missing.name, Verdict.FAIL, missing.missing, remedy, "ip -br link", missing.name


def _lists(document: Document, found: Qualification) -> list[tuple[str, str]]:
    """What to copy, each with its name: nodes to exclude and to use, and the command that measures again."""
    lists = []
    if found.excluded:
        lists.append(("Exclude (Slurm)", f"--exclude={shlex.quote(compact(found.excluded))}"))
    if found.excluded and found.compared:
        lists.append(("Usable nodes", compact(found.chosen)))
    if found.in_doubt:
        lists.append(("In doubt", compact(found.in_doubt)))
    partners = ", with other partners" if len(found.nodes) > 2 else ""
    lists.append((f"Confirm: start again on these nodes{partners}", next_run(document, found)))
    return [(name, one_line(text)) for name, text in lists if text]
