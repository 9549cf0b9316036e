"""Messages and phases between two ranks: what is pure, what is printed, and NCCL on a stand-in."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from msgspec.structs import replace

import wirespeed
from wirespeed.backends.base import RunOptions
from wirespeed.backends.host.host_buffers import HostBuffers
from wirespeed.cli.main import main
from wirespeed.document import SCHEMA, Document, Status, TestcaseResult
from wirespeed.driver import slow_rows
from wirespeed.errors import BackendError, VerificationError
from wirespeed.features.pairs.command import Lines
from wirespeed.features.pairs.connection import Connection, Ends, pattern, verify
from wirespeed.features.pairs.message_patterns import PreparedMessages
from wirespeed.features.pairs.overalloc_text import reproduced
from wirespeed.features.pairs.sharing import WITH, WITHOUT, exact, reproducer
from wirespeed.hardware.topology import Machine, Rank
from wirespeed.measurement import Axis, Measurement, Unit
from wirespeed.model import Engine, Memory, MemoryKind, Message, MessagePattern
from wirespeed.options import PlanOptions
from wirespeed.reports import Style, render
from wirespeed.statistics import summarise
from wirespeed.tables import Cell, Table


def document(result: TestcaseResult, **options: Any) -> Document:
    return Document(
        schema=SCHEMA, version="0.0.0", machine=Machine("two"), options={"ranks": 2, **options},
        started="", testcases=(result,),
    )  # fmt: skip


def test_slow_is_half_as_long_again_in_every_sample() -> None:
    assert slow_rows.slow([[1.0, 1.1], [1.6, 1.7], [1.0, 3.0], []]) == [
        "",
        "1.57 times the fastest of this phase",
        "",
        "",
    ]
    assert slow_rows.slow([[1.0], [1.4]]) == ["", ""]


def test_sizes_are_named_to_the_byte() -> None:
    assert [exact(size) for size in (0, 1, 4096, 2**21, 2**21 + 1)] == [
        "0 B", "1 B", "4 KiB", "2 MiB", "2 MiB + 1 B",
    ]  # fmt: skip


def test_a_sweep_is_printed_with_its_slow_cells() -> None:
    opened = ([9.5e-3, 9.6e-3, 9.4e-3], [5.0e-3, 5.1e-3, 4.9e-3])
    times = [([1e-4, 1.1e-4, 9e-5], some, [1.1e-5] * 3) for some in opened]
    cells = [
        Cell(i, j, summarise(some).median, statistics=summarise(some), samples=tuple(some))
        for i, row in enumerate(times)
        for j, some in enumerate(row)
    ]
    rows, columns = (
        Axis("over", (exact(1), exact(2**21 + 1))),
        Axis("phase", ("allocate", "open", "next copies")),
    )
    table = Table("", "time of each phase", Unit.TIME, rows, columns, slow_rows.marked(cells))
    lines = slow_rows.slow_rows("overalloc_ipc_gpu", table)
    assert lines == ["overalloc_ipc_gpu: open takes up to 9.5 ms in place of 5 ms with 1 B over"]
    result = TestcaseResult(
        "overalloc_ipc_gpu", Status.PASSED, counts="1 MiB of a buffer of 1 GiB", tables=(table,),
        warnings=tuple(lines),
    )  # fmt: skip
    text = render(document(result), style=Style(120))
    assert f"warning: {lines[0]}" in text and "*9500" in text and "\n* at least 1.5 times the fastest" in text


def test_the_reproducers_text(golden: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]) -> None:
    def table(key: str, title: str, rows: int, columns: int, seconds: float) -> Table:
        cells = [Cell(i, j, seconds / (1 if j == 0 else 1e4)) for i in range(rows) for j in range(columns)]
        labels = ("-1",) if key == "warm-up" else tuple(map(str, range(rows)))
        axes = Axis("allocation", labels), Axis("message", tuple(map(str, range(columns))))
        return Table(key, title, Unit.TIME, *axes, tuple(cells))

    result = TestcaseResult(
        "overalloc_mpi_gpu", Status.PASSED, tables=(
            table("warm-up", "a small buffer", 1, 1, 2.17581),
            table(WITH, "a buffer of 1073741825 bytes (with overalloc)", 2, 2, 0.454265),
            table(WITHOUT, "a buffer of 1073741824 bytes (without overalloc)", 2, 2, 0.000880008),
        ),
    )  # fmt: skip
    sizes = {"p2p_size": 1024, "buffer_size": 2**30, "overalloc_size": 1}
    whole = document(result, **sizes)
    golden("overalloc/reproducer.txt", render(whole, "overalloc"))
    printing = Lines()
    for tables in range(1, 4):  # as they come
        known = document(replace(result, tables=result.tables[:tables]), **sizes)
        printing.measured(cast(Any, None), (), lambda known=known: known)  # type: ignore[misc]
    printing.print(reproduced(whole, result))
    assert capsys.readouterr().out == render(whole, "overalloc")
    waived = TestcaseResult("overalloc_nccl_gpu", Status.WAIVED, reason="no GPU")
    assert render(document(waived), "overalloc") == "overalloc_nccl_gpu: waived, no GPU\n"
    lost = tuple(
        replace(t, cells=tuple(Cell(c.row, c.column, reason="lost") for c in t.cells)) for t in result.tables
    )
    ended = replace(result, status=Status.ERROR, reason="lost", tables=(result.tables[0], *lost[1:]))
    text = render(document(ended, **sizes), "overalloc")
    assert text.endswith("[-1] time: 2.17581\noveralloc_mpi_gpu: error, lost\n")


def test_a_message_larger_than_the_exact_buffer_is_all_of_it() -> None:
    """The second part cannot send more than it allocates, and says how much it sends."""
    machine = wirespeed.machine("simulated:hgx-h200-2")
    machine = dataclasses.replace(machine, ranks=tuple(Rank(i, f"node{i}", f"gpu{i}") for i in range(2)))
    case = reproducer("gpu", 1, 1, 1001, 1000, 24)
    plan = case.pattern(machine, case, PlanOptions())
    messages = [cast(Message, measurement.works[0]) for measurement in plan.measurements]
    assert [(m.bytes, max(m.bytes, m.room)) for m in messages] == [(1001, 1001), (1001, 1024), (1000, 1000)]

    tables = tuple(
        Table(layout.key, layout.title, Unit.TIME, layout.rows, layout.columns, (Cell(0, 0, 1e-3),))
        for layout in plan.tables
    )
    result = TestcaseResult(case.name, Status.PASSED, tables=tables)
    sizes = {"p2p_size": 1001, "buffer_size": 1000, "overalloc_size": 24}
    lines = render(document(result, **sizes), "overalloc").splitlines()
    assert [line for line in lines if "rank" in line] == [
        "Doing MPI_Send/Recv from rank 0 to rank 1, of 1001 bytes from a buffer of 1024 bytes "
        "(with overalloc).",
        "Doing MPI_Send/Recv from rank 0 to rank 1, of 1000 bytes from a buffer of 1000 bytes "
        "(without overalloc).",
    ]


@pytest.mark.parametrize(
    ("pattern_of_messages", "first", "last"),
    [(MessagePattern.EACH, [1024], [10]), (MessagePattern.ROUND_TRIP, [1024, 10], [10, 10])],
)
def test_only_the_sender_allocates_more_than_it_sends(
    pattern_of_messages: MessagePattern, first: list[int], last: list[int]
) -> None:
    ends = (Memory("numa0", MemoryKind.PINNED, rank) for rank in range(2))
    message = Message(*ends, Engine.MPI, 10, pattern_of_messages, room=1024)
    for rank, expected in ((0, first), (1, last)):
        allocated: list[int] = []
        place = HostBuffers(1.0)
        allocate = place.allocate
        place.allocate = lambda size, to=allocated, of=allocate: to.append(size) or of(size)  # type: ignore
        connection: Any = SimpleNamespace(
            ends=Ends(rank, 2), wire=lambda *_: object(), place=lambda _, place=place: place,
            exchange=SimpleNamespace(together=lambda call, _: call()),
        )  # fmt: skip
        with PreparedMessages(connection, Measurement((message,), ()), message):
            assert allocated == expected
        place.close()


def test_wrong_data_is_found() -> None:
    place = HostBuffers(1.0)
    address = place.allocate(1003)
    place.write(address, pattern(1003, 0))
    verify(place, address, 1003, 0, "a message")
    flipped = pattern(1003, 0).copy()
    flipped[1001] ^= 1
    place.write(address, flipped)
    with pytest.raises(
        VerificationError, match=r"a message: 1 of 126 words differ, the first at byte offset 1000"
    ):
        verify(place, address, 1003, 0, "a message")
    place.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["overalloc"], "pass either --sweep or the five numbers"),
        (["overalloc", "1", "2", "3"], "pass either --sweep or the five numbers"),
        (["overalloc", "0", "2", "1", "2", "3"], "NUM_ITERATIONS must be a whole number of 1 or more"),
        (["overalloc", "1", "2", "6", "2", "3"], "P2P_SIZE must be from 1 to BUFFER_SIZE + OVERALLOC_SIZE"),
        (["gpudirect_p2p_overalloc", "1", "2", "0", "2", "3"], "P2P_SIZE must be from 1 to BUFFER_SIZE"),
        (["overalloc", "--sweep", "--copy", "2GiB"], "--copy must not be larger than --size"),
        (["overalloc", "--sweep", "--rounds", "0"], "--rounds must be 1 or more"),
        (["overalloc", "--sweep", "--extra", "x"], "'x' is not a size"),
        (
            ["overalloc", "--sweep", "--means", "shm"],
            "gpu memory is shared by ipc, vmm-fd, fabric, mpi, nccl",
        ),
        (["overalloc", "--sweep", "--format", "x"], "there is no format 'x'"),
        (["overalloc", "--sweep", "--size", "4GiB", "--copy", "4GiB"], "is too large for MPI"),
    ],
)
def test_wrong_use_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_one_rank_is_too_few(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    assert main(["overalloc", "--sweep"]) == 2
    assert "overalloc requires two ranks" in capsys.readouterr().err


def test_a_list_of_unknown_words_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["overalloc", "--sweep", "--means", "mpi,udp"])
    assert end.value.code == 2 and "'udp' is not one of ipc, vmm-fd" in capsys.readouterr().err


def test_the_two_ends_of_a_job() -> None:
    assert [(e.peer, e.first, e.last) for e in (Ends(0, 3), Ends(1, 3), Ends(2, 3))] == [
        (2, True, False), (0, False, False), (0, False, True),
    ]  # fmt: skip


@pytest.fixture
def wires() -> tuple[Any, Any]:
    """Two ends of NCCL's wire on a stand-in for it, in host memory."""
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    from tests.fakes.nccl import Driver, Nccl
    from wirespeed.backends.call_tables import Functions
    from wirespeed.backends.cuda.cuda_driver import CudaNativeCalls
    from wirespeed.features.pairs.libraries import NcclWire

    driver = Driver(cast(Any, None))
    nccl = Nccl(driver)
    functions = Functions(cast(Any, None), nccl.library())
    identifier = nccl.get_unique_id()
    made = []
    for rank in range(2):
        driver.cuCtxSetCurrent(rank)
        comm = nccl.comm_init_rank_config(2, identifier, rank, None)
        place = HostBuffers(1.0)
        place.stream = driver.cuStreamCreate(None)[1]  # type: ignore[attr-defined]
        place.where = SimpleNamespace(use=lambda: None, driver=SimpleNamespace(native=CudaNativeCalls()))
        handle = SimpleNamespace(handle=int(comm), libraries=dict, close=lambda: None)
        made.append((NcclWire(cast(Any, handle), functions, rank == 0, cast(Any, place)), place))
    return made[0], made[1]


def test_messages_by_nccl_arrive(wires: tuple[Any, Any]) -> None:
    size, seconds = 1000, list[float]()
    addresses = []
    for end, (_, place) in enumerate(wires):
        addresses.append([place.allocate(size) for _ in range(2)])
        place.write(addresses[-1][0], pattern(size, end))

    def run(end: int) -> None:
        wire, place = wires[end]
        send, receive = addresses[end]
        seconds.append(wire.windows(send, receive, size, 3, True, 2))
        verify(place, receive, size, 1 - end, "both ways")
        seconds.append(wire.one(send, size))
        if end:
            verify(place, send, size, 0, "one way")
        place.write(send, pattern(size, end))
        place.write(receive, pattern(size, end))
        seconds.append(wire.rounds(send, receive, size, 4))

    threads = [threading.Thread(target=run, args=(end,)) for end in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(seconds) == 6 and all(s > 0 for s in seconds)
    for end, (wire, place) in enumerate(wires):
        for address, sent_by in zip(addresses[end], (end, 1 - end), strict=True):
            assert np.array_equal(place.read(address, size), pattern(size, sent_by))
        wire.close()


def connection(rank: int, machine: Machine, here: Machine) -> Connection:
    exchange = SimpleNamespace(world=SimpleNamespace(rank=rank, size=2))
    return Connection(cast(Any, exchange), machine, here, RunOptions(), 0.0, pytest.fail)


def test_each_rank_takes_the_gpu_that_it_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each process sees its own GPU alone, all of them are called gpu0."""
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    from wirespeed.backends.gpu import sharing as place
    from wirespeed.hardware.devices import Gpu
    from wirespeed.hardware.topology import Rank

    taken: list[str] = []
    monkeypatch.setattr(place, "GpuBuffers", lambda gpu, timeout: taken.append(gpu.bus_id))
    ranks = tuple(Rank(i, "node", "gpu0", ()) for i in range(2))
    for rank, bus in enumerate(("00000000:01:00", "00000000:02:00")):
        here = Machine("here", gpus=(Gpu(0, "H200", bus, 0, 0, 1, "9.0"),))
        everyone = Machine("all", gpus=(Gpu(0, "H200", "00000000:01:00", 0, 0, 1, "9.0"),), ranks=ranks)
        connection(rank, everyone, here).place(MemoryKind.DEVICE)
    assert taken == ["00000000:01:00", "00000000:02:00"]


def test_host_memory_is_shared_by_shm_alone() -> None:
    place = HostBuffers(1.0)
    with pytest.raises(BackendError, match="host memory is shared by shm, not by ipc"):
        place.sharing("ipc")
