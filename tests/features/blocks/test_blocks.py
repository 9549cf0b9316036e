"""Block lists: on the host for real, on GPUs by a driver in memory."""

from __future__ import annotations

import ctypes
import itertools
import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import wirespeed
from tests.fakes import gpu as fake
from tests.fakes.gpu import MemoryBackend, MemoryDriver
from wirespeed.backends import describe
from wirespeed.backends.host.backend import HostBackend
from wirespeed.backends.test_data import offsets
from wirespeed.cli.main import main
from wirespeed.document import TestcaseResult
from wirespeed.driver.cells_of_samples import cell_of
from wirespeed.driver.run_plan import run_plan
from wirespeed.driver.sampling import take
from wirespeed.errors import MeasurementTimeout, Unreachable, UsageError, VerificationError
from wirespeed.features.blocks import testcases as blocks
from wirespeed.features.blocks.block_map import BlockMap, Crossing, map_of
from wirespeed.features.blocks.block_models import Point, best_of, rule_of
from wirespeed.features.blocks.testcases import of_directions
from wirespeed.features.blocks.testcases import of_key as of_lists
from wirespeed.features.blocks.text import text
from wirespeed.hardware.devices import Gpu, NumaNode
from wirespeed.hardware.durations import end_seconds
from wirespeed.hardware.limits import Allowance
from wirespeed.hardware.topology import Machine
from wirespeed.judging.judged import Judged
from wirespeed.judging.verdict import Verdict
from wirespeed.measurement import Measurement, Place, Sample
from wirespeed.model import (
    BlockList,
    Engine,
    Executor,
    Memory,
    MemoryKind,
    Method,
    Operation,
    PoolLayout,
    Transfer,
)
from wirespeed.options import PlanOptions, RunOptions
from wirespeed.reports.records import records
from wirespeed.reports.style import Style
from wirespeed.statistics import Fixed
from wirespeed.tables import Calls
from wirespeed.thresholds.values import MODEL_ERROR
from wirespeed.units import KIB

MACHINE = Machine(
    "in memory",
    numa=(NumaNode(0, (0, 1), memory_bytes=2**34),),
    gpus=tuple(
        Gpu(i, "in memory", f"00000000:00:{6 + i:02x}", compute_capability="9.0", memory_bytes=2**34,
            backend=MemoryBackend.name, peers=(f"gpu{1 - i}",)) for i in range(2)
    ),
)  # fmt: skip
HOST = Memory("numa0", MemoryKind.PAGEABLE)


def listed(method: Method, block: int, blocks: int, cpus: tuple[int, ...] = (0,)) -> Measurement:
    transfer = Transfer(
        HOST, HOST, Executor("numa0", cpus=cpus), Engine.CPU, block * blocks,
        scattered=BlockList(method, block, blocks),
    )  # fmt: skip
    return Measurement((transfer,), ())


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryDriver]:
    for module in ("cuda", "cuda.bindings", "pynvml"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(blocks, "COMPUTING_BYTES", 4 * KIB)
    driver = MemoryDriver()
    monkeypatch.setattr(fake, "opened", [driver])
    yield driver
    assert driver.left == {}


@pytest.fixture
def backend(driver: MemoryDriver) -> Iterator[MemoryBackend]:
    backend = MemoryBackend(MACHINE)
    yield backend
    backend.close()


def measured(backend: MemoryBackend, testcase: str, **options: Any) -> TestcaseResult:
    how: dict[str, Any] = {"sizes": (64, 3 * KIB), "block_counts": (1, 7), "samples": 2, "copies": 2}
    document = wirespeed.run(
        [testcase], machine=MACHINE, backends=[backend], affinity=False, **(how | options)
    )
    return document.testcases[0]


def test_a_permutation_uses_each_block_of_both_pools_once() -> None:
    scattered = BlockList(Method.KERNEL, 192, 1000)
    places = offsets(scattered, 3)
    for column in range(2):
        assert sorted(places[:, column].tolist()) == [192 * i for i in range(1000)]
    assert not np.array_equal(places[:, 0], places[:, 1])
    assert np.array_equal(places, offsets(replace(scattered, method=Method.LOOP), 3))
    assert not np.array_equal(places, offsets(scattered, 4))


@pytest.mark.parametrize("method", [Method.LOOP, Method.KERNEL])
@pytest.mark.parametrize(("block", "blocks"), [(64, 1), (64, 1000), (28 * KIB, 33), (4096, 2)])
def test_lists_in_host_memory_arrive(method: Method, block: int, blocks: int) -> None:
    """Also with fewer blocks than threads, and several copies of a sample."""
    machine = wirespeed.machine()
    node = machine.numa[0]
    cpus = node.cores[:1] if method is Method.LOOP else node.cores
    backend = HostBackend(machine)
    try:
        with backend.prepare(listed(method, block, blocks, cpus), RunOptions()) as prepared:
            for copies in (1, 3):
                sample = prepared.sample(copies)
                assert sample.amounts == (float(copies * block * blocks),)
                prepared.verify()
    finally:
        backend.close()


def test_two_blocks_in_each_other_s_place_are_found() -> None:
    backend = HostBackend(wirespeed.machine())
    try:
        with backend.prepare(listed(Method.KERNEL, 128, 16), RunOptions()) as prepared:
            (bound,) = prepared.bound
            assert bound.entries is not None
            bound.entries[[3, 8], 1] = bound.entries[[8, 3], 1]
            wrong = min(int(bound.entries[i, 1]) for i in (3, 8))
            prepared.sample(1)
            with pytest.raises(VerificationError, match=f"offset {wrong}") as raised:
                prepared.verify()
            assert raised.value.wrong == 2 * 128 // 8
    finally:
        backend.close()


def test_a_block_that_is_not_moved_is_found() -> None:
    backend = HostBackend(wirespeed.machine())
    try:
        with backend.prepare(listed(Method.LOOP, 128, 16), RunOptions()) as prepared:
            prepared.sample(1)
            prepared.verify()
            (bound,) = prepared.bound
            assert bound.entries is not None
            bound.entries = bound.entries[:15]
            prepared.sample(1)
            with pytest.raises(VerificationError):
                prepared.verify()
    finally:
        backend.close()


@pytest.mark.parametrize("testcase", ["host_to_device", "device_to_host", "device_to_device"])
def test_lists_of_gpus_arrive_by_every_method(backend: MemoryBackend, testcase: str) -> None:
    result = measured(backend, f"blocks_{testcase}")
    assert result.status == "passed", result.reason
    paths, methods = (2, 5) if testcase != "device_to_device" else (4, 4)
    assert len(result.tables) == 2 * paths * methods
    for table, submission in zip(result.tables[::2], result.tables[1::2], strict=True):
        assert len([value for value in table.values() if value]) == 4, table.title
        assert submission.key == f"{table.key} submission"
        assert all(seconds and 0 < seconds < 60 for seconds in submission.values())
        assert [cell.bytes for cell in table.cells] == [64, 7 * 64, 3 * KIB, 7 * 3 * KIB]


def test_calls_of_each_method(driver: MemoryDriver, backend: MemoryBackend) -> None:
    calls = driver.native.made
    measured(backend, "blocks_host_to_device", sizes=(64,), block_counts=(5,), samples=1, copies=1)
    laps = [lap.split() for lap in " ".join(calls).split(" synchronize")]
    first = [lap[1:] for lap in laps if lap]  # after making the context the current one
    loop, batch, kernel, bulk, staged = first[0::2][:5]  # each after a warm-up
    assert loop == 5 * ["move"] and batch == ["batch"] and kernel == bulk == ["launch"]
    assert staged == ["move", "launch"]


def test_a_wrong_byte_of_a_block_is_found(driver: MemoryDriver, backend: MemoryBackend) -> None:
    def damage(address: int, size: int) -> None:
        ctypes.c_uint8.from_address(address + size - 1).value ^= 1

    driver.damage = damage
    result = measured(backend, "blocks_host_to_device")
    assert result.status == "failed" and "loop of" in result.reason


def test_a_call_that_fails_has_its_name(driver: MemoryDriver, backend: MemoryBackend) -> None:
    driver.native.refuses = "batch"
    result = measured(backend, "blocks_device_to_host")
    assert result.status == "error" and result.reason == "batch failed: status 7"
    kernel = next(table for table in result.tables if table.key == "gpu0->numa0 kernel")
    assert all(kernel.values())  # what can be measured is kept


def test_a_driver_without_batches(driver: MemoryDriver, backend: MemoryBackend) -> None:
    driver.native.has_batch = False
    result = measured(backend, "blocks_host_to_device")
    batch = next(table for table in result.tables if table.key == "numa0->gpu0 batch")
    assert {cell.reason for cell in batch.cells} == {"this driver makes one copy at a time"}
    assert result.status == "passed"


def test_what_cannot_be_moved_as_a_list(backend: MemoryBackend) -> None:
    host, own = Memory("numa0", MemoryKind.PINNED), Memory("gpu0", MemoryKind.DEVICE)
    good = Transfer(host, own, Executor("gpu0"), Engine.CE, 256, scattered=BlockList(Method.STAGED, 64, 4))
    assert backend.refuses(Measurement((good,), ())) is None
    for wrong, reason in (
        (replace(good, source=HOST), "pinned memory"),
        (replace(good, source=own), "between host memory and a GPU"),
        (replace(good, operation=Operation.READ), "is copied"),
        (replace(good, scattered=BlockList(Method.LOOP, 100, 4)), "a multiple of 64 B, not 100 B"),
    ):
        assert reason in (backend.refuses(Measurement((wrong,), ())) or "")
    other = replace(good, scattered=BlockList(Method.LOOP, 64, 4))
    assert "the same method" in (backend.refuses(Measurement((good, other), ())) or "")
    plain = replace(good, scattered=None)
    assert "only other lists can run" in (backend.refuses(Measurement((good, plain), ())) or "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sizes": "100B"}, "multiple of 64 B, not 100 B"),
        ({"block_counts": "4:x"}, "not a list of numbers of blocks"),
        ({"block_counts": "0"}, "not a list of numbers of blocks"),
        ({"block_counts": (2**21,)}, "from 1 to 1048576 blocks"),
        ({"block_counts": ()}, "empty"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        wirespeed.run(["blocks_host"], machine="simulated:cpu-2-sockets", **options)


def test_lists_that_are_too_large_are_waived_with_the_reason() -> None:
    (result,) = wirespeed.run(
        ["blocks_host"], machine="simulated:cpu-2-sockets", sizes="4KiB", block_counts=(16, 2**20), samples=1
    ).testcases
    reasons = [cell.reason for cell in result.tables[0].cells]
    assert reasons == ["", "4 GiB is too much: a list holds at most 1 GiB"]


@pytest.fixture(scope="module")
def found() -> BlockMap:
    return wirespeed.blocks(machine="simulated:hgx-h200-2", devices=(0,))


def test_the_map_of_a_simulated_gpu(found: BlockMap) -> None:
    """The driver's batch call loses its cliff at 28 KiB; kernels have no cost for each block."""
    to, back = found.paths
    assert (to.direction, to.path, back.path) == ("host_to_device", "numa0->gpu0", "gpu0->numa0")
    by_place = {(point.block, point.blocks): point for point in to.points}
    assert by_place[16 * KIB, 4096].best is Method.KERNEL
    assert by_place[2**20, 16].best is Method.BATCH
    assert Crossing(28 * KIB, 64, Method.BATCH, Method.KERNEL) in to.crossings
    (first,) = to.sentences()
    assert first.startswith("1 KiB to 24 KiB: kernel; 28 KiB to 256 KiB: batch, kernel")
    assert str(to.rule).startswith("vLLM rule for this machine: kernel if block < ")


def test_the_model_finds_what_the_simulation_adds(found: BlockMap) -> None:
    models = {model.method: model for model in found.paths[0].models}
    loop, kernel = models[Method.LOOP], models[Method.KERNEL]
    assert loop.block_s == pytest.approx(2.5e-6, rel=0.02) and loop.error < 0.02
    assert kernel.block_s < 5e-9 and kernel.nearly_full == 4 * KIB
    assert models[Method.BATCH].error > MODEL_ERROR  # its blocks cost more below 28 KiB
    assert models[Method.STAGED].nearly_full is None


def test_forms_of_the_map(found: BlockMap) -> None:
    shape = json.loads(found.to_json())
    assert shape["schema"] == 1 and shape["simulated"] is True
    path = shape["paths"][0]
    point = next(p for p in path["points"] if (p["block"], p["blocks"]) == (8192, 64))
    assert point["direction"] == "host_to_device" and point["best"] == "kernel"
    assert set(point["rates"]) == {"loop", "batch", "kernel", "kernel_bulk", "staged"}
    assert point["submission_s"]["kernel"] < 1e-5 < point["submission_s"]["loop"]
    assert shape == json.loads(wirespeed.render(found.document, "blocks-json"))
    shown = str(found)
    assert "SIMULATED" in shown and "28 KiB B" in shown and "K kernel" in shown
    rows = records(found).rows
    assert len(rows) == sum(len(point.rates) for path in found.paths for point in path.points)
    assert found.best(8000, 60) is Method.KERNEL
    with pytest.raises(UsageError, match="device_to_device was not measured"):
        found.best(8000, 60, "device_to_device")


def points(rates: dict[tuple[int, int], tuple[float, float]]) -> tuple[Point, ...]:
    return tuple(
        Point(block, blocks, Method.BATCH, {Method.BATCH: batch, Method.KERNEL: kernel}, None)
        for (block, blocks), (batch, kernel) in rates.items()
    )


def test_constants_for_a_server() -> None:
    """The published H100: the kernel wins with 8 KiB from 64 blocks on, the batch call with 64 KiB."""
    rule = rule_of(points({
        (8192, 16): (2.0, 1.5), (8192, 64): (2.7, 8.8), (8192, 256): (2.7, 22.8),
        (65536, 16): (15.7, 14.6), (65536, 64): (30.0, 29.4), (65536, 256): (43.0, 42.0),
    }))  # fmt: skip
    assert rule is not None and (rule.block_below, rule.blocks_from, rule.loss) == (65536, 64, 0.0)
    assert rule.usual_loss == pytest.approx(2.0 / 1.5 - 1)
    never = rule_of(points({(8192, 16): (3.0, 1.0), (8192, 64): (3.0, 2.0)}))
    assert never is not None and (never.block_below, never.loss) == (0, 0.0)
    always = rule_of(points({(8192, 16): (1.0, 2.0), (65536, 16): (1.0, 2.0)}))
    assert always is not None and (always.block_below, always.blocks_from) == (None, 16)


def test_a_slow_link_lowers_large_blocks_of_one_gpu() -> None:
    document = wirespeed.run(
        ["blocks_host_to_device"], machine="simulated:hgx-h200-2+speed@numa0-gpu1=0.5", tier="quick"
    )
    bad = {
        judgement.key.table.split()[0]
        for judgement in wirespeed.judge(document).judgements
        if judgement.verdict.is_bad
    }
    assert bad == {"numa0->gpu1"}


@pytest.mark.parametrize("machine", ["simulated:dgx-a100-8", "simulated:gh200-1", "simulated:l40s-8"])
def test_healthy_machines_pass(machine: str) -> None:
    document = wirespeed.run(
        prefixes=["blocks_"], machine=machine, tier="quick", sizes="64KiB,4MiB", block_counts=(16, 256, 4096)
    )
    assert not wirespeed.judge(document).verdict.is_bad


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    saved = tmp_path / "run.json"
    arguments = [
        "blocks",
        "--machine",
        "simulated:hgx-h200-2",
        "--sizes",
        "16KiB,28KiB",
        "--blocks",
        "16,1024",
    ]
    assert main([*arguments, "--direction", "host_to_device", "-o", str(saved)]) == 0
    out = capsys.readouterr().out
    assert "16 KiB K" in out and "gpu0->numa0" not in out and "NOT JUDGED" in out
    assert main(["show", "--format", "blocks", str(saved)]) == 0
    assert "16 KiB K" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--machine", "simulated:cpu-2-sockets", "--direction", "host_to_device"], "requires a GPU"),
        (["--sizes", "1000B"], "multiple of 64 B, not 1000 B"),
        (["--blocks", "none"], "not a list of numbers of blocks"),
        (["--direction", "up"], "up"),
    ],
)
def test_wrong_use_of_the_command(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) if "--blocks" in arguments or "up" in arguments else nullcontext():
        assert main(["blocks", "--no-save", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and "Traceback" not in captured.err


def test_a_size_that_is_no_block_is_waived() -> None:
    (result,) = wirespeed.run(["blocks_host"], machine="simulated:cpu-2-sockets", size=100).testcases
    assert result.status == "waived" and "multiple of 64 B, not 100 B" in result.reason


@pytest.mark.parametrize("first", [0.0, -64.0, 1e300, None])
def test_axes_of_a_file_may_be_anything(found: BlockMap, first: float | None) -> None:
    result = found.document.testcases[0]
    tables = tuple(
        msgspec.structs.replace(
            table, rows=replace(table.rows, values=() if first is None else (first, *table.rows.values[1:]))
        )
        for table in result.tables
    )
    document = msgspec.structs.replace(
        found.document, testcases=(msgspec.structs.replace(result, tables=tables),)
    )
    assert "no block list was measured, only blocks_host_to_device" in wirespeed.render(document, "blocks")
    assert json.loads(wirespeed.render(document, "blocks-json"))["paths"] == []
    wirespeed.judge(document)


def test_each_call_is_timed(backend: MemoryBackend) -> None:
    result = measured(backend, "blocks_host_to_device", samples=3, copies=50)
    for table in result.tables:
        for cell in table.cells:
            assert (cell.calls is None) == table.key.endswith("submission")
            if cell.calls is not None:
                assert cell.calls.n == 150 and 0 < cell.calls.p50 <= cell.calls.p99
                assert cell.calls.first is not None and cell.calls.first > 0


def test_p50_and_p99_are_times_of_calls_and_the_first_one_counts_apart() -> None:
    """A table with the rates of 2, 4, ... s; 100 calls of 1 s have a first one of 9 s."""
    listing = listed(Method.LOOP, 64, 4)
    times = iter([9.0, *(float(n) for n in range(1, 201))])

    def sample(copies: int) -> Sample:
        calls = tuple(next(times) for _ in range(copies))
        return Sample((sum(calls),), (256.0 * copies,), sum(calls), calls=calls)

    taken = take(sample, listing, Fixed(samples=2, copies=100), time.monotonic, 1e-3)
    (place,) = (Place("", 0, 0),)
    cell = cell_of(listing, place, Allowance(None, None, None, ()), [taken], skip=0, use_mean=False)
    assert cell.calls == Calls(200, 100.0, 198.0, 9.0)
    assert cell.statistics is not None and cell.statistics.n == 2


def test_calls_of_the_host_are_timed_after_its_samples() -> None:
    """Its samples of several copies have no time of each; up to 100 single calls in 20 ms follow."""
    listing = listed(Method.LOOP, 64, 4)
    for tick, calls in ((0.0, 100), (0.006, 3)):
        times, made = itertools.count(0.0, tick), list[int]()

        def sample(copies: int, made: list[int] = made) -> Sample:
            made.append(copies)
            return Sample((copies * 1e-3,), (256.0 * copies,), copies * 1e-3)

        taken = take(sample, listing, Fixed(samples=2, copies=5), times.__next__, 1e-3)
        assert taken.calls == (1e-3,) * calls and made == [1, 5, 5, *[1] * calls]
    (result,) = wirespeed.run(["blocks_host"], sizes="1KiB", block_counts=(16,), samples=1).testcases
    assert all(cell.calls for table in result.tables for cell in table.cells)


def test_three_samples_of_lists_are_taken_whatever_the_budget() -> None:
    document = wirespeed.run(
        ["blocks_host_to_device"], machine="simulated:hgx-h200-2", devices=(0,), time_budget=1e-6, rounds=1,
        sizes="1MiB", block_counts=(1024,),
    )  # fmt: skip
    assert {c.statistics.n for t in document.testcases[0].tables for c in t.cells if c.statistics} == {3}


def test_fewer_than_three_samples_of_lists_are_not_judged() -> None:
    """On a real machine single samples of healthy lists were 28 % below the others."""
    verdicts = {}
    for samples in (2, 3):
        document = wirespeed.run(
            ["blocks_host_to_device"], machine="simulated:hgx-h200-2+speed@gpu0=0.3", devices=(0,),
            samples=samples, copies=1, sizes="4MiB", block_counts=(256,),
        )  # fmt: skip
        judgements = wirespeed.judge(document).judgements
        rates = [j for j in judgements if not j.key.table.endswith("submission")]
        verdicts[samples] = {j.key.table.split()[-1]: j.verdict for j in rates}
        if samples == 2:
            assert {j.why.partition(":")[0] for j in rates} == {"fewer than 3 samples"}
    assert set(verdicts[2].values()) == {Verdict.NOT_JUDGED}
    assert {method for method, verdict in verdicts[3].items() if verdict is Verdict.FAIL} == {
        "loop", "batch", "kernel", "kernel_bulk",
    }  # fmt: skip


def test_times_of_calls_are_in_all_forms(found: BlockMap) -> None:
    point = found.paths[0].points[0]
    calls = point.calls[Method.KERNEL]
    shaped = json.loads(found.to_json())["paths"][0]["points"][0]
    assert shaped["p50_s"]["kernel"] == calls.p50 and shaped["p99_s"]["kernel"] == calls.p99
    assert shaped["first_s"]["kernel"] == calls.first and shaped["calls"]["kernel"] == calls.n
    (row,) = (
        row
        for row in records(found).rows
        if (row["method"], row["block"], row["blocks"]) == (Method.KERNEL, point.block, point.blocks)
        and row["direction"] == "host_to_device"
    )
    assert (row["p50"], row["p99"], row["n"]) == (calls.p50, calls.p99, calls.n)
    assert "time of a call by the best method in µs, p50/p99" in text(found, Style(verbose=True))
    assert "p50/p99" not in str(found)
    assert "p50/p99 of a call" in wirespeed.render(found.document, "html")
    header = wirespeed.render(found.document, "csv").splitlines()[0].split(",")
    assert {"calls", "p50", "p99", "first"} <= set(header)


def both_ways(computing: bool = False) -> Measurement:
    """The lists of a plan both ways."""
    (case,) = of_directions(MACHINE, ["both_ways"])
    options = PlanOptions(size=64, block_counts=(5,), while_computing=computing)
    plan = case.plan(MACHINE, options)
    return next(m for m in plan.measurements if len(m.transfers) == 2 + computing)


@pytest.mark.parametrize("layout", PoolLayout)
def test_lists_arrive_both_ways_at_once(backend: MemoryBackend, layout: PoolLayout) -> None:
    result = measured(backend, "blocks_both_ways", block_layout=layout, block_counts=(1, 8))
    assert result.status == "passed", result.reason
    assert len(result.tables) == 2 * 2 * 5
    for table in result.tables[::2]:
        assert [cell.bytes for cell in table.cells] == [2 * 64, 2 * 8 * 64, 2 * 3 * KIB, 2 * 8 * 3 * KIB]
        assert all(cell.calls and cell.calls.n == 4 for cell in table.cells)


@pytest.mark.parametrize("testcase", ["blocks_host_to_all", "blocks_all_to_host"])
def test_lists_of_all_gpus_arrive_at_once(backend: MemoryBackend, testcase: str) -> None:
    result = measured(backend, testcase)
    assert result.status == "passed", result.reason
    rates = [table for table in result.tables if "submission" not in table.key]
    path = testcase.removeprefix("blocks_").replace("_to_", "->")
    assert [table.key for table in rates] == [f"{path} {method}" for method in Method]
    for table in rates:
        assert [cell.bytes for cell in table.cells] == [2 * 64, 2 * 7 * 64, 2 * 3 * KIB, 2 * 7 * 3 * KIB]
        assert all(cell.calls and cell.calls.n == 8 for cell in table.cells)  # of both GPUs


def of_all(to: str = "host_to_all") -> Measurement:
    (case,) = of_directions(MACHINE, [to])
    return case.plan(MACHINE, PlanOptions(size=64, block_counts=(5,))).measurements[0]


def test_a_thread_for_each_gpu_makes_its_calls(driver: MemoryDriver, backend: MemoryBackend) -> None:
    threads: dict[int, set[int]] = {}
    move = driver.native._move

    def moved(*arguments: Any) -> None:
        threads.setdefault(arguments[3], set()).add(threading.get_ident())
        time.sleep(0.01)
        move(*arguments)

    driver.native._move = moved  # type: ignore[method-assign]
    with backend.prepare(of_all(), RunOptions()) as prepared:
        sample = prepared.sample(1)
        prepared.verify()
    (one,), (other,) = threads.values()
    assert one != other and threading.get_ident() not in (one, other)
    assert max(sample.seconds) <= sample.wall < sum(sample.seconds)  # at the same time


def test_damage_of_one_of_all_gpus_is_found(driver: MemoryDriver, backend: MemoryBackend) -> None:
    with backend.prepare(of_all(), RunOptions()) as prepared:
        made = itertools.count()

        def damage(address: int, size: int) -> None:
            if next(made) == 9:
                ctypes.c_uint8.from_address(address).value ^= 1

        driver.damage = damage
        prepared.sample(1)
        with pytest.raises(VerificationError, match="numa0->gpu"):
            prepared.verify()


def test_gpus_behind_a_switch_share_its_link() -> None:
    found = wirespeed.blocks(
        "device_to_host", "all_to_host", machine="simulated:pcie-4-switched", sizes="4MiB", blocks="64"
    )
    *alone, together = found.paths
    (point,), rates = together.points, [path.points[0].rates[Method.BATCH] for path in alone]
    assert (together.direction, together.path, len(rates)) == ("all_to_host", "all->host", 4)
    assert point.rates[Method.BATCH] == pytest.approx(2 * min(rates), rel=0.05)
    assert point.submissions == pytest.approx(alone[0].points[0].submissions, rel=0.1)  # each by its thread
    assert point.slowdown[Method.BATCH] == 4 * min(rates) / point.rates[Method.BATCH]
    assert point.lists == 4 and point.slowdown[Method.BATCH] > 1.9
    assert "as long as to or from\none GPU" in str(found)
    assert wirespeed.judge(found.document).verdict is Verdict.PASS


def test_the_model_of_several_lists_counts_the_bytes_of_all() -> None:
    found = wirespeed.blocks("host_to_device", "both_ways", "host_to_all", machine="simulated:hgx-b200-8",
                             sizes="4KiB,256KiB,4MiB", blocks="64,1024")  # fmt: skip
    by = {path.direction: {m.method: m for m in path.models} for path in found.paths}
    alone, both, every = (by[way][Method.KERNEL] for way in ("host_to_device", "both_ways", "host_to_all"))
    assert every.call_s == pytest.approx(alone.call_s, rel=0.1)
    assert every.rate == pytest.approx(8 * alone.rate, rel=0.1)
    assert 1.4 * alone.rate < both.rate <= 2 * alone.rate


def test_gpus_that_differ_are_named() -> None:
    slow = wirespeed.blocks(
        "host_to_device", machine="simulated:hgx-h200-2+speed@gpu1=0.5", sizes="4KiB,4MiB", blocks="64"
    )
    (sentence,) = slow.sentences()
    lead = "1 path like numa0->gpu0, measured at 2 points: best rates differ by at most "
    assert re.fullmatch(rf"{re.escape(lead)}9\d% \(lowest numa0->gpu1\)", sentence)
    first, second = slow.paths
    assert (first.like, second.like) == ("", "numa0->gpu0") and slow.drawn == (first,)
    other = dict(first.points[0].rates) | {Method.BATCH: first.points[0].rates[Method.BATCH] / 3}
    apart = replace(slow, paths=(first, replace(second, points=(
        replace(first.points[0], rates=other), *first.points[1:],
    ))))  # fmt: skip
    assert "; those of batch by a factor of up to 3.0 (lowest numa0->gpu1)" in next(apart.sentences())
    alike = wirespeed.blocks("host_to_device", machine="simulated:hgx-h200-2", sizes="4KiB,4MiB", blocks="64")
    (sentence,) = alike.sentences()
    assert re.fullmatch(rf"{re.escape(lead)}[12]%", sentence)
    assert json.loads(alike.to_json())["sentences"] == [sentence]
    assert sentence.replace(">", "&gt;") in wirespeed.render(alike.document, "html")
    assert not list(wirespeed.blocks("host_to_device", machine="simulated:hgx-h200-2", devices=(0,),
                                     sizes="4KiB", blocks="64").sentences())  # fmt: skip


#: Time of `wirespeed blocks` on two H100s before the others had few points, in s, and its estimate.
REAL_S, ESTIMATED_S = 121, 107


@pytest.mark.parametrize(
    ("name", "copies"), [("hgx-h200-2", 1), ("pcie-4-switched", 1), ("dgx-a100-8", 1), ("dgx-a100-8", 2)]
)
def test_a_map_takes_at_most_45_s_for_any_number_of_gpus(name: str, copies: int) -> None:
    machine = describe(f"simulated:{name}")
    gpus = [replace(gpu, index=gpu.index + 8 * i) for i in range(copies) for gpu in machine.gpus]
    machine = replace(machine, gpus=tuple(gpus))
    last = run_plan(of_directions(machine), machine, RunOptions(tier="quick"))[-1]
    assert (last.begins + last.seconds + end_seconds(machine)) * REAL_S / ESTIMATED_S < 45


def test_one_gpu_of_each_model_has_the_map_and_the_others_a_few_points() -> None:
    document = wirespeed.run(["blocks_host_to_device"], machine="simulated:dgx-a100-8", tier="quick")
    found = map_of(document)
    (drawn,) = found.drawn
    assert drawn.path == "numa0->gpu0" and len(drawn.points) > 45 and drawn.rule is not None
    assert {(len(path.points), path.like, path.rule) for path in found.paths[1:]} == {(3, drawn.path, None)}
    judged = Judged(document)
    passed = {j.key.table.split()[0] for j in judged.check.judgements if j.verdict is Verdict.PASS}
    assert passed == {path.path for path in found.paths}  # the largest lists of each GPU
    assert judged.overview.sentence == "the largest lists move as fast as expected"
    chosen = wirespeed.run(["blocks_host_to_device"], machine="simulated:dgx-a100-8", tier="quick",
                           sizes="4KiB,1MiB", block_counts=(16, 512))  # fmt: skip
    assert {len(path.points) for path in map_of(chosen).paths} == {4}


def test_the_screen_of_eight_gpus_has_at_most_50_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["blocks", "--machine", "simulated:dgx-a100-8", "--no-save"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") <= 50 and "7 paths like numa0->gpu0" in out and "vLLM rule" not in out
    assert out.count("SIMULATED") == 1 and "smaller lists have no expected rate" in out
    found = wirespeed.blocks("host_to_device", machine="simulated:dgx-a100-8")
    narrow = text(found, Style(width=60))
    assert max(map(len, narrow.splitlines())) <= 60 and "\n   4 MiB B" in narrow
    assert "vLLM rule for this machine: kernel if block <" in text(found, Style(verbose=True))


def test_all_gpus_need_two() -> None:
    with pytest.raises(
        UsageError, match="requires at least two GPUs, and this machine has one; choose host_to_device"
    ):
        of_directions(replace(MACHINE, gpus=MACHINE.gpus[:1]), ["host_to_all"])
    (case,) = [case for case in blocks.TESTCASES if case.name == "blocks_host_to_all"]
    plan = case.plan(replace(MACHINE, gpus=MACHINE.gpus[:1]), PlanOptions())
    assert plan.reason == "requires at least two GPUs"


def test_calls_that_do_not_return_time_out(driver: MemoryDriver, backend: MemoryBackend) -> None:
    returns = threading.Event()
    driver.native._move = lambda *_: returns.wait(20)  # type: ignore
    with backend.prepare(of_all(), RunOptions(timeout=0.3)) as prepared:
        with pytest.raises(MeasurementTimeout, match=r"timed out after 0.3 s while running numa0->gpu0"):
            prepared.sample(1)
        returns.set()


def test_a_computation_next_to_no_list_of_one_gpu_is_refused() -> None:
    for direction in ("host_to_all", "host"):
        with pytest.raises(UsageError, match="only lists of one GPU move while it computes"):
            of_directions(MACHINE, [direction], computing=True)
    assert len(of_directions(MACHINE, ["host_to_all", "host_to_device"], computing=True)) == 2


def test_no_computation_runs_next_to_lists_of_all_gpus() -> None:
    (case,) = of_directions(MACHINE, ["host_to_all"])
    plan = case.plan(MACHINE, PlanOptions(size=64, block_counts=(5,), while_computing=True))
    assert {len(m.transfers) for m in plan.measurements} == {2}


def test_calls_of_both_ways_alternate(driver: MemoryDriver, backend: MemoryBackend) -> None:
    streams: list[int] = []
    move = driver.native._move
    driver.native._move = lambda *arguments: (streams.append(arguments[3]), move(*arguments))[1]  # type: ignore
    with backend.prepare(both_ways(), RunOptions()) as prepared:
        prepared.sample(1)
        prepared.verify()
    first, second = streams[:2]
    assert first != second and streams == [first, second] * 5


def test_damage_on_the_way_back_is_found(driver: MemoryDriver, backend: MemoryBackend) -> None:
    made: list[int] = []

    def damage(address: int, size: int) -> None:
        made.append(address)
        if len(made) == 10:
            ctypes.c_uint8.from_address(address).value ^= 1

    with backend.prepare(both_ways(), RunOptions()) as prepared:
        driver.damage = damage
        prepared.sample(1)
        with pytest.raises(VerificationError, match="gpu0->numa0"):
            prepared.verify()


def computing(driver: MemoryDriver, backend: MemoryBackend, lasts: Iterator[float]) -> Sample:
    """A sample of lists next to a computation whose launches last, in turn, so long."""
    driver.elapsed = lambda start, stop: next(lasts)  # type: ignore[method-assign]
    with backend.prepare(both_ways(computing=True), RunOptions()) as prepared:
        sample = prepared.sample(1)
        prepared.verify()
    return sample


def test_what_is_computed_next_to_lists_is_counted(driver: MemoryDriver, backend: MemoryBackend) -> None:
    """Launches of 1 s: one that lasted 2 s longer than the lists ran 2 launches without them."""
    launches: list[int] = []
    triad = fake._KERNELS["triad"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(fake._KERNELS, "triad", lambda *a: (launches.append(1), triad(*a))[1])
        sample = computing(driver, backend, iter([8.0, 8.0, sample_end := 2.5]))
    size = both_ways(computing=True).transfers[2].bytes
    beside = len(launches) - 16
    assert len(sample.seconds) == 3 and set(sample.seconds) == {sample.wall} and sample.wall < 1
    assert sample.amounts[2] / size == pytest.approx(beside - (sample_end - sample.wall))


def test_a_computation_that_ends_before_the_lists_is_repeated_and_then_given_up(
    driver: MemoryDriver, backend: MemoryBackend
) -> None:
    lasts = [8.0, 8.0, 1e-9, 2.0]
    assert computing(driver, backend, iter(lasts)).amounts[2] > 0
    with pytest.raises(Unreachable, match="longer than the computations that a queue"):
        computing(driver, backend, itertools.repeat(1e-9))


def test_a_run_while_the_gpu_computes(driver: MemoryDriver, backend: MemoryBackend) -> None:
    driver.elapsed = lambda start, stop: 1e-3 + max(0.0, stop.times[0] - start.times[0])  # type: ignore
    result = measured(backend, "blocks_host_to_device", sizes=(64,), block_counts=(4,), while_computing=True)
    assert result.status == "passed", result.reason
    keys = {table.key for table in result.tables}
    assert {"computation", "numa0->gpu0 kernel", "numa0->gpu0 kernel computing computation"} < keys


@pytest.mark.parametrize("changes", [{"source": HOST}, {"engine": Engine.CE}])
def test_other_loads_next_to_lists_are_refused(backend: MemoryBackend, changes: dict[str, Any]) -> None:
    plan = both_ways(computing=True)
    works = (*plan.transfers[:2], replace(plan.transfers[2], **changes))
    assert backend.refuses(plan) is None
    assert backend.refuses(Measurement(works, ()))


def test_a_simulated_gpu_computes_more_slowly_while_kernels_move_blocks() -> None:
    found = wirespeed.blocks(
        "host_to_device", "device_to_host", "both_ways", machine="simulated:hgx-h200-2", devices=(0,),
        sizes="16KiB", blocks="16,4096", while_computing=True,
    )  # fmt: skip
    by = {(path.direction, path.while_computing): path for path in found.paths}
    assert len(by) == 6
    (_, many) = by["host_to_device", True].points
    assert many.computation_slowdown[Method.KERNEL] > 1.05 > many.computation_slowdown[Method.LOOP]
    assert many.slowdown[Method.LOOP] == pytest.approx(1, abs=0.01)
    assert many.slowdown[Method.KERNEL] > 1.02
    assert by["host_to_device", False].points[0].slowdown == {}
    (few, many) = by["both_ways", False].points
    assert few.slowdown[Method.LOOP] == pytest.approx(2, rel=0.1)  # one thread submits the blocks of both
    assert 1 < many.slowdown[Method.KERNEL] < 1.4
    assert found.best(16 * KIB, 16) is Method.KERNEL
    assert found.best(16 * KIB, 16, while_computing=True) is Method.LOOP
    shape = json.loads(found.to_json())
    path = next(p for p in shape["paths"] if p["direction"] == "host_to_device" and p["while_computing"])
    assert path["layout"] == "random" and path["points"][0]["computation_slowdown"]["kernel"] > 1
    assert "the computation takes" in str(found) and "while the GPU computes" in str(found)
    assert wirespeed.judge(found.document).verdict is Verdict.PASS


def test_strided_lists_are_other_values() -> None:
    found = wirespeed.blocks("host", machine="simulated:cpu-2-sockets", sizes="4KiB", blocks="64",
                             block_layout="strided")  # fmt: skip
    assert {path.layout for path in found.paths} == {PoolLayout.STRIDED}
    assert found.document.testcases[0].tables[0].key == "numa0->numa0 loop strided"
    assert "host → host (numa0->numa0), strided" in str(found)
    wirespeed.judge(found.document)


@pytest.mark.parametrize(("blocks", "parts"), [(1, 1), (7, 1), (16, 4), (4096, 64), (3 * 2**10, 32)])
def test_a_strided_list_turns_layers_into_pages(blocks: int, parts: int) -> None:
    places = offsets(BlockList(Method.KERNEL, 64, blocks, PoolLayout.STRIDED), 0) // 64
    pages = blocks // parts
    assert places[:, 0].tolist() == list(range(blocks))
    assert sorted(places[:, 1].tolist()) == list(range(blocks))
    assert places[: min(2, pages), 1].tolist() == [0, parts][: min(2, pages)]


@pytest.mark.parametrize("key", ["gpu0->numa0 kernel", "a<->b loop strided computing submission"])
def test_keys_of_tables(key: str) -> None:
    table = of_lists("blocks_host", key)
    assert table is not None and table.key == key
    for wrong in ("", "computation", f"{key} computing strided", f"{key} rate", key.replace(" ", "  ")):
        assert of_lists("blocks_host", wrong) is None
    assert of_lists("storage_read", key) is None


@pytest.mark.parametrize(("fault", "cause"), [
    ("hgx-h200-2+pcie-width@gpu1", "pcie-width"), ("l40s-8+wrong-numa@gpu1", "wrong-numa"),
    ("hgx-h200-2+huge-pages=0.5", "huge-pages"),
])  # fmt: skip
def test_causes_of_slow_lists(fault: str, cause: str) -> None:
    document = wirespeed.run(
        ["blocks_host_to_device", "blocks_device_to_host"], machine=f"simulated:{fault}", tier="quick",
        sizes="4MiB", block_counts=(256,),
    )  # fmt: skip
    found = [finding.cause.name for finding in wirespeed.diagnose(document).findings]
    assert found[:1] == [cause]


def test_a_gpu_below_its_peers_is_a_warning() -> None:
    """Within the range of its link, but slower than the same lists on seven other GPUs."""
    document = wirespeed.run(
        ["blocks_host_to_device"], machine="simulated:l40s-8+speed@gpu3=0.93", tier="quick", sizes="4MiB",
        block_counts=(256,),
    )  # fmt: skip
    check = wirespeed.judge(document)
    assert {j.key.table.split()[0] for j in check.judgements if j.verdict.is_worse} == {"numa0->gpu3"}
    assert {str(culprit) for culprit in check.culprits} == {"PCIe link numa0->gpu3"}


def test_names_in_the_json_of_a_server_do_not_change(found: BlockMap) -> None:
    """Those that docs/blocks.md lists: a server that has loaded schema 1 finds them in later releases."""
    shape = json.loads(found.to_json())
    assert shape["schema"] == 1
    assert {"schema", "simulated", "host", "started", "testcases", "paths", "storage"} <= shape.keys()
    path = shape["paths"][0]
    assert path.keys() >= {
        "direction", "path", "layout", "while_computing", "points", "crossings", "models", "rule",
        "sentences",
    }  # fmt: skip
    assert path["points"][0].keys() >= {
        "direction", "path", "block", "blocks", "best", "rates", "submission_s", "limit", "p50_s",
        "p99_s", "first_s", "calls", "slowdown", "computation_slowdown",
    }  # fmt: skip
    assert path["crossings"][0].keys() >= {"block", "blocks", "before", "after"}
    assert path["models"][0].keys() >= {"method", "call_s", "block_s", "rate", "error", "nearly_full"}
    assert path["rule"].keys() >= {"kernel", "block_below", "blocks_from", "loss", "usual_loss"}
    page = Path(__file__).parents[3].joinpath("docs", "blocks.md").read_text()
    for part in (path, path["points"][0], path["crossings"][0], path["models"][0], path["rule"]):
        assert [name for name in part if f"`{name}`" not in page and f"`{name}[]`" not in page] == []


@pytest.mark.parametrize(("kept", "best"), [(97.1, Method.LOOP), (96.9, Method.BATCH)])
def test_the_method_of_fewer_blocks_stays_if_it_is_equally_good(kept: float, best: Method) -> None:
    """Within 3% of the fastest one."""
    rates = {Method.BATCH: 100.0, Method.LOOP: kept}
    assert best_of(rates, Method.LOOP) is best
    assert best_of(rates, None) is Method.BATCH


@pytest.mark.parametrize(("bulk", "kernel"), [(102.9, Method.KERNEL), (103.2, Method.KERNEL_BULK)])
def test_the_rule_takes_the_kernel_that_every_gpu_has_if_it_is_equally_good(
    bulk: float, kernel: Method
) -> None:
    rates = {Method.BATCH: 50.0, Method.KERNEL: 100.0, Method.KERNEL_BULK: bulk}
    rule = rule_of([Point(64, count, Method.KERNEL, rates, None) for count in (1, 16)])
    assert rule is not None and rule.kernel is kernel


@pytest.mark.parametrize("direction", ["host_to_all", "all_to_host"])
def test_the_lists_of_all_gpus_fit_into_host_memory_together(direction: str) -> None:
    """Those of two GPUs in an eighth of 16 MiB: 1 MiB each."""
    machine = replace(MACHINE, numa=(replace(MACHINE.numa[0], memory_bytes=2**24),))
    (case,) = of_directions(machine, [direction])
    plan = case.plan(machine, PlanOptions(size=64, block_counts=(2**14, 2**14 + 1)))
    assert {place.column for m in plan.measurements for place in m.places} == {0}
    assert {cell.column for cell in plan.waived} == {1}
    assert "a list holds at most 1 MiB" in plan.waived[0].reason


@pytest.mark.parametrize(("memory", "size"), [(6 * 2**30, 2**28), (6 * 2**30 - 8 * 3 * 64, 2**28 - 64)])
def test_the_arrays_of_a_computation_fit_into_the_memory_of_their_gpu(memory: int, size: int) -> None:
    """Three in an eighth of it."""
    machine = replace(MACHINE, gpus=(replace(MACHINE.gpus[0], memory_bytes=memory, peers=()),))
    (case,) = of_directions(machine, ["host_to_device"], computing=True)
    plan = case.plan(machine, PlanOptions(size=64, block_counts=(1,), while_computing=True))
    works = [t for m in plan.measurements for t in m.transfers if t.scattered is None]
    assert {work.bytes for work in works} == {size}
