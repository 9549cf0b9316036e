"""What logs say of the hosts: NICs, settings and transports in lines of NCCL, NVLinks by ``nvidia-smi``."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from ...backends.nccl.debug import MOST_TRANSPORTS, matters, nvls, ways
from ...data import of_nics, of_platform
from ...hardware.facts import OFF, ON, Fact, Known
from ...units import GB, many
from . import scan
from .commands import texts
from .log import FoundLog, FoundNics, Tool

#: A variable that NCCL obeys: numbers end in a full stop, texts do not. Source: ncclLoadParam and ncclGetEnv.
_SETTING = re.compile(r"(NCCL_\w{1,60}) set by environment to (.{0,200}?)\.?$")
_NET = "NET"
#: Maximum number of characters of the name of a transport.
_LONGEST_NAME = 60
#: Maximum number of hosts, and of settings of each, that are noted.
_MOST_HOSTS, _MOST_SETTINGS = 4096, 100
_NCCL = re.compile(r"NCCL (?:INFO|WARN|TRACE)\b\s?(.*)")
#: Name of the host, number of the process and of the thread before a line of NCCL.
_HOST = re.compile(r"(?:\[[^\]]{1,40}\]\s*)?([\w.-]{1,255}):\d{1,9}:\d{1,9} ")
#: A NIC and its speed in Mb/s: ``NET/IB: [0] mlx5_0:uverbs0:1/IB provider=Mlx5 speed=400000``.
_SPEED = re.compile(
    r"NET/IB ?: \[\d{1,4}\] ?([\w.-]{1,64}):(\S{1,64})/\w{1,16}\b.{0,100}?\bspeed=(\d{1,8})\b"
)
#: Names of the NICs that are used: ``NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB``.
_USING = re.compile(r"NET/IB ?: Using (.*)")
_USED = re.compile(r"\[\d{1,4}\] ?([\w.+-]{1,200}?):(\d{1,3})/\w")
#: The topology that NCCL prints: ``+ NET[25.0] - NET/0 (0/0/25.000000)``, in GB/s.
_NET_OF_NICS = re.compile(r"\+ NET\[(\d{1,5}(?:\.\d{1,3})?)\] - NET/([\w-]{1,16})\b")
_PLATFORM = re.compile(r"NET/OFI Running on (\S{1,40}) platform")
_EFA = re.compile(r"NET/OFI Selected [Pp]rovider is efa\b(?:.*\(found (\d{1,4}) nics\))?")
#: The network that NCCL uses in the end.
_NETWORK = re.compile(r"Using network (\S.{0,60}?)\s*$")
_MBIT = 1e6 / 8
#: Maximum number of NICs that a host may have.
_MOST_NICS = 256
_PORT = re.compile(r"\d{1,3}$")


class NcclLines:
    """Reads what NCCL prints with ``NCCL_DEBUG=INFO``: NICs with their rates, settings and transports."""

    def __init__(self) -> None:
        self._settings: dict[str, dict[str, str]] = defaultdict(dict)
        self._ways: dict[str, Counter[tuple[str, bool]]] = defaultdict(Counter)
        self._speeds: dict[str, dict[str, float]] = {}
        self._used: dict[str, set[str]] = {}
        self._nets: dict[str, dict[str, float]] = {}
        self._platform, self._efa, self._count = "", False, 0
        self._networks: set[str] = set()
        self._nvls: dict[str, bool] = {}

    def line(self, line: str) -> bool:
        """Read a line; return whether NCCL printed it."""
        match = _NCCL.search(line)
        if not match:
            return False
        host = (_HOST.match(line) or ("", ""))[1]
        message = match[1]
        self._note(host, message)
        if match := _SPEED.search(message):
            port = _PORT.search(match[2])
            name = f"{match[1]}:{port[0] if port else 1}"
            _add(self._speeds.setdefault(host, {}), name, int(match[3]) * _MBIT)
        elif match := _USING.search(message):
            self._used.setdefault(host, set()).update(
                f"{part}:{port}" for name, port in _USED.findall(match[1]) for part in name.split("+")
            )
        elif match := _NET_OF_NICS.search(message):
            _add(self._nets.setdefault(host, {}), match[2], float(match[1]) * GB)
        elif match := _PLATFORM.search(message):
            self._platform = match[1]
        elif match := _EFA.search(message):
            self._efa, self._count = True, max(self._count, int(match[1] or 0))
        elif match := _NETWORK.search(message):
            self._networks.add(match[1])
        return True

    def _note(self, host: str, message: str) -> None:
        """Note a setting or a transport of a host."""
        if host not in self._ways and len(self._ways) >= _MOST_HOSTS:
            return
        found, settings = self._ways[host], self._settings[host]
        if (reduces := nvls(message)) is not None:
            self._nvls[host] = reduces and self._nvls.get(host, True)
        if (match := _SETTING.search(message)) and matters(match[1]) and len(settings) < _MOST_SETTINGS:
            settings[match[1]] = match[2].strip()
        else:
            found.update((name[:_LONGEST_NAME], direct) for name, direct in ways(message))

    def settings(self, of_command: Mapping[str, str], hosts: Collection[str]) -> tuple[str, ...]:
        """All settings of a run, also of its command, which apply to the first host at least.

        Args:
            of_command: Name -> value.
            hosts: The hosts, as for ``facts``.
        """
        first = next(iter(hosts or self._ways), "")
        if of_command:
            self._ways[first].update(())
            self._settings[first] = {**of_command, **self._settings[first]}
        return texts({name: value for own in self._settings.values() for name, value in own.items()})

    def facts(self, hosts: Collection[str]) -> tuple[Fact, ...]:
        """The facts of each host; the name of the first is empty.

        Args:
            hosts: The hosts of the ranks, as the log lists them, the first first; empty if it does not.
        """
        first = next(iter(hosts or self._ways), "")
        return tuple(
            Fact(fact.name, fact.value, host="" if host == first else host)
            for host in self._ways
            for fact in self._of(host, len(hosts or self._ways) > 1)
        )

    def _of(self, host: str, several: bool) -> Iterator[Fact]:
        """Yield the facts of a host. What the log does not say is unknown, and no fact."""
        if settings := self._settings[host]:
            yield Fact(Known.NCCL_VARIABLES, tuple(f"{name}={settings[name]}" for name in sorted(settings)))
        if host in self._nvls:
            yield Fact(Known.NCCL_NVLS, ON if self._nvls[host] else OFF)
        network, within = Counter[str](), Counter[str]()
        for (name, _), count in self._ways[host].items():
            (network if several and name.startswith(_NET) else within)[name] += count
        if within:
            names = tuple(name for name, _ in within.most_common(MOST_TRANSPORTS))
            yield Fact(Known.NCCL_TRANSPORTS, names)
        if network:
            name = network.most_common(1)[0][0]
            yield Fact(Known.NCCL_NETWORK, name)
            yield Fact(Known.NCCL_GDR, ON if (name, True) in self._ways[host] else OFF)
        elif several and len(self._networks) == 1:  # an excerpt may lack the channels
            yield Fact(Known.NCCL_NETWORK, f"{_NET}/{scan.text(*self._networks)}")

    def found(self, model: str) -> FoundNics | None:
        """What the NICs of a host can do; None if the log names no NIC that NCCL uses.

        Of several hosts, the one whose lines name most counts: the lines of others may be missing.

        Args:
            model: Name of the GPUs.
        """
        if "Socket" in self._networks:
            return None
        if self._efa:
            network = of_platform(self._platform, model, self._count)
            if network is None:
                return FoundNics(None, f"EFA of {self._platform or 'a machine'} that is not known")
            count = min(self._count or network.count, network.count)
            rate = count * network.gbits * 1e9 / 8
            return FoundNics(rate, f"{count} x {network.gbits:g} Gb/s of EFA: {network.source}", count)
        hosts = [
            {name: rate for name, rate in own.items() if not (used := self._used.get(host)) or name in used}
            or own
            for host, own in self._speeds.items()
        ] or list(self._nets.values())
        if hosts:
            whole = max(hosts, key=lambda own: math.fsum(own.values()))
            rates = sorted(whole.values())
            gbits = f"{rates[0] * 8e-9:g}" + (f" to {rates[-1] * 8e-9:g}" if rates[-1] > rates[0] else "")
            return FoundNics(math.fsum(rates), f"{len(rates)} x {gbits} Gb/s in the log", len(rates))
        names = max(self._used.values(), key=len, default=set())
        if not names:
            return None
        if network := of_nics({name.partition(":")[0] for name in names}, model):
            count = min(len(names), network.count)
            rate = count * network.gbits * 1e9 / 8
            return FoundNics(rate, f"{len(names)} x {network.gbits:g} Gb/s: {network.source}", count)
        return FoundNics(None, f"the log names {many(len(names), 'NIC')} of a host, not their rates")


def _add(nics: dict[str, float], name: str, rate: float) -> None:
    """Note the rate of a NIC, in B/s; unless there are too many."""
    if rate > 0 and len(nics) < _MOST_NICS:
        nics[name] = rate


_GPU = re.compile(r"\s*GPU (\d{1,4}): (.+?) \(UUID: ")
#: Lines with which a log of this tool begins.
_START = re.compile(rf"\s*(\[4m)?GPU0\s+(X\s|GPU1\b|CPU Affinity|NIC0|mlx\d_\d)|{_GPU.pattern}")
_CONNECTION = re.compile(r"X|NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC|N/A")
#: What ``topo -p2p`` shows in place of connections, and what its legend says of the lack of peer access.
_NO_ACCESS = {
    "CNS": "the chipset does not support it", "GNS": "the GPU does not support it",
    "TNS": "the topology does not support it", "NS": "it is not supported", "DR": "the driver disables it",
    "U": "it is unknown",
}  # fmt: skip
_ANY = "|".join(("OK", *_NO_ACCESS))
_PEER_ACCESS = re.compile(rf"\s*GPU\d{{1,4}}\s+((X|{_ANY})\s+)*({_ANY})\b")
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
#: What people write in place of columns that they leave out.
_ABBREVIATED = ("...", "\N{HORIZONTAL ELLIPSIS}")
_TOOL = "nvidia-smi"
_NODE = re.compile(r"\d{1,4}$")


def _read(lines: Sequence[str]) -> Iterator[FoundLog]:
    """Yield what some lines show, as one log."""
    log = FoundLog(_TOOL, lines=len(lines), partial=True, closed=True)  # what fails around it is not it
    rows: dict[int, list[str]] = {}
    columns: list[str] = []
    links: dict[int, dict[int, float | None]] = {}  # GPU -> link -> rate, None if inactive
    models: dict[int, str] = {}
    gpu, differ, abbreviated, access = -1, False, False, set[str]()
    for line in lines:
        if match := _GPU.match(line):
            gpu = int(match[1]) % scan.MOST_DEVICES
            models[gpu] = scan.text(match[2])
        elif (match := _LINK.match(line)) and gpu >= 0:
            rate = scan.in_base(match[2])
            differ |= links.setdefault(gpu, {}).setdefault(int(match[1]), rate) != rate
        elif _NONE_ACTIVE.match(line) and gpu >= 0:
            differ |= links.setdefault(gpu, dict(_NO_LINK)) != _NO_LINK
        elif _PEER_ACCESS.match(line):
            access.add(line.strip())  # reads and writes have the same matrix
        elif match := re.match(r"\s*(?:\[4m)?GPU(\d{1,4})\s+(.*)", line):
            words = match[2].split()
            if words and words[-1] in _ABBREVIATED:
                abbreviated = bool(words.pop())
            if words[:1] and _CONNECTION.fullmatch(words[0]):
                differ |= rows.setdefault(int(match[1]) % scan.MOST_DEVICES, words) != words
            elif match[1] == "0" and not rows:
                columns = line.replace("[4m", "").partition("CPU Affinity")[0].split()
                columns = [name for name in columns if name not in _ABBREVIATED]
        else:
            log.other(line.strip(), _KNOWN)
    if models.keys() == set(range(len(models))):
        log.gpus = [(models[i], "") for i in range(len(models))]
    elif models:
        log.gpus = [(models[min(models)], "")]
    log.facts += _of_matrix(log, columns, rows)
    if abbreviated:
        log.doubt("the rows of the GPUs are shortened")
    last = next(reversed(links), -1)
    listed = max(map(len, links.values()), default=0)
    if last >= 0 and len(links[last]) < listed and links[last] != _NO_LINK:
        log.doubt(f"the links of GPU {last} are cut")
        del links[last]
    log.facts += _of_links(links)
    if differ:
        log.warnings.append(
            "a GPU is listed twice with different links; the first counts: import each host's log"
        )
    words = Counter(word for row in access for word in row.split()[1:])
    lacking = [
        f"{why} for {many(words[word] // 2, 'pair')}" for word, why in _NO_ACCESS.items() if words[word]
    ]
    if lacking:
        log.notes.append(f"topo -p2p: {', '.join(lacking)}")
    if access and not log.facts:
        log.warnings.append("topo -p2p shows which GPUs have peer access, no links: run nvidia-smi topo -m")
    if log.facts:
        log.notes.append("facts of the machine, no measured values")
    yield log


def _of_matrix(log: FoundLog, columns: Sequence[str], rows: dict[int, list[str]]) -> Iterator[Fact]:
    """Yield the NVLinks, the nearest NICs and the NUMA node of each GPU."""
    gpus = sum(bool(re.fullmatch(r"GPU\d+", name)) for name in columns) or len(rows)
    bonded = [int(word[2:]) for words in rows.values() for word in _connections(words) if word[2:].isdigit()]
    mesh = gpus < _MESH_GPUS and max(bonded, default=_MOST_LINKS) <= _MESH_LINKS
    cut = []
    for i, words in rows.items():
        known = list(_connections(words))
        if len(known) < max(gpus, len(columns)) or any(word == "NV" for word in words):
            cut.append(f"GPU{i}")
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
            yield Fact("nearest NICs", f"{nearest} {', '.join(map(scan.text, names))}", device=device)
        affinity = words[len(known) :]
        if len(affinity) > 1 and _NODE.fullmatch(affinity[1]):
            yield Fact(Known.NUMA_NODE, affinity[1], device=device)
        if affinity:
            yield Fact("CPU affinity", scan.text(affinity[0]), device=device)
    if cut:
        log.doubt(f"the row of {cut[0]} is cut" + (f", and {len(cut) - 1} more" if cut[1:] else ""))
    missing = [str(i) for i in range(gpus) if i not in rows]
    if rows and missing:
        log.doubt(f"it has no row of GPU {', '.join(missing[:8])}")


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
