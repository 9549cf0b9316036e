"""What the lines of NCCL in a log say of the hosts, as facts: settings, transports and network.

The NICs that the lines of NCCL in a log name, and their rates.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator

from ..backends.nccl.channel import MOST_TRANSPORTS, VIA, matters
from ..data.sheets import of_nics, of_platform
from ..hardware.facts import OFF, ON, Fact, Known
from ..units import GB, many
from .log import FoundNics

#: A variable that NCCL obeys: numbers end in a full stop, texts do not. Source: ncclLoadParam and ncclGetEnv.
_SETTING = re.compile(r"(NCCL_\w{1,60}) set by environment to (.{0,200}?)\.?$")
_NET = "NET"
#: The end of a way over the network whose data does not pass host memory.
_DIRECT = "GDRDMA"
#: Maximum number of hosts, and of settings of each, that are noted.
_MOST_HOSTS, _MOST_SETTINGS = 4096, 100


class NcclLines:
    """Reads what NCCL prints with ``NCCL_DEBUG=INFO``."""

    def __init__(self) -> None:
        self._settings: dict[str, dict[str, str]] = defaultdict(dict)
        self._ways: dict[str, Counter[tuple[str, bool]]] = defaultdict(Counter)

    def line(self, host: str, message: str) -> None:
        """Read what follows the host, process and level."""
        if host not in self._ways and len(self._ways) >= _MOST_HOSTS:
            return
        ways, settings = self._ways[host], self._settings[host]
        if (match := _SETTING.search(message)) and matters(match[1]) and len(settings) < _MOST_SETTINGS:
            settings[match[1]] = match[2].strip()
        elif match := VIA.search(message):
            parts = match[1].rstrip(",").split("/")
            ways["/".join(parts[:2])[:40], _DIRECT in parts] += 1

    def facts(self, hosts: Collection[str]) -> tuple[Fact, ...]:
        """Return the facts of each host; the name of the first is empty.

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
_NETWORK = re.compile(r"Using network (\w+)")
_MBIT = 1e6 / 8
#: Maximum number of NICs that a host may have.
_MOST_NICS = 256
_PORT = re.compile(r"\d{1,3}$")


class NicLines:
    """Reads the lines of NCCL in a log."""

    def __init__(self) -> None:
        self._speeds: dict[str, dict[str, float]] = {}
        self._used: dict[str, set[str]] = {}
        self._nets: dict[str, dict[str, float]] = {}
        self._platform, self._efa, self._count = "", False, 0
        self._networks: set[str] = set()
        #: What the lines say of the hosts.
        self.said = NcclLines()

    def line(self, line: str) -> bool:
        """Read a line; return whether NCCL printed it."""
        match = _NCCL.search(line)
        if not match:
            return False
        host = (_HOST.match(line) or ("", ""))[1]
        message = match[1]
        self.said.line(host, message)
        if match := _SPEED.search(message):
            port = _PORT.search(match[2])
            _add(
                self._speeds.setdefault(host, {}),
                f"{match[1]}:{port[0] if port else 1}",
                int(match[3]) * _MBIT,
            )
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
            count = self._count or network.count
            rate = min(count, network.count) * network.gbits * 1e9 / 8
            return FoundNics(rate, f"{count} x {network.gbits:g} Gb/s of EFA: {network.source}")
        hosts = [
            {name: rate for name, rate in own.items() if not (used := self._used.get(host)) or name in used}
            or own
            for host, own in self._speeds.items()
        ] or list(self._nets.values())
        if hosts:
            whole = max(hosts, key=lambda own: math.fsum(own.values()))
            rates = sorted(whole.values())
            gbits = f"{rates[0] * 8e-9:g}" + (f" to {rates[-1] * 8e-9:g}" if rates[-1] > rates[0] else "")
            return FoundNics(math.fsum(rates), f"{len(rates)} x {gbits} Gb/s in the log")
        names = max(self._used.values(), key=len, default=set())
        if not names:
            return None
        if network := of_nics({name.partition(":")[0] for name in names}, model):
            rate = min(len(names), network.count) * network.gbits * 1e9 / 8
            return FoundNics(rate, f"{len(names)} x {network.gbits:g} Gb/s: {network.source}")
        return FoundNics(None, f"the log names {many(len(names), 'NIC')} of a host, not their rates")


def _add(nics: dict[str, float], name: str, rate: float) -> None:
    """Note the rate of a NIC, in B/s; unless there are too many."""
    if rate > 0 and len(nics) < _MOST_NICS:
        nics[name] = rate
