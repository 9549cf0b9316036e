"""The processes of a job that qualify measures: tasks, lost ranks, probes, and what differs between nodes."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest

import wirespeed
from tests.conftest import own_time
from wirespeed.backends import describe
from wirespeed.backends.system_files import Tree
from wirespeed.document import Document
from wirespeed.errors import WirespeedError
from wirespeed.features.qualify import job, job_nodes, process_cluster, tcp_probe, transfer_cluster
from wirespeed.features.qualify.job_nodes import JobNodes, own_table, own_values
from wirespeed.features.qualify.lossy_cables import lossy
from wirespeed.features.qualify.node_facts import NodeFacts, differences, node_facts
from wirespeed.features.qualify.pairing import matchings
from wirespeed.features.qualify.procedure import Procedure
from wirespeed.features.qualify.process_cluster import ProcessCluster
from wirespeed.features.qualify.simulated_cluster import SimulatedCluster
from wirespeed.features.qualify.tcp_probe import TcpProbe
from wirespeed.features.qualify.text import evidence
from wirespeed.features.qualify.transfer_cluster import TransferCluster
from wirespeed.hardware.facts import Fact, Known
from wirespeed.judging.qualification_verdict import verdict_of
from wirespeed.judging.verdict import Verdict
from wirespeed.qualification import EndMemory, PartKind, QualifiedNode, Round, Stage
from wirespeed.testcases.table import Testcase
from wirespeed.worlds.base import Member, RankLost, World
from wirespeed.worlds.channel import Channel
from wirespeed.worlds.crew import Crew

Worlds = Callable[..., list[World]]


@pytest.fixture
def worlds() -> Iterator[Worlds]:
    """Worlds of ranks in one process; each rank is a host of its own."""
    made: list[World] = []

    def make(size: int, absent: dict[int, str] | None = None) -> list[World]:
        missing = absent or {}
        members = [Member(rank, "" if rank in missing else f"host{rank}", rank, 0) for rank in range(size)]
        ends = {
            rank: [socket.socketpair() for _ in range(2)] for rank in range(1, size) if rank not in missing
        }
        links, watches = ({rank: Channel(pairs[i][0]) for rank, pairs in ends.items()} for i in range(2))
        made.append(World(members, 0, "by hand", links, watches, 5.0, absent=missing))
        for rank, pairs in ends.items():
            link, watch = (Channel(pair[1]) for pair in pairs)
            made.append(World(members, rank, "by hand", {0: link}, {0: watch}, 5.0))
        return made

    yield make
    for world in made:
        world.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Directions of equal numbers of messages: these tests look at who measures with whom, not at rates.

    The clock of each thread advances by 1 ms when it is read.
    """
    clock = threading.local()

    def monotonic() -> float:
        clock.now = getattr(clock, "now", 0.0) + 1e-3
        return float(clock.now)

    monkeypatch.setattr(tcp_probe, "time", own_time(monotonic=monotonic))
    monkeypatch.setattr(tcp_probe, "SECONDS", 0.1)
    monkeypatch.setattr(tcp_probe, "_WARMUP_S", 0.005)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who does not answer is not waited for."""
    monkeypatch.setattr(tcp_probe, "TIMEOUT_S", 0.1)


def in_threads(worlds: list[World], serve: Callable[[World], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=serve, args=(world,)) for world in worlds[1:]]
    for thread in threads:
        thread.start()
    return threads


def test_the_nodes_of_a_job_are_measured(worlds: Worlds, quick: None) -> None:
    made = worlds(4, {2: "did not join within 5 s"})
    threads = in_threads(made, lambda world: job.serve(world, 10.0))
    cluster = job.lead(made[0], {"host0": "leaf0"}, ["host0", "host1", "late", "host3"], "tcp", 10.0)
    qualification = Procedure(cluster).run()
    cluster.close()
    for thread in threads:
        thread.join()
    assert [node.name for node in qualification.nodes] == ["host0", "host1", "host3", "late"]
    assert [node.missing for node in qualification.nodes] == ["", "", "", "did not join within 5 s"]
    assert qualification.nodes[0].block == "leaf0" and qualification.transport == "TCP"
    pairs = [each for each in qualification.rounds if each.stage is Stage.PAIRS]
    assert len({group for each in pairs for group in each.groups}) >= 3
    assert all(value for each in pairs for row in each.values for value in row)
    assert any(each.variation > 0 for each in pairs)
    assert qualification.fails and "late" in qualification.excluded


def test_groups_are_rings(worlds: Worlds, quick: None) -> None:
    made = worlds(4)
    threads = in_threads(made, lambda world: job.serve(world, 10.0))
    cluster = job.lead(made[0], {}, [], "tcp", 10.0)
    values = cluster.groups([[0, 1, 2]])
    assert values.shape == (1,) and values[0] > 0
    cluster.close()
    for thread in threads:
        thread.join()


def test_a_lost_rank_is_missing_from_then_on(worlds: Worlds, quick: None) -> None:
    made = worlds(3)

    def serve(world: World) -> None:
        if world.rank == 2:
            Crew(world).serve(leave_after(world), 10.0)
        else:
            job.serve(world, 10.0)

    def leave_after(world: World) -> Callable[[object], object]:
        def answer(task: object) -> object:
            if isinstance(task, list) and isinstance(task[0], bytes):
                return job_nodes.introduction(1, task)
            world.links[0].socket.shutdown(socket.SHUT_RDWR)
            return None

        return answer

    def ending(world: World) -> None:
        try:
            serve(world)
        except RankLost:
            assert world.rank == 2

    threads = in_threads(made, ending)
    cluster = job.lead(made[0], {}, [], "tcp", 5.0)
    assert isinstance(cluster, ProcessCluster)
    values = cluster.pairs([(0, 2)])
    assert np.isnan(values).all()
    assert [node.missing for node in cluster.nodes] == ["", "", "has ended (rank 2)"]
    assert cluster.pairs([(0, 1)]).all() and np.isnan(cluster.pairs([(1, 2)])).all()
    cluster.close()
    for thread in threads:
        thread.join()


def test_tcp_where_some_nodes_have_no_nccl(
    worlds: Worlds, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All have GPUs, so that NCCL would be used."""
    made, ports = worlds(3), iter(["2.28", "none", "2.28"])
    monkeypatch.setattr(job_nodes, "node_facts", lambda address: facts(nccl=next(ports), gpus="8 x H100"))
    threads = in_threads(made, lambda world: job.serve(world, 10.0))
    cluster = job.lead(made[0], {}, [], None, 10.0)
    (doubt,) = cluster.doubts
    assert isinstance(cluster, ProcessCluster) and doubt.startswith("NCCL is missing on host")
    cluster.close()
    for thread in threads:
        thread.join()


def test_nccl_requires_all_ranks(worlds: Worlds) -> None:
    made = worlds(3, {2: "did not join within 5 s"})
    threads = in_threads(made, lambda world: job.serve(world, 10.0))
    with pytest.raises(WirespeedError, match="rank 2 did not join within 5 s: --transport nccl requires all"):
        job.lead(made[0], {}, [], "nccl", 5.0)
    for thread in threads:
        thread.join()


def test_who_does_not_answer_is_lost_and_late_answers_are_ignored(worlds: Worlds) -> None:
    made = worlds(2)
    crew, link = Crew(made[0]), made[1].links[0]
    assert crew.ask({1: "task"}, 0.05, lambda task: None) == {}
    assert crew.lost == {1: "does not answer"}
    assert crew.ask({0: 7, 1: "more"}, 0.05, lambda task: task + 1) == {0: 8}
    number, task = link.receive(time.monotonic() + 1, tuple[int, str])
    assert (number, task) == (1, "task")


def test_a_rank_without_rank_0_ends(worlds: Worlds) -> None:
    made = worlds(2)
    with pytest.raises(RankLost, match=r"gave no task for 0\.05 s"):
        Crew(made[1]).serve(lambda task: task, 0.05)
    made[0].links[1].close()
    with pytest.raises(RankLost, match="rank 0 has ended"):
        Crew(made[1]).serve(lambda task: task, 1.0)


def test_a_rank_that_hears_nothing_says_that_its_interface_is_down(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 cannot report it."""
    made = worlds(2)
    monkeypatch.setattr(job, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(job, "is_disabled", lambda interface: interface == "lo")
    failures: list[RankLost] = []

    def serve(world: World) -> None:
        try:
            job.serve(world, 0.2)
        except RankLost as error:
            failures.append(error)

    (thread,) = in_threads(made, serve)
    Crew(made[0]).ask({1: [b"secret", "127.0.0.1"]}, 10.0, lambda task: None)
    thread.join()
    assert [str(error) for error in failures] == ["rank 0 gave no task for 0.2 s: lo of this node is down"]
    assert made[1].leaderless


def test_strangers_are_refused(quick: None) -> None:
    """A connection that does not begin with the secret and the round is closed, and the next is taken."""
    receiver, sender = TcpProbe(b"secret"), TcpProbe(b"secret")
    place = ("127.0.0.1", receiver.port)
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(receiver.pair(None, 3)))
    thread.start()
    with socket.create_connection(place) as stranger:
        stranger.sendall(bytes(32))
        assert stranger.recv(1) == b""
    assert sender.pair(place, 3) is not None
    thread.join()
    assert found[0] is not None
    for probe in (receiver, sender):
        probe.close()


def test_nobody_answers(impatient: None) -> None:
    receiver, sender = TcpProbe(b"secret"), TcpProbe(b"secret")
    assert sender.pair(("127.0.0.1", receiver.port), 4) is None
    for probe in (receiver, sender):
        probe.close()


def test_nobody_connects(impatient: None) -> None:
    probe = TcpProbe(b"")
    assert probe.pair(None, 1) is None and probe.ring(("127.0.0.1", 1), 1) is None
    probe.close()


def facts(**changes: object) -> NodeFacts:
    values: dict[str, object] = {
        "gpus": "8 x H100", "driver": "580.1", "nccl": "2.28.9", "cpu": "a CPU", "kernel": "6.8",
        "interface": "eth0", "limit": 12.5e9, "rdma": (), "clock": 1000.0,
    }  # fmt: skip
    return NodeFacts(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"gpus": "7 x H100"}, "c differs: GPUs 7 x H100; 2 of 3 nodes: 8 x H100"),
        ({"gpus": ""}, "c differs: GPUs none; 2 of 3 nodes: 8 x H100"),
        ({"driver": "570.2"}, "c differs: driver 570.2; 2 of 3 nodes: 580.1"),
        ({"nccl": "none"}, "c differs: NCCL none; 2 of 3 nodes: 2.28.9"),
        ({"limit": 1.25e9}, "c differs: network 10 Gbit/s; 2 of 3 nodes: 100 Gbit/s"),
        ({"limit": 0.0}, "c differs: network unknown; 2 of 3 nodes: 100 Gbit/s"),
        ({"clock": 1031.0}, "c's clock is 30 s ahead"),
        ({"clock": 900.0}, "c's clock is 101 s behind"),
        ({"clock": 1001.0 + 2 * 3600}, "c's clock is 2 hours ahead"),
    ],
)
def test_what_differs_between_nodes(changes: dict[str, object], line: str) -> None:
    nodes = {"a": facts(), "b": facts(), "c": facts(**changes)}
    assert differences(nodes, 1.0, 1001.0) == [line]
    assert differences({"a": facts(), "b": facts()}, 1.0, 1001.0) == []


def test_one_of_two_nodes_introduces_itself_in_one_small_packet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Larger packets may not arrive, which is measured then."""
    nics = tuple(Fact(Known.PORT_RATE, 400.0, "Gbit/s", f"mlx5_{i}") for i in range(40))
    monkeypatch.setattr(job_nodes, "node_facts", lambda address: facts(nics=nics, gpus="8 x NVIDIA H100"))
    sizes = [len(msgspec.msgpack.encode(job_nodes.introduction(1, [b"", "", two]))) for two in (True, False)]
    assert sizes[0] < 1000 < sizes[1]


def test_many_differences_are_counted() -> None:
    nodes = {str(i): facts(kernel=str(i)) for i in range(40)}
    lines = differences(nodes, 1.0, 1000.0)
    assert len(lines) == 21 and lines[-1] == "and 19 other differences between nodes"


def test_facts_of_this_node(tmp_path: Path) -> None:
    """The interface with the address, its speed, and the RDMA devices."""
    (tmp_path / "sys/class/net/lo").mkdir(parents=True)
    (tmp_path / "sys/class/net/lo/speed").write_text("10000\n")
    (tmp_path / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
    found = node_facts("127.0.0.1", Tree(tmp_path).root)
    assert (found.interface, found.limit, found.rdma) == ("lo", 1.25e9, ("mlx5_0",))
    assert abs(found.clock - time.time()) < 60
    assert node_facts("no address", Tree(tmp_path).root).interface == ""


def test_a_node_without_gpus_measures_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirespeed.api.run", partial(wirespeed.run, size=2**24))  # by default it takes long
    values = own_values()
    assert isinstance(values, dict) and values.keys() == {PartKind.MEMORY}
    assert len(values[PartKind.MEMORY]) == len(describe(None).numa) and min(values[PartKind.MEMORY]) > 1e8


def test_what_cannot_be_measured_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise WirespeedError("no\nmemory")

    monkeypatch.setattr("wirespeed.api.run", failing)
    assert own_values() == "no memory"


def test_nodes_with_and_without_gpus_are_measured_together() -> None:
    """Two nodes with GPUs, one of which is lost; one without; and one that did not answer."""
    table = own_table(
        [3, 4, 5], {3: {"GPU": [1.0, 2.0], "link to the host": [5.0]}, 5: {"host memory": [7.0]}}
    )
    assert list(table) == [PartKind.GPU, PartKind.HOST_LINK, PartKind.MEMORY]
    assert table[PartKind.GPU].shape == (3, 2) and table[PartKind.GPU][0].tolist() == [1.0, 2.0]
    assert np.isnan(table[PartKind.GPU][1:]).all() and table[PartKind.MEMORY][2] == 7.0
    assert own_table([0], {}) == {}


def test_nodes_on_one_machine_do_not_measure_themselves(
    worlds: Worlds, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would disturb each other: namespaces and containers share the boot of a kernel."""
    monkeypatch.setattr(job_nodes, "own_values", lambda: {PartKind.MEMORY: [1e9, 2e9]})
    made = worlds(2)
    threads = in_threads(made, lambda world: job.serve(world, 60.0))
    cluster = job.lead(made[0], {}, [], "tcp", 60.0)
    assert cluster.own([0, 1]) is None
    cluster._job = dataclasses.replace(cluster._job, shared=False)
    values = cluster.own([1])
    assert values and values[PartKind.MEMORY].tolist() == [[1e9, 2e9]]
    cluster.close()
    for thread in threads:
        thread.join()


def losses_of(shares: Callable[[int, int, int], float]) -> list[Round]:
    """Seven rounds of pairs of eight nodes: what each sent again, by source, target and round."""
    rounds = []
    for number, pairs in enumerate(matchings([""] * 8, range(8), 7, seed=0)):
        sent_again = tuple((shares(a, b, number), shares(b, a, number)) for a, b in pairs)
        rounds.append(Round(Stage.PAIRS, tuple(pairs), tuple((1e9, 1e9) for _ in pairs), losses=sent_again))
    return rounds


def test_a_lossy_cable_is_named_with_its_direction() -> None:
    assert lossy(losses_of(lambda a, b, _: 0.0)) == []
    (found,) = lossy(losses_of(lambda a, b, _: 0.02 if b == 3 else 0.0001))
    assert (found.kind, found.nodes, found.sends, found.confirmed) == (PartKind.LOSSY, (3,), False, False)
    assert found.value == 0.02 and found.expected == 0.0001 and found.partners >= 5
    (found,) = lossy(losses_of(lambda a, b, _: 0.02 if a == 5 else 0.0))
    assert (found.nodes, found.sends) == ((5,), True)


def test_what_a_busy_processor_sends_again_is_no_lossy_cable() -> None:
    random = np.random.default_rng(0)
    for _ in range(50):
        assert lossy(losses_of(lambda a, b, _: float(random.lognormal(-5, 2)))) == []
    assert lossy(losses_of(lambda a, b, number: 0.5 if number == 2 else 0.0)) == []
    assert lossy(losses_of(lambda a, b, _: 0.0015 if b == 3 else 0.0)) == []  # too little
    without = [Round(Stage.PAIRS, ((0, 1),), ((1e9, 1e9),))]
    assert lossy(without) == [] and lossy([]) == []


def test_a_lossy_cable_is_a_warning_and_no_reason_to_leave_a_node_out() -> None:
    cluster = SimulatedCluster(8, 8, 1)
    found = Procedure(cluster).run()
    lost = msgspec.structs.replace(found, culprits=tuple(lossy(losses_of(lambda a, b, _: 0.02 * (b == 3)))))
    assert not lost.fails and not lost.excluded and verdict_of(lost) is Verdict.WARN
    document = wirespeed.run(["host_stream_copy"], machine="simulated:dgx-a100-8", samples=2, copies=1)
    shown = msgspec.structs.replace(document, qualification=lost)
    assert " 1 lossy cable, 8 of 8 nodes usable" in wirespeed.render(shown, "table")
    page = wirespeed.render(shown, "html")
    assert page.count("of the data was retransmitted") == 1 and "lossy: node3" not in page
    text = evidence(lost.culprits[0], lost)
    assert text.startswith(
        "lossy: node3's cable (receiving): 2.00% of the data was retransmitted with 6 partners, at most 0.00%"
    )


def test_processes_say_what_they_sent_again(worlds: Worlds, quick: None) -> None:
    made = worlds(2)
    threads = in_threads(made, lambda world: job.serve(world, 10.0))
    cluster = job.lead(made[0], {}, [], "tcp", 10.0)
    cluster.pairs([(0, 1)])
    assert cluster.losses.shape == (1, 2) and (cluster.losses >= 0).all() and (cluster.losses < 1).all()
    cluster.close()
    for thread in threads:
        thread.join()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """As few messages of each size as possible."""
    monkeypatch.setattr(process_cluster, "_SIZE_S", 0.0)
    monkeypatch.setattr(process_cluster, "_TIMES", 0.0)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("streams", [1, 3])
def test_messages_of_several_sizes(streams: int, both: bool) -> None:
    """Each direction has a rate for each size, also of messages that are no multiple of a buffer."""
    receiver, sender = TcpProbe(b"secret"), TcpProbe(b"secret")
    plan = [(1, 0.0), (1000, 0.0), (tcp_probe._BUFFER_BYTES, 0.0), (3 * tcp_probe._BUFFER_BYTES + 7, 0.0)]
    found: list[list[float] | None] = []
    thread = threading.Thread(target=lambda: found.append(receiver.messages(None, 3, streams, plan, both)))
    thread.start()
    there = sender.messages(("127.0.0.1", receiver.port), 3, streams, plan, both)
    thread.join()
    for rates in (there, found[0]):
        assert rates and len(rates) == len(plan) and min(rates) > 0
    for probe in (receiver, sender):
        probe.close()


def test_messages_that_nobody_answers(impatient: None) -> None:
    receiver, sender = TcpProbe(b"secret"), TcpProbe(b"secret")
    assert sender.messages(("127.0.0.1", receiver.port), 4, 1, [(9, 0.0)], False) is None
    assert receiver.messages(None, 5, 1, [(9, 0.0)], True) is None
    for probe in (receiver, sender):
        probe.close()


@pytest.mark.parametrize("messages", [False, True])
def test_a_peer_that_sends_nothing_is_not_waited_for(messages: bool, impatient: None) -> None:
    """The kernel ends the call."""
    receiver, sender = TcpProbe(b"secret"), TcpProbe(b"secret")
    found: list[object] = []

    def receive() -> None:
        plan = [(9, 0.0)]
        found.append(receiver.messages(None, 3, 1, plan, False) if messages else receiver.pair(None, 3))

    thread = threading.Thread(target=receive)
    thread.start()
    with sender._connected(("127.0.0.1", receiver.port), 3):
        thread.join()
    assert found == [None]
    for probe in (receiver, sender):
        probe.close()


def test_a_peer_that_ends_meanwhile_has_no_rates() -> None:
    receiver, sender = TcpProbe(b"secret"), TcpProbe(b"secret")
    found: list[object] = []
    plan = [(10**6, 0.0)] * 3
    thread = threading.Thread(target=lambda: found.append(receiver.messages(None, 3, 1, plan, False)))
    thread.start()
    peer = sender._connected(("127.0.0.1", receiver.port), 3)
    peer.sendall(bytes(1000))
    peer.close()
    thread.join()
    assert found == [None]
    for probe in (receiver, sender):
        probe.close()


def test_two_nodes_of_a_job_are_measured_with_all_sizes(worlds: Worlds, quick: None, short: None) -> None:
    made = worlds(2)
    threads = in_threads(made, lambda world: job.serve(world, 10.0))
    cluster = job.lead(made[0], {}, [], "tcp", 10.0)
    values = cluster.sizes((0, 1), EndMemory.HOST, False, [64, 128])
    assert np.isnan(values).all()  # how long to measure is not known yet
    cluster.pairs([(0, 1)])
    for both in (False, True):
        values = cluster.sizes((0, 1), EndMemory.HOST, both, [2**16, 2**17])
        assert values.shape == (2, 2, 1) and (values > 0).all()
    cluster.close()
    for thread in threads:
        thread.join()


def test_the_facts_of_two_of_many_nodes_are_read_when_they_are_examined(
    worlds: Worlds, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wirespeed.backends.facts", lambda machine: iter([Fact("speaks", "yes")]))
    made = worlds(3)
    threads = in_threads(made, lambda world: job.serve(world, 10.0))
    cluster = job.lead(made[0], {}, [], "tcp", 10.0)
    assert cluster.facts == ()
    cluster.examine((2, 0))
    assert {(fact.host, fact.value) for fact in cluster.facts if fact.name == "speaks"} == {
        ("host0", "yes"), ("host2", "yes")
    }  # fmt: skip
    cluster.close()
    for thread in threads:
        thread.join()


def test_what_carries_the_data_of_each_node_limits_it(
    worlds: Worlds, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many nodes, too: each tells the speed of its interface."""
    speed = Fact(Known.INTERFACE_SPEED, 10.0, "Gbit/s", "eth0")
    monkeypatch.setattr(job_nodes, "node_facts", lambda address: facts(nics=(speed,)))
    made = worlds(3)
    threads = in_threads(made, lambda world: job.serve(world, 10.0))
    cluster = job.lead(made[0], {}, [], "tcp", 10.0)
    assert [(limit.node, limit.port, limit.devices) for limit in cluster.limits] == [
        (node, 1.25e9, ("eth0",)) for node in range(3)
    ]
    cluster.close()
    for thread in threads:
        thread.join()


def test_messages_between_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rail of two nodes, in one direction and in both; what is not possible is a note."""
    machine = Path(__file__).parents[2] / "machines/four-ranks.json"

    def simulated(cases: list[Testcase], **options: Any) -> Document:
        return wirespeed.run(cases, machine=str(machine), samples=2, copies=1)

    monkeypatch.setattr(transfer_cluster, "run", simulated)
    told: list[Any] = []

    def ask(tasks: Any, seconds: float, own: Any, kind: Any) -> Any:
        told.append(tasks[3])
        return {0: own(tasks[0])}

    crew: Any = SimpleNamespace(world=SimpleNamespace(size=4, timeout=60.0), lost={}, ask=ask)
    probe: Any = None
    nodes = (QualifiedNode("a"), QualifiedNode("b"))
    of_job = JobNodes(nodes, ((0, 1), (2, 3)), {}, frozenset((0, 1)), (), ())
    cluster = TransferCluster(crew, of_job, probe, 60.0, "nccl")
    assert cluster.memories == (EndMemory.GPU, EndMemory.HOST)
    one, both = (cluster.sizes((0, 1), EndMemory.GPU, at_once, [2**16, 2**26]) for at_once in (False, True))
    assert one.shape == both.shape == (2, 2, 2) and (one[1] > one[0]).all() and (both > 0).all()
    assert told[0][2] == [[(0, 2), (1, 3)], [(2, 0), (3, 1)]] and len(told[1][2]) == 1
    assert np.isnan(cluster.sizes((0, 1), EndMemory.HOST, False, [2**16])).all()
    assert cluster.notes[0].startswith("messages from host memory were not measured: ")
    without = TransferCluster(crew, dataclasses.replace(of_job, gpus=frozenset()), probe, 60.0, "mpi")
    assert without.memories == (EndMemory.HOST,)


def test_the_error_of_a_rate_is_that_of_the_mean_of_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight parts by turns at 60 and 140 % of the mean: a value is known to 40 % over the root of eight."""
    arrivals = [*(0.01 * i for i in range(11)), *(0.1 + 0.0125 * (i + 0.5) for i in range(32)), 0.5]
    clock = iter(arrivals)
    monkeypatch.setattr(tcp_probe, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    class Peer:
        """Bytes that arrive at these times, four times in each part."""

        count = 0

        def recv_into(self, buffer: bytearray) -> int:
            self.count += 1
            ended = self.count == len(arrivals)
            size = 1 if ended else 600 if (self.count - 12) // 4 % 2 else 1400
            buffer[size - 1] = ended
            return size

    rate, error = tcp_probe._received(cast(socket.socket, Peer()))
    assert rate == pytest.approx(32000 / 0.4, rel=0.01)
    assert error == pytest.approx(0.4 / 8**0.5, rel=0.05)


def test_transfers_end_with_the_first_rank_that_is_lost() -> None:
    """All ranks take part in each round."""
    members = [Member(rank, f"host{rank}", rank, 0) for rank in range(2)]
    crew: Any = SimpleNamespace(world=SimpleNamespace(size=2, members=members), lost={1: "has ended"})
    job: Any = SimpleNamespace(ranks=((0,), (1,)), facts=(), notes=(), gpus=frozenset())
    with pytest.raises(RankLost, match=r"rank 1 \(process 1 on host1\) has ended"):
        TransferCluster(crew, job, crew, 60.0, "mpi").pairs([(0, 1)])
