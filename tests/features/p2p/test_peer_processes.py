"""Attempts of peer access in real processes, on GPUs in host memory with faults."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import msgspec
import pytest

import wirespeed
from tests.fakes.peer_gpu import COUNT, PEERS, VARIABLE
from wirespeed.backends.simulated import parse
from wirespeed.document import Document
from wirespeed.features.p2p.attempts import attempt_peers
from wirespeed.features.p2p.processes import WorkerProcess, of_nccl
from wirespeed.hardware.facts import OK, Fact, Facts, Known
from wirespeed.hardware.topology import Machine
from wirespeed.peer_access import ALL, SHORT, Attempt, PeerAccess, PeerMechanism, PeerVerdict

M, V = PeerMechanism, PeerVerdict


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Child processes import the fake."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))


def machine(gpus: int = 2) -> Machine:
    like = parse("rtx4090-2")
    names = [f"gpu{i}" for i in range(gpus)]
    described = tuple(
        replace(like.gpus[0], index=i, bus_id=f"00000000:00:{6 + i:02x}", backend="tests.fakes.peer_gpu",
                peers=tuple(name for name in names if name != f"gpu{i}"))
        for i in range(gpus)
    )  # fmt: skip
    return replace(like, simulated=False, gpus=described)


def tried(
    monkeypatch: pytest.MonkeyPatch,
    faults: str = "",
    gpus: int = 2,
    mechanisms: tuple[PeerMechanism, ...] = ALL,
) -> PeerAccess:
    monkeypatch.setenv(VARIABLE, faults)
    monkeypatch.setenv(COUNT, str(gpus))
    native = [Fact(Known.P2P_ATOMICS, OK, device=f"gpu{a}->gpu{b}") for a, b in permutations(range(gpus), 2)]
    return attempt_peers(machine(gpus), Facts(native), mechanisms)


def found(access: PeerAccess, source: int, destination: int) -> dict[PeerMechanism, Attempt]:
    return {a.mechanism: a for a in access.pairs[f"gpu{source}", f"gpu{destination}"]}


def test_good_gpus_pass_all_mechanisms(monkeypatch: pytest.MonkeyPatch) -> None:
    access = tried(monkeypatch, gpus=3)
    assert {(a.verdict, a.detail) for a in access.attempts} == {(V.WORKS, "")}
    assert len(access.attempts) == 6 * len(ALL)
    assert all(found(access, 0, 1)[M.COPY].rate for _ in "a") and access.through_host.keys() == {
        "gpu0",
        "gpu1",
        "gpu2",
    }
    assert found(access, 2, 1)[M.FLAG].latency


def test_more_gpus_than_peers_at_once_are_tried_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 1  # as many as hardware has take long, and show the same
    monkeypatch.setattr("wirespeed.features.p2p.processes.MOST_PEERS", most)
    monkeypatch.setenv(PEERS, str(most))
    count = most + 2
    access = tried(monkeypatch, gpus=count, mechanisms=(M.COPY, M.STORE))
    assert {a.verdict for a in access.attempts} == {V.WORKS} and len(access.verdicts) == count * (count - 1)
    assert all(found(access, 0, i)[M.COPY].rate for i in range(1, count))


def test_posted_writes_that_vanish(monkeypatch: pytest.MonkeyPatch) -> None:
    access = tried(monkeypatch, "drop 0 1")
    bad = found(access, 0, 1)
    assert [bad[m].verdict for m in (M.COPY, M.STORE, M.BOTH, M.IPC, M.DESCRIPTOR)] == [V.WRONG] * 5
    assert [bad[m].verdict for m in (M.FLAG, M.ORDER)] == [V.HANGS] * 2
    assert bad[M.LOAD].verdict is V.WORKS
    assert bad[M.STORE].stale == bad[M.STORE].wrong == bad[M.STORE].words
    assert bad[M.FLAG].stage == "waiting for the flag of gpu0 on gpu1"
    assert {a.verdict for a in found(access, 1, 0).values()} == {V.WORKS}
    assert found(access, 1, 0)[M.FLAG].detail == "the answer did not arrive"


@pytest.mark.parametrize(
    ("fault", "mechanism", "verdict"),
    [
        ("corrupt 0 1", M.STORE, V.WRONG),
        ("unseen 0 1", M.FLAG, V.HANGS),
        ("late 0 1", M.ORDER, V.WRONG),
        pytest.param("no-ipc 0 0", M.IPC, V.NOT_OFFERED, marks=pytest.mark.long),
        pytest.param("refuse 0 1", M.COPY, V.NOT_OFFERED, marks=pytest.mark.long),
        ("die 0 1", M.COPY, V.FAILS),
        pytest.param("lost 0 0", M.COPY, V.FAILS, marks=pytest.mark.long),
    ],
)
def test_a_fault_of_one_direction(
    monkeypatch: pytest.MonkeyPatch, fault: str, mechanism: PeerMechanism, verdict: PeerVerdict
) -> None:
    attempt = found(tried(monkeypatch, fault), 0, 1)[mechanism]
    assert attempt.verdict is verdict
    assert attempt.late is (fault == "late 0 1")


def test_what_is_wrong_only_later_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = found(tried(monkeypatch, "fade 0 1"), 0, 1)
    for attempt in (bad[M.COPY], bad[M.STORE]):
        assert (attempt.verdict, attempt.detail, attempt.wrong) == (V.WRONG, "wrong some time later", 1)
    assert not bad[M.STORE].late


def test_a_hang_names_its_stage_and_the_other_pairs_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    access = tried(monkeypatch, "hang 0 1", gpus=3)
    hung = found(access, 0, 1)
    assert (hung[M.COPY].verdict, hung[M.COPY].stage) == (V.HANGS, "copy engine, gpu0->gpu1")
    assert hung[M.FLAG].verdict is V.NOT_TRIED and not access.unusable
    others = [pair for pair in access.pairs if set(pair) != {"gpu0", "gpu1"}]
    assert {access.verdicts[pair] for pair in others} == {V.WORKS}


def test_a_gpu_that_a_kill_leaves_unusable_is_named_and_its_pairs_are_not_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FAKE_MARK", str(tmp_path / "hung"))
    access = tried(monkeypatch, "hang 1 2;dead 1 1", gpus=3)
    assert access.unusable == {"gpu1": "using gpu1 without a peer hangs"}
    assert found(access, 1, 2)[M.COPY].verdict is V.HANGS
    untried = [attempt for pair in ((0, 1), (1, 0)) for attempt in found(access, *pair).values()]
    assert {(a.verdict, a.detail) for a in untried} == {(V.NOT_TRIED, "gpu1 cannot be used any more")}
    assert access.verdicts["gpu0", "gpu2"] is V.WORKS


def test_a_process_that_waits_for_a_cpu_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine it may take long to answer; one that hangs is killed all the same."""
    slow = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    link, theirs = socket.socketpair()
    process = WorkerProcess.__new__(WorkerProcess)
    process._link, process._process = link, slow
    waits = iter([{"1": 0.0}, {"1": 0.2, "2": 0.15}, {"1": 0.2, "2": 0.3}, {"1": 0.25, "2": 0.39}])
    monkeypatch.setattr(process, "_waits", lambda: next(waits))
    with slow, link, theirs:
        started = time.monotonic()
        assert not process._answers(0.1) and next(waits, None) is None
        assert time.monotonic() - started >= 0.1 + 0.2 + 0.15
        monkeypatch.undo()
        assert process._waits().keys() == {str(slow.pid)}
        theirs.send(b"x")
        assert process._answers(0.1)
        slow.kill()


def test_the_short_form_tries_everything_but_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    access = tried(monkeypatch, "unseen 1 0", mechanisms=SHORT)
    assert access.short and {a.mechanism for a in access.attempts} == set(ALL) - {M.COPY} == set(SHORT)
    assert access.verdicts == {("gpu0", "gpu1"): V.WORKS, ("gpu1", "gpu0"): V.HANGS}


def test_no_process_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    tried(monkeypatch, "hang 0 1", mechanisms=SHORT)
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    commands = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    assert not [command for command in commands if b"peer_worker" in command]


def of_run(document: Document, before: str = "", after: str = "") -> tuple[V, str]:
    """What the output of a run by NCCL shows, with lines that NCCL printed before and after the Document."""
    return of_nccl(before.encode() + msgspec.json.encode(document) + b"\n" + after.encode())


def test_what_nccl_did_and_its_transport() -> None:
    document = wirespeed.run(["sendrecv"], machine="simulated:rtx4090-2", samples=1, copies=1)
    assert of_run(document) == (V.WORKS, "by P2P/CUMEM")
    wrong = wirespeed.run(["sendrecv"], machine="simulated:rtx4090-2+error", samples=1, copies=1)
    verdict, detail = of_run(wrong)
    assert verdict is V.FAILS and "simulated error" in detail
    assert of_run(wirespeed.described("simulated:rtx4090-2"))[0] is V.NOT_TRIED
    with pytest.raises(msgspec.MsgspecError):
        of_nccl(b"NCCL DIAG === NCCL Diagnostics ===\n")


@pytest.mark.parametrize("prefix", ["", "node17:4711 "])
@pytest.mark.parametrize(
    "line, detail",
    [  # the examples in the user guide of NCCL 2.31, "Diagnostics"
        (
            "[OK]   p2p: verified P2P access in both directions between every GPU pair (56 peer accesses)",
            "verified P2P access in both directions between every GPU pair (56 peer accesses)",
        ),
        (
            "[INFO] p2p: only 52/56 GPU-to-GPU peer accesses passed verification",
            "only 52/56 GPU-to-GPU peer accesses passed verification",
        ),
    ],
)
def test_diagnostics_of_nccl_are_a_reading(line: str, detail: str, prefix: str) -> None:
    document = wirespeed.run(["sendrecv"], machine="simulated:rtx4090-2", samples=1, copies=1)
    before = (
        f"{prefix}NCCL DIAG === NCCL Diagnostics ===\n{prefix}NCCL DIAG {line}\n"
        f"{prefix}NCCL DIAG NCCL diagnostics completed in 245.3 ms across 8 ranks\n"
    )
    read = f"by P2P/CUMEM; NCCL's diagnostics: {detail}"
    assert of_run(document, before) == of_run(document, after=before) == (V.WORKS, read)


def test_a_process_that_cannot_start_says_nothing_of_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nowhere")  # the fake driver cannot be imported
    access = tried(monkeypatch, mechanisms=SHORT)
    assert access.verdict is V.NOT_TRIED and not access.unusable
    assert all("starting" in attempt.detail for attempt in access.attempts)


INTERRUPTED = """
import wirespeed
from tests.features.p2p.test_peer_processes import machine
from wirespeed.document import Document
from wirespeed.features.p2p.attempts import attempt_peers
from wirespeed.hardware.facts import Facts
attempt_peers(machine(4), Facts([]))
"""


def workers(parent: int) -> set[int]:
    """The processes of attempts that a process started."""
    lines = Path(f"/proc/{parent}/task").glob("*/children")
    return {int(child) for line in lines for child in line.read_text().split()}


@pytest.mark.parametrize(
    ("number", "stopped"), [(signal.SIGINT, False), (signal.SIGKILL, False), (signal.SIGKILL, True)]
)
def test_an_end_at_any_time_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, stopped: bool
) -> None:
    monkeypatch.setenv(VARIABLE, "hang 0 1;hang 2 3;hang 0 2;hang 1 3;hang 0 3;hang 1 2")
    monkeypatch.setenv(COUNT, "4")
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED], stderr=subprocess.DEVNULL) as parent:
        while len(found := workers(parent.pid)) < 4 and parent.poll() is None:
            time.sleep(0.01)
        for child in found if stopped else ():
            os.kill(child, signal.SIGSTOP)
            while Path(f"/proc/{child}/stat").read_text().rpartition(") ")[2][0] != "T":
                time.sleep(0.001)
        parent.send_signal(number)
        parent.wait()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and any(is_worker(child) for child in found):
        time.sleep(0.01)
    assert len(found) == 4 and not [child for child in found if is_worker(child)]


def is_worker(process: int) -> bool:
    try:
        return b"peer_worker" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False
