"""The testcases that are new in nvbandwidth 0.10, and the sums with the host, on real GPUs."""

from __future__ import annotations

import pytest

import wirespeed
from wirespeed.document import Status, TestcaseResult
from wirespeed.hardware.topology import Machine
from wirespeed.tables import Cell

TMA = [f"device_to_device_{kind}_{way}_tma" for kind in ("memcpy", "bidirectional_memcpy")
       for way in ("read", "write")]  # fmt: skip
LOCAL = ["device_local_copy_sm", "device_local_read_sm", "device_local_write_sm", "device_local_copy_tma"]
SUMS = ["all_to_host_sum_ce", "host_to_all_sum_ce"]


def measured(machine: Machine, name: str) -> TestcaseResult:
    (result,) = wirespeed.run([name], machine=machine, time_budget="0.3s", precision="1%").testcases
    if result.status is Status.WAIVED:
        assert result.reason
        pytest.skip(result.reason)
    assert result.status is Status.PASSED, result.reason
    return result


def cells(result: TestcaseResult) -> list[Cell]:
    return [cell for table in result.tables for cell in table.cells if cell.value is not None]


@pytest.mark.parametrize("name", [*TMA, *LOCAL, *SUMS])
def test_rates_are_a_plausible_part_of_what_the_links_allow(machine: Machine, name: str) -> None:
    found = cells(measured(machine, name))
    assert found
    for cell in found:
        assert cell.value and cell.limit
        assert 0.2 < cell.value / cell.limit < 1.02


def test_a_dependent_bulk_copy_takes_as_long_as_a_dependent_load_or_longer(machine: Machine) -> None:
    loads, copies = (cells(measured(machine, f"device_to_device_latency_{kind}")) for kind in ("sm", "tma"))
    for load, copy in zip(loads, copies, strict=True):
        assert load.value and copy.value
        assert 0.8 * load.value < copy.value < 5e-6


def test_reads_and_writes_reach_what_the_stream_kernels_reach(machine: Machine) -> None:
    for what in ("read", "write"):
        ours = cells(measured(machine, f"device_stream_{what}"))
        same = cells(measured(machine, f"device_local_{what}_sm"))
        assert [a.value for a in same] == pytest.approx([b.value for b in ours], rel=0.05)
