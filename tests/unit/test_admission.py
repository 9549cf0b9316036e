"""Who joins a job and who does not: real sockets, and strangers that say anything."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import own_time
from tests.threads import AT_END, SECRET, together, worlds
from wirespeed.errors import MeasurementTimeout
from wirespeed.version import __version__
from wirespeed.worlds import admission, base, listening, rendezvous
from wirespeed.worlds.admission import enter, secret_of
from wirespeed.worlds.base import RankLost, World, WorldError
from wirespeed.worlds.channel import Channel, InvalidMessage
from wirespeed.worlds.crew import agree_on
from wirespeed.worlds.listening import listen
from wirespeed.worlds.rendezvous import connect, gather

SECONDS = 30.0


class Leader:
    """A rank 0 of two that waits for rank 1 in a thread."""

    def __init__(self, timeout: float = SECONDS, secret: bytes = SECRET) -> None:
        listeners = listen(secret, host="127.0.0.1")
        self.port = listeners[0].getsockname()[1]
        pool = AT_END.enter_context(ThreadPoolExecutor(1))
        self._world = pool.submit(gather, listeners, secret, 2, "", timeout)
        self._world.add_done_callback(_ended)

    def dial(self) -> Channel:
        """A connection of which nothing is known yet."""
        channel = Channel(socket.create_connection(("127.0.0.1", self.port)))
        return AT_END.enter_context(contextlib.closing(channel))

    def joined(self) -> World:
        """Let the right rank 1 join, which works whatever strangers have done."""
        other = connect([("127.0.0.1", self.port)], SECRET, 1, 2, "", SECONDS)
        world = self._world.result()
        assert (world.size, other.size) == (2, 2)
        together([world, other], World.close)
        return world

    def error(self) -> str:
        with pytest.raises(WorldError) as caught:
            self._world.result()
        return str(caught.value)


def _ended(joining: Future[World]) -> None:
    """Let a World end with the test."""
    if not joining.exception():
        AT_END.callback(joining.result().close)


def soon() -> float:
    return time.monotonic() + SECONDS


def hello(**other: Any) -> list[Any]:
    fields = {
        "name": "wirespeed", "version": __version__, "rank": 1, "size": 2, "purpose": "link",
        "host": "far", "pid": 77, "local": -1,
    }  # fmt: skip
    return list((fields | other).values())


def closed(channel: Channel) -> bool:
    try:
        while True:
            channel.receive_bytes(soon(), 2**20)
    except (EOFError, ConnectionError):
        return True


def test_a_stranger_learns_nothing_and_joins_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    leader = Leader()
    stranger = leader.dial()
    nonce = stranger.receive_bytes(soon(), 2**20)
    assert len(nonce) == 32  # all that it receives
    stranger.send(hello(), soon())
    assert closed(stranger)
    leader.joined()
    note = capfd.readouterr().err
    assert "wirespeed: note: not admitted: a connection from 127.0.0.1: it does" in note or "it sent" in note


def test_a_wrong_secret_is_one_line_at_both_ends(capfd: pytest.CaptureFixture[str]) -> None:
    leader = Leader()
    with pytest.raises(WorldError, match=r"does not know the secret .* set WIRESPEED_JOB_SECRET to the same"):
        connect([("127.0.0.1", leader.port)], b"another job", 1, 2, "", SECONDS)
    leader.joined()
    assert "127.0.0.1: it does not know the secret of this job" in capfd.readouterr().err


def test_a_proof_cannot_be_played_back() -> None:
    """Neither rank 0's own proof, nor one for another nonce, is that of a rank."""
    leader = Leader()
    for answer in (b"x" * 64, b"x" * 63, b""):
        stranger = leader.dial()
        nonce = stranger.receive_bytes(soon(), 64)
        stranger.send_bytes(answer, soon())
        assert closed(stranger)
        stranger = leader.dial()
        stranger.receive_bytes(soon(), 64)
        stranger.send_bytes(nonce + admission._proof(SECRET, b"rank 0", nonce, nonce), soon())
        assert closed(stranger)
    leader.joined()


def test_silent_connections_do_not_delay_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "ADMISSION_S", 2 * SECONDS)
    leader = Leader()
    silent = [leader.dial() for _ in range(40)]
    leader.joined()  # one after the other, each would have taken its maximum
    for channel in silent:
        channel.close()


def test_a_silent_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "ADMISSION_S", 0.2)
    leader = Leader()
    assert closed(leader.dial())
    monkeypatch.undo()
    leader.joined()


def test_connections_above_the_limit_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_UNPROVEN_LIMIT", 2)
    monkeypatch.setattr(rendezvous, "ADMISSION_S", 1.0)
    leader = Leader()
    silent = [leader.dial() for _ in range(5)]
    assert sum(t.name == "admit a rank" for t in threading.enumerate()) <= 2
    leader.joined()
    for channel in silent:
        channel.close()


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x05\0\0\0\x91\x91", b""]
)
def test_a_stranger_that_says_anything(sent: bytes) -> None:
    leader = Leader()
    with socket.create_connection(("127.0.0.1", leader.port)) as stranger:
        stranger.sendall(sent)
        with contextlib.suppress(OSError):  # rank 0 may have hung up already
            stranger.shutdown(socket.SHUT_WR)
    leader.joined()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": "9.9.9"}, f"rank 1 runs wirespeed 9.9.9, rank 0 {__version__}"),
        ({"size": 5}, "rank 1 is one of 5 ranks, but rank 0 expects 2"),
        ({"rank": 7}, "check WORLD_SIZE and RANK"),
        ({"rank": 0}, "check WORLD_SIZE and RANK"),
    ],
)
def test_a_rank_that_does_not_fit_is_refused_and_the_job_goes_on(
    change: dict[str, Any], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    leader = Leader()
    wrong = leader.dial()
    enter(wrong, SECRET, soon())
    wrong.send(hello(**change), soon())
    answer, text = wrong.receive(soon())
    assert answer == "refused" and reason in text
    leader.joined()
    assert f"wirespeed: note: not admitted: {text}\n" in capfd.readouterr().err


def test_why_ranks_were_refused_is_told_at_the_end() -> None:
    leader = Leader(timeout=1.0)
    with pytest.raises(WorldError, match="rank 1 is one of 3 ranks, but rank 0 expects 2"):
        connect([("127.0.0.1", leader.port)], SECRET, 1, 3, "", SECONDS)
    assert "1 of 2 ranks did not connect" in (text := leader.error()) and "one of 3 ranks" in text


def test_two_with_one_rank() -> None:
    listeners = listen(SECRET, host="127.0.0.1")
    to = [("127.0.0.1", listeners[0].getsockname()[1])]
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(gather, listeners, SECRET, 3, "", SECONDS)
        same = [pool.submit(connect, to, SECRET, 1, 3, "", SECONDS) for _ in range(2)]
        while not any(one.done() for one in same):
            time.sleep(0.01)
        (refused,) = [one for one in same if one.done()]
        with pytest.raises(WorldError, match="two processes have rank 1"):
            refused.result()
        last = pool.submit(connect, to, SECRET, 2, 3, "", SECONDS)
        joined = [first.result(), last.result(), *(one.result() for one in same if one is not refused)]
    assert {world.size for world in joined} == {3}
    together(joined, World.close)


def test_notes_are_few(capfd: pytest.CaptureFixture[str]) -> None:
    leader = Leader()
    for _ in range(12):
        stranger = leader.dial()
        stranger.receive_bytes(soon(), 64)
        stranger.send_bytes(b"x" * 64, soon())
        assert closed(stranger)
    leader.joined()
    notes = capfd.readouterr().err.splitlines()
    assert len(notes) == 5 and notes[-1].endswith("; further notes are omitted")


def test_control_characters_of_a_peer_are_neutralised(capfd: pytest.CaptureFixture[str]) -> None:
    leader = Leader()
    wrong = leader.dial()
    enter(wrong, SECRET, soon())
    wrong.send(hello(version="\x1b[2J\n9"), soon())
    wrong.receive(soon())
    channels = []
    for purpose in ("link", "watch"):
        channels.append(leader.dial())
        enter(channels[-1], SECRET, soon())
        channels[-1].send(hello(purpose=purpose, host="\x1b]0;evil\x07"), soon())
        assert channels[-1].receive(soon()) == ["welcome", ""]
    world = leader._world.result()
    channels[1].send(["failed", "\x1b[31mred\n"], soon())
    with pytest.raises(RankLost) as caught:
        world.check(SECONDS)
    shown = capfd.readouterr().err + str(caught.value) + str(world.members[1])
    assert "\x1b" not in shown and "\x07" not in shown and "evil" in shown and "red" in shown


def test_a_rank_with_half_of_its_connections_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    late = 0.0
    monkeypatch.setattr(rendezvous, "time", own_time(monotonic=lambda: time.monotonic() + late))
    leader = Leader()
    half = leader.dial()
    enter(half, SECRET, soon())
    half.send(hello(), soon())
    assert half.receive(soon()) == ["welcome", ""]
    late = SECONDS
    assert re.search(r"1 of 2 ranks did not connect to rank 0 .*: 1$", leader.error())


# A fake rank 0.


def fake(answer: Callable[[Channel], object], secret: bytes = SECRET, to: str = "") -> str:
    """Return what a rank says about a rank 0 that answers so after its proof."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for _ in range(2):
            channel = Channel(listener.accept()[0])
            if secret:
                admission.admit(channel, secret, soon())
            answer(channel)

    with ThreadPoolExecutor(1) as pool, listener:
        pool.submit(serve)
        with pytest.raises(WorldError) as caught:
            connect([("127.0.0.1", listener.getsockname()[1])], SECRET, 1, 2, "", 2.0)
        with (
            socket.create_connection(listener.getsockname()),
            socket.create_connection(listener.getsockname()),
        ):
            pass  # ends it if it still waits
    return str(caught.value)


def test_a_rank_0_that_does_not_know_the_secret_receives_nothing() -> None:
    received = []

    def ask(channel: Channel) -> None:
        channel.send_bytes(b"n" * 32, soon())
        received.append(channel.receive_bytes(soon(), 2**20))
        channel.send_bytes(b"p" * 32, soon())
        received.append(channel.receive_bytes(soon(), 2**20))

    assert "127.0.0.1 listens in place of rank 0, but it does not know the secret" in fake(ask, secret=b"")
    assert [len(one) for one in received] == [64]  # a nonce and a proof


def read(then: Callable[[Channel], object]) -> Callable[[Channel], object]:
    def answer(channel: Channel) -> None:
        channel.receive(soon())
        then(channel)

    return answer


@pytest.mark.parametrize(
    "body",
    [
        b"\x91" * 3000 + b"\xc0",
        b"\x92\xa7welcome\xa2\xff\xfe",
        b"\xc1",
        b"",
        b"\xdd\xff\xff\xff\xff",
        b"x" * 5000,
    ],
    ids=["nesting", "utf-8", "malformed", "empty", "huge-list", "long"],
)
def test_invalid_answers_are_one_line(body: bytes) -> None:
    text = fake(read(lambda channel: channel.send_bytes(body, soon())))
    assert text.startswith("rank 0 at 127.0.0.1:") and " sent a" in text and "\n" not in text


@pytest.mark.parametrize(
    "members",
    [[], [[0, "a", 1, 0]], [[1, "a", 1, 0], [0, "a", 1, 0]], [["0", "a", 1, 0]] * 2, "all", {"a": 1}],
)
def test_invalid_members_are_one_line(members: object) -> None:
    def answer(channel: Channel) -> None:
        channel.receive(soon())
        channel.send(["welcome", ""], soon())
        channel.send(members, soon())

    text = fake(answer)
    assert text.startswith("rank 0 at 127.0.0.1:") and " sent a" in text and "\n" not in text


# After joining.


def test_a_message_is_limited_before_it_is_allocated() -> None:
    a, b = socket.socketpair()
    a.sendall(b"\xff\xff\xff\xff")
    with pytest.raises(InvalidMessage, match="4294967295 bytes where at most 100"):
        Channel(b).receive_bytes(soon(), 100)


@pytest.mark.parametrize("size", [2**20, 2**10])
def test_a_message_that_trickles_ends_at_the_deadline(size: int) -> None:
    a, b = socket.socketpair()
    a.sendall((2**20).to_bytes(4, "little"))
    stop = threading.Event()

    def trickle() -> None:
        a.settimeout(0.1)
        while not stop.wait(0.005):
            try:
                a.sendall(b"x" * (size // 1024))
            except OSError:
                return

    thread = threading.Thread(target=trickle)
    thread.start()
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        Channel(b).receive_bytes(time.monotonic() + 0.3, 2**20)
    assert time.monotonic() - began < 10
    stop.set()
    thread.join()


def test_a_peer_that_does_not_read_does_not_hold_up_a_sender() -> None:
    a, _b = socket.socketpair()
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        Channel(a).send_bytes(b"x" * 2**24, began + 0.2)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "body", [b"\x91" * 3000 + b"\xc0", b"\xa2\xff\xfe", b"\xc1", b"\x93\x01\xa1a"],
    ids=["nesting", "utf-8", "malformed", "short"],
)  # fmt: skip
@pytest.mark.parametrize("channel", ["links", "watches"])
def test_an_invalid_message_names_its_rank(body: bytes, channel: str) -> None:
    some = worlds(2)
    getattr(some[1], channel)[0].send_bytes(body, soon())
    work = (lambda w: w.barrier("testing")) if channel == "links" else (lambda w: w.check(SECONDS))
    (error,) = together(some[:1], work)
    assert isinstance(error, RankLost) and "rank 1 (process" in str(error) and "sent an invalid" in str(error)


def test_a_flood_of_reports_does_not_stop_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "REPORT_GRACE_S", 0.2)
    some = worlds(2, timeout=0.5)
    stop = threading.Event()

    def flood() -> None:
        while not stop.is_set():
            try:
                some[1].watches[0].send(["late", "x" * 1000], time.monotonic() + 0.1)
            except OSError:
                return

    thread = threading.Thread(target=flood)
    thread.start()
    began = time.monotonic()
    some[0].check(0.2)
    (error,) = together(some[:1], lambda w: w.barrier("testing"))
    assert isinstance(error, MeasurementTimeout)
    some[0].watches[0] = some[0].watches[1]
    some[0]._outlast_leader()
    assert time.monotonic() - began < 20
    stop.set()
    thread.join()


# Where ranks find each other, and their secret.


def test_ranks_of_a_host_meet_at_a_unix_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    listeners = listen(SECRET, host="127.0.0.1")
    port = listeners[0].getsockname()[1]
    listeners[0].close()
    near = listening.local_name(SECRET, port)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(gather, listeners[1:], SECRET, 2, "", SECONDS)
        second = pool.submit(connect, [near], SECRET, 1, 2, "", SECONDS)
        assert first.result().size == second.result().size == 2
    assert listening.local_name(b"another job", port) != near


def test_another_user_of_the_host_is_refused(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    leader = Leader()
    monkeypatch.setattr(rendezvous, "same_user", lambda _: False)
    near = listening.local_name(SECRET, leader.port)
    with pytest.raises(WorldError, match="could not reach rank 0"):
        connect([near], SECRET, 1, 2, "", 0.2)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
        stranger.connect(near)
        assert stranger.recv(1) == b""
    leader.joined()
    assert "it belongs to another user" in capfd.readouterr().err


def test_rank_0_listens_where_the_others_look_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for listener in (listeners := listen(SECRET, host="127.0.0.1")):
        listener.close()
    assert len(listeners) == 2
    near = listen(SECRET, host="localhost")
    names = [listener.getsockname()[0] for listener in near if listener.family != socket.AF_UNIX]
    assert names and set(names) <= {"127.0.0.1", "::1"}
    resolved = [(socket.AF_INET, socket.SOCK_DGRAM, 0, "", ("127.0.1.1", 1))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: resolved)
    assert listening._interfaces("node0") == []  # only this host resolves its name so
    assert listening.is_here("node0") and not listening._interfaces("")
    for listener in near:
        listener.close()


def test_the_secret_of_a_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    job = {"WIRESPEED_JOB_SECRET": "x", "WORLD_SIZE": "2"}
    step = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_ID": "5", "SLURM_STEP_ID": "0"}
    several = [
        job, job | {"WIRESPEED_JOB_SECRET": "y"}, job | {"TORCHELASTIC_RUN_ID": "1"}, job | step,
        job | step | {"SLURM_STEP_ID": "1"},
    ]  # fmt: skip
    assert len({secret_of(one) for one in several}) == 5
    assert secret_of(job) == secret_of(job | step | {"SLURM_STEP_NUM_TASKS": "1"})
    assert not list(tmp_path.iterdir())
    with ThreadPoolExecutor(8) as pool:  # many ranks create the file at a time
        assert len(set(pool.map(secret_of, [{}] * 16))) == 1
    (path,) = (tmp_path / "wirespeed").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and len(path.read_bytes()) == 32


def test_a_key_file_that_others_can_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    secret_of({})
    path = tmp_path / "wirespeed" / "job-key"
    path.chmod(0o644)
    with pytest.raises(WorldError, match="mode 0600: delete it, or set WIRESPEED_JOB_SECRET"):
        secret_of({})
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(WorldError, match="too short"):
        secret_of({})
    path.unlink()
    path.symlink_to(os.devnull)
    with pytest.raises(WorldError, match="cannot use the key file"):
        secret_of({})
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    with pytest.raises(WorldError, match=r"cannot use the key file .* set WIRESPEED_JOB_SECRET"):
        secret_of({})


@pytest.mark.parametrize("options", [5, [["a"]], {1: 2}, {"\x1b[2Jx": 1}])
def test_invalid_options_of_a_rank_are_one_line(options: Any) -> None:
    found = together(worlds(2), lambda w: agree_on(w, options if w.rank else {"x": 1}))
    assert isinstance(found[0], WorldError) and "\x1b" not in str(found[0])
