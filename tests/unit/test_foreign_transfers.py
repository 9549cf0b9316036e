"""Files of TransferBench and nvloom: what they mean here, and what is refused."""

from __future__ import annotations

import pytest

from wirespeed.backends import describe
from wirespeed.errors import UsageError
from wirespeed.language.other_tools import of_nvloom, of_transferbench
from wirespeed.language.syntax import line_of
from wirespeed.language.toml_file import Program

EIGHT = describe("simulated:dgx-a100-8")
HEADER = "id, kind, source, destination, iterations, memory, memory, direction, engine, size, comment\n"


def lines(program: Program) -> list[str]:
    """Return the transfers of each testcase as a line."""
    plans = [case.plan(EIGHT) for case in program.testcases]
    return [line_of(plan.measurements[0].transfers, EIGHT) for plan in plans]


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ("1 4 (G0->G0->G1)", "gpu0 -> gpu1 sm 512MiB blocks=4"),
        ("1 4 G0 G1 G1", "gpu1 <- gpu0 sm 512MiB blocks=4"),
        ("1 4 (C1->G2->G0)", "numa1 -> gpu0 by gpu2 sm 512MiB blocks=4"),
        ("1 1 (G0->D0->G1)", "gpu0 -> gpu1 512MiB"),
        ("1 2 (G0->T0->G1)", "gpu0 -> gpu1 sm_bulk 512MiB blocks=2"),
        (
            "-2 (G0 G0 G1 4 1M) (G1 G1 G0 8 0)",
            "gpu0 -> gpu1 sm 1MiB blocks=4; gpu1 -> gpu0 sm 512MiB blocks=8",
        ),
        ("1 1 (P7->D7->G7)", "numa1 -> gpu7 512MiB"),
        ("1 8 (G0->G0->G1G2C0)", "gpu0 -> gpu1, gpu2, numa0 broadcast 512MiB blocks=8"),
        ("1 8 (G0->G1->G1G2)", "gpu0 -> gpu1, gpu2 by gpu1 broadcast 512MiB blocks=8"),
        ("1 1 (H0->D0->G0)", "pageable(numa0) -> gpu0 512MiB"),
        ("1 32 (N0->G0->G0)", "void -> gpu0 512MiB blocks=32"),
        ("-1 (C0->C0->N 4 1M)", "numa0 -> void 1MiB threads=4"),
        ("1 1 (G[0..1]->D3->G3)", "gpu3 <- gpu0 512MiB; gpu3 <- gpu1 512MiB"),
        ("1 1 (G0->D[0,1]->G1)", "gpu0 -> gpu1 512MiB; gpu1 <- gpu0 512MiB"),
    ],
)
def test_transferbench(config: str, line: str) -> None:
    assert lines(of_transferbench(f"## comment\n\n{config}\n")) == [line]


def test_all_devices_of_a_wildcard() -> None:
    (line,) = lines(of_transferbench("1 1 (G*->D0->G0)"))
    assert line.count(";") == 7 and line.startswith("gpu0 -> gpu0 512MiB; gpu0 <- gpu1")


@pytest.mark.parametrize(
    ("config", "column", "message"),
    [
        ("2 4 (G0->G0->G1)", 1, "the line ends where a source is expected"),
        ("1 4 (G0->G0->G1) (G1->G1->G0)", 19, "more than 1 transfers"),
        ("0 4 (G0->G0->G1)", 1, "the number of transfers"),
        ("1 0 (G0->G0->G1)", 3, "measure an axis, such as blocks"),
        ("1 4 (G0G1->G0->G1)", 6, "a sum of several sources has no equivalent"),
        ("1 4 (G0->D0->G1G2)", 14, "several destinations need the executor G"),
        ("1 4 (G[0,1]->G0->G1G2)", 6, "no wildcards"),
        ("1 4 (G0->G0->G1N0)", 14, "and are memories"),
        ("1 4 (G0->G0->G1G2x)", 14, "no equivalent"),
        ("1 4 (R0G0->G0->G1)", 6, "ranks have no equivalent"),
        ("1 4 (G0->I0.1->G1)", 10, "a NIC"),
        ("1 4 (G0->B0->G1)", 10, "batched DMA"),
        ("1 4 (G0->L0->G1)", 10, "asynchronous loads"),  # ROCm/TransferBench, pull request 322
        ("1 4 (G0->D0.1->G1)", 10, "a chosen engine"),
        ("1 4 (M0->G0->G1)", 6, "managed memory"),
        ("1 4 (G*->G*->G0)", 10, "several wildcards"),
        ("1 4 (N0->D0->G0)", 10, "only copies"),
        ("1 4 (G0->C0->G1)", 6, "CPUs cannot access the memory of a GPU"),
        ("-1 (G0->G0->G1 4 3)", 18, "multiple of 4"),
        ("1 4 (X0->G0->G1)", 6, "there is no memory 'X'"),
        ("1 4 (G0->?->G1)", 10, "is not a letter and a number"),
        ("x", 1, "is not a whole number"),
    ],
)
def test_what_transferbench_has_and_wirespeed_has_not(config: str, column: int, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        of_transferbench(f"# a\n{config}", "f.cfg")
    assert str(caught.value).startswith(f"f.cfg, line 2, column {column}: ")
    assert message in str(caught.value)


def test_nvloom() -> None:
    rows = """1, bandwidth, 0, 1, default, device, device, write, ce, 256m, a
1, bandwidth, 1, 0, default, device, device, read, sm, 4096, b
1, bandwidth, 0, 1, default, device, device, read, TMA, 1t, d
0, Latency, 1, 0, default, device, ignored, ignored, ignored, ignored, c, 0.5
"""
    latency, copies = lines(of_nvloom(HEADER + rows))
    assert latency == "latency gpu0 <- gpu1 2MiB"
    assert copies == "gpu0 -> gpu1 256MiB; gpu0 <- gpu1 sm 4KiB; gpu1 <- gpu0 sm_bulk 1TiB"
    (case,) = of_nvloom(HEADER + "0,bandwidth,0,1,7,device,device,write,ce,default,", device="rank").testcases
    assert "rank0 -> rank1 ce copies=7" in case.description


@pytest.mark.parametrize(
    ("row", "column", "message"),
    [
        (
            "0, bandwidth, 0, 1, default, device, device, write, ce",
            53,
            "the row ends before the column 'size'",
        ),
        (
            "0, bandwidth, 0, 1, default, device, multicast, write, sm, default, x",
            38,
            "'multicast' has no equivalent",
        ),
        ("0, bandwidth, 0, 1, default, egm, device, write, sm, default, x", 30, "'egm' has no equivalent"),
        (
            "0, bandwidth, 0, 1, default, device, device, write, multicast, default, x",
            53,
            "ce, sm and tma have",
        ),
        ("0, bandwidth, 0, 1, default, device, device, write, cft, default, x", 53, "the engine 'cft'"),
        ("0, bandwidth, 0, 1, default, device, device, up, ce, default, x", 46, "neither write nor read"),
        (
            "0, speed, 0, 1, default, device, device, write, ce, default, x",
            4,
            "neither bandwidth nor latency",
        ),
        ("0, bandwidth, x, 1, default, device, device, write, ce, default, x", 15, "is not a whole number"),
        ("0, bandwidth, 0, 1, default, device, device, write, ce, 5x, x", 57, "'5x' is not a size"),
        ("0, bandwidth, 0, 1, default, device, device, write, ce, ignored, x", 57, "is not a size"),
    ],
)
def test_what_nvloom_has_and_wirespeed_has_not(row: str, column: int, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        of_nvloom(HEADER + row, "f.csv")
    assert str(caught.value).startswith(f"f.csv, line 2, column {column}: ")
    assert message in str(caught.value)


def test_empty_files_have_no_transfer() -> None:
    for loads in (of_transferbench, of_nvloom):
        with pytest.raises(UsageError, match="there is no transfer"):
            loads("# nothing\n")
