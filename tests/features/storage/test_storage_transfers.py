"""Storage in the language of transfers: what words mean and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import wirespeed
from wirespeed.cli.main import main
from wirespeed.features.transfers.parser import parse
from wirespeed.features.transfers.resolve import resolve
from wirespeed.features.transfers.syntax import LanguageError
from wirespeed.model import Engine, FileCalls, MemoryKind, Role, Transfer
from wirespeed.units import KIB, MIB

MACHINE_NAME = "simulated:h200-2-nvme-2"
MACHINE = wirespeed.machine(MACHINE_NAME)


def of(line: str) -> list[Transfer]:
    works = [labelled.work for labelled in resolve(parse(line), MACHINE)]
    return [work for work in works if isinstance(work, Transfer)]


@pytest.mark.parametrize(
    ("line", "way", "engine", "calls"),
    [
        ("storage0 -> numa0", "storage0->numa0", Engine.IO, FileCalls(MIB, 16)),
        ("numa0 <- storage0 depth=4", "storage0->numa0", Engine.IO, FileCalls(MIB, 4)),
        ("pageable(numa0) -> storage1 16MiB", "numa0->storage1", Engine.IO, FileCalls(16 * MIB, 16)),
        ("near(storage0) to storage0 io_uring", "numa0->storage0", Engine.IO_URING, FileCalls(MIB, 16)),
        ("storage0 -> numa0 random", "storage0->numa0", Engine.IO, FileCalls(4 * KIB, 16, random=True)),
        ("storage1 -> gpu1 4MiB", "storage1->gpu1", Engine.IO, FileCalls(4 * MIB, 16)),
        ("gpu0 -> storage0", "gpu0->storage0", Engine.IO, FileCalls(MIB, 16)),
    ],
)
def test_words_become_calls(line: str, way: str, engine: Engine, calls: FileCalls) -> None:
    (transfer,) = of(line)
    assert (transfer.way, transfer.engine, transfer.calls) == (way, engine, calls)
    assert transfer.bytes == calls.block * calls.depth
    assert transfer.executor.device == "numa0"
    host = {end.kind for end in transfer.ends} - {MemoryKind.FILE}
    assert host == {MemoryKind.DEVICE if "gpu" in way else MemoryKind.PAGEABLE}


def test_several_devices_and_a_load_with_other_transfers() -> None:
    """The threads of storage wait, so that they take no cores of the copies by CPUs."""
    assert [transfer.way for transfer in of("storage* -> gpu*")] == [
        "storage0->gpu0", "storage0->gpu1", "storage1->gpu0", "storage1->gpu1",
    ]  # fmt: skip
    load, copy = of("load storage0 -> numa0 depth=64; numa0 -> numa0")
    assert load.role is Role.LOAD
    assert copy.executor.cpus == MACHINE.numa[0].cores


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("storage0 -> storage1", "storage is read to the memory of the host or a GPU, or written from it"),
        ("storage0 -> void", "storage is read to the memory"),
        ("storage0 -> gpu0 io_uring", "between storage and a GPU use io or cufile, not io_uring"),
        ("storage0 -> numa0 sm", "between storage and the memory of the host use io or io_uring, not sm"),
        ("storage0 -> numa0 1000B", "must be a multiple of 4096 B, not 1000 B"),
        (
            "storage0 -> numa0 1GiB depth=64",
            "64 calls of 1 GiB at a time: it requires a larger file than the",
        ),
        (
            "storage0 -> numa0 blocks=8",
            "a transfer with storage has no blocks; it has io, io_uring",
        ),
        ("latency numa0 <- storage0", "storage has no latency of loads"),
        ("storage0 -> numa0 by gpu0", "CPUs of the host read and write storage; omit by"),
        ("storage0 -> numa0, gpu0 broadcast", "a transfer with storage has no broadcast"),
        ("gpu0 -> gpu1 depth=4", "only transfers with storage have depth"),
        ("gpu0 -> gpu1 random", "only transfers with storage have random"),
        ("gpu0 -> gpu1 io", "gpu0 executes with ce, sm, sm_bulk or sm_split, not with io"),
        ("storage2 -> numa0", "storage2: this machine has storage0, storage1"),
    ],
)
def test_what_does_not_fit_is_one_line(line: str, says: str) -> None:
    with pytest.raises(LanguageError) as error:
        of(line)
    message = str(error.value).splitlines()[0]
    assert says in message
    assert message.startswith("line 1, column ")


def test_without_a_folder_the_remedy_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transfer", "storage0 -> numa0", "--machine", "simulated:dgx-a100-8"]) == 2
    assert "this machine has no storage device: name a folder of it with --storage DIR" in (
        capsys.readouterr().err
    )


def test_a_line_is_measured_for_real_and_nothing_is_left(tmp_path: Path) -> None:
    """Also as load next to a copy of another backend."""
    for line, way in (
        ("storage0 -> numa0 64KiB depth=2", "storage0->numa0"),
        ("numa0 -> storage0 random depth=2", "numa0->storage0"),
        ("load storage0 -> numa0 64KiB depth=1; numa0 -> numa0 1MiB threads=1", "numa0->numa0"),
    ):
        measured = wirespeed.transfer(
            line, storage=tmp_path, storage_size=4 * MIB, samples=2, copies=2, affinity=False
        )
        (result,) = measured.document.testcases
        assert (result.status.value, result.reason) == ("passed", "")
        table = result.tables[0]
        assert table.rows.labels == (way,)
        assert table.cells[0].value
        assert list(tmp_path.iterdir()) == []
