"""Storage to a GPU and back, by host memory and by cuFile: real files, and a driver of GPUs in memory."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wirespeed
from tests.fakes import gpu as fake
from tests.fakes.gpu import MemoryBackend, MemoryDriver
from wirespeed.cli.main import main
from wirespeed.errors import BackendError, OutOfMemory, Unreachable, VerificationError
from wirespeed.features.storage import cufile
from wirespeed.features.storage.backend import StorageBackend
from wirespeed.features.storage.folder import with_folder
from wirespeed.features.storage.testcases import TESTCASES
from wirespeed.hardware.devices import Gpu, NumaNode
from wirespeed.hardware.topology import Machine
from wirespeed.measurement import Measurement
from wirespeed.model import GPU_FILE_ENGINES, Engine, Executor, FileCalls, Memory, MemoryKind, Transfer
from wirespeed.options import PlanOptions, RunOptions
from wirespeed.units import KIB, MIB

#: What libcufile 1.15 logs on an H200 without nvidia-fs: when it is opened, or for a file that only host
#: memory can move.
COMPATIBLE_DRIVER = (
    " 26-11-2026 03:14:10:61 [pid=794 tid=794] NOTICE  cufio-drv:851 running in compatible mode\n"
)
COMPATIBLE = (
    " 26-11-2026 03:12:16:282 [pid=789 tid=789] NOTICE  cufio:285 cuFileHandleRegister GDS not supported or "
    "disabled by config, using cuFile posix read/write with compat mode enabled\n"
)
FILE, GPU = Memory("storage0", MemoryKind.FILE), Memory("gpu0", MemoryKind.DEVICE)
MACHINE = Machine(
    "here",
    numa=(NumaNode(0, (0,), memory_bytes=2**34),),
    gpus=(Gpu(0, "in memory", "00000000:00:06", compute_capability="1.0", backend=MemoryBackend.name),),
)


class FileLibrary:
    """cuFile on the driver in memory, of which nothing is left.

    Attributes:
        missing: Bytes that each call does not move.
        opens, logs: What it writes into its log when it is opened first, and when it registers a file.
        logged: Its log.
    """

    class cuFileError(Exception):
        pass

    class FileHandleType(IntEnum):
        OPAQUE_FD = 1

    descr_dtype = np.dtype([("type", "<i8"), ("handle", [("fd", "<i4"), ("rest", "<i4")]), ("fs_ops", "<i8")])

    def __init__(self) -> None:
        self.missing, self.opens, self.logs, self.logged = 0, "", "", ""
        self.left: list[object] = []

    def get_version(self) -> int:
        return 1151

    def driver_open(self) -> None:
        self.left.append("driver")
        self.logged, self.opens = self.logged + self.opens, ""

    def driver_close(self) -> None:
        self.left.remove("driver")

    def handle_register(self, described: int) -> int:
        kind, descriptor = (ctypes.c_int32 * 3).from_address(described)[0:3:2]
        assert kind == 1
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_NOFOLLOW:
            raise self.cuFileError("INVALID_FILE_OPEN_FLAG (5019): unsupported file open flags")
        self.left.append(descriptor)
        self.logged += self.logs
        return descriptor

    def handle_deregister(self, handle: int) -> None:
        self.left.remove(handle)

    def buf_register(self, base: int, size: int, flags: int) -> None:
        self.left.append(("memory", base))

    def buf_deregister(self, base: int) -> None:
        self.left.remove(("memory", base))

    def read(self, handle: int, base: int, size: int, offset: int, within: int) -> int:
        return self._moved(os.preadv, handle, base + within, size, offset)

    def write(self, handle: int, base: int, size: int, offset: int, within: int) -> int:
        return self._moved(os.pwritev, handle, base + within, size, offset)

    def _moved(self, does: Any, handle: int, address: int, size: int, offset: int) -> int:
        page = mmap.mmap(-1, size)  # O_DIRECT needs aligned memory
        inside = (ctypes.c_char * size).from_address(address)
        page[:] = bytes(inside)
        moved = int(does(handle, [memoryview(page)[: size - self.missing]], offset))
        ctypes.memmove(address, page[:], size)
        return moved


def calls(
    block: int, depth: int, *, writes: bool, random: bool = False, engine: Engine = Engine.IO
) -> Measurement:
    ends = (GPU, FILE) if writes else (FILE, GPU)
    does = FileCalls(block, depth, random)
    executor = Executor("numa0", cpus=(0,))
    return Measurement((Transfer(*ends, executor, engine, block * depth, calls=does),), ())


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryDriver]:
    """A driver in memory, of which nothing is left."""
    driver = MemoryDriver()
    monkeypatch.setattr(fake, "opened", [driver])
    yield driver
    assert driver.left == {}


@pytest.fixture
def backend(driver: MemoryDriver, tmp_path: Path) -> Iterator[StorageBackend]:
    backend = StorageBackend(with_folder(MACHINE, str(tmp_path), 2 * MIB))
    yield backend
    backend.close()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileLibrary]:
    library = FileLibrary()
    monkeypatch.setattr(cufile, "bindings", lambda: library)
    monkeypatch.setattr(cufile, "_logged", lambda: library.logged)
    yield library
    assert library.left == []


@pytest.mark.parametrize("engine", GPU_FILE_ENGINES)
@pytest.mark.parametrize("random", [False, True])
@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("depth", [1, 3])
def test_every_block_arrives(
    backend: StorageBackend, writes: bool, random: bool, depth: int, engine: Engine
) -> None:
    what = calls(4 * KIB, depth, writes=writes, random=random, engine=engine)
    assert backend.refuses(what) is None
    with backend.prepare(what, RunOptions()) as prepared:
        for copies in (1, 2, 7, 300):  # at last more blocks than the half of the file has
            sample = prepared.sample(copies)
            assert sample.amounts == (float(depth * copies * 4 * KIB),)
            assert sample.wall > 0
            prepared.verify()


@pytest.mark.parametrize("writes", [False, True])
def test_a_copy_that_damages_data_is_found(
    backend: StorageBackend, driver: MemoryDriver, writes: bool
) -> None:
    """Also one in the middle of a block, which only a comparison of all words finds."""
    with backend.prepare(calls(4 * KIB, 2, writes=writes), RunOptions()) as prepared:
        prepared.sample(4)
        prepared.verify()
        driver.damage = lambda address, size: fake.memory(address + 2056, 1).__setitem__(0, 99)
        prepared.sample(4)
        with pytest.raises(VerificationError, match="storage0"):
            prepared.verify()


@pytest.mark.parametrize("writes", [False, True])
def test_a_copy_that_is_not_made_is_found(
    backend: StorageBackend, driver: MemoryDriver, writes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier sample left in a buffer, or on the GPU, is no proof."""
    monkeypatch.setattr(driver, "bind_copy", lambda to, origin, size, stream: lambda: made(to, origin, size))
    made = fake.ctypes.memmove
    with backend.prepare(calls(4 * KIB, 1, writes=writes), RunOptions()) as prepared:
        prepared.sample(256)  # a whole lap: the next sample has the same blocks
        prepared.verify()
        made = lambda *_: None  # noqa: E731
        prepared.sample(256)
        with pytest.raises(VerificationError, match="storage0"):
            prepared.verify()


def test_without_memory_of_the_gpu_nothing_is_left(
    backend: StorageBackend, driver: MemoryDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(size: int) -> int:
        raise OutOfMemory("no memory")

    monkeypatch.setattr(driver, "allocate", refuse)
    with pytest.raises(OutOfMemory, match="16 KiB on gpu0: no memory; give a smaller --size"):
        backend.prepare(calls(4 * KIB, 2, writes=False), RunOptions())


def test_the_limit_of_locked_memory_is_named(
    backend: StorageBackend, driver: MemoryDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(host: int, size: int) -> None:
        raise OutOfMemory("no memory")

    monkeypatch.setattr(driver, "pin", refuse)
    with pytest.raises(OutOfMemory, match=r"16 KiB of pinned memory: no memory; raise the limit of locked"):
        backend.prepare(calls(4 * KIB, 2, writes=False), RunOptions())


def test_a_gpu_that_this_process_may_not_use(backend: StorageBackend, driver: MemoryDriver) -> None:
    driver.gpus = 0
    with pytest.raises(BackendError, match="may not use gpu0 at 00000000:00:06; look again"):
        backend.prepare(calls(4 * KIB, 2, writes=False), RunOptions())


def test_an_error_of_the_driver_is_that_of_the_run(
    backend: StorageBackend, driver: MemoryDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise BackendError("an illegal memory access")

    monkeypatch.setattr(driver, "bind_copy", lambda *_: fail)
    with (
        backend.prepare(calls(4 * KIB, 2, writes=False), RunOptions()) as prepared,
        pytest.raises(BackendError, match="an illegal memory access"),
    ):
        prepared.sample(4)


def test_only_threads_reach_a_gpu(backend: StorageBackend) -> None:
    (transfer,) = calls(4 * KIB, 1, writes=False).transfers
    reason = backend.refuses_transfer(replace(transfer, engine=Engine.IO_URING))
    assert reason == "storage has no engine io_uring with this memory"


@pytest.mark.parametrize("owner", ["host", ""])
def test_a_gpu_without_a_driver_is_skipped(tmp_path: Path, owner: str) -> None:
    """Storage and host memory are still measured."""
    machine = replace(MACHINE, gpus=(replace(MACHINE.gpus[0], backend=owner),))
    document = wirespeed.run(
        ["storage_to_device", "storage_random_read"], machine=machine, storage=tmp_path, storage_size=8 * MIB,
        samples=1, copies=1,
    )  # fmt: skip
    to_device, read = document.testcases
    assert to_device.status.value == "waived"
    assert "offers no access to the memory of its GPUs" in to_device.reason
    assert "\n" not in to_device.reason
    assert read.status.value == "passed"


@pytest.mark.parametrize("writes", [False, True])
def test_calls_of_cufile_that_move_nothing_are_found(
    backend: StorageBackend, library: FileLibrary, writes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier sample left on the GPU or in the file is no proof."""
    what = calls(4 * KIB, 1, writes=writes, engine=Engine.CUFILE)
    with backend.prepare(what, RunOptions()) as prepared:
        prepared.sample(256)  # a whole lap: the next sample has the same blocks
        prepared.verify()
        monkeypatch.setattr(library, "write" if writes else "read", lambda *_: 4 * KIB)
        prepared.sample(256)
        with pytest.raises(VerificationError, match="storage0"):
            prepared.verify()


@pytest.mark.parametrize("writes", [False, True])
def test_calls_of_cufile_that_move_less_are_errors(
    backend: StorageBackend, library: FileLibrary, writes: bool
) -> None:
    what = calls(8 * KIB, 2, writes=writes, engine=Engine.CUFILE)
    with backend.prepare(what, RunOptions()) as prepared:
        library.missing = 4 * KIB
        with pytest.raises(
            BackendError, match="cuFile moved 4096 of 8192 B; the file is full, or was changed"
        ):
            prepared.sample(4)


@pytest.mark.parametrize(
    ("name", "doing"),
    [("driver_open", "opening the driver"), ("handle_register", "registering the file"),
     ("buf_register", "registering memory of the GPU"), ("read", "reading")],
)  # fmt: skip
@pytest.mark.parametrize("udev", [True, False])
def test_an_error_of_cufile_says_what_was_done(
    backend: StorageBackend, library: FileLibrary, name: str, doing: str, udev: bool, tmp_path_factory: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A file that the library does not accept is no failure of the machine."""

    def fail(*_: object) -> None:
        raise library.cuFileError("HANDLE_NOT_REGISTERED (5027):\nfile descriptor is not registered")

    monkeypatch.setattr(library, name, fail)
    data = tmp_path_factory.mktemp("udev") / "data"
    monkeypatch.setattr(cufile, "_UDEV", str(data))
    if udev:
        data.mkdir()
    refused = name in ("driver_open", "handle_register")
    where = f" (it looks devices up in {data}, which is missing here)"
    where = where if name == "handle_register" and not udev else ""
    text = f"cuFile, {doing}{where}: HANDLE_NOT_REGISTERED (5027): file descriptor is not registered"
    what = calls(4 * KIB, 2, writes=False, engine=Engine.CUFILE)
    with (
        pytest.raises(Unreachable if refused else BackendError, match=f"^{re.escape(text)}$"),
        backend.prepare(what, RunOptions()) as prepared,
    ):
        prepared.sample(1)


@pytest.mark.parametrize("name", ["storage_to_device_cufile", "storage_from_device_cufile"])
@pytest.mark.parametrize("compatible", [COMPATIBLE_DRIVER, COMPATIBLE, ""])
@pytest.mark.parametrize("module", [True, False])
def test_the_way_that_cufile_takes_is_said(
    driver: MemoryDriver, library: FileLibrary, tmp_path: Path, name: str, compatible: str, module: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """By its log, as libcufile 1.15 wrote it on an H200, and whether the kernel has its module."""
    library.opens, library.logs = (compatible, "") if compatible == COMPATIBLE_DRIVER else ("", compatible)
    monkeypatch.setattr(cufile, "_MODULE", str(tmp_path if module else tmp_path / "missing"))
    document = wirespeed.run(
        [name], machine=MACHINE, storage=tmp_path, size=64 * KIB, storage_size=8 * MIB, samples=2, copies=2
    )
    assert document.testcases[0].status.value == "passed"
    way = ", through host memory (compatibility mode)" if compatible else ", directly (nvidia-fs)" * module
    assert document.libraries["cuFile"] == f"1.15.1{way}"
    warnings = "\n".join(document.testcases[0].warnings)
    through = "GPUDirect Storage is not used: cuFile moves the data of storage0 through host memory"
    assert (through in warnings) is bool(compatible)
    unknown = "the log of cuFile does not say whether storage0 uses GPUDirect Storage"
    assert (unknown in warnings) is (not compatible and not module)


def test_the_log_of_cufile_is_in_memory_or_where_the_user_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.delenv("CUFILE_LOGFILE_PATH", raising=False)
    monkeypatch.delenv("CUFILE_LOGGING_LEVEL", raising=False)
    monkeypatch.chdir(tmp_path)
    cufile.log_of.cache_clear()
    assert str(cufile.log_of()) == os.environ["CUFILE_LOGFILE_PATH"]
    with cufile.log_of().open("a") as log:
        log.write("a line")
    assert cufile._logged() == "a line" and list(tmp_path.iterdir()) == []
    other = "import os; open(os.environ['CUFILE_LOGFILE_PATH'], 'a').write(', and one of a child')"
    subprocess.run([sys.executable, "-c", other], check=True)
    assert cufile._logged() == "a line, and one of a child"
    os.close(int(cufile.log_of().name))
    monkeypatch.setenv("CUFILE_LOGFILE_PATH", str(tmp_path / "own.log"))
    cufile.log_of.cache_clear()
    assert cufile.log_of() == tmp_path / "own.log" and cufile._logged() == ""
    cufile.log_of.cache_clear()


def test_without_cufile_the_rest_is_measured(
    driver: MemoryDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise BackendError("cuFile is not installed")

    monkeypatch.setattr(cufile, "bindings", fail)
    document = wirespeed.run(
        ["storage_to_device", "storage_to_device_cufile"], machine=MACHINE, storage=tmp_path, size=64 * KIB,
        storage_size=8 * MIB, samples=1, copies=1,
    )  # fmt: skip
    assert [(case.status.value, case.reason) for case in document.testcases] == [
        ("passed", ""), ("waived", "cuFile is not installed")
    ]  # fmt: skip
    assert "cuFile" not in document.libraries


def test_the_library_of_cufile_is_missing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bindings are installed, or not; libcufile is not on machines of tests."""
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "cuda.bindings.cufile", None)
    with pytest.raises(BackendError, match=r"cuFile is not installed: .*pip install wirespeed\[cufile"):
        cufile.bindings()


@pytest.mark.parametrize("name", ["storage_to_device", "storage_from_device"])
def test_the_testcases_are_measured_with_a_gpu(driver: MemoryDriver, tmp_path: Path, name: str) -> None:
    document = wirespeed.run(
        [name], machine=MACHINE, storage=tmp_path, size=64 * KIB, storage_size=8 * MIB, samples=2, copies=2
    )
    (result,) = document.testcases
    assert (result.status.value, result.reason) == ("passed", "")
    assert [cell.value is not None for cell in result.tables[0].cells] == [True] * 4
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("by", ["", "_cufile"])
def test_the_slower_of_storage_and_link_limits(by: str, capsys: pytest.CaptureFixture[str]) -> None:
    """6.84 GB/s of the storage's link; of a GPU's link at a twentieth, that one."""

    def rates(faults: str) -> dict[str, float | None]:
        run = wirespeed.run(
            [f"storage_to_device{by}", f"storage_from_device{by}"],
            machine=f"simulated:h200-2-nvme-2{faults}",
        )
        return {table.key: table.values()[-1] for case in run.testcases for table in case.tables}

    good = rates("")
    assert good.keys() == {
        "storage0->gpu0", "storage0->gpu1", "storage1->gpu0", "storage1->gpu1",
        "gpu0->storage0", "gpu1->storage0", "gpu0->storage1", "gpu1->storage1",
    }  # fmt: skip
    assert all(6.7e9 < (value or 0) < 6.9e9 for value in good.values())
    slow = rates("+speed@numa0-gpu1=0.05")
    assert all((value or 0) < 3.5e9 for path, value in slow.items() if "gpu1" in path)
    assert all((value or 0) > 6.7e9 for path, value in slow.items() if "gpu1" not in path)

    def checked(faults: str) -> tuple[int, str]:
        machine = f"simulated:h200-2-nvme-2{faults}"
        code = main(["check", "-p", "storage_", "--allow-simulated", "--no-save", "--machine", machine])
        return code, " ".join(capsys.readouterr().out.split())

    assert checked("")[0] == 0
    code, text = checked("+speed@numa0-gpu1=0.05")
    assert code == 1
    assert "storage0->gpu1 4 MiB 4: 2.7" in text
    assert "memory of storage" not in text  # as fast as usual to the other GPU and to the host
    code, text = checked("+corrupt@storage1->gpu0")
    assert code == 1
    assert "wrong data in storage1->gpu0" in text


def test_without_a_gpu_the_reason_is_given() -> None:
    document = wirespeed.run(["storage_to_device"], machine="simulated:nvme-2")
    assert document.testcases[0].reason == "no GPU was found"
    assert {case.name for case in TESTCASES if case.engine is Engine.IO} >= {
        "storage_to_device", "storage_from_device",
    }  # fmt: skip


@pytest.mark.parametrize(("name", "missing", "fits"), [
    ("storage_to_device", 0, True), ("storage_to_device", 8, False),
    ("storage_from_device", 0, True), ("storage_from_device", 8, False),
    ("storage_to_device_cufile", 8, True),
])  # fmt: skip
def test_calls_through_host_memory_need_two_buffers_each(
    tmp_path: Path, name: str, missing: int, fits: bool
) -> None:
    """64 calls of 64 KiB with two buffers in an eighth of 64 MiB; those of cuFile need one."""
    node = replace(MACHINE.numa[0], memory_bytes=64 * MIB - missing)
    machine = with_folder(replace(MACHINE, numa=(node,)), str(tmp_path), 8 * MIB)
    (case,) = (case for case in TESTCASES if case.name == name)
    plan = case.plan(machine, PlanOptions(size=64 * KIB))
    assert len(plan.measurements) == 3 + fits
    assert [cell.reason for cell in plan.waived] == [
        "requires larger buffers than an eighth of the memory of the NUMA node"
    ] * (not fits)
