"""What ``nvidia-smi topo -m`` and ``nvidia-smi nvlink -s`` show of a machine: facts, no measured values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..hardware.facts import Fact, Known
from .log import MOST_DEVICES, FoundLog, Tool, doubt, in_base, text

_GPU = re.compile(r"\s*GPU (\d{1,4}): (.+?) \(UUID: ")
#: Lines with which a log of this tool begins.
_START = re.compile(rf"\s*(\[4m)?GPU0\s+(X\s|GPU1\b|CPU Affinity|NIC0|mlx\d_\d)|{_GPU.pattern}")
_CONNECTION = re.compile(r"X|NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC|N/A")
#: What ``topo -p2p`` shows in place of connections.
_PEER_ACCESS = re.compile(r"\s*GPU\d{1,4}\s+((X|OK|C?NS|TNS|GNS|DR|U)\s+)*(OK|C?NS|TNS|GNS|DR|U)\b")
_LINK = re.compile(r"\s*Link (\d{1,3}): (?:([\d.]+) GB/s|<?(in-?active)>?)\s*$", re.IGNORECASE)
#: A GPU without an active link, which are then not listed: link -> rate.
_NO_LINK: dict[int, float | None] = {0: None}
_NONE_ACTIVE = re.compile(r".*all links are inactive", re.IGNORECASE)
_KNOWN = re.compile(
    r"$|Legend|NIC Legend|\S+ += |NIC\d+: |nvidia-smi|[$#] |NV\d|X +=|\s*Link \d+|mlx|NIC\d+\s|GPU NUMA|"
    r"-+$|\.\.\.|\[\.\.\."
)
#: Most NVLinks that a GPU has: more to all peers together lead to a switch, which each pair shares.
_MOST_LINKS = 18
#: P100s and V100s have up to two links to some of the eight GPUs of a host: who sees fewer GPUs sees fewer
#: links.
_MESH_LINKS, _MESH_GPUS = 2, 8
#: What is nearest: the first of these to which a NIC is connected.
_NEAREST = ("PIX", "PXB", "PHB", "NODE", "SYS", "SOC")
_TOOL = "nvidia-smi"
_NODE = re.compile(r"\d{1,4}$")


def _read(lines: Sequence[str]) -> Iterator[FoundLog]:
    """Yield what some lines show, as one log."""
    log = FoundLog(_TOOL, lines=len(lines), partial=True)
    rows: dict[int, list[str]] = {}
    columns: list[str] = []
    links: dict[int, dict[int, float | None]] = {}  # GPU -> link -> rate, None if inactive
    models: dict[int, str] = {}
    gpu, differ, peer_access = -1, False, False
    for line in lines:
        if match := _GPU.match(line):
            gpu = int(match[1]) % MOST_DEVICES
            models[gpu] = text(match[2])
        elif (match := _LINK.match(line)) and gpu >= 0:
            rate = in_base(match[2])
            differ |= links.setdefault(gpu, {}).setdefault(int(match[1]), rate) != rate
        elif _NONE_ACTIVE.match(line) and gpu >= 0:
            differ |= links.setdefault(gpu, dict(_NO_LINK)) != _NO_LINK
        elif _PEER_ACCESS.match(line):
            peer_access = True
        elif match := re.match(r"\s*(?:\[4m)?GPU(\d{1,4})\s+(.*)", line):
            words = match[2].split()
            if words[:1] and _CONNECTION.fullmatch(words[0]):
                differ |= rows.setdefault(int(match[1]) % MOST_DEVICES, words) != words
            elif match[1] == "0" and not rows:
                columns = line.replace("[4m", "").partition("CPU Affinity")[0].split()
        else:
            log.other(line.strip(), _KNOWN)
    if models.keys() == set(range(len(models))):
        log.gpus, log.partial = [(models[i], "") for i in range(len(models))], not models
    elif models:
        log.gpus = [(models[min(models)], "")]
    log.facts += _of_matrix(log, columns, rows)
    last = next(reversed(links), -1)
    listed = max(map(len, links.values()), default=0)
    if last >= 0 and len(links[last]) < listed and links[last] != _NO_LINK:
        doubt(log, f"the links of GPU {last} are cut")
        del links[last]
    log.facts += _of_links(links)
    if differ:
        log.warnings.append(
            "a GPU is listed twice with different links; the first counts: import each host's log"
        )
    if peer_access and not log.facts:
        log.warnings.append("topo -p2p shows which GPUs have peer access, no links: run nvidia-smi topo -m")
    if log.facts:
        log.notes.append("facts of the machine, no measured values")
    yield log


def _of_matrix(log: FoundLog, columns: Sequence[str], rows: dict[int, list[str]]) -> Iterator[Fact]:
    """Yield the NVLinks, the nearest NICs and the NUMA node of each GPU."""
    gpus = sum(bool(re.fullmatch(r"GPU\d+", name)) for name in columns) or len(rows)
    bonded = [int(word[2:]) for words in rows.values() for word in _connections(words) if word[2:].isdigit()]
    mesh = gpus < _MESH_GPUS and max(bonded, default=_MOST_LINKS) <= _MESH_LINKS
    for i, words in rows.items():
        known = list(_connections(words))
        if len(known) < max(gpus, len(columns)) or any(word == "NV" for word in words):
            doubt(log, f"the row of GPU{i} is cut")
            if len(known) < gpus:
                continue
        peers = [int(word[2:]) for word in known[:gpus] if word.startswith("NV")]
        total = sum(peers)
        active = total if total <= _MOST_LINKS else max(peers)
        device = f"gpu{i}"
        yield Fact("NVLinks to the GPUs shown" if mesh else Known.NVLINKS, float(active), device=device)
        nics = dict(zip(columns[gpus:], known[gpus:], strict=False))
        if nearest := next((kind for kind in _NEAREST if kind in nics.values()), ""):
            names = [name for name, kind in nics.items() if kind == nearest]
            yield Fact("nearest NICs", f"{nearest} {', '.join(map(text, names))}", device=device)
        affinity = words[len(known) :]
        if len(affinity) > 1 and _NODE.fullmatch(affinity[1]):
            yield Fact(Known.NUMA_NODE, affinity[1], device=device)
        if affinity:
            yield Fact("CPU affinity", text(affinity[0]), device=device)
    missing = [str(i) for i in range(gpus) if i not in rows]
    if rows and missing:
        doubt(log, f"it has no row of GPU {', '.join(missing[:8])}")


def _connections(words: Sequence[str]) -> Iterator[str]:
    """Yield the connections with which a row begins; what follows is the affinity."""
    for word in words:
        if not _CONNECTION.fullmatch(word):
            return
        yield word


def _of_links(links: dict[int, dict[int, float | None]]) -> Iterator[Fact]:
    """Yield how many NVLinks of each GPU are active, and their line rate."""
    for gpu, rates in links.items():
        active = [rate for rate in rates.values() if rate]
        device = f"gpu{gpu}"
        yield Fact(Known.NVLINKS, float(len(active)), device=device)
        yield Fact(Known.NVLINKS_INACTIVE, float(len(rates) - len(active)), device=device)
        if active:
            slow, fast = min(active), max(active)
            shown = f"{fast:g}" if slow == fast else f"{slow:g} to {fast:g}"
            yield Fact("line rate of each NVLink", f"{shown} GB/s", device=device)


#: How these logs are read.
NVIDIA_SMI = Tool(_START, _read)
