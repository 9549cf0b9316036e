"""What the lines of NCCL in a log say of the hosts, as facts: settings, transports and network."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator

from ..backends.nccl.debug import MOST_TRANSPORTS, VIA
from ..backends.nccl.settings import matters
from ..facts import OFF, ON, Fact, Known

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
