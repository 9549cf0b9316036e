"""The processes that try peer access: one per GPU, killed when something in them does not end. Pairs that
share no GPU are tried concurrently; copies are timed one pair after the other.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ...document import Document, Status
from ...errors import BackendError
from ...hardware.facts import Known
from ...hardware.topology import Machine
from ...peer_access import MOST_PEERS, Attempt, Pair, PeerAccess, PeerMechanism, PeerVerdict, rounds
from ...run_errors import waited
from ...units import NANO
from .gpu_worker import MESSAGE_BYTES

#: Time after which a silent process is killed, in s: of most stages, and of those that open a GPU or the
#: driver. A process reports what hangs earlier; this is for calls of the driver that do not return.
_SILENT_S, _OPEN_S = 3.0, 60.0
#: A silent process that waited for a CPU meanwhile is given that time again, if it is at least this, in s.
_LEAST_S = 0.1
#: Time for a GPU to be used again after a hang, and for a killed process to end, in s.
_AGAIN_S, _KILL_S = 5.0, 1.0
#: Maximum time of one stage of NCCL, and of the start of its processes, in s.
_NCCL_S, _NCCL_START_S = 10.0, 20.0
#: NCCL 2.31 and later check peer access when a communicator is made, and print on the standard output of its
#: first rank; and the result of that check (user guide of NCCL, "Diagnostics").
_DIAGNOSTICS = {"NCCL_RUN_DIAGNOSTICS": "1"}
_DIAGNOSED, _DIAGNOSED_PEERS = b"NCCL DIAG ", re.compile(rb"NCCL DIAG \[\w+\] +p2p: (.+)")
#: Mechanisms of one process, and those between two.
_BETWEEN = (PeerMechanism.IPC, PeerMechanism.DESCRIPTOR)


class AttemptEnded(Exception):
    """A process hung, and was killed, or ended by itself.

    Attributes:
        stage: What it was doing.
        mechanism: What it was trying; None while it prepared something.
        way: For which pair; empty if for none.
        is_opening: Whether it was opening a GPU or the driver.
        verdict: What that shows.
        detail: How it ended.
    """

    def __init__(self, stage: Mapping[str, Any], verdict: PeerVerdict, detail: str = "") -> None:
        self.stage: str = stage["stage"]
        super().__init__(self.stage)
        self.mechanism = PeerMechanism(stage["mechanism"]) if stage.get("mechanism") else None
        self.way = tuple(stage.get("way", ()))
        self.is_opening = bool(stage.get("opens"))
        self.verdict, self.detail = verdict, detail


class WorkerProcess:
    """One process that tries peer access.

    Args:
        backend: What executes it.
        gpu: The GPU that it opens first, as in requests.
    """

    def __init__(self, backend: str, gpu: Mapping[str, str]) -> None:
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        life, self._life = os.pipe()
        module = "wirespeed.features.p2p.gpu_worker"
        command = [sys.executable, "-P", "-m", module, backend, str(theirs.fileno()), str(life),
                   json.dumps(gpu)]  # fmt: skip
        with theirs:
            try:
                # In a group of its own: Ctrl-C reaches only the parent, which kills it. In the same session:
                # one that is stopped is continued when the parent ends (orphaned process group; setpgid(2)).
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(), life), process_group=0,
                )  # fmt: skip
            finally:
                os.close(life)
        self.is_stuck = False

    def ask(
        self, request: Mapping[str, Any], descriptors: Sequence[int] = (), open_s: float = _OPEN_S
    ) -> Iterator[dict[str, Any]]:
        """Yield the answers to a request.

        Raises:
            AttemptEnded: If the process hung or ended.
            BackendError: If a call failed.
        """
        stage: dict[str, Any] = {"stage": "starting", "opens": True}
        with suppress(OSError):
            socket.send_fds(self._link, [json.dumps(request).encode()], list(descriptors))
        limit = _OPEN_S  # a start that takes long says nothing of the GPU
        while True:
            if not self._answers(limit):
                self.kill()
                raise AttemptEnded(stage, PeerVerdict.HANGS)
            try:
                data, received, _, _ = socket.recv_fds(self._link, MESSAGE_BYTES, 4)
            except OSError:
                data, received = b"", []
            if not data:
                self.kill()
                code = self._process.returncode
                raise AttemptEnded(stage, PeerVerdict.FAILS, f"the process ended ({_how(code)})")
            message: dict[str, Any] = json.loads(data)
            if received:
                message["descriptors"] = list(received)
            if "stage" in message:
                stage = message
                limit = open_s if message.get("opens") else _SILENT_S
            elif "hung" in message:
                self.kill()
                raise AttemptEnded(stage, PeerVerdict.HANGS)
            elif "lost" in message:
                self.kill()
                raise AttemptEnded(stage, PeerVerdict.FAILS, message["lost"])
            elif "error" in message:
                raise BackendError(message["error"])
            elif "done" in message:
                return
            else:
                yield message

    def _answers(self, limit: float) -> bool:
        """Whether the process says something within a limit of s, in which it does not wait for a CPU."""
        until = time.monotonic() + max(limit, _OPEN_S)
        before = self._waits()
        while not waited(lambda left: select.select([self._link], [], [], left)[0], limit):
            after = self._waits()
            limit = max((after[thread] - before.get(thread, 0.0) for thread in after), default=0.0)
            limit, before = min(limit, until - time.monotonic()), after
            if limit < _LEAST_S:
                return False
        return True

    def _waits(self) -> dict[str, float]:
        """How long each thread of the process has waited for a CPU, in s; none if the system does not say."""
        waits = {}
        for file in Path(f"/proc/{self._process.pid}/task").glob("*/schedstat"):
            with suppress(OSError, ValueError, IndexError):  # the second: ns waiting (sched-stats.rst)
                waits[file.parent.name] = int(file.read_text().split()[1]) * NANO
        return waits

    def end(self) -> None:
        """Let the process end, without waiting for it."""
        if self._process.poll() is None:
            self._process.kill()

    def kill(self) -> None:
        """Kill the process; one that a driver does not let end is left to the system."""
        self.end()
        if self._process.poll() is None:
            try:
                self._process.wait(_KILL_S)
            except subprocess.TimeoutExpired:
                self.is_stuck = True
        self._link.close()
        with suppress(OSError):
            os.close(self._life)
        self._life = -1

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None and self._life >= 0


def _how(code: int | None) -> str:
    if code is None:
        return "it could not be killed"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


#: Status of the testcase that NCCL ran -> what that shows.
_OF_STATUS = {
    Status.PASSED: PeerVerdict.WORKS,
    Status.FAILED: PeerVerdict.WRONG,
    Status.TIMED_OUT: PeerVerdict.HANGS,
    Status.ERROR: PeerVerdict.FAILS,
}


def of_nccl(output: bytes) -> tuple[PeerVerdict, str]:
    """What a run of NCCL between two GPUs shows, the transport that it really used, and its own diagnostics.

    Args:
        output: A Document, before and after lines of NCCL's diagnostics.

    Raises:
        msgspec.MsgspecError: If it has no Document.
    """
    lines = output.splitlines()
    saved = b"\n".join(line for line in lines if _DIAGNOSED not in line)
    document = msgspec.json.decode(saved, type=Document)
    peers = next(filter(None, map(_DIAGNOSED_PEERS.search, lines)), None)
    diagnosed = f"NCCL's diagnostics: {peers[1].decode(errors='replace')}" if peers else ""
    result = next(iter(document.testcases), None)
    if result is None:
        return PeerVerdict.NOT_TRIED, document.interrupted or diagnosed or "nothing was measured"
    used = next((fact.value for fact in document.facts if fact.name == Known.NCCL_TRANSPORTS), None)
    transport = f"by {', '.join(used)}" if isinstance(used, tuple) else ""
    verdict = _OF_STATUS.get(result.status, PeerVerdict.NOT_TRIED)
    return verdict, "; ".join(filter(None, (", ".join(filter(None, (result.reason, transport))), diagnosed)))


def kill_job(job: subprocess.Popen[bytes]) -> None:
    """Kill a command with all processes that it started."""
    with suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)


@dataclass(eq=False)
class PeerProcesses:
    """All processes of one command.

    Attributes:
        machine: The machine.
        mechanisms: What is tried.
        seed: Seed of the patterns.
        native: The pairs between which atomic operations are native: ``gpu0->gpu1``.
    """

    machine: Machine
    mechanisms: Sequence[PeerMechanism]
    seed: int
    native: Sequence[str]

    def __post_init__(self) -> None:
        self._gpus = {gpu.name: gpu for gpu in self.machine.gpus}
        self._offered = {(gpu.name, peer) for gpu in self.machine.gpus for peer in gpu.peers}
        self._has_more_peers = any(len(gpu.peers) > MOST_PEERS for gpu in self.machine.gpus)
        self._processes: dict[str, WorkerProcess] = {}
        self._found: dict[Pair, dict[PeerMechanism, Attempt]] = {}
        self._unusable: dict[str, str] = {}
        self._hosts: dict[str, float] = {}
        self._jobs: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def __enter__(self) -> PeerProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_closed = True
            for process in self._processes.values():
                process.end()  # all at the same time: a driver takes a while for each
            for process in self._processes.values():
                process.kill()
            for job in self._jobs:
                kill_job(job)

    def attempted(self) -> PeerAccess:
        """Try everything that is offered."""
        involved = [gpu for gpu in self._gpus if any(gpu in pair for pair in self._offered)]
        for gpu in involved:
            self._process(gpu)  # all start at once
        if involved:
            with ThreadPoolExecutor(max(1, len(involved) // 2)) as pool:
                try:
                    for pairs in rounds(involved):
                        list(pool.map(self._pair, pairs))
                except BaseException:
                    self.__exit__()  # what the threads wait for ends
                    raise
            if PeerMechanism.COPY in self.mechanisms:
                self._rates(involved)
        attempts = tuple(attempt for found in self._found.values() for attempt in found.values())
        return PeerAccess(attempts, self._hosts, self._unusable)

    def _process(self, gpu: str) -> WorkerProcess:
        """The process of a GPU; a new one if it was killed."""
        with self._lock:
            process = self._processes.get(gpu)
            if process is None or not process.is_alive:
                if self._is_closed:
                    raise BackendError("the attempts were interrupted")
                process = self._processes[gpu] = WorkerProcess(self._gpus[gpu].backend, self._named(gpu))
            return process

    def _named(self, name: str) -> dict[str, str]:
        return {"name": name, "bus_id": self._gpus[name].bus_id, "index": str(self._gpus[name].index)}

    def _note(self, attempt: Attempt) -> None:
        self._found.setdefault(attempt.pair, {})[attempt.mechanism] = attempt

    def _pair(self, ends: Pair) -> None:
        """Try all mechanisms for two GPUs."""
        ways = [way for way in (ends, ends[::-1]) if way in self._offered]
        if not ways:
            return
        if lost := [gpu for gpu in ends if gpu in self._unusable]:
            self._rest(ways, f"{lost[0]} cannot be used any more")
            return
        within = [m for m in self.mechanisms if m not in _BETWEEN and m is not PeerMechanism.NCCL]
        request = {
            "do": "pair", "gpus": [self._named(gpu) for gpu in ends], "ways": ways, "mechanisms": within,
            "seed": self.seed, "native": self.native, "few_peers": self._has_more_peers,
        }  # fmt: skip
        try:
            for message in self._process(ends[0]).ask(request):
                self._note(msgspec.convert(message["attempt"], Attempt))
            for mechanism in self.mechanisms:
                for way in ways if mechanism in _BETWEEN else ():
                    self._between(way, mechanism)
            if PeerMechanism.NCCL in self.mechanisms and len(ways) == 2:
                verdict, detail = self._nccl(ends)
                for way in ways:
                    self._note(Attempt(*way, PeerMechanism.NCCL, verdict, detail))
        except AttemptEnded as ended:
            self._hung(ways, ended)
        except BackendError as error:
            self._rest(ways, str(error))

    def _rest(self, ways: Sequence[Pair], why: str) -> None:
        """Note what was not tried any more."""
        for way in ways:
            for mechanism in self.mechanisms:
                if mechanism is not PeerMechanism.NCCL and mechanism not in self._found.get(way, {}):
                    self._note(Attempt(*way, mechanism, PeerVerdict.NOT_TRIED, why))

    def _hung(self, ways: Sequence[Pair], ended: AttemptEnded) -> None:
        """Note what a process did when it ended, and whether its GPUs still work."""
        if ended.is_opening and ended.verdict is PeerVerdict.FAILS:  # in use by others, or not permitted
            self._rest(ways, f"{ended.stage}: {ended.detail}")
            return
        way = next((way for way in ways if way == ended.way), ways[0])
        untried = (m for m in self.mechanisms if m not in self._found.get(way, {}))
        mechanism = ended.mechanism or next(untried, PeerMechanism.COPY)
        stage = ended.stage if ended.verdict is PeerVerdict.HANGS else ""
        self._note(Attempt(*way, mechanism, ended.verdict, ended.detail, stage))
        self._rest(ways, "an earlier attempt ended its process")
        self._check(sorted({end for way in ways for end in way}))

    def _check(self, gpus: Sequence[str]) -> None:
        """Find which GPUs a killed process left unusable."""
        for gpu in gpus:
            stuck = self._processes[gpu].is_stuck
            request = {"do": "health", "gpu": self._named(gpu), "seed": self.seed}
            try:
                (answer,) = self._process(gpu).ask(request, open_s=_AGAIN_S)
                if answer["wrong"]:
                    self._unusable[gpu] = "its memory has wrong data"
            except AttemptEnded as ended:
                how = f"{ended.stage} {ended.verdict}"
                self._unusable[gpu] = f"{how}; the killed process does not end" if stuck else how
            except BackendError as error:
                self._unusable[gpu] = str(error)

    def _between(self, way: Pair, mechanism: PeerMechanism) -> None:
        """Let the process of a GPU write to memory of the process of another."""
        accessing, owning = self._process(way[0]), self._process(way[1])
        common = {"mechanism": mechanism, "seed": self.seed}
        descriptors: list[int] = []
        try:
            share = {"do": "share", "gpu": self._named(way[1]), **common}
            (exported,) = owning.ask(share)
            descriptors = exported.pop("descriptors", [])
            access = {"do": "access", "gpu": self._named(way[0]), "owner": way[1], **common, **exported}
            (written,) = accessing.ask(access, descriptors)
            verify = {"do": "verify", "key": written["key"], "by": way[0]}
            (result,) = owning.ask(verify)
            verdict = PeerVerdict.WRONG if result["wrong"] else PeerVerdict.WORKS
            self._note(Attempt(*way, mechanism, verdict, **result))
        except BackendError as error:
            self._note(Attempt(*way, mechanism, PeerVerdict.NOT_OFFERED, str(error), by="the driver"))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        for process in (accessing, owning):
            list(process.ask({"do": "release"}))

    def _nccl(self, ends: Pair) -> tuple[PeerVerdict, str]:
        """Let two processes send to each other by NCCL; what happened, and the transport that it used."""
        uuids = [self._gpus[gpu].uuid for gpu in ends]
        if not all(uuids):
            return PeerVerdict.NOT_TRIED, "the UUIDs of the GPUs are unknown"
        arguments = ["run", "-t", "sendrecv", "--processes", "2", "--samples", "1", "--copies", "4",
                     "--size", "1MiB", "--timeout", f"{_NCCL_S:g}s", "-o", "-"]  # fmt: skip
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "wirespeed", *arguments], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0,
            env=os.environ | {"CUDA_VISIBLE_DEVICES": ",".join(uuids)} | _DIAGNOSTICS,
        ) as job:  # fmt: skip
            with self._lock:
                self._jobs.append(job)
            try:
                output, _ = job.communicate(timeout=_NCCL_S + _NCCL_START_S)
            except subprocess.TimeoutExpired:
                kill_job(job)
                return PeerVerdict.HANGS, f"NCCL did not end within {_NCCL_S + _NCCL_START_S:g} s"
            finally:
                with self._lock:
                    self._jobs.remove(job)
        try:
            return of_nccl(output)
        except msgspec.MsgspecError:
            return PeerVerdict.NOT_TRIED, f"NCCL could not be tried (exit code {job.returncode})"

    def _rates(self, gpus: Sequence[str]) -> None:
        """Time copies, one pair after the other, of pairs whose copies are right."""
        copies = {way: found.get(PeerMechanism.COPY) for way, found in self._found.items()}
        for gpu in gpus:
            ways = [way for way, attempt in copies.items()
                    if way[0] == gpu and attempt and attempt.verdict is PeerVerdict.WORKS]  # fmt: skip
            if gpu in self._unusable:
                continue
            request = {
                "do": "rate", "ways": [[self._named(end) for end in way] for way in ways],
                "hosts": [self._named(gpu)], "few_peers": self._has_more_peers,
            }  # fmt: skip
            try:
                for message in self._process(gpu).ask(request):
                    if "host" in message:
                        self._hosts[gpu] = message["rate"]
                    else:
                        found = self._found[message["pair"][0], message["pair"][1]]
                        timed = msgspec.structs.replace(found[PeerMechanism.COPY], rate=message["rate"])
                        found[PeerMechanism.COPY] = timed
            except AttemptEnded as ended:
                self._hung(ways[:1] or [(gpu, gpu)], ended) if ways else self._check([gpu])
            except BackendError:
                continue  # without a rate, nothing is said of it
