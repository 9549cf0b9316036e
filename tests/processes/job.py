"""A job whose data goes through the World itself: all launchers and faults without MPI and GPUs.

RANK=0 WORLD_SIZE=2 MASTER_ADDR=... MASTER_PORT=... python -m tests.processes.job OPERATION [FAULT OF RANK 1]
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from wirespeed.backends import test_data as contents
from wirespeed.backends.provider import BackendError, Case, Elapsed, Group, RankDevice
from wirespeed.cli.main import main
from wirespeed.collectives.operations import OPERATIONS, Setting
from wirespeed.errors import OutOfMemory
from wirespeed.features.nccl_tests import command as nccl_tests
from wirespeed.worlds import base, launchers
from wirespeed.worlds.base import World

FAULT = sys.argv[2] if len(sys.argv) > 2 else ""
if FAULT == "stop-first":
    base.REPORT_GRACE_S = 1.0  # nobody will report


class Exchange:
    """A provider whose collectives are exchanges of the World; float only."""

    name, can_cancel = "exchange", False
    operations = OPERATIONS.keys()

    def __init__(self, world: World, group: Group) -> None:
        self.world, self.group = world, group
        self.devices = (RankDevice(world.local_rank, "none", "exchange"),)
        self.case: Case | None = None
        self.send: Any = None
        self.receive: Any = None
        self.count = 0
        self.mine = FAULT if world.rank == 1 else ""

    def libraries(self) -> dict[str, str]:
        return {}

    def connect(self) -> None: ...

    def transport(self) -> str:
        return "exchanges over TCP"

    def facts(self) -> tuple[()]:
        return ()

    def refuses(self, setting: Setting) -> str | None:
        return None

    def exceeds(self, case: Case) -> str | None:
        return "it cannot count so far" if FAULT == "count" and case.bytes > 4096 else None

    def allocate(self, size: int) -> None:
        if self.mine == "memory" and size > 4096:
            raise OutOfMemory(f"no room for {size} bytes")

    def register(self) -> None: ...

    def bind(self, case: Case) -> None:
        self.case = case

    def fill(self, seed: int) -> None:
        case = self.bound()
        kind = case.setting.type
        operator = case.setting.operator or None
        self.send = contents.given(kind, operator, case.ranks, seed, self.world.rank, 0, case.counts.send)
        if self.mine == "slow-fill" and self.count > 3:
            time.sleep(30)

    def bound(self) -> Case:
        assert self.case is not None
        return self.case

    def once(self) -> None:
        case, world = self.bound(), self.world
        self.count += 1
        if FAULT == "kill-first" and self.world.rank == 0 and self.count > 16:
            path = Path(os.environ["OUTPUT"])
            while not (path.exists() and path.stat().st_size):  # the name is reserved before the first save
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        if FAULT == "stop-first" and self.world.rank == 0 and self.count > 16:
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.mine == "kill" and self.count > 5:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.mine == "stop" and self.count > 5:
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.mine == "error" and self.count > 5:
            raise BackendError("the device fell off the bus")
        if self.mine == "crash" and self.count > 5:
            raise ZeroDivisionError("a defect")
        data = self.send if self.send is not None else np.zeros(case.counts.send, np.float32)
        arrays = [np.frombuffer(raw, data.dtype) for raw in world.allgather(data.tobytes(), "exchanging")]
        self.receive = np.zeros(case.counts.receive, data.dtype)
        for piece in case.setting.operation.holds(case.counts, 4, world.rank, case.ranks, case.setting.root):
            parts = [a[piece.start : piece.start + piece.count] for a in arrays]
            result = np.sum(parts, axis=0) if piece.source is None else parts[piece.source]
            self.receive[piece.at : piece.at + piece.count] = result
        if self.mine == "corrupt" and len(self.receive) > 2:
            self.receive[2] += 1

    def loop(self) -> list[Elapsed]:
        self.world.barrier("aligning")
        start = time.perf_counter()
        for _ in range(self.bound().options.iterations):
            self.once()
        seconds = (time.perf_counter() - start) / self.bound().options.operations
        return [Elapsed(seconds, seconds)]

    def wrong(self, seed: int) -> int:
        case = self.bound()
        holds = case.setting.operation.holds(case.counts, 4, self.world.rank, case.ranks, case.setting.root)
        return sum(
            contents.wrong(self.receive[p.at : p.at + p.count], p, case.setting.type,
                           case.setting.operator or None, case.ranks, seed)
            for p in holds
        )  # fmt: skip

    def memory(self) -> dict[str, int]:
        return {}

    def cancel(self) -> None: ...

    def close(self) -> None: ...


def as_this(command: list[str], **settings: Any) -> subprocess.Popen[bytes]:
    """Start what starts ranks of wirespeed as ranks of this."""
    return POPEN([sys.executable, "-m", "tests.processes.job", *sys.argv[1:]], **settings)


POPEN = subprocess.Popen

if __name__ == "__main__":
    nccl_tests.usable_gpus = lambda: 3  # as if NCCL could be had: the World is then found without MPI
    nccl_tests._maker = lambda *_: Exchange  # type: ignore[assignment,return-value]
    options = ["-b", "1K", "-e", "16K", "-f", "4", "-n", "2", "-T", os.environ.get("TIMEOUT", "10")]
    if "RANK" not in os.environ or launchers.STARTED in os.environ:
        options += ["-g", "3"]
        launchers.subprocess.Popen = as_this  # type: ignore[misc,assignment]
    output = ["--output", os.environ["OUTPUT"]] if "OUTPUT" in os.environ else []
    sys.exit(main([f"{sys.argv[1]}_perf", *options, *output]))
