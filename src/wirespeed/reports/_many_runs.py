"""Reports of ``wirespeed check`` on many runs: parts, made where the Documents are, and the whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ..document import Document
from ..judging.fleet import FleetNode, node_summary
from ..terminal import one_line, visible
from ..units import many
from . import Judged, Style, _check, _check_json, _nodes, junit, markdown, prometheus
from ._many_files import ReadRuns


@dataclass(frozen=True)
class CheckedRun:
    """What the reports of many runs need of one run.

    Parameters
    ----------
    node : FleetNode
        Its summary.
    remarks : tuple[str, ...]
        What its row says about gates and the baseline.
    part : Any
        What it adds to the report, in the form that the format requires.
    """

    node: FleetNode
    remarks: tuple[str, ...]
    part: Any

    @classmethod
    def of(cls, file: str, document: Document, judged: Judged, format: str, style: Style) -> CheckedRun:
        """Return what is needed of a judged run for one format of ``wirespeed check``."""
        node = node_summary(file, document, judged.check, judged.diagnosis)
        return cls(node, tuple(_remarks(judged)), _part(node, document, judged, format, style))


def render(read: ReadRuns[CheckedRun], format: str, style: Style) -> str:
    """Return the report of many runs.

    Parameters
    ----------
    read : ReadRuns[CheckedRun]
        The runs, and the files that cannot be read or judged.
    format : str
        Format of ``wirespeed check``.
    style : Style
        Width, colour and detail.
    """
    runs, unreadable = read.found, read.unreadable
    if format == "json":
        return _check_json.render([*(run.part for run in runs), *map(_check_json.unreadable, unreadable)])
    if format == "junit":
        return visible(junit.joined([run.part for run in runs], unreadable))
    if format == "markdown":
        return visible(
            markdown.joined([(run.node, run.remarks, run.part) for run in runs], unreadable, style)
        )
    if format == "prometheus":
        return visible(prometheus.joined([(run.node.file, run.part) for run in runs], unreadable))
    if format == "html":
        from .html.fleet import fleet_page

        return visible(fleet_page([run.node for run in runs], [str(one) for one in unreadable]))
    screens = [f"\n{one_line(run.node.file)}:\n{run.part}" for run in runs if style.verbose]
    return "".join((*screens, _nodes.render([(run.node, run.remarks) for run in runs], style, unreadable)))


def _part(node: FleetNode, document: Document, judged: Judged, format: str, style: Style) -> Any:
    """Return what a run adds to a report."""
    style = replace(style, judged=judged)
    if format == "json":
        return msgspec.Raw(msgspec.json.encode(_check_json.run(node.file, document, judged)))
    if format == "junit":
        return junit.suite(document, style)
    if format == "markdown":
        return markdown.render(document, style) if style.verbose else ""
    if format == "prometheus":
        return prometheus.families(document, style)
    return _check.render(document, judged, style) if format == "text" and style.verbose else None


def _remarks(judged: Judged) -> Iterator[str]:
    """Yield what the row of a run says about its gates and its baseline."""
    if failed := sum(compared.failed for compared in judged.check.gates):
        yield f"{many(failed, 'threshold')} not met"
    if judged.check.baseline:
        yield from (f"baseline: {text}" for text in judged.check.baseline.notes)
