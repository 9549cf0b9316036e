"""Causes in, causes out: what simulated machines with a cause show, and what doctor then names."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

import wirespeed
from wirespeed.api import described
from wirespeed.backends.simulated import parse
from wirespeed.cli.main import main
from wirespeed.data.causes import EFFECTS
from wirespeed.document import Document
from wirespeed.errors import MachineError
from wirespeed.hardware.facts import ON, Fact, Known
from wirespeed.judging.causes import CAUSES
from wirespeed.judging.cells_seen import seen_cells
from wirespeed.judging.diagnosis import Diagnosis, diagnose


def measured(spec: str) -> Document:
    return wirespeed.run(machine=f"simulated:{spec}", tier="quick", samples=3, copies=1)


def diagnosed(document: Document) -> Diagnosis:
    return diagnose(document, wirespeed.judge(document))


@pytest.mark.parametrize(
    ("machine", "fault", "cause", "place"),
    [
        ("pcie-4-switched", "acs@pcie1", "acs", "pcie1"),
        pytest.param("pcie-4-switched", "iommu=0.3", "iommu", "", marks=pytest.mark.long),
        ("l40s-8", "wrong-numa@gpu3", "wrong-numa", "gpu3"),
        ("hgx-h200-2", "fabric", "fabric", ""),
        pytest.param("hgx-h200-2", "nccl-disabled", "nccl-disabled", "", marks=pytest.mark.long),
        ("hgx-h200-2", "nccl-settings=0.5", "nccl-settings", ""),
        ("hgx-h200-2", "gen4@gpu1", "pcie-generation", "gpu1"),
        ("dgx-a100-8", "pcie-width=8@pcie1", "pcie-width", "pcie1"),
        pytest.param("dgx-a100-8", "pcie-width=4@gpu3", "pcie-width", "gpu3", marks=pytest.mark.long),
        ("dgx-a100-8", "nvlinks=6@gpu0", "nvlinks", "gpu0"),
        ("hgx-h200-2", "nvlinks-inactive=9", "nvlinks-inactive", ""),
        pytest.param("hgx-h200-2", "bandwidth-mode=0.75", "bandwidth-mode", "", marks=pytest.mark.long),
        ("hgx-h200-2", "nvlink-errors=0.7@gpu1", "nvlink-errors", "gpu1"),
        pytest.param("hgx-h200-2", "pcie-errors=0.7@gpu1", "pcie-errors", "gpu1", marks=pytest.mark.long),
        ("hgx-h200-2", "throttle=0.6@gpu1", "throttled", "gpu1"),
        pytest.param("hgx-h200-2", "lowered=0.6@gpu1", "lowered", "gpu1", marks=pytest.mark.long),
        ("dgx-a100-8", "dimms=4@numa1", "dimms", "numa1"),
        ("cpu-2-sockets", "nps4", "nodes-per-socket", ""),
        ("cpu-2-sockets", "busy-cpus=0.4", "busy-cpus", ""),
        pytest.param("hgx-h200-2", "huge-pages=0.5", "huge-pages", "", marks=pytest.mark.long),
        pytest.param("hgx-h200-2", "busy-gpu=0.5@gpu1", "busy-gpu", "gpu1", marks=pytest.mark.long),
    ],
)
def test_the_cause_is_named_first(machine: str, fault: str, cause: str, place: str) -> None:
    found = diagnosed(measured(f"{machine}+{fault}"))
    first = found.findings[0]
    assert (first.cause.name, first.place) == (cause, place)
    assert [one.cause.name for one in found.findings].count(cause) == 1
    assert first.likely and first.evidence and first.cells >= 0.7 * found.slow and first.cells + first.lower


def test_values_within_the_expected_range_are_explained_if_facts_speak_for_a_cause() -> None:
    document = measured("hgx-h200-2+confined=0.59")
    found = diagnosed(document)
    assert found.slow == 0 and found.findings[0].cause.name == "confined" and found.findings[0].lower > 5
    assert not diagnosed(changed(document, facts=())).findings


def test_two_causes_at_once() -> None:
    found = diagnosed(measured("dgx-a100-8+throttle=0.6@gpu2+gen3@gpu5"))
    assert {(one.cause.name, one.place) for one in found.findings if one.likely} == {
        ("throttled", "gpu2"),
        ("pcie-generation", "gpu5"),
    }
    assert found.unexplained == 0


def test_what_only_a_remainder_speaks_for_is_not_likely() -> None:
    """Without facts on its device, the second cause is what the first one leaves."""
    document = measured("dgx-a100-8+throttle=0.6@gpu2+gen3@gpu5")
    facts = tuple(fact for fact in document.facts if fact.device != "gpu5")
    first, second = diagnosed(changed(document, facts=facts)).findings
    assert (first.cause.name, first.residual, first.likely) == ("throttled", False, True)
    assert (second.place, second.residual, second.likely) == ("gpu5", True, False)
    (only,) = diagnosed(changed(measured("dgx-a100-8+gen3@gpu5"), facts=())).findings
    assert not only.residual


def test_of_possible_causes_the_one_of_most_values_is_first() -> None:
    document = measured("dgx-a100-8+speed@gpu3=0.6")
    facts = (Fact(Known.REMAP_PENDING, ON, "", "gpu3"), Fact(Known.THROTTLED, ("power cap",), "", "gpu3"))
    found = [(one.cause.name, one.cells) for one in diagnosed(changed(document, facts=facts)).findings]
    assert found == [("throttled", 8), ("ecc", 0)]
    assert [cause.name for cause in CAUSES if cause.name in dict(found)] == ["ecc", "throttled"]


def test_without_facts_causes_with_the_same_values_are_named_together() -> None:
    document = changed(measured("dgx-a100-8+gen3@gpu5"), facts=())
    found = diagnosed(document)
    (first,) = found.findings
    assert first.place == "gpu5" and not first.likely and not found.has_facts
    assert {first.cause.name, *(one.name for one in first.others)} >= {"pcie-width", "pcie-generation"}


@pytest.mark.parametrize(
    "spec",
    [
        "gb200-4+speed@gpu3->nvswitch=0.5",
        "hgx-h200-2+speed@gpu1=0.6",
        "pcie-4-switched+speed@pcie1-numa0=0.63",
    ],
)
def test_a_slow_link_without_a_known_cause_has_none(spec: str) -> None:
    found = diagnosed(measured(spec))
    assert found.slow and not found.findings and found.unexplained == found.slow


@pytest.mark.parametrize("machine", ["hgx-h200-2", "l40s-8", "gh200-1", "cpu-2-sockets"])
def test_good_machines_have_no_cause(machine: str) -> None:
    assert diagnosed(measured(machine)).findings == ()


def test_a_cause_is_found_on_its_host() -> None:
    for place, host in (("1/gpu1", ""), ("5/gpu1", "node01")):
        document = described(parse(f"nvl72+nvlinks=9@{place}+shm"))
        few = [(f.host, f.device) for f in document.facts if f.name == Known.NVLINKS and f.value == 9]
        assert few == [(host, "gpu1")]
        found = [(one.cause.name, one.host, one.place) for one in diagnose(document).findings]
        assert ("nvlinks", host, "gpu1") in found and ("shm", "node17", "") in found
        (finding,) = (one for one in diagnose(document).findings if one.cause.name == "nvlinks")
        assert finding.where == (f"{host}: gpu1" if host else "gpu1")


def test_low_values_of_a_gpu_on_another_host_are_explained_by_its_facts() -> None:
    machine = parse("nvl72+nvlinks=9@5/gpu1")
    ranks = machine.ranks[:8]  # two hosts
    kept = {f"{rank.index}/{rank.device}" for rank in ranks}
    links = tuple(
        link for link in machine.links
        if all("/" not in end or end in kept for end in (link.source, link.destination))
    )  # fmt: skip
    document = wirespeed.run(
        ["multinode_device_to_device_memcpy_read_ce"],
        machine=replace(machine, ranks=ranks, links=links), samples=1, copies=1,
    )  # fmt: skip
    first = diagnosed(document).findings[0]
    assert (first.cause.name, first.place, first.likely) == ("nvlinks", "5/gpu1", True)
    assert first.evidence.startswith("node01: 9 links are active")


def test_every_effect_belongs_to_a_cause_and_changes_what_it_says() -> None:
    assert EFFECTS.keys() <= {cause.name for cause in CAUSES}
    for name, effect in EFFECTS.items():
        for machine in map(parse, ("dgx-a100-8", "pcie-4-switched", "gh200-1")):
            for place in effect.places(machine)[:1]:
                amount = (*effect.amounts, effect.usual)[0]
                there = effect.apply(machine, place, 0.5)
                assert len(there.links) >= len(machine.links), name
                assert list(effect.facts(machine, place, amount)), name
                assert replace(there, links=machine.links) == machine, name


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("acs@pcie9", "has no place 'pcie9' .*; write acs@pcie0"),
        ("iommu@gpu0", "has no place 'gpu0' .*; write iommu without a place"),
        ("nvlinks=99@gpu0", "requires an amount: a factor between 0 and 1, or a number of NVLinks"),
        ("pcie-width=7@gpu0", "requires an amount: 8, 4, 2, 1"),
        ("throttle=2@gpu0", "requires an amount: a factor between 0 and 1$"),
        ("moonlight", "unknown simulated fault 'moonlight'; choose from .*wrong-numa"),
    ],
)
def test_wrong_faults(fault: str, why: str) -> None:
    with pytest.raises(MachineError, match=why):
        parse(f"dgx-a100-8+{fault}")


def test_the_command_names_a_simulated_cause(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["doctor", "--machine", "simulated:hgx-h200-2+gen4@gpu1", "-t", "0", "1"]
    assert main(command) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "likely cause: a PCIe link runs at an older generation than the GPU (gpu1), explains 2 of 2" in out
    assert "consistent with links running at 5" in out


def test_ratios_to_normal_have_logarithms() -> None:
    """A saved run may have any value above 0; the ratio of the smallest ones would be rounded to 0."""
    document = wirespeed.run(["0"], machine="simulated:dgx-a100-8", samples=1, copies=1)
    (result,) = document.testcases
    (table,) = result.tables
    cells = tuple(changed(cell, value=5e-324) for cell in table.cells)
    tiny = changed(document, testcases=(changed(result, tables=(changed(table, cells=cells),)),))
    _, seen, ratios = seen_cells(tiny, wirespeed.judge(tiny).judgements)
    assert {one.typical for one in seen} == {*ratios} == {1e-6}
    assert diagnosed(tiny).slow == len(seen) == 8
