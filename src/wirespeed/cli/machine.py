"""``wirespeed machine``: what was discovered, as a tree or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ..topology import Cache, Link, LinkKind, Machine, NumaNode
from ..units import GB, format_size
from .common import OK, add_machine, parser


def main(name: str, argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    from ..backends import describe

    arguments = parser(name, "Show what was discovered of the machine.")
    add_machine(arguments)
    arguments.add_argument(
        "--format",
        choices=("tree", "json"),
        default="tree",
        help="json is what --machine reads (default: tree)",
    )
    options = arguments.parse_args(argv)
    machine = describe(options.machine)
    print(machine.to_json().decode() if options.format == "json" else tree(machine), end="")
    return OK


def tree(machine: Machine) -> str:
    """Return what is known of a machine as a tree."""
    title = machine.host or machine.name
    if machine.simulated:
        title += f"  (SIMULATED: {machine.name})"
    branches: list[tuple[str, list[str]]] = [(_cpu(machine), [_cache(c) for c in _data_caches(machine)])]
    for node in machine.numa:
        inside = [f"GPU {gpu.index}: {gpu.model} ({gpu.bus_id}), {format_size(gpu.memory_bytes)}"
                  for gpu in machine.gpus if gpu.numa == node.index]  # fmt: skip
        branches.append((_node(node, machine), inside))
    links = [link for link in machine.links if link.source != link.destination]
    if links:
        branches.append(("links", _links(links)))
    if machine.ranks:
        hosts = len({rank.host for rank in machine.ranks})
        branches.append((f"{len(machine.ranks)} ranks on {hosts} hosts", []))
    if not machine.gpus:
        branches.append(("no GPU", []))
    branches += [(f"note: {note}", []) for note in machine.notes]
    lines = [title]
    for i, (text, inside) in enumerate(branches):
        last = i == len(branches) - 1
        lines.append(("└─ " if last else "├─ ") + text)
        for j, line in enumerate(inside):
            lines.append(("   " if last else "│  ") + ("└─ " if j == len(inside) - 1 else "├─ ") + line)
    return "\n".join(lines) + "\n"


def _cpu(machine: Machine) -> str:
    parts = [machine.cpu or "CPU of unknown model", machine.architecture, machine.kernel]
    if machine.huge_page_bytes:
        parts.append(f"huge pages of {format_size(machine.huge_page_bytes)}")
    if machine.transparent_huge_pages:
        parts.append(f"transparent huge pages: {machine.transparent_huge_pages}")
    return ", ".join(part for part in parts if part)


def _data_caches(machine: Machine) -> list[Cache]:
    return [cache for cache in machine.caches if cache.type != "instruction"]


def _cache(cache: Cache) -> str:
    shared = f"shared by {cache.shared_by} CPUs" if cache.shared_by > 1 else "for each core"
    return f"L{cache.level}: {format_size(cache.bytes)} {shared}"


def _node(node: NumaNode, machine: Machine) -> str:
    memory = next((x for x in machine.links if x.source == x.destination == node.name), None)
    rate = f" at up to {memory.capacity / GB:.0f} GB/s" if memory and memory.capacity else ""
    cores = f"{len(node.cores)} cores" if len(node.cores) != 1 else "1 core"
    threads = f" x {node.threads_per_core} threads" if node.threads_per_core > 1 else ""
    cpus = f" (CPUs {_ranges(node.cpus)})" if node.cpus else ""
    free = f", {format_size(node.free_bytes)} free" if node.free_bytes else ""
    return f"{node.name}: {cores}{threads}{cpus}, {format_size(node.memory_bytes)}{rate}{free}"


def _ranges(numbers: tuple[int, ...]) -> str:
    """Return numbers as ``0-3,8``."""
    runs = []
    for _, group in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        runs.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ",".join(runs)


def _links(links: list[Link]) -> list[str]:
    """Return each kind of link with its rate and the vertices that it joins."""

    def kind(link: Link) -> tuple[LinkKind, float]:
        return link.kind, link.capacity or 0.0

    lines = []
    for (name, rate), group in groupby(sorted(links, key=kind, reverse=True), key=kind):
        joined = dict.fromkeys(" - ".join(sorted((x.source, x.destination))) for x in group)
        shown = ", ".join(list(joined)[:6]) + (f" and {len(joined) - 6} more" if len(joined) > 6 else "")
        lines.append(f"{name} {f'{rate / GB:.4g} GB/s each way' if rate else 'of unknown rate'}: {shown}")
    return lines
