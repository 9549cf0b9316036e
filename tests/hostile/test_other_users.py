"""What another user of the machine leaves in the way: silent sockets, planted files and links."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.threads import SECRET, together
from tests.users import OTHER, as_other_user, needs_root
from wirespeed.worlds import descriptors, listening, rendezvous
from wirespeed.worlds.base import World, WorldError
from wirespeed.worlds.descriptors import Descriptors, fetch

SECONDS = 30.0


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Descriptors]:
    """Descriptors of a process that waits for ever for one that says nothing."""
    monkeypatch.setattr(descriptors, "_REQUEST_S", 1e6)
    found = Descriptors()
    yield found
    found.close()


def dial(served: Descriptors) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.settimeout(SECONDS)
    descriptors._dial(made, "\0" + served.address, float("inf"))
    return made


def offered(served: Descriptors) -> int:
    return served.offer(os.open(os.devnull, os.O_RDONLY))


def test_silent_processes_of_this_user_delay_no_other(served: Descriptors) -> None:
    with ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(dial(served))
        os.close(fetch(served.address, offered(served), SECONDS))


@needs_root
def test_another_user_receives_nothing_and_delays_nobody(served: Descriptors) -> None:
    with ExitStack() as stack:
        silent = as_other_user(lambda: [stack.enter_context(dial(served)) for _ in range(300)])
        os.close(fetch(served.address, offered(served), SECONDS))
        assert {one.recv(1) for one in silent} == {b""}
    token = offered(served)

    def theft() -> str:
        with pytest.raises(WorldError) as caught:
            fetch(served.address, token, SECONDS)
        return str(caught.value)

    assert "does not hand out its descriptor" in (text := as_other_user(theft)) or "could not be" in text


@needs_root
def test_descriptors_of_another_user_are_not_taken() -> None:
    theirs = as_other_user(Descriptors)
    try:
        with pytest.raises(WorldError, match="it belongs to another user"):
            fetch(theirs.address, 1, SECONDS)
    finally:
        theirs.close()


def test_a_flood_of_silent_connections_takes_the_room_only_from_itself(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Connections of one address wait in 4 places; a rank of another, and of the same, still joins."""
    monkeypatch.setattr(rendezvous, "_UNPROVEN_LIMIT", 4)
    monkeypatch.setattr(rendezvous, "_SILENT_S", 0.0)
    monkeypatch.setattr(rendezvous, "ADMISSION_S", 1e6)
    listeners = listening.listen(SECRET, host="127.0.0.1")
    address = listeners[0].getsockname()
    with ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(socket.create_connection(address))
        other = stack.enter_context(socket.socket())
        other.bind(("127.0.0.2", 0))
        other.connect(address)
        other.settimeout(SECONDS)
        worlds = together(
            [0, 1],  # type: ignore[list-item]
            lambda rank: (
                rendezvous.connect([address], SECRET, 1, 2, "", SECONDS)
                if rank
                else rendezvous.gather(listeners, SECRET, 2, "", SECONDS)
            ),
        )
        assert [world.size for world in worlds] == [2, 2]
        assert len(other.recv(64)) == 36  # its random number: it was not closed before
        together(worlds, World.close)
    assert "a connection from 127.0.0.1: it is silent, like most of" in capfd.readouterr().err


@needs_root
@pytest.mark.parametrize("home", [None, "/proc/nonexistent", "/root", "."])
def test_a_user_without_an_entry_in_passwd(home: str | None) -> None:
    with pytest.raises(KeyError):
        pwd.getpwuid(OTHER)
    environment = {"PATH": os.environ["PATH"]} | ({} if home is None else {"HOME": home})
    few = ["--samples", "2", "--copies", "1", "--no-save"]
    simulated = ["--machine", "simulated:hgx-h200-2", "-t", "0", *few]
    for command in (
        ["list"], ["config"], ["machine"], ["run", *simulated],
        ["check", "--allow-simulated", *simulated], ["run", "-t", "host_stream_copy", "--size", "1MiB", *few],
    ):  # fmt: skip
        try:
            done = subprocess.run(
                [sys.executable, "-m", "wirespeed", *command], env=environment,
                user=OTHER, group=OTHER, extra_groups=[], cwd="/", capture_output=True, text=True,
                timeout=120,
            )  # fmt: skip
        except PermissionError:
            pytest.skip("another user cannot run this Python")
        if "No module named" in done.stderr:
            pytest.skip("another user cannot read this installation")
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
