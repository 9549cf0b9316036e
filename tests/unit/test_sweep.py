from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wirespeed
from wirespeed.backends.simulated import parse
from wirespeed.errors import UsageError
from wirespeed.model import MemoryKind
from wirespeed.testcases.sweep import sweep
from wirespeed.testcases.table import PlanOptions, find
from wirespeed.units import parse_sizes

TWO = "simulated:hgx-h200-2"


def test_ranges_and_lists() -> None:
    assert parse_sizes("4KiB:64KiB:x4") == (4096, 16384, 65536)
    assert parse_sizes("1:8") == (1, 2, 4, 8)
    assert parse_sizes("1MiB,3MiB") == (2**20, 3 * 2**20)
    assert parse_sizes("3k") == (3072,)


@pytest.mark.parametrize("text", ["", "1:", "8:1", "1:8:4", "1:8:x1", "1:8:x2:x3", "1,,2", "1:1t,2", "x"])
def test_what_is_no_range_says_so(text: str) -> None:
    with pytest.raises(UsageError):
        parse_sizes(text)


@given(st.text(alphabet="0123456789kMGiB:,x", max_size=20))
def test_any_text_is_sizes_or_a_usage_error(text: str) -> None:
    try:
        sizes = parse_sizes(text)
    except UsageError:
        return
    assert 1 <= len(sizes) <= 64 and min(sizes) >= 1


def test_every_cell_becomes_a_curve() -> None:
    document = wirespeed.run(
        ["4", "0"], machine=TWO, sizes=[2**30, 4096, "4KiB"], precision="1%", timeout="5s"
    )
    pairs, host = (result.tables[0] for result in document.testcases)
    assert pairs.rows.labels == ("gpu0,gpu1", "gpu1,gpu0") and host.rows.labels == ("gpu0", "gpu1")
    assert pairs.columns.values == (4096.0, float(2**30)) and pairs.is_curve
    for row in pairs.grid():
        small, large = (cell.value for cell in row if cell and cell.value)
        assert small < large / 50


def test_what_cannot_run_or_is_a_curve_already_stays_as_it_is() -> None:
    machine = parse("hgx-h200-2")
    assert sweep(find("multinode_bisect_write_ce"), (1, 2)).plan(machine).reason
    scaling = find("device_to_device_sm_scaling")
    assert sweep(scaling, (1, 2)).plan(machine) == scaling.plan(machine)
    assert sweep(find("33"), (1, 2)) is find("33")


def test_waived_cells_are_swept_too() -> None:
    machine = parse("dgx-a100-8").only([0, 1])
    gpu0, gpu1 = machine.gpus
    half = replace(machine, gpus=(gpu0, replace(gpu1, peers=())))
    plan = sweep(find("4"), (1, 2)).plan(half)
    assert [(w.row, w.column) for w in plan.waived] == [(1, 0), (1, 1)]
    assert plan.tables[0].rows.labels == ("gpu0,gpu1", "gpu1,gpu0")


def test_chosen_devices_only() -> None:
    document = wirespeed.run(["4"], machine="simulated:dgx-a100-8", devices=[0, 2])
    assert document.testcases[0].tables[0].rows.labels == ("gpu0", "gpu2")
    assert "\n 2" in wirespeed.render(document, "nvbandwidth")
    with pytest.raises(UsageError, match="GPU 9 does not exist; GPUs of this machine: 0, 1"):
        wirespeed.run(["4"], machine=TWO, devices=[9])


def test_local_copies_on_the_diagonal() -> None:
    cells = wirespeed.run(["4"], machine=TWO, local_copy=True).testcases[0].tables[0].cells
    assert [(c.row, c.column) for c in cells] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_shape_and_pageable_memory_reach_the_transfers() -> None:
    machine = parse("hgx-h200-2")
    options = PlanOptions(blocks=8, threads=256, pageable=True)
    transfer = find("host_to_device_memcpy_sm").plan(machine, options).measurements[0].transfers[0]
    assert (transfer.executor.blocks, transfer.executor.threads) == (8, 256)
    assert transfer.source.kind is MemoryKind.PAGEABLE
    assert find("0").plan(machine, options).measurements[0].transfers[0].executor.blocks == 0
    with pytest.raises(UsageError, match="blocks must be"):
        wirespeed.run(["16"], machine=TWO, threads=2000)


def test_bulk_copies_where_there_are_any() -> None:
    document = wirespeed.run(["20", "4", "32"], machine=TWO, bulk=True)
    assert [r.engine for r in document.testcases] == ["sm_bulk", "ce", "sm"] and not document.warnings
    document = wirespeed.run(["20"], machine="simulated:dgx-a100-8", bulk=True)
    assert document.testcases[0].engine == "sm"
    assert "gpu0 has no bulk copies" in document.warnings[0]
