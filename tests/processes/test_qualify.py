"""``wirespeed qualify`` on real processes: hosts in namespaces on a switch, with slow and dead cables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from wirespeed.errors import ExitCode
from wirespeed.qualification import EndMemory, Stage
from wirespeed.results.store import load
from wirespeed.units import KIB

from .conftest import OPEN_MPI, WIRESPEED, Job, Network, free_port

Start = Callable[..., Job]


def launch(
    start: Start, network: Network, *options: str, ranks: range | None = None, each: int = 1, port: int = 0,
    environments: Mapping[int, Mapping[str, str]] = MappingProxyType({}),
) -> list[Job]:  # fmt: skip
    """Start qualify on the hosts of a network, as a loop with RANK does; some with another environment."""
    port, size = port or free_port(), network.count * each
    return [
        start(
            [*WIRESPEED, "qualify", *options], network.host(rank // each), RANK=str(rank),
            WORLD_SIZE=str(size), LOCAL_RANK=str(rank % each), MASTER_ADDR="10.78.0.1",
            MASTER_PORT=str(port), WIRESPEED_JOB_SECRET="several hosts", **environments.get(rank, {}),
        )
        for rank in (ranks or range(size))
    ]  # fmt: skip


def test_a_slow_cable_is_named(fork: Start, network: Callable[[int], Network], tmp_path: Path) -> None:
    """Its host can be excluded, and is slow in what it sends only."""
    hosts = network(4)
    hosts.shape(2, "150mbit")
    file = tmp_path / "fleet.json"
    jobs = launch(fork, hosts, "-o", str(file))
    assert [job.end() for job in jobs] == [ExitCode.FAIL, 0, 0, 0], jobs[0].text
    document = load(file)
    assert document.qualification
    (culprit,) = document.qualification.culprits
    assert culprit.kind == "cable" and culprit.sends and culprit.confirmed
    assert document.qualification.nodes[culprit.nodes[0]].name == "node2"
    assert 0.3 < culprit.value / culprit.expected < 0.45
    assert document.qualification.excluded == ("node2",)
    assert "drain: node2\n" in jobs[0].text


def test_equal_cables_pass(start: Start, network: Callable[[int], Network]) -> None:
    """Two processes of each host share its cable."""
    jobs = launch(start, network(3), "--no-save", each=2)
    assert jobs[0].end() == ExitCode.PASS, jobs[0].text
    assert "  3 of 3 nodes usable" in jobs[0].text
    assert [job.end() for job in jobs[1:]] == [0] * 5


def test_two_hosts_name_the_path(fork: Start, network: Callable[[int], Network]) -> None:
    """With two hosts it cannot be said which end is slow, so none is excluded."""
    hosts = network(2)
    hosts.shape(1, "150mbit")
    jobs = launch(fork, hosts, "--no-save")
    assert jobs[0].end() == ExitCode.FAIL, jobs[0].text
    assert "slow: path from node1 to node0: " in jobs[0].text
    assert "exclude" not in jobs[0].text


def test_two_equal_hosts_are_not_judged(fork: Start, network: Callable[[int], Network]) -> None:
    jobs = launch(fork, network(2), "--no-save")
    assert jobs[0].end() == ExitCode.NOT_JUDGED, jobs[0].text


def test_one_host_is_a_usage_error(start: Start) -> None:
    here = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    job, other = (start([*WIRESPEED, "qualify", "--no-save"], RANK=str(rank), **here) for rank in range(2))
    assert job.end() == ExitCode.USAGE and other.end() == 0
    assert job.text.count("\n") == 1 and "requires several nodes" in job.text


def by_mpi(
    start: Start, mpirun: list[str], hosts: Network, tmp_path: Path, *options: str
) -> tuple[Job, Path]:
    """Start qualify with MPI on the hosts of a network; return the job and its file."""
    agent, machines = tmp_path / "agent", tmp_path / "hosts"
    inside = [" ".join(hosts.host(i).inside[:4]) for i in range(hosts.count)]
    cases = "".join(
        f'10.78.0.{i + 1}) exec {there} unshare --uts sh -c "hostname node{i}; $*";;\n'
        for i, there in enumerate(inside)
    )
    agent.write_text(f"#!/bin/sh\nhost=$1; shift\ncase $host in\n{cases}esac\n")
    agent.chmod(0o755)
    machines.write_text("".join(f"10.78.0.{i + 1} slots=1\n" for i in range(hosts.count)))
    file = tmp_path / "fleet.json"
    job = start(
        [*hosts.host(0).inside, mpirun[0], "-np", str(hosts.count), "--hostfile", str(machines),
         "--map-by", "ppr:1:node:oversubscribe", "--prtemca", "plm_ssh_agent", str(agent),
         "--prtemca", "plm_ssh_no_tree_spawn", "1",
         "--prtemca", "prte_if_include", "10.78.0.0/24", "--mca", "btl_tcp_if_include", "10.78.0.0/24",
         *WIRESPEED, "qualify", "--over", "mpi", "-o", str(file), *options],
        **OPEN_MPI,
    )  # fmt: skip
    return job, file


def test_two_hosts_over_mpi(
    start: Start, mpirun: list[str], network: Callable[[int], Network], tmp_path: Path
) -> None:
    """Messages of all sizes confirm that both directions are slower than the NICs."""
    job, file = by_mpi(start, mpirun, network(2), tmp_path, "--nics", "1x2G")
    assert job.end() == ExitCode.FAIL, job.text
    qualification = load(file).qualification
    assert qualification
    (part,) = qualification.culprits
    assert part.limited and part.confirmed and part.kind == "path"
    rounds = [each for each in qualification.rounds if each.stage is Stage.SIZES]
    assert [each.both for each in rounds] == [False, True]
    assert all(value for each in rounds for row in each.values for value in row)


def test_over_mpi(start: Start, mpirun: list[str], network: Callable[[int], Network], tmp_path: Path) -> None:
    """Transfers between ranks by MPI see the same slow cable."""
    hosts = network(3)
    hosts.shape(1, "200mbit")
    job, file = by_mpi(start, mpirun, hosts, tmp_path)
    assert job.end() == ExitCode.FAIL, job.text
    qualification = load(file).qualification
    assert qualification and qualification.transport == "MPI over TCP (eth0)"
    (culprit,) = qualification.culprits
    assert qualification.nodes[culprit.nodes[0]].name == "node1" and culprit.sends


def test_two_hosts_are_judged_by_what_their_nics_carry(
    fork: Start, network: Callable[[int], Network], tmp_path: Path
) -> None:
    """Both cables carry 400 Mbit/s: all of it if they should, and too little for NICs of 2 Gbit/s.

    Several connections at once fill them: at least 93 % arrives beside the headers of TCP, IP and Ethernet.
    """
    hosts = network(2)
    jobs = launch(fork, hosts, "--no-save", "--nics", "1x0.4G")
    assert jobs[0].end() == ExitCode.PASS, jobs[0].text
    file = tmp_path / "two.json"
    jobs = launch(fork, hosts, "-o", str(file), "--nics", "1x2G")
    assert jobs[0].end() == ExitCode.FAIL, jobs[0].text
    document = load(file)
    assert document.qualification
    (culprit,) = document.qualification.culprits
    assert culprit.limited and culprit.confirmed and 0.15 < culprit.value / culprit.expected < 0.21
    kinds = {fact.host: fact.value for fact in document.facts if fact.name == "kind of the network interface"}
    assert set(kinds) == {"node0", "node1"}
    rounds = [each for each in document.qualification.rounds if each.stage is Stage.SIZES]
    assert [(each.memory, each.both) for each in rounds] == [(EndMemory.HOST, False), (EndMemory.HOST, True)]
    assert all(each.stage is not Stage.CONFIRM for each in document.qualification.rounds)
    for curve in document.qualification.curves:
        # 400 Mbit/s. The rates of connections are added, whose medians are not of the same moments: on a busy
        # machine, single sizes had up to 1.13 of it.
        assert min(curve.rates) >= 128 * KIB and 0 < curve.large < 1.25 * 0.5e8
    assert "messages, host memory, both at once: node" in jobs[0].text


def test_many_hosts_that_are_all_slow(fork: Start, network: Callable[[int], Network], tmp_path: Path) -> None:
    """Their cables are alike, but carry a fifth of what the NICs do; two of them are examined."""
    file = tmp_path / "three.json"
    jobs = launch(fork, network(3), "-o", str(file), "--nics", "1x2G")
    assert jobs[0].end() == ExitCode.FAIL, jobs[0].text
    document = load(file)
    assert document.qualification
    (part,) = document.qualification.culprits
    assert part.kind == "rail" and part.limited and part.confirmed and sorted(part.nodes) == [0, 1, 2]
    assert {fact.host for fact in document.facts} == {f"node{node}" for node in part.nodes[:2]}
    assert "rail 0 of all 3 nodes: 4" in " ".join(jobs[0].text.split())
