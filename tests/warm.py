"""A warm parent of processes that tests start: it has imported wirespeed, and forks instead of ``python -m``.

Most of what starting a rank costs is loading modules, which a fork inherits. Two tests or more of each file
keep the true start, as do all processes that mpirun or wirespeed itself starts. The parent has one thread,
and ends with the process of tests that started it.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module, reload
from pathlib import Path
from pkgutil import walk_packages
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).parents[1]
#: Size of a request, in bytes, and how many descriptors it can have.
_REQUEST_BYTES, _DESCRIPTORS = 1 << 20, 64
#: The end of the connection in the parent has this number there; no request passes one above it.
_ABOVE = 500
#: Flags of setns(2), unshare(2), mount(2) and umount2(2).
_NEW_NET, _NEW_NS, _NEW_UTS, _SLAVE, _DETACH = 0x40000000, 0x00020000, 0x04000000, (1 << 19) | (1 << 14), 2


@dataclass(frozen=True)
class Host:
    """Network and host-name namespaces, in which processes may run before all ordinary ones."""

    namespace: str
    name: str
    real_time: bool = False

    @property
    def inside(self) -> list[str]:
        """The beginning of a command that runs there; its first four words enter the network."""
        named = f'hostname {self.name} && exec "$@"'
        return ["ip", "netns", "exec", self.namespace, "unshare", "--uts", "sh", "-c", named, "sh"]


class Forked:
    """What tests use of `subprocess.Popen`, for a process that the warm parent forked.

    Attributes:
        pid: Its number.
        stdout: What it prints, if this is a pipe.
        returncode: As of `Popen`; None before its end was waited for.
    """

    def __init__(
        self, parent: Warm, command: Sequence[str], *, stdin: int | None = None, stdout: int | None = None,
        stderr: int | None = None, text: bool = False, errors: str | None = None,
        env: Mapping[str, str] | None = None, pass_fds: Sequence[int] = (), process_group: int | None = None,
        start_new_session: bool = False, cwd: Path = ROOT, host: Host | None = None,
    ) -> None:  # fmt: skip
        opened: list[int] = []

        def standard(number: int, kind: int | None) -> int:
            if kind in (None, subprocess.DEVNULL):
                opened.append(os.dup(number) if kind is None else os.open(os.devnull, os.O_RDWR))
            else:
                assert kind == subprocess.PIPE
                mine, theirs = os.pipe()
                self.stdout = os.fdopen(mine, "r" if text else "rb", errors=errors)
                opened.append(theirs)
            return opened[-1]

        self.stdout: Any = None
        self.returncode: int | None = None
        given = [standard(0, stdin), standard(1, stdout)]
        given.append(given[1] if stderr == subprocess.STDOUT else standard(2, stderr))
        self._status, theirs = os.pipe()
        opened.append(theirs)
        request = {
            "command": command[1:], "env": dict(os.environ if env is None else env), "cwd": str(cwd),
            "descriptors": [0, 1, 2, *pass_fds], "session": start_new_session, "group": process_group,
            "host": host and asdict(host),
        }  # fmt: skip
        assert command[0] == sys.executable
        try:
            parent.ask(request, [theirs, *given, *pass_fds])
        finally:
            for descriptor in opened:
                os.close(descriptor)
        self.pid = self._read(None)

    def _read(self, timeout: float | None) -> int:
        if not select.select([self._status], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
        number = os.read(self._status, 8)
        assert number, "the warm parent has ended"
        return int.from_bytes(number, "little", signed=True)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self.returncode = self._read(timeout)
            os.close(self._status)
        return self.returncode

    def poll(self) -> int | None:
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def communicate(self, timeout: float | None = None) -> tuple[Any, None]:
        end = time.monotonic() + (timeout or threading.TIMEOUT_MAX)
        texts: list[Any] = []
        reader = threading.Thread(target=lambda: texts.append(self.stdout.read()))
        reader.start()
        reader.join(timeout)
        if reader.is_alive():
            raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
        self.wait(end - time.monotonic())
        return texts[0], None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        if self.stdout:
            self.stdout.close()
        self.wait()


class Warm:
    """The warm parent."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm", str(theirs.fileno())], stdout=subprocess.PIPE, cwd=ROOT,
                pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip
        assert self._control.recv(8), "the warm parent does not start"

    def start(self, command: Sequence[str], **settings: Any) -> Forked:
        """Start a command of Python with ``-m`` or ``-c``, with the arguments of Popen, and on a host."""
        return Forked(self, command, **settings)

    @property
    def subprocess(self) -> SimpleNamespace:
        """The module, for one module of wirespeed, whose processes are forked."""
        return SimpleNamespace(**{**vars(subprocess), "Popen": self.start})

    def ask(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        socket.send_fds(self._control, [json.dumps(request).encode()], list(descriptors))

    def close(self) -> None:
        self._control.close()
        with self._process:
            pass


def _import_all() -> None:
    """Import all that commands may need."""
    import wirespeed

    for module in walk_packages(wirespeed.__path__, "wirespeed."):
        if not module.name.endswith("__main__"):
            try:
                import_module(module.name)
            except ImportError:  # of another vendor's library
                continue


def _serve(control: socket.socket) -> dict[str, Any]:
    """Fork a process for each request, and report its number and its end; the child returns the request."""
    awake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    reports: dict[int, int] = {}

    def report(pid: int, number: int) -> None:
        with suppress(BrokenPipeError):  # nobody waits for it
            os.write(reports[pid], number.to_bytes(8, "little", signed=True))

    while True:
        ready, _, _ = select.select([control, awake], [], [])
        if awake in ready:
            os.read(awake, 4096)
            for pid in list(reports):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    report(pid, os.waitstatus_to_exitcode(status))
                    os.close(reports.pop(pid))
        if control in ready:
            data, descriptors, _, _ = socket.recv_fds(control, _REQUEST_BYTES, _DESCRIPTORS)
            if not data:
                os._exit(0)
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                control.detach()
                return json.loads(data) | {"received": descriptors[1:]}
            reports[pid] = descriptors[0]
            report(pid, pid)
            for descriptor in descriptors[1:]:
                os.close(descriptor)


def _become(request: Mapping[str, Any]) -> None:
    """Make this forked process what Popen would have made of it."""
    import fcntl

    if request["session"]:
        os.setsid()
    if request["group"] is not None:
        os.setpgid(0, request["group"])
    above = [fcntl.fcntl(each, fcntl.F_DUPFD, _ABOVE) for each in request["received"]]
    for descriptor, number in zip(above, request["descriptors"], strict=True):
        os.dup2(descriptor, number)
    kept = sorted(request["descriptors"])
    for before, after in zip(kept, [*kept[1:], 2 * _ABOVE], strict=True):
        os.closerange(before + 1, after)
    if request["host"]:
        _move(Host(**request["host"]))
    for name in ("stdout", "stderr"):  # of other files than the parent's
        old = getattr(sys, name)
        new = open(old.fileno(), "w", encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115
        new.reconfigure(line_buffering=old.line_buffering)
        setattr(sys, name, new)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])


def _move(host: Host) -> None:
    """Move this process to a host, with its network interfaces in /sys, as `ip netns exec` does."""
    library = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *arguments: Any) -> None:
        if getattr(library, name)(*arguments):
            raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")

    if host.real_time:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    namespace = os.open(f"/run/netns/{host.namespace}", os.O_RDONLY)
    call("setns", namespace, _NEW_NET)
    os.close(namespace)
    call("unshare", _NEW_NS | _NEW_UTS)
    socket.sethostname(host.name)
    reload(platform)  # keeps the name of the host
    nothing = ctypes.c_void_p()
    call("mount", b"", b"/", b"none", ctypes.c_ulong(_SLAVE), nothing)
    call("umount2", b"/sys", _DETACH)
    call("mount", host.namespace.encode(), b"/sys", b"sysfs", ctypes.c_ulong(0), nothing)


def _main() -> None:
    import gc
    import runpy

    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as in wirespeed: one thread, so that it can be forked
    _import_all()
    assert threading.active_count() == len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208
    gc.collect()
    gc.freeze()
    control = socket.socket(fileno=int(sys.argv[1]))
    control.send(b"ready")
    request = _serve(control)
    _become(request)
    how, what, *arguments = [word for word in request["command"] if word != "-P"]
    sys.argv = [how, *arguments]
    if how == "-c":
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
    else:
        assert how == "-m"
        sys.modules.pop(what, None)  # it is run again, as by `python -m`
        runpy.run_module(what, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
