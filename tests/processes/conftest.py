"""Jobs of several real processes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.warm import ROOT, Forked, Host, Warm

#: What lets Open MPI run here: as root, without probing for networks, on few cores.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_mtl": "^ofi",
    "OMPI_MCA_btl": "^ofi", "OMPI_MCA_mpi_yield_when_idle": "1",
}  # fmt: skip
WIRESPEED = [sys.executable, "-m", "wirespeed"]
#: The beginning of a command that runs before all ordinary processes.
IN_REAL_TIME = ["chrt", "--rr", "1"]
#: Ports for rank 0, below those that Linux gives to connections (from 32768) and listeners without a number.
PORTS = range(21000, 29000)
#: Sockets whose names, which one process at a time can have, reserve the ports of a test until it ends.
_RESERVED: list[socket.socket] = []


def free_port() -> int:
    """Return a port that nothing uses, and no other test will."""
    for port in PORTS:
        reserved = socket.socket(socket.AF_UNIX)
        try:
            reserved.bind(f"\0wirespeed tests: port {port}")
            with socket.create_server(("", port)):
                _RESERVED.append(reserved)
                return port
        except OSError:
            reserved.close()
    raise AssertionError(f"no port from {PORTS[0]} to {PORTS[-1]} is free")


@pytest.fixture(autouse=True)
def ports() -> Iterator[None]:
    """Free the ports of a test when it ends."""
    yield
    while _RESERVED:
        _RESERVED.pop().close()


@dataclass
class Job:
    """A running job and what it has printed."""

    process: subprocess.Popen[str] | Forked
    lines: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def until(self, found: Callable[[str], object], limit: float = 120.0) -> None:
        """Read until a line is found."""
        assert self.process.stdout
        end = time.monotonic() + limit
        for line in self.process.stdout:
            self.lines.append(line)
            if found(line):
                return
            assert time.monotonic() < end, self.text
        raise AssertionError(f"the job ended:\n{self.text}")

    def rows(self, count: int) -> None:
        """Read until so many sizes are printed."""
        for _ in range(count):
            self.until(re.compile(r"\s+\d+\s+\d+\s+float").match)

    def pid(self, rank: int) -> int:
        match = re.search(rf"Rank +{rank} .*Pid +(\d+) ", self.text)
        assert match, self.text
        return int(match[1])

    def end(self, limit: float = 120.0) -> int:
        """Wait for the end; return the exit code."""
        rest, _ = self.process.communicate(timeout=limit)
        self.lines.append(rest)
        return self.process.returncode


@contextmanager
def _ending(jobs: list[Job]) -> Iterator[None]:
    """End the jobs of a test that still run after it."""
    yield
    for job in jobs:
        if job.process.poll() is None:
            os.killpg(job.process.pid, signal.SIGKILL)
        with job.process:  # closes its pipe
            pass


@pytest.fixture
def start() -> Iterator[Callable[..., Job]]:
    """Start a command, on a host."""
    jobs: list[Job] = []

    def run(command: list[str], host: Host | None = None, **environment: str) -> Job:
        first = IN_REAL_TIME if host and host.real_time else []
        jobs.append(Job(subprocess.Popen(
            [*first, *(host.inside if host else []), *command], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", env={**os.environ, **environment},
            start_new_session=True, cwd=ROOT,
        )))  # fmt: skip
        return jobs[-1]

    with _ending(jobs):
        yield run


@pytest.fixture
def fork(warm: Warm) -> Iterator[Callable[..., Job]]:
    """The same for a command of Python, which the warm parent forks."""
    jobs: list[Job] = []

    def run(command: list[str], host: Host | None = None, **environment: str) -> Job:
        jobs.append(Job(warm.start(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            env={**os.environ, **environment}, start_new_session=True, host=host,
        )))  # fmt: skip
        return jobs[-1]

    with _ending(jobs):
        yield run


@pytest.fixture(scope="session")
def mpirun() -> list[str]:
    """The beginning of a command that starts ranks."""
    found = Path(sys.executable).with_name("mpirun")
    path = str(found) if found.exists() else shutil.which("mpirun")
    if path is None or find_spec("mpi4py") is None:
        pytest.skip("mpi4py or mpirun is not installed")
    version = subprocess.run(
        [path, "--version"], capture_output=True, text=True, env={**os.environ, **OPEN_MPI}
    )
    if "Open MPI" not in version.stdout:
        pytest.skip("mpirun is not Open MPI's")
    return [path, "--oversubscribe", "-np"]


@pytest.fixture
def hosts() -> Iterator[Callable[[int], Host]]:
    """The host of each rank: one of two, network and host-name namespaces joined by a virtual cable."""
    tools = [shutil.which(tool) for tool in ("ip", "unshare", "nsenter", "hostname")]
    if os.geteuid() != 0 or not all(tools):
        pytest.skip("network namespaces need root, ip, unshare, nsenter and hostname")
    names = [f"wirespeed{os.getpid()}{i}" for i in "ab"]

    def ip(*arguments: str, namespace: str | None = None) -> None:
        inside = ["-n", namespace] if namespace else []
        subprocess.run(["ip", *inside, *arguments], check=True, capture_output=True)

    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "wsa", "netns", names[0], "type", "veth", "peer", "name", "wsb", "netns", names[1])
        for i, (name, link) in enumerate(zip(names, ("wsa", "wsb"), strict=True)):
            ip("addr", "add", f"10.77.0.{i + 1}/24", "dev", link, namespace=name)
            ip("link", "set", link, "up", namespace=name)
            ip("link", "set", "lo", "up", namespace=name)
    except subprocess.CalledProcessError as error:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)
        pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode().strip()}")

    yield lambda rank: Host(names[rank % 2], f"node{rank % 2}")
    for name in names:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True)


@cache
def _can_be_in_real_time() -> bool:
    """Whether this user may; containers often lack the capability."""
    tried = (
        subprocess.run(["chrt", "--rr", "1", "true"], capture_output=True) if shutil.which("chrt") else None
    )
    return tried is not None and tried.returncode == 0


class Network:
    """Hosts on a switch: namespaces whose cables have a rate in both directions.

    Attributes:
        count: Number of hosts; host i is called ``node<i>`` and has the address 10.78.0.<i + 1>.
    """

    def __init__(self, count: int) -> None:
        self._names = [f"ws{os.getpid()}h{i}" for i in range(count)]
        self._switch = f"ws{os.getpid()}s"
        self.count = count

    def make(self) -> None:
        """Make them; raises CalledProcessError where the kernel does not allow it."""
        self._run("ip", "netns", "add", self._switch)
        self._run("ip", "-n", self._switch, "link", "add", "br0", "type", "bridge")
        self._run("ip", "-n", self._switch, "link", "set", "br0", "up")
        for i, name in enumerate(self._names):
            self._run("ip", "netns", "add", name)
            self._run(
                "ip", "link", "add", "eth0", "netns", name, "type", "veth",
                "peer", "name", f"port{i}", "netns", self._switch,
            )  # fmt: skip
            self._run("ip", "-n", self._switch, "link", "set", f"port{i}", "master", "br0", "up")
            self._run("ip", "-n", name, "addr", "add", f"10.78.0.{i + 1}/24", "dev", "eth0")
            self._run("ip", "-n", name, "link", "set", "eth0", "up")
            self._run("ip", "-n", name, "link", "set", "lo", "up")
            self.shape(i, "400mbit")
            self._shape(self._switch, f"port{i}", "400mbit")

    def shape(self, host: int, rate: str) -> None:
        """Limit what a host sends; less than one CPU can send, so that the cables are what limits."""
        self._shape(self._names[host], "eth0", rate)

    def jumbo(self) -> None:
        """Let the hosts send packets of 9,000 bytes, of which the switch drops those above 1,500."""
        for name in self._names:
            self._run("ip", "-n", name, "link", "set", "eth0", "mtu", "9000")

    def route(self, mtu: int) -> None:
        """Put host 1 behind a router in place of the switch, which refuses packets above ``mtu`` bytes."""
        self.jumbo()
        self._run("ip", "-n", self._names[1], "addr", "flush", "dev", "eth0")
        self._run("ip", "-n", self._names[1], "addr", "add", "10.78.1.2/24", "dev", "eth0")
        for i, name in enumerate(self._names):
            self._run("ip", "-n", name, "route", "add", "default", "via", f"10.78.{i}.254")
            self._run("ip", "-n", self._switch, "link", "set", f"port{i}", "nomaster", "mtu", "9000")
            self._run("ip", "-n", self._switch, "addr", "add", f"10.78.{i}.254/24", "dev", f"port{i}")
            self._run(
                "ip", "-n", self._switch, "route", "replace", f"10.78.{i}.0/24", "dev", f"port{i}",
                "mtu", "lock", f"{mtu}",
            )  # fmt: skip
        forward = "echo 1 > /proc/sys/net/ipv4/ip_forward"
        self._run("ip", "netns", "exec", self._switch, "sh", "-c", forward)

    def switch(self, host: int, state: str) -> None:
        """Switch the interface of a host ``up`` or ``down``."""
        self._run("ip", "-n", self._names[host], "link", "set", "eth0", state)

    def host(self, number: int) -> Host:
        """The host with a number; other processes do not make it wait, so its rates do not vary."""
        return Host(self._names[number], f"node{number}", _can_be_in_real_time())

    def delete(self) -> None:
        for name in (*self._names, self._switch):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)

    def _shape(self, namespace: str, device: str, rate: str) -> None:
        self._run(
            "tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate,
            "burst", "128k", "latency", "20ms",
        )  # fmt: skip

    @staticmethod
    def _run(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def network() -> Iterator[Callable[[int], Network]]:
    """Several hosts on a switch."""
    tools = [shutil.which(tool) for tool in ("ip", "tc", "unshare", "hostname")]
    if os.geteuid() != 0 or not all(tools):
        pytest.skip("network namespaces need root, ip, tc, unshare and hostname")
    made: list[Network] = []

    def make(count: int) -> Network:
        made.append(Network(count))
        try:
            made[-1].make()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode().strip()}")
        return made[-1]

    yield make
    for network in made:
        network.delete()
