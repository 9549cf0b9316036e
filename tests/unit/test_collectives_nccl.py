"""The NCCL provider, with NCCL and the driver replaced by ones on host memory."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from tests.fakes.nccl import Driver, Nccl, Unit, compiled
from tests.fakes.nccl_device import module
from wirespeed.backends import call_tables
from wirespeed.backends import test_data as contents
from wirespeed.backends.cuda import cuda_driver
from wirespeed.backends.cuda.cuda_driver import CudaDriver
from wirespeed.backends.nccl import calls as device_api
from wirespeed.backends.nccl import calls as gpu
from wirespeed.backends.nccl import debug, library, provider
from wirespeed.backends.nccl.calls import DeviceKernel, Format, format_of
from wirespeed.backends.nccl.provider import NcclProvider
from wirespeed.backends.provider import BackendError, Case, Group, Refused
from wirespeed.collectives.data_types import BY_NAME, OPERATORS, TYPES, DataType
from wirespeed.collectives.operations import OPERATIONS, Setting
from wirespeed.collectives.options import CollectiveOptions
from wirespeed.errors import BackendLost, OutOfMemory
from wirespeed.worlds.base import RankLost
from wirespeed.worlds.launchers import alone

Make = Callable[..., NcclProvider]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Any:
    found = compiled(tmp_path_factory.mktemp("kernels"))
    return found or pytest.skip("there is no g++")


@pytest.fixture(scope="session")
def device_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("device_api")


@pytest.fixture
def fake(kernels: Any, device_code: Path, monkeypatch: pytest.MonkeyPatch) -> Nccl:
    driver = Driver(kernels)
    nccl = Nccl(driver)

    def load(self: CudaDriver, text: str, device: int, headers: Any = None) -> Any:
        return module(device_code, text.split()[2]) if headers else 1

    monkeypatch.setattr(cuda_driver, "driver", driver)
    monkeypatch.setattr(CudaDriver, "module", load)
    monkeypatch.setattr(device_api, "headers", lambda version: str(version))
    package = ModuleType("nccl.bindings")
    package.nccl = nccl  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nccl", ModuleType("nccl"))
    monkeypatch.setitem(sys.modules, "nccl.bindings", package)
    library = nccl.library()
    monkeypatch.setattr(provider, "functions", lambda driver, error: call_tables.Functions(error, library))
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    return nccl


@pytest.fixture
def make(fake: Nccl) -> Iterator[Make]:
    made: list[NcclProvider] = []

    def build(threads: int, gpus: int, **more: Any) -> NcclProvider:
        options = CollectiveOptions(threads=threads, gpus=gpus, **more)
        made.append(NcclProvider(alone(), Group(0, (0,), threads * gpus), options))
        made[-1].connect()
        return made[-1]

    yield build
    for one in made:
        one.close()


def case(
    name: str, ranks: int, type: DataType = BY_NAME["float"], in_place: bool = False, **timing: Any
) -> Case:
    operation = OPERATIONS[name]
    operator = "sum" if operation.operator is None else ""
    setting = Setting(operation, type, operator, ranks - 1 if operation.rooted else -1)
    return Case(
        setting, ranks, operation.counts(512, type.bytes, ranks), in_place, CollectiveOptions(**timing)
    )


def checked(made: NcclProvider, one: Case) -> int:
    made.allocate(4 * one.bytes)
    made.register()
    made.bind(one)
    made.fill(3)
    made.once()
    return made.wrong(3)


@pytest.mark.parametrize(("threads", "gpus"), [(1, 1), (1, 2), (2, 1), (2, 2), (1, 4)])
def test_all_operations_leave_what_they_must(make: Make, threads: int, gpus: int) -> None:
    made = make(threads, gpus)
    for name, operation in OPERATIONS.items():
        for in_place in (False, True) if operation.checks_in_place else (False,):
            for type in (
                ("float", "half", "bfloat16", "f8e5m2")
                if operation.operator is not None
                else ("float", "half")
            ):
                assert checked(made, case(name, threads * gpus, BY_NAME[type], in_place)) == 0, (
                    name,
                    in_place,
                    type,
                )


@pytest.mark.parametrize("operator", OPERATORS)
def test_all_operators_and_types_that_numpy_has(make: Make, operator: str) -> None:
    made = make(1, 3)
    for type in TYPES:
        if type.numpy:
            base = case("all_reduce", 3, type)
            setting = Setting(base.setting.operation, type, operator)
            assert checked(made, Case(setting, 3, base.counts, False, base.options)) == 0, type


@pytest.mark.parametrize("name", ["alltoall", "gather", "scatter"])
@pytest.mark.parametrize(("threads", "gpus"), [(1, 3), (2, 2)])
def test_sends_and_receives_replace_functions_that_older_versions_lack(
    make: Make, fake: Nccl, name: str, threads: int, gpus: int
) -> None:
    fake.version, fake.refused = 22707, name.replace("to", "to_")
    made = make(threads, gpus)
    for in_place in (False, True) if OPERATIONS[name].checks_in_place else (False,):
        base = case(name, threads * gpus, BY_NAME["half"], in_place)
        assert made.refuses(base.setting) is None
        assert checked(made, base) == 0, in_place
        nothing = OPERATIONS[name].counts(0, 2, threads * gpus)
        assert checked(made, Case(base.setting, base.ranks, nothing, in_place, base.options)) == 0


def test_an_operator_that_is_only_named_has_no_effect(make: Make) -> None:
    base = case("sendrecv", 3)
    for operator in ("", *OPERATORS):
        setting = Setting(base.setting.operation, BY_NAME["float"], operator)
        assert checked(make(1, 3), Case(setting, 3, base.counts, False, base.options)) == 0, operator


def test_wrong_elements_are_counted(make: Make, fake: Nccl) -> None:
    def damage(unit: Unit) -> None:
        if unit.comm.rank == 1:
            ctypes.memset(unit.arguments[1] + 40, 0x55, 8)

    fake.damage = damage
    assert checked(make(1, 2), case("all_reduce", 2)) == 2


def test_data_that_was_not_delivered_is_wrong(make: Make) -> None:
    made, one = make(1, 2), case("all_gather", 2)
    made.allocate(4 * one.bytes)
    made.bind(one)
    made.fill(3)
    assert made.wrong(3) == 2 * one.counts.receive


@pytest.mark.parametrize(
    "timing",
    [{}, {"aggregate": 3}, {"blocking": 1}, {"blocking": 2}, {"blocking": 3}, {"per_iteration": True},
     {"blocking": 3, "per_iteration": True}, {"graphs": 2}, {"blocking": 3, "aggregate": 2}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize(("threads", "gpus"), [(1, 2), (2, 1)])
def test_every_mode_times_every_iteration(
    make: Make, timing: dict[str, Any], threads: int, gpus: int
) -> None:
    made, one = make(threads, gpus), case("all_reduce", 2, iterations=5, **timing)
    assert checked(made, one) == 0
    elapsed = made.loop()
    assert len(elapsed) == threads
    for one_thread in elapsed:
        assert 0 < one_thread.cpu <= one_thread.seconds < 1
        assert len(one_thread.iterations) == (5 if timing.get("per_iteration") else 0)
    made.fill(4)
    made.once()
    assert made.wrong(4) == 0


@pytest.mark.parametrize(("blocking", "meetings"), [(0, 0), (1, 3), (2, 0), (3, 3)])
def test_threads_and_processes_meet_on_the_host_after_operations(
    make: Make, fake: Nccl, monkeypatch: pytest.MonkeyPatch, blocking: int, meetings: int
) -> None:
    made, one = make(2, 1), case("alltoall", 2, iterations=3, blocking=blocking)
    assert checked(made, one) == 0
    made.loop()  # and the rehearsal, which later loops do not have
    met, reductions = list[str](), list[Unit]()
    monkeypatch.setattr(made._world, "barrier", met.append)
    fake.damage = lambda unit: reductions.append(unit) if unit.name == "all_reduce" else None
    made.loop()
    assert len(met) == meetings
    assert len(reductions) == 2  # of both ranks, before the loop


def test_a_thread_that_fails_ends_the_wait_of_the_others(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made, one = make(2, 1), case("all_reduce", 2, iterations=3, blocking=1)
    assert checked(made, one) == 0

    def fail() -> None:
        raise BackendError("no more")

    monkeypatch.setattr(made._loops[1], "_meet", fail)
    with pytest.raises(BackendError, match=r"no more|another thread failed"):
        made.loop()


def test_a_process_that_is_lost_ends_the_loop(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made, one = make(1, 2), case("all_reduce", 2, iterations=3, blocking=1)
    assert checked(made, one) == 0

    def lose(doing: str) -> None:
        raise RankLost(f"rank 1 has ended while {doing}")

    monkeypatch.setattr(made._world, "barrier", lose)
    with pytest.raises(BackendLost, match="rank 1 has ended while waiting for all processes"):
        made.loop()


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize(("threads", "gpus"), [(1, 4), (2, 2), (4, 1)])
def test_every_operation_in_the_default_streams_of_several_gpus(
    make: Make, name: str, threads: int, gpus: int
) -> None:
    made = make(threads, gpus, null_stream=True)
    for blocking in (0, 1, 2, 3):
        for per_iteration in (False, True):
            one = case(name, 4, iterations=3, blocking=blocking, per_iteration=per_iteration)
            assert checked(made, one) == 0, one.options
            for elapsed in made.loop():
                assert len(elapsed.iterations) == (3 if per_iteration else 0)
                assert all(seconds > 0 for seconds in elapsed.iterations)
            made.fill(4)
            made.loop()
            assert made.wrong(4) == 0, one.options


def test_buffers_off_their_alignment_and_shifted(make: Make) -> None:
    made, one = make(1, 2, unalign=3), case("all_reduce", 2, iterations=9)
    made.allocate(4 * one.bytes + 12)
    made.bind(one)
    made.fill(1)
    made.once()
    assert made.wrong(1) == 0
    assert one.shifts(4 * one.bytes)[:6] == [i % 4 * one.bytes for i in range(6)]
    made.loop()


@pytest.mark.parametrize(("registration", "kind"), [(1, "local"), (2, "symmetric")])
def test_both_buffers_of_all_ranks_are_registered(
    make: Make, fake: Nccl, registration: int, kind: str
) -> None:
    assert checked(make(1, 2, registration=registration), case("all_reduce", 2)) == 0
    assert [(k, r) for k, r, _ in fake.registered] == [(kind, 0), (kind, 0), (kind, 1), (kind, 1)]


def with_kernels(implementation: int, **options: Any) -> dict[str, Any]:
    return {"registration": 2, "device_implementation": implementation, "device_blocks": 3, **options}


@pytest.mark.parametrize(
    ("name", "type", "in_place"),
    [("all_reduce", "float", False), ("all_reduce", "half", True), ("all_reduce", "int8", False),
     ("alltoall", "float", False), ("alltoall", "bfloat16", False)],
)  # fmt: skip
@pytest.mark.parametrize(("implementation", "unalign"), [(1, 0), (2, 0), (2, 3)])
@pytest.mark.parametrize(("threads", "gpus"), [(1, 2), (3, 1)])
def test_kernels_of_the_device_api_leave_what_they_must(
    make: Make, fake: Nccl, name: str, type: str, in_place: bool, implementation: int, unalign: int,
    threads: int, gpus: int,
) -> None:  # fmt: skip
    made = make(threads, gpus, **with_kernels(implementation, unalign=unalign))
    base = case(name, threads * gpus, BY_NAME[type], in_place)
    for size in (0, 40, 4112, 600_000):  # less than 16 bytes per rank, and more than the threads take at once
        counts = base.setting.operation.counts(size // base.width, base.width, base.ranks)
        one = Case(base.setting, base.ranks, counts, in_place, base.options)
        made.allocate(2 * one.bytes + unalign * one.width)
        made.register()
        made.bind(one)
        made.fill(3)
        made.once()
        assert made.wrong(3) == 0, size
        assert [comm.device_comms for world in fake.worlds.values() for comm in world] == [1] * base.ranks
    assert f"device implementation {implementation} with 3 CTAs" in made.transport()


@pytest.mark.parametrize(
    "timing", [{}, {"aggregate": 3}, {"blocking": 3, "per_iteration": True}, {"graphs": 2}], ids=str
)
def test_kernels_of_the_device_api_are_timed_in_every_mode(make: Make, timing: dict[str, Any]) -> None:
    made, one = make(2, 1, **with_kernels(2)), case("all_reduce", 2, iterations=5, **timing)
    assert checked(made, one) == 0
    assert all(0 < elapsed.seconds < 1 for elapsed in made.loop())
    made.fill(4)
    made.once()
    assert made.wrong(4) == 0


def test_a_kernel_of_the_device_api_that_writes_wrong_data_is_found(make: Make, fake: Nccl) -> None:
    def damage(unit: Unit) -> None:
        if unit.comm.rank == 1 and unit.name == "kernel":
            ctypes.memset(unit.arguments[1] + 40, 0x55, 8)

    fake.damage = damage
    assert checked(make(1, 2, **with_kernels(2)), case("all_reduce", 2)) == 2


def test_what_kernels_of_the_device_api_cannot_do_is_refused(make: Make, fake: Nccl) -> None:
    made = make(1, 2, **with_kernels(1))
    assert made.refuses(case("all_reduce", 2).setting) is None
    assert made.refuses(case("alltoall", 2, BY_NAME["f8e5m2"]).setting) is None
    reduction = case("all_reduce", 2).setting.operation
    for type, operator, reason in (
        ("float", "max", "-D supports the operator sum, not max"),
        ("bfloat16", "sum", "uint64, half, float, double, not of bfloat16"),
    ):
        assert reason in str(made.refuses(Setting(reduction, BY_NAME[type], operator)))
    fake.reached = 1
    with pytest.raises(Refused, match="NCCL connects only 1 of 2"):
        make(1, 2, **with_kernels(1))
    fake.refused = "create"
    made.allocate(64)
    with pytest.raises(BackendError, match="NCCL failed: ncclDevCommCreate"):
        made.register()
    fake.version = 22803
    with pytest.raises(Refused, match=r"-D requires NCCL 2\.28\.7; this is 2\.28\.3"):
        make(1, 2, **with_kernels(1))


def test_ranks_of_threads_may_be_set_up_at_once(make: Make) -> None:
    assert checked(make(2, 2, parallel_init=True), case("all_gather", 4)) == 0


def test_what_is_not_possible_is_refused(make: Make, fake: Nccl) -> None:
    with pytest.raises(Refused, match="Invalid number of GPUs: 8 requested but only 4 were found"):
        make(1, 8)
    fake.version = 22605
    with pytest.raises(Refused, match=r"symmetric registration requires NCCL 2\.27; this is 2\.26\.5"):
        make(1, 2, registration=2)
    made = make(1, 3)
    assert "power of two" in str(made.refuses(case("hypercube", 3).setting))
    assert made.refuses(case("all_reduce", 3).setting) is None


def test_memory_that_is_short_can_be_asked_for_again(make: Make) -> None:
    made, one = make(1, 2), case("all_reduce", 2)
    with pytest.raises(OutOfMemory, match=r"2 buffers of 1 GiB on GPU 0"):
        made.allocate(2**30)
    assert checked(made, one) == 0
    assert made.memory()["User-Allocated"] == 4 * 4 * one.bytes


def test_memory_has_the_parts_of_nccl_tests(make: Make, fake: Nccl, monkeypatch: pytest.MonkeyPatch) -> None:
    def taking(size: int, before: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            fake.driver.cuMemAlloc(size)
            return before(*arguments, **named)

        return call

    made, one = make(1, 1, **with_kernels(1)), case("all_reduce", 1)
    monkeypatch.setattr(fake, "comm_window_register", taking(100, fake.comm_window_register))
    create = DeviceKernel.create
    monkeypatch.setattr(DeviceKernel, "create", taking(5000, create))
    made.allocate(one.bytes)
    made.register()
    fake.driver.cuMemAlloc(70)
    assert made.memory() == {
        "Initialization": 5000, "User-Allocated": 2 * one.bytes + 2 * 100, "Collective": 70,
    }  # fmt: skip


def test_an_abort_ends_the_wait(make: Make, fake: Nccl) -> None:
    made, one = make(1, 2), case("all_reduce", 2)
    made.allocate(one.bytes)
    made.bind(one)
    made._loops[0]._sites.pop()  # that rank does not come
    threading.Timer(0.2, made.cancel).start()
    with pytest.raises(BackendError, match="cancelled because another rank failed"):
        made.once()


def test_kernels_and_numpy_agree(kernels: Any) -> None:
    for type in TYPES:
        for operator in (*OPERATORS, ""):
            for ranks, rank in ((1, 0), (3, 2), (8, 5), (100, 99)):
                found = np.zeros(200 * type.bytes, np.uint8)
                kernels.fill(found.ctypes.data, 200, format_of(type, operator, ranks), 5, rank)
                if type.numpy or not operator:
                    want = contents.given(type, operator or None, ranks, 5, rank, 0, 200)
                else:
                    numbers = contents.numbers(type, operator, ranks, 5, rank, 0, 200)
                    want = np.array([type.encode(v) for v in numbers], f"uint{8 * type.bytes}")
                assert (found == want.view(np.uint8)).all(), (type.name, operator, ranks)
    assert ctypes.sizeof(Format) == 32


def test_the_kernels_compile_for_all_architectures(tmp_path: Any) -> None:
    from wirespeed.backends.cuda import compiler

    pytest.importorskip("cuda.bindings")
    if not compiler.nvrtc_version():
        pytest.skip("NVRTC is not installed")
    for architecture in ("sm_75", "sm_90", "sm_120"):
        assert compiler.compiled(gpu._SOURCE.read_text(), architecture, tmp_path)


def test_what_c_refuses_is_named(make: Make, fake: Nccl) -> None:
    made = make(1, 2)
    one = case("reduce", 2)
    made.allocate(one.bytes)
    made.bind(one)
    fake.refused = "reduce"
    with pytest.raises(BackendError, match=r"NCCL failed: ncclReduce: unhandled cuda error \(run with"):
        made.once()


def test_an_error_keeps_the_words_of_nccl(
    make: Make, fake: Nccl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Programs look for them; a warning of the log follows, as in ``NCCLCHECK`` of nccl-tests' common.h."""
    log = tmp_path / "nccl.log"
    log.touch()
    monkeypatch.setattr(debug, "log_of", lambda: log)
    made = make(1, 2)
    log.write_text("vm:1:1 [0] misc/socket.cc:59 NCCL WARN first\nvm:1:1 NCCL WARN connect: refused \n")
    words = "unhandled system error (run with NCCL_DEBUG=INFO for details)"

    def fails(*_: object) -> None:
        raise fake.NCCLError(f"SystemError (2): {words}")

    made.allocate(64)
    with monkeypatch.context() as patch, pytest.raises(BackendError) as raised:
        patch.setattr(fake, "mem_free", fails)
        made.allocate(64)
    assert str(raised.value) == f"NCCL failed: SystemError (2): {words} / connect: refused"


def test_calls_pass_their_arguments_and_end_at_the_first_failure() -> None:
    kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * 8)
    seen: list[tuple[int, ...]] = []

    class Library:
        good = kind(lambda *words: seen.append(words) or 0)  # type: ignore[func-returns-value]
        bad = kind(lambda *words: 2)

    functions = call_tables.Functions(
        lambda failed: BackendError(f"{failed.name}: {failed.status}"), Library()
    )
    words = (1, -2, 2**62, 4, 5, 6, 7, 2**63 - 1)
    functions.bind([("good", words), ("good", ())])()
    assert seen == [words, (0,) * 8]
    with pytest.raises(BackendError, match="bad: 2"):
        functions.bind([("good", ()), ("bad", ()), ("good", ())])()
    assert len(seen) == 3
    enqueued, spent = functions.timed([("good", ())], [("good", (5,))], [("good", (6,))])
    assert seen[-1][0] == 6
    assert 0 < enqueued < spent < 5
    with pytest.raises(BackendError, match="bad: 2"):
        functions.timed([], [("good", ())], [("bad", ())])
    seen.clear()
    seconds = functions.laps([("good", (1,))], [("good", (2,)), ("good", (3,))], [("good", (4,))], 2)
    assert len(seconds) == 2 and all(0 < some < 5 for some in seconds)
    assert [words[0] for words in seen] == [1, 2, 3, 4, 2, 3, 4]
    with pytest.raises(BackendError, match="bad: 2"):
        functions.laps([], [("good", ())], [("bad", ())], 3)
    assert len(seen) == 8
    with pytest.raises(AttributeError, match="absent"):
        functions.address("absent")


def test_an_identifier_is_read_while_it_is_there(fake: Nccl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "bindings", lambda: fake)
    assert library.refuses(0) == ("", bytes([1]) * 128)
    assert library.refuses(1) == ("", b"")
