"""Compare the rate over TCP between two nodes with iperf3: over loopback, and over a cable with a rate.

    sudo python -P benchmarks/vs_iperf3.py [--rounds 9] [--seconds 1] [--streams 1,4] [--rates 400mbit,2gbit]

Both programs run alternately, each with a process per end and the same number of streams. Loopback is within
one host; the cable joins two network namespaces, and `tc` limits its rate (needs root). With `--real-time`
(`chrt`, root), both programs run before all other processes, so that a busy machine changes less. Prints the
median rate of each and the ratio, ours over that of iperf3, which should be at least 0.97 and, over a cable,
at most 1.03. Needs `iperf3` (Debian: `apt install iperf3`).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from wirespeed.features.qualify import tcp_probe

#: Least ratio, and the most over a cable, which limits both programs alike.
LEAST, MOST = 0.97, 1.03
#: What a process of ours does: it receives, or sends to an address and port.
_PROBE = """
import sys
from wirespeed.features.qualify import tcp_probe
tcp_probe.SECONDS, tcp_probe.TIMEOUT_S = float(sys.argv[2]), 60.0
probe = tcp_probe.TcpProbe(b"benchmark")
print(probe.port, flush=True)
place = (sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 3 else None
found = probe.pair(place, 1, int(sys.argv[1]))
print(found[0] if found else 0.0, flush=True)
"""


class Ends(NamedTuple):
    """Two hosts.

    Attributes:
        name: What joins them.
        receiver, sender: The beginning of a command that runs on each.
        address: That of the receiver.
        limited: Whether the cable limits the rate, not the processors.
    """

    name: str
    receiver: Sequence[str]
    sender: Sequence[str]
    address: str
    limited: bool


def ours(ends: Ends, streams: int, seconds: float) -> float:
    """The rate of wirespeed from the sender to the receiver, in B/s."""
    arguments = [sys.executable, "-P", "-c", _PROBE, str(streams), str(seconds)]
    with subprocess.Popen([*ends.receiver, *arguments], stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout
        port = receiver.stdout.readline().strip()
        subprocess.run([*ends.sender, *arguments, ends.address, port], check=True, stdout=subprocess.DEVNULL)
        return float(receiver.stdout.readline())


def of_iperf3(ends: Ends, streams: int, seconds: float, port: int = 5299) -> float:
    """The rate of iperf3 that arrives, without a beginning of the same duration as ours, in B/s."""
    server = [*ends.receiver, "iperf3", "-s", "-1", "-p", str(port), "--forceflush"]
    with subprocess.Popen(server, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout
        for line in receiver.stdout:
            if "listening" in line:
                break
        done = subprocess.run(
            [*ends.sender, "iperf3", "-c", ends.address, "-p", str(port), "-J", "-P", str(streams),
             "-t", str(seconds), "-O", str(tcp_probe._WARMUP_S), "-i", "0"],
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        receiver.stdout.read()
    return rate_of(done.stdout)


def rate_of(text: str) -> float:
    """The rate at which bytes arrived, of what `iperf3 -J` prints, in B/s."""
    return float(json.loads(text)["end"]["sum_received"]["bits_per_second"]) / 8


@contextmanager
def cable(rate: str, first: Sequence[str]) -> Iterator[Ends]:
    """Two namespaces, joined by a cable with a rate in each direction."""
    names = [f"wsbench{os.getpid()}{end}" for end in "ab"]

    def run(*command: str) -> None:
        subprocess.run(command, check=True)

    try:
        for name in names:
            run("ip", "netns", "add", name)
        run("ip", "link", "add", "eth0", "netns", names[0], "type", "veth", "peer", "name", "eth0",
            "netns", names[1])  # fmt: skip
        for i, name in enumerate(names):
            run("ip", "-n", name, "addr", "add", f"10.79.0.{i + 1}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            run("tc", "-n", name, "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate,
                "burst", "256k", "latency", "20ms")  # fmt: skip
        inside = [[*first, "ip", "netns", "exec", name] for name in names]
        yield Ends(f"cable of {rate}", inside[0], inside[1], "10.79.0.1", True)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def compared(ends: Ends, streams: int, rounds: int, seconds: float) -> bool:
    """Print the medians of both and their ratio; whether it is in the range."""
    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        rates[0].append(ours(ends, streams, seconds))
        rates[1].append(of_iperf3(ends, streams, seconds))
    own, peer = (statistics.median(some) for some in rates)
    spans = ["{:.3f} to {:.3f}".format(*(each / 1e9 for each in (min(some), max(some)))) for some in rates]
    print(
        f"{ends.name:>18}, {streams} streams: {own / 1e9:7.3f} GB/s ({spans[0]}), iperf3 {peer / 1e9:7.3f} "
        f"({spans[1]}), ratio {own / peer:.3f}",
        flush=True,
    )
    return own / peer >= LEAST and (own / peer <= MOST or not ends.limited)


def main() -> int:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--seconds", type=float, default=1.0, help="time of a sample")
    arguments.add_argument("--streams", default="1,4", help="numbers of streams")
    arguments.add_argument("--rates", default="400mbit,2gbit", help="of the cables; empty for loopback only")
    arguments.add_argument("--real-time", action="store_true", help="run before all other processes")
    options = arguments.parse_args()
    first = ["chrt", "--rr", "1"] if options.real_time else []
    if shutil.which("iperf3") is None:
        print("iperf3 is not installed: apt install iperf3", file=sys.stderr)
        return 2
    print(f"load at the beginning: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    good = True
    for streams in map(int, options.streams.split(",")):
        good &= compared(
            Ends("loopback", first, first, "127.0.0.1", False), streams, options.rounds, options.seconds
        )
        for rate in filter(None, options.rates.split(",")):
            with cable(rate, first) as ends:
                good &= compared(ends, streams, options.rounds, options.seconds)
    print(f"load at the end: {os.getloadavg()[0]:.1f}; goal {LEAST} to {MOST} (loopback: no maximum)")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
