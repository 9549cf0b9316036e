"""``wirespeed qualify`` on real processes where hosts, interfaces and what lies between them fail."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from wirespeed.errors import ExitCode
from wirespeed.hardware.facts import Known
from wirespeed.results.store import load
from wirespeed.version import __version__

from .conftest import Job, Network, free_port
from .test_qualify import Start, launch


def test_lost_hosts_are_findings(fork: Start, network: Callable[[int], Network]) -> None:
    """One never starts, one starts late, one hangs: the others are measured, and the rest is named."""
    hosts = network(5)
    options, port = ("--no-save", "-T", "10s", "--exclude-format", "json"), free_port()
    jobs = launch(fork, hosts, *options, ranks=range(3), port=port)
    time.sleep(3)
    (late,) = launch(fork, hosts, *options, ranks=range(3, 4), port=port)
    os.kill(jobs[2].process.pid, signal.SIGSTOP)
    assert jobs[0].end() == ExitCode.FAIL, jobs[0].text
    assert json.loads(jobs[0].text.splitlines()[-1]) == {
        "exclude": ["node2", "rank 4"], "use": ["node0", "node1", "node3"]
    }, jobs[0].text  # fmt: skip
    assert late.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_saves_what_was_found(
    number: int, fork: Start, network: Callable[[int], Network], tmp_path: Path
) -> None:
    file = tmp_path / "fleet.json"
    jobs = launch(fork, network(3), "-o", str(file))
    until_saved(jobs[0], file)
    os.kill(jobs[0].process.pid, number)
    ended = -number if number == signal.SIGKILL else ExitCode.INTERRUPTED
    assert jobs[0].end() == ended, jobs[0].text
    document = load(file)
    assert document.interrupted and document.qualification and document.qualification.rounds


def until_saved(job: Job, file: Path) -> None:
    """Wait until the first round is saved."""
    while not file.exists() and job.process.poll() is None:
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("down", "says"),
    [(0, "missing: node0 is cut off: eth0 is down\n"), (1, "missing: node1 does not answer (rank 1)\n")],
)
def test_an_interface_that_goes_down(
    down: int, says: str, fork: Start, network: Callable[[int], Network], tmp_path: Path
) -> None:
    """Its node is the missing one, even that of rank 0; what was measured before is kept and judged."""
    hosts, file = network(2), tmp_path / "two.json"
    jobs = launch(fork, hosts, "-o", str(file), "-T", "10s", "--nics", "1x2G")
    until_saved(jobs[0], file)
    hosts.switch(down, "down")
    assert jobs[0].end() == ExitCode.FAIL, jobs[0].text
    assert says in jobs[0].text and f"drain: node{down}\n" in jobs[0].text
    assert "slow: path between node0 and node1: " in jobs[0].text
    assert "  1 slow part, 1 node missing, 0 of 2 nodes usable, 1 in doubt\n" in jobs[0].text
    qualification = load(file).qualification
    assert qualification and all(len(values) >= 1 for values in qualification.paths.values())


def test_a_link_that_comes_back_is_a_warning(
    fork: Start, network: Callable[[int], Network], tmp_path: Path
) -> None:
    hosts, file = network(2), tmp_path / "two.json"
    jobs = launch(fork, hosts, "-o", str(file), "--nics", "1x0.4G")
    until_saved(jobs[0], file)
    for state in ("down", "up"):
        hosts.switch(1, state)
    jobs[0].end()
    assert "warning: node1: eth0 lost its link once during the run: check the cable and " in jobs[0].text
    lost = [fact for fact in load(file).facts if fact.name.startswith("lost links of the network interface")]
    assert [(fact.host, fact.device, fact.value) for fact in lost] == [
        ("node0", "eth0", 0), ("node1", "eth0", 1)
    ]  # fmt: skip


def test_another_version_and_a_clock_apart(
    start: Start, network: Callable[[int], Network], tmp_path: Path
) -> None:
    """The node with another version is missing, and why; that with another clock is measured, with a note."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, time, wirespeed.version\n"
        "now, apart = time.time, float(os.environ.get('APART', 0))\n"
        "time.time = lambda: now() + apart\n"
        "wirespeed.version.__version__ = os.environ.get('VERSION', wirespeed.version.__version__)\n"
    )
    here = {"PYTHONPATH": str(tmp_path)}
    different = {1: {**here, "APART": "18000"}, 2: {**here, "VERSION": "9.9"}}
    jobs = launch(start, network(3), "--no-save", "-T", "10s", environments=different)
    assert jobs[2].end() == ExitCode.RUN
    version = f"runs wirespeed 9.9, rank 0 {__version__}: install the same version"
    assert jobs[2].text == f"wirespeed: error: rank 2 {version}\n"
    assert jobs[0].end() == ExitCode.FAIL, jobs[0].text
    assert f"missing: rank 2 on node2 {version}\n" in jobs[0].text
    assert "note: node1's clock is 5 hours ahead\n" in jobs[0].text
    assert jobs[1].end() == ExitCode.PASS


def test_a_router_with_a_smaller_mtu_is_named(
    fork: Start, network: Callable[[int], Network], tmp_path: Path
) -> None:
    """It reports the size that it forwards, so that TCP works."""
    hosts, file = network(2), tmp_path / "two.json"
    hosts.route(1400)
    jobs = launch(fork, hosts, "-o", str(file), "--nics", "1x2G")
    assert jobs[0].end() == ExitCode.FAIL, jobs[0].text
    says = "cause: the MTU on the way is smaller than at both ends (MTU 9000 on node0, 9000 on node1, "
    assert f"{says}1400 on the way there)\n  remedy " in jobs[0].text
    ways = {fact.host: fact.value for fact in load(file).facts if fact.name == Known.PATH_MTU}
    assert ways == {"node0": 1400, "node1": 1400}


def test_a_switch_that_drops_large_packets_is_named(fork: Start, network: Callable[[int], Network]) -> None:
    """Nothing reports it: connections hang as soon as they carry much, and the node seems to be missing."""
    hosts = network(2)
    hosts.jumbo()
    jobs = launch(fork, hosts, "--no-save", "-T", "10s")
    assert jobs[0].end() == ExitCode.FAIL, jobs[0].text
    assert "missing: node1 does not answer (rank 1)\n" in jobs[0].text
    says = (
        "(MTU 9000 on node0, 9000 on node1, 1500 on the way there; larger packets vanish without a message)"
    )
    assert f"cause: the MTU on the way is smaller than at both ends {says}\n  remedy " in jobs[0].text
