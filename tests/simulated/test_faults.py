"""Faults of links change how a simulated machine behaves, not how it is described."""

from __future__ import annotations

import dataclasses

import pytest

import wirespeed
from wirespeed.backends.simulated import parse
from wirespeed.backends.simulated.faults import faulty
from wirespeed.errors import MachineError
from wirespeed.judging.verdict import Verdict


def rates(fault: str, testcase: str = "4") -> list[float]:
    document = wirespeed.run([testcase], machine=f"simulated:hgx-h200-2{fault}")
    limits = [cell.limit for cell in document.testcases[0].tables[0].cells]
    healthy = wirespeed.run([testcase], machine="simulated:hgx-h200-2")
    assert limits == [cell.limit for cell in healthy.testcases[0].tables[0].cells]
    return [value / 1e9 for value in document.testcases[0].tables[0].values()]


def test_speed_is_of_one_way_or_both() -> None:
    assert rates("") == pytest.approx([394, 394], rel=0.01)
    assert rates("+speed@gpu0-gpu1=0.5") == pytest.approx([197, 197], rel=0.01)
    assert rates("+speed@gpu1->gpu0=0.5") == pytest.approx([197, 394], rel=0.01)  # gpu0 reads gpu1
    assert rates("+speed@gpu0-gpu1=0.5+speed@gpu0-gpu1=0.5") == pytest.approx([98.5, 98.5], rel=0.01)


def test_data_goes_another_way_where_a_link_is_down() -> None:
    assert rates("+down@gpu0-gpu1") == pytest.approx([54, 54], rel=0.02)  # PCIe
    document = wirespeed.run(["0"], machine="simulated:hgx-h200-2+down@numa0-gpu1+down@gpu0-gpu1")
    assert document.testcases[0].status == "error" and "no links that lead" in document.testcases[0].reason


def test_memory_and_a_whole_gpu() -> None:
    assert rates("+speed@gpu1-gpu1=0.5", "38") == pytest.approx([2095, 1048], rel=0.01)
    machine = parse("dgx-a100-8+speed@gpu3=0.5")
    changed = {
        (a.source, a.destination)
        for a, b in zip(machine.links, faulty(machine).links, strict=True)
        if a.capacity != b.capacity
    }
    assert changed == {
        ("gpu3", "gpu3"), ("gpu3", "nvswitch"), ("nvswitch", "gpu3"), ("gpu3", "pcie1"), ("pcie1", "gpu3"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("down@gpu0-gpu9", "has no link 'gpu0-gpu9' for the fault"),
        ("down", "has no link ''"),
        ("speed@gpu0", "requires a factor"),
        ("speed@gpu0=fast", "requires a factor"),
        ("speed@gpu0=0", "requires a factor"),
        ("corrupt@gpu9", "has no transfers 'gpu9' for the fault"),
        ("corrupt@gpu0-gpu1", "write gpu0 or numa0->gpu0"),
        ("hang@gpu0->numa7", "has no transfers"),
        ("sluggish@gpu0", "unknown simulated fault 'sluggish'; choose from corrupt"),
        ("slow@gpu0->gpu9", "has no pair of GPUs 'gpu0->gpu9' for the fault"),
        ("late@numa0->gpu0", "write gpu0->gpu1, gpu0-gpu1 or gpu0"),
        ("slow=2000@gpu0", "requires a factor"),
    ],
)
def test_faults_that_cannot_be(fault: str, says: str) -> None:
    with pytest.raises(MachineError, match=says):
        parse(f"hgx-h200-2+{fault}")


@pytest.mark.parametrize(
    ("spec", "prefix"),
    [
        ("hgx-b200-8+speed@gpu2->nvswitch=0.7", "all_reduce"),
        ("dgx-a100-8+speed@numa0-numa1=0.5", "numa_to"),
        ("nvme-2+speed@storage0-storage0=0.8", "storage_read"),
        ("rtx4090-2+speed@gpu1-gpu1=0.85", "device_str"),
    ],
)
def test_a_slow_part_of_a_simulated_machine_is_no_pass(spec: str, prefix: str) -> None:
    """Whatever the kind of path: what others of its model reach counts, and the ranges of other links."""
    healthy = wirespeed.run(prefixes=[prefix], machine=f"simulated:{spec.partition('+')[0]}", tier="quick")
    assert wirespeed.judge(healthy).verdict is Verdict.PASS
    slow = wirespeed.run(prefixes=[prefix], machine=f"simulated:{spec}", tier="quick")
    assert wirespeed.judge(slow).verdict.is_bad


@pytest.mark.parametrize("noise", [0.01, 0.03])
@pytest.mark.parametrize("name", ["rtx3090-4", "dgx-spark", "hgx-h200-2"])
def test_noise_of_a_healthy_machine_is_no_alarm(name: str, noise: float) -> None:
    machine = dataclasses.replace(parse(name), noise=noise)
    for seed in range(3):
        check = wirespeed.judge(wirespeed.run(machine=machine, tier="quick", seed=seed))
        assert check.verdict is Verdict.PASS, seed
