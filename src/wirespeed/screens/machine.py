"""A machine as text: a tree of what is known, and how each pair of GPUs is joined."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, groupby

from rich.console import RenderableType
from rich.table import Column
from rich.text import Text

from ..errors import MachineError
from ..hardware.devices import NumaNode
from ..hardware.link_graph import Network
from ..hardware.topology import Cache, Link, LinkKind, Machine
from ..model import Executor
from ..reports import Style
from ..reports.console import pieces, printed
from ..reports.machine_texts import ranks
from ..units import GB, format_size


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
    branches += [(text, []) for text in ranks(machine)]
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
