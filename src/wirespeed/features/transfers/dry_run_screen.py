"""A dry run as text, JSON, or a page with a drawing of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ...hardware.topology import Machine
from ...measurement import Unit
from ...model import FILE_ENGINES
from ...reports import SIMULATED
from ...reports.values import aligned
from ...terminal import escaped, visible
from ...units import GB, format_size, many
from .dry_run import Data, is_full

if TYPE_CHECKING:
    from ...reports.html.link_use import Use


#: Formats of a dry run.
DRY_RUN_FORMATS = ("table", "json", "html")
#: Maximum number of measurements that the page draws.
_DRAWN = 12


def render_dry_run(run: Data, machine: Machine, format: str) -> str:
    """A dry run in one of ``DRY_RUN_FORMATS``."""
    if format == "json":
        return escaped(msgspec.json.format(msgspec.json.encode(run), indent=1).decode()) + "\n"
    return _page(run, machine) if format == "html" else visible(_text(run))


def _text(run: Data) -> str:
    name = run["machine"] + (f" · {SIMULATED}" if run["simulated"] else "")
    lines = [f"dry run on {name}", f"{many(len(run['measurements']), 'measurement')}; nothing is measured"]
    for number, measurement in enumerate(run["measurements"], 1):
        works = measurement["works"]
        together = many(len(works), "transfer") + " that start together" * (len(works) > 1)
        lines += ["", f"{number}. {measurement['testcase']}: {together}", *_table(measurement)]
        lines += [f"  cannot run here: {measurement['refused']}"] if measurement["refused"] else []
    return "\n".join([*lines, *(f"not measured: {reason}" for reason in run["waived"])]) + "\n"


def _table(planned: Data) -> list[str]:
    """The transfers, the links that they share and the values of a measurement."""
    rows = [["  transfer", "executes", "size", "GB/s limit", "alone"]]
    notes = []
    for i, work in enumerate(planned["works"]):
        by = f"{work['executor']} {work['engine']}{_shape(work)}"
        limits = map(_rate, (work["limit"], work["alone"]))
        rows.append([f"  {i}: {_name(work)}", by, format_size(work["bytes"]), *limits])
        route = " - ".join(work["route"]) or "unknown"
        notes.append(f"  {i}: route {route}; bounded by {work['bound']}")
    for link in planned["links"]:
        if len(link["used_by"]) > 1:
            users = ", ".join(map(str, link["used_by"]))
            how = f"{link['kind']}, {_rate(link['capacity'])} GB/s{', full' * is_full(link)}"
            notes.append(f"  shared: {link['name']} ({how}) by {users}")
    for value in planned["values"]:
        of = ", ".join(map(str, value["of"]))
        place = " ".join(filter(None, (value["table"], value["row"], value["column"])))
        limit = f"limit {_rate(value['limit'])} GB/s" if value["unit"] is Unit.RATE else "latency, no limit"
        expected = f", expected {' to '.join(map(_rate, value['expected']))}" if value["expected"] else ""
        notes.append(f"  value {place}: {value['reduce']} of {of}; {limit}{expected}")
    return [line.rstrip() for line in aligned(rows)] + notes


def _name(work: Data) -> str:
    if not work["source"]:
        name = work["operation"]
    elif work["operation"] == "copy":
        name = f"{work['source']}->{work['destination']}"
    else:
        name = f"{work['operation']} {work['source']}"
        name += f" to {work['destination']}" if work["destination"] != work["source"] else ""
    by_driver = "pageable" in work["memory"] and work["engine"] not in ("cpu", *FILE_ENGINES)
    return f"{'load ' if work['load'] else ''}{name}{' pageable' * by_driver}"


def _shape(work: Data) -> str:
    if work["engine"] in ("cpu", *FILE_ENGINES):
        return f" {many(work['threads'], 'thread')}"
    counts = (("blocks", work["blocks"]), ("threads", work["threads"]))
    return "".join(f" {name}={count}" for name, count in counts if count)


def _rate(value: float | None) -> str:
    return "?" if value is None else f"{value / GB:.4g}"


def _page(run: Data, machine: Machine) -> str:
    """A page with a drawing of the machine for each measurement: the load of its links."""
    from ...reports.html.charts import markup
    from ...reports.html.diagram import draw
    from ...reports.html.templates import rendered, source

    drawn = []
    for measurement in run["measurements"][:_DRAWN]:
        drawing = draw(machine, _uses(measurement, machine))
        svg = markup(drawing) if drawing is not None else ""
        drawn.append((measurement["testcase"], svg, "\n".join(_table(measurement))))
    more = max(0, len(run["measurements"]) - _DRAWN)
    banner = SIMULATED if run["simulated"] else ""
    title = f"Dry run on {run['machine']}"
    page = rendered(
        f"{__package__}:dry_run.html",
        source("style.css"),
        title=title,
        simulated=banner,
        drawn=drawn,
        more=more,
    )
    return f"{page}\n"


def _uses(measurement: Data, machine: Machine) -> Sequence[Use]:
    """The load of each link; a full link is marked as a warning."""
    from ...judging.verdict import Verdict
    from ...reports.html.link_use import Use

    loads = {link["index"]: link for link in measurement["links"]}
    return [
        Use(link, None, Verdict.UNKNOWN) if (load := loads.get(i)) is None
        else Use(link, load["load"], Verdict.WARN if is_full(load) else Verdict.PASS)
        for i, link in enumerate(machine.links)
    ]  # fmt: skip
