"""A size of a curve that is far slower than a neighbouring one is named, whatever its limit is."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import wirespeed
from wirespeed.document import Document
from wirespeed.judging.judge import judge
from wirespeed.judging.overview import overview
from wirespeed.judging.verdict import Verdict

_HEAD = """\
# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 step: 2(factor) validation: 1
#  Rank  0 Group  0 Pid   5425 on      node1 device  0 [0x81] NVIDIA A100-PCIE-40GB
#  Rank  1 Group  0 Pid   4962 on      node2 device  0 [0x81] NVIDIA A100-PCIE-40GB
#  size   count   type   redop   root   time   algbw   busbw #wrong   time   algbw   busbw #wrong
"""
#: Times in microseconds: github.com/NVIDIA/nccl-tests/issues/293.
_SLOW_UNTIL_1_MIB = {
    32768: 82.71, 65536: 183.1, 131072: 392.0, 262144: 786.1, 524288: 1666.7, 2**20: 3332.3, 2**21: 365.5,
    2**22: 686.3, 2**30: 166733.0,
}  # fmt: skip
#: A network of 10 us and 10 GB/s.
_GOOD = {2**i: 10 + 2**i / 1e4 for i in range(3, 31)}


def _loaded(tmp_path: Path, times: dict[int, float], nics: str | None = None) -> Document:
    lines = []
    for size, time in times.items():
        rate = f"{size / time / 1e3:.2f}"
        lines.append(f"{size} {size // 4} float sum -1 " + f"{time:.2f} {rate} {rate} 0 " * 2 + "\n")
    log = _HEAD + "".join(lines) + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.0\n"
    (tmp_path / "log.txt").write_text(log)
    return wirespeed.load_log(tmp_path / "log.txt", nics=nics)


@pytest.mark.parametrize(
    ("times", "dip"),
    [
        (_SLOW_UNTIL_1_MIB, "1 MiB takes 9.1 times as long as 2 MiB"),
        (_GOOD | {2**20: 2000}, "1 MiB takes 9.1 times as long as 2 MiB"),
        (_GOOD | {2**i: 10 * _GOOD[2**i] for i in range(20, 31)}, "1 MiB takes 18 times as long as 512 KiB"),
        (_GOOD, ""),
        (_GOOD | {8: 900.0}, ""),  # the first size warms up
        (
            {size: 2 * time if size < 2**20 else time for size, time in _GOOD.items()},
            "",
        ),  # a protocol's switch
        ({4**i: _GOOD[4**i] for i in range(3, 15)}, ""),
    ],
)
def test_dips(times: dict[int, float], dip: str, tmp_path: Path) -> None:
    for nics in (None, "1x200G"):
        document = _loaded(tmp_path, times, nics)
        check = judge(document)
        warned = [j.key.column for j in check.judgements if j.verdict is Verdict.WARN]
        if not dip:
            assert not check.dips and not warned
            continue
        assert {j.verdict for j in check.judgements if j.key.column == "1 MiB"} == {Verdict.WARN}
        assert [one.key.column for one in check.dips] == ["1 MiB"] * 2 and check.verdict is Verdict.WARN
        assert dip in overview(document, check).sentence


@pytest.mark.parametrize(("share", "verdict"), [(0.49, Verdict.WARN), (0.51, Verdict.PASS)])
def test_less_than_half_of_what_is_typical_is_a_warning_also_in_a_wide_range(
    share: float, verdict: Verdict, tmp_path: Path
) -> None:
    typical = 0.65 * 25e9
    times = {2**30: 2**30 / typical / 0.40 * 1e6, 2**31: 2**31 / typical / share * 1e6}
    document = _loaded(tmp_path, times, "1x200G")
    check = judge(document)
    warned = {judgement.key.column for judgement in check.judgements if judgement.verdict is Verdict.WARN}
    assert check.verdict is verdict and warned == ({"2 GiB"} if verdict is Verdict.WARN else set())


#: A curve of rates in GB/s from 1 MiB on, with steps of 1 MiB.
def _linear(*rates: float) -> dict[int, float]:
    return {i * 2**20: i * 2**20 / rate / 1e3 for i, rate in enumerate(rates, 1)}


@pytest.mark.parametrize(
    ("times", "dip"),
    [
        (_linear(8, 8, 8, 5.9, 8, 8), ["4 MiB"]), (_linear(8, 8, 8, 6.1, 8, 8), []),
        (_linear(8, 8, 5, 5, 5, 8), ["3 MiB", "4 MiB", "5 MiB"]),
        (_linear(8, 8, 8, 4.1, 4.1, 4.1), []), (_linear(8, 8, 8, 3.9, 3.9, 3.9), ["4 MiB"]),
        ({size // 4: time / 4 for size, time in _linear(8, 5, 8).items()}, ["512 KiB"]),
        ({size // 8: time / 8 for size, time in _linear(8, 5, 8).items()}, []),
    ],
)  # fmt: skip
def test_a_size_slower_than_smaller_and_larger_ones_dips(
    times: dict[int, float], dip: list[str], tmp_path: Path
) -> None:
    assert sorted({one.key.column for one in judge(_loaded(tmp_path, times)).dips}) == dip


@pytest.mark.parametrize(
    ("name", "dip"),
    [
        ("dip-at-1gib", "all_reduce: 1 GiB reaches 69% of the rate of 512 MiB, larger ones more"),
        ("dip-two-p4d", "all_reduce: 64 MiB reaches 59% of the rate of 32 MiB, larger ones more"),
        ("fall-at-64mib", "all_reduce: 64 MiB takes 11 times as long as 32 MiB"),
    ],
)
def test_dips_that_were_posted(name: str, dip: str) -> None:
    """The second: aws-ofi-nccl's issue 65; the third: NCCL's issue 1453."""
    document = wirespeed.load_log(Path(__file__).parents[2] / f"data/logs/{name}.txt")
    assert dip in overview(document, judge(document)).sentence


def test_own_curves_dip_too() -> None:
    names = ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce")
    document = wirespeed.run(names, machine="simulated:hgx-h200-2", sizes="2KiB:256KiB:x2")  # without a range
    assert not judge(document).dips
    result = document.testcases[0]
    table = result.tables[0]
    column = len(table.columns.labels) // 2
    cells = tuple(
        replace(cell, value=(cell.value or 0.0) / 12, samples=tuple(sample / 12 for sample in cell.samples))
        if cell.column == column and cell.row == 0
        else cell
        for cell in table.cells
    )
    slow = replace(result, tables=(replace(table, cells=cells), *result.tables[1:]))
    check = judge(replace(document, testcases=(slow, *document.testcases[1:])))
    assert [dip.key.column for dip in check.dips] == [table.columns.labels[column]]


def test_a_size_of_which_one_sample_is_as_fast_as_its_neighbours_is_disturbed_and_no_dip() -> None:
    """Seen on two H100s: of five samples of 256 KiB, one took twelve times as long as the quickest."""
    names = ["device_to_device_memcpy_write_ce"]
    document = wirespeed.run(names, machine="simulated:hgx-h200-2", sizes="64KiB:4MiB:x4")
    (result,) = document.testcases
    (table,) = result.tables
    for samples, found in (((9.7e9, 20e9, 26.8e9, 55.9e9), 0), ((9.7e9, 9.8e9, 9.9e9), 1)):
        cells = tuple(
            replace(cell, value=samples[-2], samples=samples) if (cell.row, cell.column) == (0, 1) else cell
            for cell in table.cells
        )
        changed = replace(result, tables=(replace(table, cells=cells),))
        assert len(judge(replace(document, testcases=(changed,))).dips) == found


@pytest.mark.parametrize(
    ("at_2_gib", "at_4_gib", "dips"),
    [(390306.0, 1128502.0, 1), (509762.0, 1128502.0, 1), (390306.0, 850000.0, 0)],
)
def test_halves_that_fall_at_neighbouring_sizes(
    at_2_gib: float, at_4_gib: float, dips: int, tmp_path: Path
) -> None:
    """A sendrecv of four H100s of each of two hosts, whose rate falls to 1.1 GB/s at 16 GiB.

    The values from 512 MiB to 4 GiB are of its log; a size at which only one half has fallen is not named.
    """
    curves = [56402.7, 155550.0, 509762.0, 1074251.0], [55970.2, 157011.0, at_2_gib, at_4_gib]
    lines = []
    for i, times in enumerate(zip(*curves, strict=True)):
        size = 2 ** (29 + i)
        halves = " ".join(f"{time:.2f} {size / time / 1e3:.2f} {size / time / 1e3:.2f} 0" for time in times)
        lines.append(f"{size} {size // 8} double sum -1 {halves}\n")
    log = _HEAD + "".join(lines) + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 5.0\n"
    (tmp_path / "log.txt").write_text(log)
    found = judge(wirespeed.load_log(tmp_path / "log.txt"))
    assert len({one.key.column for one in found.judgements if one.verdict is Verdict.WARN}) == dips
