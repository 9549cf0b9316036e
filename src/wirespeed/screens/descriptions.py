"""What commands print that measure nothing: the documentation, a machine, a dry run on it.

A machine is a tree of what is known, and how each pair of GPUs is joined. A dry run is text, JSON, or a page
with a drawing of the machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.style import Style as RichStyle
from rich.table import Column
from rich.table import Table as RichTable
from rich.text import Text

from ..errors import MachineError
from ..hardware.devices import NumaNode
from ..hardware.network import Network
from ..hardware.topology import Cache, Link, LinkKind, Machine
from ..measurement import Unit
from ..model import FILE_ENGINES, Executor
from ..reports import SIMULATED, Style
from ..reports.console import pieces, printed
from ..reports.findings import aligned
from ..reports.style import IMAGE, LINK, Topic, causes, topic, topics
from ..terminal import escaped, visible
from ..units import GB, format_size, format_time, many

if TYPE_CHECKING:
    from ..features.transfers.dry_run import DryRun, PlannedMeasurement, PlannedWork
    from ..reports.html.link_use import Use

#: The command that shows a topic in the terminal.
HELP = "wirespeed help"
#: Maximum number of further sections that a search names.
_OTHERS = 8
_MENTIONED = re.compile(rf"(?<={HELP} )[\w#-]+")


def render_topic(shown: Topic, style: Style) -> str:
    """A topic as text for a terminal; references to pages become commands that show them."""
    text = LINK.sub(lambda match: _named(match, shown.file.stem), IMAGE.sub("", shown.text))
    return printed(style, Text(shown.title, style="bold"), "", _markdown(text))


def _fit(table: RichTable, width: int) -> None:
    """Give the columns of a table widths in which the longest word of each fits, if all do."""
    table.pad_edge, table.collapse_padding = True, False
    room = width - 3 * len(table.columns) - 1  # padding and borders
    cells = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    whole = [max(map(len, texts)) for texts in cells]
    widths = [max(len(word) for text in texts for word in [*text.split(), " "]) for texts in cells]
    while sum(widths) > room > len(widths):
        widths[widths.index(max(widths))] -= 1
    while sum(widths) < min(room, sum(whole)):
        widest = max(range(len(widths)), key=lambda i: whole[i] / widths[i])
        widths[widest] += 1
    for column, chosen in zip(table.columns, widths, strict=True):
        column.overflow, column.width = "fold", chosen


def _markdown(text: str) -> RenderableType:
    """Markdown in which no cell of a table is cut: an option or a name that ends in … cannot be typed."""
    from rich.markdown import Markdown, TableElement

    class WholeCells(TableElement):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            for table in super().__rich_console__(console, options):
                if isinstance(table, RichTable):
                    _fit(table, options.max_width)
                yield table

    class WholeTables(Markdown):
        elements = {**Markdown.elements, "table_open": WholeCells}  # noqa: RUF012 - as rich declares it

    return WholeTables(text, hyperlinks=False)


def overview(style: Style) -> str:
    """The pages with their titles, the causes, and what else ``wirespeed help`` shows."""
    pages = RichTable.grid(padding=(0, 2))
    for name in topics():
        page = topic(name)
        pages.add_row(f"  {name}", page.title if page else "")
    lines: list[RenderableType] = [
        Text("Pages:", style="bold"), pages, "",
        Text("Causes of slow paths:", style="bold"),
        Padding(Text(", ".join(causes())), (0, 0, 0, 2)), "",
        Text(f"{HELP} PAGE or CAUSE shows it. {HELP} WORD searches, for example for slurm or busbw."),
        Text("wirespeed COMMAND --help shows its options; wirespeed --help lists the commands."),
    ]  # fmt: skip
    return printed(style, *lines)


def found(sections: Sequence[Topic], style: Style) -> str:
    """The best section for a word, and the commands that show others."""
    first, *others = sections
    text = render_topic(first, style)
    if others:
        names = list(dict.fromkeys(other.name for other in others if other.name != first.name))[:_OTHERS]
        text += printed(style, "", Text("See also:", style="bold"), *(Text(f"  {HELP} {n}") for n in names))
    return text


def linked(text: str) -> Text:
    """A text in which the topics of ``wirespeed help`` are links, where the terminal supports them."""
    shown = Text(text)
    for match in _MENTIONED.finditer(text):
        if target := topic(match[0]):
            shown.stylize(RichStyle(link=target.link), match.start() - len(HELP) - 1, match.end())
    return shown


def _named(match: re.Match[str], page: str) -> str:
    """The text of a link with the command that shows what it leads to, if that is a topic."""
    text, file, anchor = match.groups()
    if ("/" in file or not file.endswith(".md")) and file:
        return f"{text} ({file})" if "://" in file else str(text)
    name = f"{file.removesuffix('.md') or page}{anchor or ''}"
    return f"{text} (`{HELP} {name}`)" if topic(name) else str(text)


def render_machine(machine: Machine, style: Style) -> str:
    """The tree of the parts, and below it the matrix of pairs of GPUs."""
    return printed(style, *_tree(machine, style.width), *_joined(machine, style.width))


#: How a pair of GPUs is joined, and what that means.
_WORDS = {
    "nvl": "NVLink",
    "c2c": "by way of a CPU's C2C link",
    "sw": "one PCIe switch",
    "sws": "PCIe switches",
    "host": "PCIe and the memory of one NUMA node",
    "sock": "PCIe and a link between sockets",
    "net": "a network",
    "none": "no way is known",
}


def _joined(machine: Machine, width: int) -> Iterator[RenderableType]:
    """Yield the matrix of how each GPU reaches each other, with the least rate on the way."""
    if len(machine.gpus) < 2:
        return
    network = Network(machine)
    names = [gpu.name for gpu in machine.gpus]
    pairs = [(gpu, other) for gpu in machine.gpus for other in names if other != gpu.name]
    ways = {(gpu.name, other): _way(network, gpu.name, other) for gpu, other in pairs}
    apart = {(gpu.name, other) for gpu, other in pairs if other not in gpu.peers}
    words = {pair: f"{word} {rate}".strip() + "*" * (pair in apart) for pair, (word, rate) in ways.items()}
    rows = [[row, *(words.get((row, name), "-") for name in names)] for row in names]
    yield Text("\nhow GPUs are joined, and GB/s each way", style="bold")
    yield from pieces(Column("", no_wrap=True, style="dim"), names, rows, width)
    used = [f"{word}: {_WORDS[word]}" for word in dict.fromkeys(word for word, _ in ways.values())]
    if apart:
        used.append("*: no peer access")
    yield Text("; ".join(used), style="dim")


def _way(network: Network, source: str, destination: str) -> tuple[str, str]:
    """The word for the way between two GPUs, and the least capacity on it in GB/s."""
    machine = network.machine
    ends = [machine.vertex(Executor(name)) for name in (source, destination)]
    try:
        links = [machine.links[i] for i in network.route(*ends)]
    except MachineError:
        return "none", ""
    kinds = {link.kind for link in links}
    by_host = any(link.destination in {node.name for node in machine.numa} for link in links)
    word = (
        "net" if LinkKind.NETWORK in kinds
        else "sock" if LinkKind.SOCKET in kinds
        else "c2c" if LinkKind.C2C in kinds
        else "nvl" if kinds == {LinkKind.NVLINK}
        else "host" if by_host
        else "sw" if len(links) == 2
        else "sws"
    )  # fmt: skip
    rates = [link.capacity for link in links]
    known = [rate for rate in rates if rate is not None]
    return word, f"{min(known) / GB:.0f}" if len(known) == len(rates) else "?"


def _tree(machine: Machine, width: int) -> list[RenderableType]:
    """The parts of a machine as a tree, under its name."""
    title = Text(machine.host or machine.name, style="bold")
    if machine.simulated:
        title.append(f"  (SIMULATED: {machine.name})", style="bold magenta")
    caches = [cache for cache in machine.caches if cache.type != "instruction"]
    cpu = filter(None, (machine.cpu or "CPU of unknown model", machine.architecture, machine.kernel))
    branches: list[tuple[str, list[str]]] = [(", ".join(cpu), [*map(_cache, caches), *_pages(machine)])]
    for node in machine.numa:
        inside = [f"GPU {gpu.index}: {gpu.model} ({gpu.bus_id}), {format_size(gpu.memory_bytes)}"
                  for gpu in machine.gpus if gpu.numa == node.index]  # fmt: skip
        inside += [f"{device.name}: {device.about}, {format_size(device.memory_bytes)}"
                   for device in chain(*machine.others.values()) if device.node == node.index]  # fmt: skip
        branches.append((_node(node, machine), inside))
    links = [link for link in machine.links if link.source != link.destination]
    if links:
        branches.append(("links", _links(links, width - 6)))
    if machine.ranks:
        hosts = len({rank.host for rank in machine.ranks})
        branches.append((f"{len(machine.ranks)} ranks on {hosts} hosts", []))
    if not machine.gpus:
        branches.append(("no GPU", []))
    branches += [(f"note: {note}", []) for note in machine.notes]
    lines: list[str] = []
    for i, (text, inside) in enumerate(branches):
        last = i == len(branches) - 1
        lines.append(("└─ " if last else "├─ ") + text)
        for j, line in enumerate(inside):
            lines.append(("   " if last else "│  ") + ("└─ " if j == len(inside) - 1 else "├─ ") + line)
    return [title, Text("\n".join(lines))]


def _pages(machine: Machine) -> list[str]:
    """The sizes of huge pages, if known."""
    size, transparent = machine.huge_page_bytes, machine.transparent_huge_pages
    parts = [f"huge pages of {format_size(size)}"] if size else []
    parts += [f"transparent huge pages: {transparent}"] if transparent else []
    return [", ".join(parts)] if parts else []


def _cache(cache: Cache) -> str:
    shared = f"shared by {cache.shared_by} CPUs" if cache.shared_by > 1 else "for each core"
    return f"L{cache.level}: {format_size(cache.bytes)} {shared}"


def _node(node: NumaNode, machine: Machine) -> str:
    memory = next((link for link in machine.links if link.source == link.destination == node.name), None)
    rate = f" at up to {memory.capacity / GB:.0f} GB/s" if memory and memory.capacity else ""
    cores = f"{len(node.cores)} cores" if len(node.cores) != 1 else "1 core"
    threads = f" x {node.threads_per_core} threads" if node.threads_per_core > 1 else ""
    cpus = f" (CPUs {_ranges(node.cpus)})" if node.cpus else ""
    free = f", {format_size(node.free_bytes)} free" if node.free_bytes else ""
    return f"{node.name}: {cores}{threads}{cpus}, {format_size(node.memory_bytes)}{rate}{free}"


def _ranges(numbers: tuple[int, ...]) -> str:
    """Numbers as ``0-3,8``."""
    runs = []
    for _, group in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        runs.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ",".join(runs)


def _links(links: list[Link], width: int) -> list[str]:
    """Each kind of link with its rate and the vertices that it joins, as many as have room."""

    def kind(link: Link) -> tuple[LinkKind, float]:
        return link.kind, link.capacity or 0.0

    lines = []
    for (name, rate), group in groupby(sorted(links, key=kind, reverse=True), key=kind):
        joined = list(dict.fromkeys(" - ".join(sorted((link.source, link.destination))) for link in group))
        text = f"{name} {f'{rate / GB:.4g} GB/s each way' if rate else 'of unknown rate'}: {joined[0]}"
        for i, pair in enumerate(joined[1:], 1):
            more = f" and {len(joined) - i} more"
            last = i == len(joined) - 1
            if len(text) + len(pair) + 2 + (0 if last else len(more)) > width:
                text += more
                break
            text += f", {pair}"
        lines.append(text)
    return lines


#: Formats of a dry run.
DRY_RUN_FORMATS = ("table", "json", "html")
#: Maximum number of measurements that the page draws.
_DRAWN = 12
#: Characters of a time line.
_TIMELINE = 40


def render_dry_run(run: DryRun, machine: Machine, format: str) -> str:
    """A dry run in one of ``DRY_RUN_FORMATS``."""
    if format == "json":
        return escaped(msgspec.json.format(msgspec.json.encode(run), indent=1).decode()) + "\n"
    return _page(run, machine) if format == "html" else visible(_text(run))


def _text(run: DryRun) -> str:
    name = run.machine + (f" · {SIMULATED}" if run.simulated else "")
    lines = [f"dry run on {name}", f"{many(len(run.measurements), 'measurement')}; nothing is measured"]
    for number, measurement in enumerate(run.measurements, 1):
        works = measurement.works
        together = many(len(works), "transfer") + " that start together" * (len(works) > 1)
        lines += ["", f"{number}. {measurement.testcase}: {together}", *_table(measurement)]
        lines += [f"  cannot run here: {measurement.refused}"] if measurement.refused else []
    return "\n".join([*lines, *(f"not measured: {reason}" for reason in run.waived)]) + "\n"


def _table(planned: PlannedMeasurement) -> list[str]:
    """The transfers, the links that they share and the values of a measurement."""
    rows = [["  transfer", "executes", "size", "GB/s limit", "alone"]]
    notes = []
    for i, work in enumerate(planned.works):
        rows.append([
            f"  {i}: {_name(work)}", f"{work.executor} {work.engine}{_shape(work)}", format_size(work.bytes),
            _rate(work.limit), _rate(work.alone),
        ])  # fmt: skip
        route = " - ".join(work.route) or "unknown"
        notes.append(f"  {i}: route {route}; bounded by {work.bound}")
        if work.is_above_limit:
            notes.append(
                f"  {i}: the rate of {_rate(work.rate)} GB/s is above the limit of {_rate(work.free)} GB/s"
            )
    for link in planned.links:
        if len(link.used_by) > 1:
            users = ", ".join(map(str, link.used_by))
            full = ", full" if link.full else ""
            notes.append(f"  shared: {link.name} ({link.kind}, {_rate(link.capacity)} GB/s{full}) by {users}")
    for value in planned.values:
        of = ", ".join(map(str, value.of))
        place = " ".join(filter(None, (value.table, value.row, value.column)))
        limit = f"limit {_rate(value.limit)} GB/s" if value.unit is Unit.RATE else "latency, no limit"
        expected = (
            f", expected {_rate(value.expected[0])} to {_rate(value.expected[1])}" if value.expected else ""
        )
        notes.append(f"  value {place}: {value.reduce} of {of}; {limit}{expected}")
    return [line.rstrip() for line in aligned(rows)] + notes + _timeline(planned.works)


def _timeline(works: Sequence[PlannedWork]) -> list[str]:
    """When each transfer runs, as text; empty if all begin at the common start."""
    last = max((work.end or work.start for work in works), default=0.0)
    if not any(work.start for work in works) or not last:
        return []
    lines = [f"  time line of one copy of each at the limits, {format_time(last)}:"]
    for i, work in enumerate(works):
        end = last if work.end is None else work.end
        left = round(_TIMELINE * work.start / last)
        right = max(left + 1, round(_TIMELINE * end / last))
        sign = "-" if work.load else "=" if work.end is not None else "?"
        until = format_time(work.end) if work.end is not None else "the end" if work.load else "unknown"
        bar, start = " " * left + sign * (right - left), format_time(work.start) if work.start else "0"
        lines.append(f"  {i}: |{bar:{_TIMELINE}}| {start} to {until}")
    return lines


def _name(work: PlannedWork) -> str:
    if not work.source:
        name = work.operation
    elif work.operation == "copy":
        name = f"{work.source}->{work.destination}"
    else:
        name = f"{work.operation} {work.source}"
        name += f" to {work.destination}" if work.destination != work.source else ""
    pageable = " pageable" if "pageable" in work.memory and work.engine not in ("cpu", *FILE_ENGINES) else ""
    return f"{'load ' if work.load else ''}{name}{pageable}"


def _shape(work: PlannedWork) -> str:
    rate = f" rate={work.pace:.0%}" if work.pace < 1 else ""
    rate = rate if work.rate is None else f" rate={work.rate / GB:.4g}GB/s"
    if work.engine in ("cpu", *FILE_ENGINES):
        return f" {many(work.threads, 'thread')}{rate}"
    counts = (("blocks", work.blocks), ("threads", work.threads))
    return "".join(f" {name}={count}" for name, count in counts if count) + rate


def _rate(value: float | None) -> str:
    return "?" if value is None else f"{value / GB:.4g}"


def _page(run: DryRun, machine: Machine) -> str:
    """A page with a drawing of the machine for each measurement: the load of its links."""
    from ..reports.html.charts import markup
    from ..reports.html.link_use import draw
    from ..reports.html.tables import rendered, source

    drawn = []
    for measurement in run.measurements[:_DRAWN]:
        drawing = draw(machine, _uses(measurement, machine))
        svg = markup(drawing) if drawing is not None else ""
        drawn.append((measurement.testcase, svg, "\n".join(_table(measurement))))
    more = max(0, len(run.measurements) - _DRAWN)
    banner = SIMULATED if run.simulated else ""
    title = f"Dry run on {run.machine}"
    page = rendered(
        "dry_run.html", source("style.css"), title=title, simulated=banner, drawn=drawn, more=more
    )
    return f"{page}\n"


def _uses(measurement: PlannedMeasurement, machine: Machine) -> Sequence[Use]:
    """The load of each link; a full link is marked as a warning."""
    from ..judging.verdict import Verdict
    from ..reports.html.link_use import Use

    loads = {link.index: link for link in measurement.links}
    return [
        Use(link, None, Verdict.UNKNOWN) if (load := loads.get(i)) is None
        else Use(link, load.load, Verdict.WARN if load.full else Verdict.PASS)
        for i, link in enumerate(machine.links)
    ]  # fmt: skip
