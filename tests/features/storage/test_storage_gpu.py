"""Storage to a GPU and back, through host memory: real files, and a driver of GPUs in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import wirespeed
from tests.fakes import gpu as fake
from tests.fakes.gpu import MemoryBackend, MemoryDriver
from wirespeed.backends import describe
from wirespeed.cli.main import main
from wirespeed.errors import BackendError, OutOfMemory, VerificationError
from wirespeed.features.storage.backend import StorageBackend
from wirespeed.features.storage.folder import with_folder
from wirespeed.features.storage.testcases import TESTCASES
from wirespeed.hardware.devices import Gpu, NumaNode
from wirespeed.hardware.topology import Machine
from wirespeed.measurement import Measurement
from wirespeed.model import Engine, Executor, FileCalls, Memory, MemoryKind, Transfer
from wirespeed.options import PlanOptions, RunOptions
from wirespeed.units import KIB, MIB

FILE, GPU = Memory("storage0", MemoryKind.FILE), Memory("gpu0", MemoryKind.DEVICE)
MACHINE = Machine(
    "here",
    numa=(NumaNode(0, (0,), memory_bytes=2**34),),
    gpus=(Gpu(0, "in memory", "00000000:00:06", compute_capability="1.0", backend=MemoryBackend.name),),
)


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


@pytest.mark.parametrize("random", [False, True])
@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("depth", [1, 3])
def test_every_block_arrives(backend: StorageBackend, writes: bool, random: bool, depth: int) -> None:
    what = calls(4 * KIB, depth, writes=writes, random=random)
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


@pytest.mark.parametrize("name", ["storage_to_device", "storage_from_device"])
def test_the_testcases_are_measured_with_a_gpu(driver: MemoryDriver, tmp_path: Path, name: str) -> None:
    document = wirespeed.run(
        [name], machine=MACHINE, storage=tmp_path, size=64 * KIB, storage_size=8 * MIB, samples=2, copies=2
    )
    (result,) = document.testcases
    assert (result.status.value, result.reason) == ("passed", "")
    assert [cell.value is not None for cell in result.tables[0].cells] == [True] * 4
    assert list(tmp_path.iterdir()) == []


def test_the_slower_of_storage_and_link_limits(capsys: pytest.CaptureFixture[str]) -> None:
    """6.84 GB/s of the storage's link; of a GPU's link at a twentieth, that one."""

    def rates(faults: str) -> dict[str, float | None]:
        run = wirespeed.run(
            ["storage_to_device", "storage_from_device"],
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
])  # fmt: skip
def test_calls_through_host_memory_need_two_buffers_each(
    tmp_path: Path, name: str, missing: int, fits: bool
) -> None:
    """64 calls of 64 KiB with two buffers in an eighth of 64 MiB."""
    node = replace(MACHINE.numa[0], memory_bytes=64 * MIB - missing)
    machine = with_folder(replace(MACHINE, numa=(node,)), str(tmp_path), 8 * MIB)
    (case,) = (case for case in TESTCASES if case.name == name)
    plan = case.plan(machine, PlanOptions(size=64 * KIB))
    assert len(plan.measurements) == 3 + fits
    assert [cell.reason for cell in plan.waived] == [
        "requires larger buffers than an eighth of the memory of the NUMA node"
    ] * (not fits)


def test_runs_of_earlier_versions_with_rates_of_cufile_are_read(tmp_path: Path) -> None:
    machine = describe("simulated:h200-2-nvme-2")
    rate = next(rate for rate in machine.rates if rate.engine is Engine.IO)
    old = replace(machine, rates=(*machine.rates, replace(rate, engine=Engine("cufile"))))
    wirespeed.save(wirespeed.run(["storage_read"], machine=old, samples=1, copies=1), tmp_path / "run.json")
    assert wirespeed.load(tmp_path / "run.json").machine.rates == old.rates
