"""The overview of a run: verdict, sentence, key figures."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from dataclasses import replace

import msgspec
import pytest
from msgspec.structs import replace as changed

import wirespeed
from wirespeed.backends import connect as backends
from wirespeed.document import Document, Status
from wirespeed.hardware.topology import LinkKind
from wirespeed.judging.criteria import Criteria
from wirespeed.judging.judge import judge
from wirespeed.judging.judged import Judged
from wirespeed.judging.overview import Overview, overview, unknown_memory
from wirespeed.judging.path_kinds import COLLECTIVES, HOST_MEMORY, OTHER, path_kind
from wirespeed.judging.verdict import Verdict
from wirespeed.reports import Style
from wirespeed.screens.check import render
from wirespeed.tables import Cell
from wirespeed.testcases.table import TABLE


def found(machine: str, *testcases: str) -> Overview:
    document = wirespeed.run(testcases, machine=f"simulated:{machine}", tier="quick")
    return overview(document, wirespeed.judge(document))


@pytest.mark.parametrize(
    ("machine", "word", "sentence", "bad"),
    [
        ("dgx-a100-8", "PASS", "everything measured is as fast as expected", set()),
        ("dgx-a100-8+nvlinks=6@gpu3", "FAIL", "NVLinks are down (gpu3)", {"GPU ↔ GPU", "all-reduce"}),
        ("dgx-a100-8+speed@gpu3-pcie1=0.5", "FAIL", "PCIe link gpu3-pcie1 runs at", {"host ↔ GPU"}),
        ("hgx-h200-2+speed@gpu0-gpu1=3", "FAIL", "values above the limits", {"GPU ↔ GPU", "all-reduce"}),
        ("dgx-a100-8+corrupt@gpu3->gpu5", "FAIL", "gpu3->gpu5 delivers wrong data", set()),
        ("hgx-h200-2+busy@gpu1", "BUSY", "gpu1 is in use by", set()),
    ],
)
def test_the_first_lines_say_what_is_wrong_and_where(
    machine: str, word: str, sentence: str, bad: set[str]
) -> None:
    one = found(machine)
    assert one.verdict.heading == word and sentence in one.sentence
    assert {figure.title for figure in one.figures if figure.worst} == bad
    for figure in one.figures:
        assert (figure.bad > 0) is (figure.worst is not None)
        assert figure.typical.value and figure.typical.limit


def test_without_a_range_nothing_is_judged() -> None:
    document = wirespeed.run(["host_device_latency_sm"], machine="simulated:hgx-h200-2")
    document = msgspec.structs.replace(document, machine=replace(document.machine, links=()))
    one = overview(document, wirespeed.judge(document))
    assert (one.verdict.heading, one.figures, one.finding) == ("NOT JUDGED", (), None)


#: A testcase for each kind of link.
PATHS = [
    "host_to_device_memcpy_ce", "device_to_host_memcpy_ce", "device_to_device_memcpy_read_ce",
    "device_to_device_memcpy_write_ce", "device_stream_copy", "host_stream_copy", "all_nodes_local_copy_cpu",
]  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "step"),
    [
        ("+speed@gpu3-pcie1=0.5", ("check slot and riser", "sudo lspci")),
        ("+down@gpu3-nvswitch", ("reset the GPU; if it stays slow", "nvidia-smi nvlink -s -i 0000:04:00.0")),
        ("+speed@gpu5-gpu5=0.5", ("check memory clock", "nvidia-smi -q -i 0000:06:00.0 -d CLOCK,ECC")),
        ("+speed@numa1-numa1=0.3", ("check memory modules", "sudo dmidecode -t memory")),
        ("+corrupt@gpu3->gpu5", ("do not use this path",)),
        ("+speed@gpu5-gpu5=3", ("compare the capacities", "wirespeed machine")),
        ("+busy@gpu1", ("wait for idle devices", "wirespeed check --wait-idle 5min")),
        ("+nvlinks=6@gpu3", ("reset the GPU",)),
        ("", ()),
    ],
)
def test_the_first_screen_says_what_to_do(fault: str, step: tuple[str, ...]) -> None:
    document = wirespeed.run(PATHS, machine=f"simulated:dgx-a100-8{fault}", samples=1, copies=1)
    check = wirespeed.judge(document)
    advice = overview(document, check).advice
    found = [text for text in (advice.do, advice.command) if text]
    assert len(found) == len(step)
    assert all(text.startswith(start) for text, start in zip(found, step, strict=True))


def test_the_capacity_of_host_memory_can_be_given() -> None:
    machine = wirespeed.machine("simulated:cpu-2-sockets")
    unknown = replace(machine, links=tuple(
        replace(link, capacity=None) if link.kind is LinkKind.MEMORY else link for link in machine.links
    ))  # fmt: skip
    for given, says in ((None, True), ("8x4800", False)):
        # The backend measures what the machine has; only the description lacks the capacity.
        document = wirespeed.run(
            ["host_stream_triad"], machine=unknown, host_memory=given, backends=backends(machine), samples=3
        )
        check = wirespeed.judge(document)
        text = render(Judged(document), Style())
        assert ("--host-memory 8x4800" in text) is says is bool(unknown_memory(document, check))
        assert ("no limit known" in text) is says and ("NOT JUDGED" in text) is says
    assert machine.with_host_memory(1e9) == machine  # known capacities remain
    assert not unknown_memory(document, check) and "host_memory" not in document.options


def test_every_testcase_is_on_a_path() -> None:
    kinds = {path_kind(case.name) for case in TABLE if case.engine != "nccl"}
    assert OTHER not in kinds and path_kind("all_reduce", collective=True) == COLLECTIVES


@pytest.mark.parametrize("language", ["C", "C.UTF-8"])
def test_a_terminal_without_unicode_gets_ascii(language: str) -> None:
    command = [sys.executable, "-m", "wirespeed", "check", "--no-save"]
    command += ["--allow-simulated", "-t", "host_stream_triad"]
    ours, theirs = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k not in ("LC_ALL", "LC_CTYPE")} | {
        "LANG": language,
        "NO_COLOR": "1",
    }
    subprocess.run(
        [*command, "--machine", "simulated:cpu-2-sockets"], stdout=theirs, env=environment, timeout=60
    )
    text = os.read(ours, 2**16).decode()
    os.close(ours)
    os.close(theirs)
    assert "PASS" in text and ("━" in text) is (language != "C") and ("====" in text) is (language == "C")
    assert language != "C" or text.isascii()


def test_nothing_is_replaced_while_a_setting_can_explain_wrong_data() -> None:
    """Over PCIe, an IOMMU or ACS can make data between GPUs wrong, unless readings rule them out."""
    read = "device_to_device_memcpy_read_ce"
    for machine, kept, settings in (
        ("l40s-8+corrupt@gpu0->gpu1", (), "iommu or acs"),
        ("l40s-8+corrupt@gpu0->gpu1+iommu=0.4", ("IOMMU",), "iommu"),
        ("l40s-8+corrupt@gpu0->gpu1", None, ""),  # all readings, which rule them out
        ("dgx-a100-8+corrupt@gpu0->gpu1", (), ""),  # over NVLink
    ):
        document = wirespeed.run([read], machine=f"simulated:{machine}", tier="quick")
        if kept is not None:
            facts = tuple(fact for fact in document.facts if fact.name in kept)
            document = msgspec.structs.replace(document, facts=facts)
        advice = overview(document, wirespeed.judge(document)).advice
        assert ("replace" in advice.do) is not bool(settings), advice
        assert not settings or f"rule out {settings}, then verify again" in advice.do
        assert ("iommu_groups" in advice.command) is bool(settings)


def in_little_memory() -> Document:
    """A run in a container whose memory is smaller than the last cache, while other processes use the CPUs.

    Only the small sizes of the ladders have values.
    """
    document = wirespeed.run(
        ["host_stream_triad", "host_bandwidth_ladder"], machine="simulated:cpu-2-sockets", tier="quick"
    )
    reason = "not enough memory on numa0: requested a buffer of 520 MiB, 499.5 MiB is available"
    cache = document.machine.last_cache_bytes()

    def short(cell: Cell) -> Cell:
        return cell if 0 < cell.bytes < cache else Cell(cell.row, cell.column, reason=reason)

    testcases = []
    for result in document.testcases:
        tables = tuple(changed(table, cells=tuple(map(short, table.cells))) for table in result.tables)
        busy = {"numa0": "in use by other processes (1.7 of 2 CPUs)"}
        testcases.append(changed(result, tables=tables, busy=busy, status=Status.NO_MEMORY, reason=reason))
    return changed(document, testcases=tuple(testcases))


@pytest.mark.parametrize("ignore_busy", [False, True])
def test_little_memory_is_no_busy_machine_and_a_cache_no_host_memory(ignore_busy: bool) -> None:
    document = in_little_memory()
    check = judge(document, Criteria(ignore_busy=ignore_busy))
    seen = overview(document, check)
    assert seen.sentence.startswith("not enough memory on numa0") and "memory is in use" not in seen.sentence
    assert HOST_MEMORY not in {figure.kind for figure in seen.figures}
    of_triad = {j.verdict for j in check.judgements if j.key.testcase == "host_stream_triad"}
    assert of_triad == {Verdict.NOT_JUDGED}
    if ignore_busy:
        assert (seen.verdict.heading, seen.verdict.is_judged) == ("NOT JUDGED", False)


@pytest.mark.parametrize(
    ("testcase", "known", "said"),
    [
        ("host_stream_triad", True, "the testcase measured is as fast as expected (host memory only)"),
        ("host_stream_triad", False, "within what the links allow; no reference for this model (host memory"),
        ("host_latency", True, "within what the links allow; no reference for this model (host memory"),
    ],
)
def test_as_fast_as_expected_is_said_only_of_what_is_known(testcase: str, known: bool, said: str) -> None:
    """What is typical of memory of an unknown capacity is a guess, and may be a tenth of what it can do."""
    run = wirespeed.run([testcase], machine="simulated:cpu-2-sockets")
    (result,) = run.testcases
    tables = tuple(
        changed(table, cells=tuple(cell if known else changed(cell, limit=None) for cell in table.cells))
        for table in result.tables
    )
    real = changed(
        run, testcases=(changed(result, tables=tables),), machine=replace(run.machine, simulated=False),
        simulated=False,
    )  # fmt: skip
    assert said in Judged(real).overview.sentence
