"""A signal at any moment of a run loses nothing that was measured."""

from __future__ import annotations

import linecache
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import wirespeed
from tests.conftest import own_time, with_long
from wirespeed import run_errors
from wirespeed.backends.simulated.backend import SimulatedBackend
from wirespeed.cli.main import main
from wirespeed.document import Status
from wirespeed.driver.listener import Listener
from wirespeed.run_errors import ENDING, SIGNALLED, Undisturbed, waited

TWO = "simulated:hgx-h200-2"
RUN = ["run", "-t", "0", "4", "--machine", TWO, "--samples", "2", "--copies", "1", "-o"]
PACKAGE = str(Path(wirespeed.__file__).parent)
#: Parts of a run at whose lines the signal comes.
PARTS = 40
#: Functions that hand the Document on, where nothing protects it between two of their lines.
HANDS_ON = ("lead", "run", "_closed", "__enter__", "__exit__")


class Lines(Listener):
    """Counts the lines that run from the first value to the end of the command, and sends a signal at one."""

    def __init__(self, at: int | None = None) -> None:
        self.at, self.count, self.counting, self.sent = at, 0, False, False

    def measured(self, *_: Any) -> None:
        self.counting = not self.sent

    def trace(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        """Trace the functions of wirespeed, and what runs with their blocks."""
        code = frame.f_code
        is_ours = code.co_filename.startswith(PACKAGE) and code.co_name not in HANDS_ON
        return self.line if is_ours or code.co_filename.endswith("contextlib.py") else None

    def line(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        """Count a line.

        Not those of ``with``: they come again between the end of a block and its ``__exit__``, where an
        interpreter handles no signal, but a lock would stay closed.
        """
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if self.counting and event == "line" and not text.lstrip().startswith("with "):
            self.count += 1
            if self.count == self.at:
                self.counting, self.sent = False, True
                signal.raise_signal(signal.SIGTERM)
        return self.line


def traced(lines: Lines, path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the command."""
    monkeypatch.setattr("wirespeed.progress.listener", lambda: [lines])
    before = sys.gettrace()
    sys.settrace(lines.trace)
    try:
        return main([*RUN, str(path)])
    finally:
        sys.settrace(before)


def test_a_signal_at_any_line_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Signals are handled between any two lines: while saving, closing, printing."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        assert main([*RUN, str(tmp_path / "imports.json")]) == 0
        whole = Lines()
        assert traced(whole, tmp_path / "whole.json", monkeypatch) == 0
        capsys.readouterr()
        for part in range(PARTS):
            (folder := tmp_path / str(part)).mkdir()
            lines = Lines(1 + part * whole.count // PARTS)
            code = traced(lines, path := folder / "d.json", monkeypatch)
            out, err = capsys.readouterr()
            assert lines.sent and code == 130 and "interrupted" in err, (part, err)
            assert "host_to_device_memcpy_ce" in out, part
            assert [file.name for file in folder.iterdir()] == ["d.json"], part
            assert wirespeed.load(path).testcases[0].tables[0].values(), part
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_signal_while_backends_close_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: SimulatedBackend) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SimulatedBackend, "close", interrupted)
    with pytest.raises(wirespeed.RunInterrupted) as caught:
        wirespeed.run(["0"], machine=TWO)
    assert caught.value.document.good and not caught.value.document.interrupted


def test_a_signal_before_the_first_testcase_ends_the_run() -> None:
    class Early(Listener):
        def run_started(self, *_: Any) -> None:
            raise KeyboardInterrupt

    with pytest.raises(wirespeed.RunInterrupted) as caught:
        wirespeed.run(["0"], machine=TWO, listeners=[Early()])
    assert caught.value.document.interrupted == "Ctrl-C" and not caught.value.document.testcases


@pytest.mark.parametrize("number", ENDING)
def test_signals_are_postponed_once(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one, later, is for a user who does not want to wait."""
    calls, now = list[int](), [0.0]
    monkeypatch.setattr("wirespeed.run_errors.time", own_time(monotonic=lambda: now[0]))
    before = signal.signal(number, lambda number, frame: calls.append(number))
    try:
        with Undisturbed() as late:
            for moment in (0.0, 1.0, 3.0):
                now[0] = moment
                signal.raise_signal(number)
                assert calls == [number] * (moment == 3.0)
        assert late.signals == [number]
        signal.raise_signal(number)
        assert calls == [number] * 2
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize(("ignored", "code"), [(False, 130), (True, 0)])
def test_a_terminal_that_closes_ends_the_run_like_a_scheduler(
    ignored: bool, code: int, tmp_path: Path
) -> None:
    """Except under nohup, which ignores the signal."""
    path = tmp_path / "d.json"
    hang = "" if ignored else "+hang@gpu0->gpu1"
    command = [*RUN[:4], *(["5"] * 20 if ignored else []), "--machine", f"{TWO}{hang}", "-o", str(path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "wirespeed", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL),
    )  # fmt: skip
    while not (path.exists() and wirespeed.load(path).testcases[0].status is Status.PASSED):
        assert process.poll() is None or ignored
        time.sleep(0.02)
    process.send_signal(signal.SIGHUP)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "host_to_device_memcpy_ce" in out and "Traceback" not in err
    assert wirespeed.load(path).interrupted == ("" if ignored else "Ctrl-C")


#: Where Python or a library ignores the exception of a handler, as code that sends a signal to itself there.
VANISHING = {
    "a destructor": """
class Thing:
    def __del__(self):
        send()
Thing()
""",
    "a callback of ctypes": """
import ctypes
called = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: send() or 0)
called()
""",
    "an import": """
import builtins, sys, types
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "one_that_tries":
            try:
                send()
            except BaseException:  # as extension modules that clear errors
                pass
sys.meta_path.insert(0, Finder())
try:
    import one_that_tries
except ImportError:
    pass
""",
    "the close of a generator": """
def generator():
    try:
        yield
    finally:
        send()
made = generator()
next(made)
del made
""",
    "a callback of a weak reference": """
import weakref
class Thing: pass
thing = Thing()
seen = weakref.ref(thing, lambda _: send())
del thing
""",
}


@pytest.mark.parametrize("number", with_long([signal.SIGINT, signal.SIGTERM], signal.SIGTERM))
@pytest.mark.parametrize("where", VANISHING)
def test_a_signal_whose_exception_vanishes_costs_one_look(
    where: str, number: signal.Signals, tmp_path: Path
) -> None:
    """The run ends as by any other signal, with what was measured, and not after its time-out."""
    path = tmp_path / "d.json"
    command = [
        "wirespeed",
        *RUN[:4],
        "--machine",
        f"{TWO}+hang@gpu0->gpu1",
        "--timeout",
        "60s",
        "-o",
        str(path),
    ]
    code = f"""
import os, signal, sys, time
from wirespeed.cli import main as cli
from wirespeed.driver import listener
signal.signal(signal.SIGINT, signal.default_int_handler)
class Sender(listener.Listener):
    sent = False
    def measuring(self, case, done, stage):
        if case.name == "device_to_device_memcpy_read_ce" and not Sender.sent:
            Sender.sent = True
            exec(VANISHING, dict(send=lambda: os.kill(os.getpid(), {int(number)}) or time.sleep(0.05)))
VANISHING = {VANISHING[where]!r}
import wirespeed.progress
wirespeed.progress.listener = lambda: [Sender()]
sys.argv = {command!r}
cli.entry()
"""
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=55)
    assert done.returncode == 130, done.stderr
    assert time.monotonic() - began < 30 and "Traceback" not in done.stderr
    saved = wirespeed.load(path)
    assert saved.interrupted == "Ctrl-C" and saved.testcases[0].status is Status.PASSED


def test_a_wait_looks_for_lost_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before the exception can have arrived, and once."""
    now = [100.0]
    monkeypatch.setattr(run_errors, "time", own_time(monotonic=lambda: now[0]))
    slept: list[float] = []

    def ready(seconds: float) -> bool:
        slept.append(seconds)
        now[0] += seconds
        return False

    assert waited(ready, 1.2) is False and slept == pytest.approx([0.5, 0.5, 0.2])
    SIGNALLED.came()
    now[0] += 0.19
    SIGNALLED.look()
    now[0] += 0.02
    with pytest.raises(KeyboardInterrupt):
        waited(ready, 5.0)
    SIGNALLED.look()
    SIGNALLED.came()
    SIGNALLED.heard()
    now[0] += 9.0
    SIGNALLED.look()
