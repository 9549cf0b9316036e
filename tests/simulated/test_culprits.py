"""Culprits as data: what is named, by how much it is slow, and what to do about it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

import wirespeed
from tests.conftest import with_long
from wirespeed.data import efficiencies
from wirespeed.document import Document
from wirespeed.hardware.cause_effects import scaled
from wirespeed.hardware.facts import Fact, Known
from wirespeed.hardware.limits import allowances
from wirespeed.hardware.link_graph import Network
from wirespeed.hardware.topology import Machine
from wirespeed.judging.advice import AT
from wirespeed.judging.cells_seen import Observation
from wirespeed.judging.diagnosis import diagnose
from wirespeed.judging.judge import judge
from wirespeed.judging.localise import localise
from wirespeed.judging.next_testcases import distinguishing
from wirespeed.judging.overview import overview
from wirespeed.judging.predictions import Hypothesis
from wirespeed.judging.suspects import Culprit, Suspect, SuspectKind
from wirespeed.testcases.table import find

READ = "device_to_device_memcpy_read_ce"


def measured(machine: str, *names: str, tier: str = "quick") -> Document:
    return wirespeed.run(names, machine=f"simulated:{machine}", tier=tier, samples=3, copies=1)


def slow_cells(machine: Machine, *names: str, slow: set[str]) -> Culprit:
    """Return the first culprit where the cells of some rows and columns have 80 % of the typical rate."""
    network, observations = Network(machine), []
    for name in names:
        plan = find(name).plan(machine)
        (layout,) = plan.tables
        for measurement in plan.measurements:
            for place, allowed in zip(
                measurement.places, allowances(network, measurement, efficiencies()), strict=True
            ):
                ends = {layout.rows.labels[place.row], layout.columns.labels[place.column]}
                observations.append(Observation(name, 0.64 if ends == slow else 0.8, 0.8, allowed.links))
    return localise(machine, observations)[0]


def test_every_kind_of_culprit_has_advice() -> None:
    assert AT.keys() == set(SuspectKind) and all(one.do and one.command for one in AT.values())


def test_a_slow_pair_of_gpus_gets_the_advice_for_pairs() -> None:
    (suspect,) = slow_cells(wirespeed.machine("simulated:dgx-a100-8"), READ, slow={"gpu2", "gpu6"}).suspects
    assert suspect == Suspect(SuspectKind.PAIR_OF_GPUS, ("gpu2", "gpu6"))
    assert AT[suspect.kind].command == "nvidia-smi topo -m" and "peer access" in AT[suspect.kind].do


@pytest.mark.parametrize(
    ("fault", "suspect", "command"),
    [
        ("pcie-4-switched+speed@pcie1=0.5", Suspect(SuspectKind.PCIE_SWITCH, ("pcie1",)), "sudo lspci"),
        ("dgx-a100-8+speed@gpu5=0.6", Suspect(SuspectKind.GPU, ("gpu5",)), "nvidia-smi -q -i 0000:06"),
        ("dgx-a100-8+speed@gpu2-gpu2=0.5", Suspect(SuspectKind.GPU_MEMORY, ("gpu2",)), "nvidia-smi"),
        ("cpu-2-sockets+speed@numa1-numa1=0.3", Suspect(SuspectKind.HOST_MEMORY, ("numa1",)), "sudo dmi"),
        ("cpu-2-sockets+speed@numa0->numa1=0.3",
         Suspect(SuspectKind.SOCKET, ("numa0", "numa1"), one_way=True), "numactl"),
    ],
)  # fmt: skip
def test_the_advice_is_for_what_is_slow(fault: str, suspect: Suspect, command: str) -> None:
    document = replace(measured(fault), facts=())
    check = judge(document)
    assert suspect in check.culprits[0].suspects
    found = overview(document, check)
    assert found.sentence.startswith(str(check.culprits[0])) and found.advice.command.startswith(command)


@pytest.mark.parametrize("fault", ["gpu0->pcie0", "pcie0->numa0"])
def test_less_payload_does_not_acquit_a_link(fault: str) -> None:
    """Next to requests of the other direction, less data passes than through the slow link."""
    cases = ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce", "device_to_host_bidirectional_memcpy_ce",
             "host_to_all_memcpy_ce", "all_to_host_memcpy_ce",
             "all_to_host_bidirectional_memcpy_ce")  # fmt: skip
    document = measured(f"ppu-8+speed@{fault}=0.8", *cases)
    names = [set(map(str, culprit.suspects)) for culprit in judge(document).culprits]
    assert len(names) == 1 and f"PCIe link {fault}" in names[0]


@pytest.mark.parametrize(
    ("fault", "sentence", "do"),
    [
        ("gpu3", "gpu3 corrupts data to all its peers in ", "do not use gpu3; replace it"),
        ("gpu3->gpu5", "gpu3->gpu5 delivers wrong data in 1 testcase", "do not use this path"),
        ("", "numa0", ""),
    ],
)
def test_wrong_data_is_one_finding(fault: str, sentence: str, do: str) -> None:
    names = [READ, "host_to_device_memcpy_ce", "device_to_host_memcpy_ce"]
    document = measured(f"dgx-a100-8+corrupt@{fault}" if fault else "dgx-a100-8+corrupt", *names)
    check = judge(document)
    found = overview(document, check)
    if fault:
        assert (
            len(check.wrong) == 1 and found.sentence.startswith(sentence) and found.advice.do.startswith(do)
        )
    else:  # everything is wrong: no device explains it
        assert "gpu" not in {one.device[:3] for one in check.wrong}


def test_wrong_data_to_and_from_a_device_is_one_finding() -> None:
    """Faults of several directions add up; a second device is a second finding."""
    faults = "+corrupt@gpu3+corrupt@gpu0->gpu3+corrupt@gpu1->gpu3+corrupt@gpu2->gpu3"
    check = judge(measured(f"pcie-4-switched{faults}", READ))
    assert [str(one) for one in check.wrong] == ["gpu3 corrupts data to and from all its peers in 1 testcase"]
    check = judge(measured("dgx-a100-8+corrupt@gpu3+corrupt@gpu6", READ))
    assert {one.device for one in check.wrong} == {"gpu3", "gpu6"}
    check = judge(measured("dgx-a100-8+corrupt@gpu3->gpu5+corrupt@gpu5->gpu3", READ))
    assert [str(one) for one in check.wrong] == ["gpu5->gpu3 and gpu3->gpu5 deliver wrong data in 1 testcase"]


@pytest.mark.parametrize(
    "spec",
    with_long(["l40s-8+gen1@gpu3", "h100-nvl-2+gen2@gpu1", "pcie-2-no-p2p+gen3@gpu0"], "l40s-8+gen1@gpu3"),
)
def test_what_a_cause_leaves_is_no_likely_cause_without_facts(spec: str) -> None:
    document = measured(spec)
    found = diagnose(replace(document, facts=()))
    assert "pcie-width" in {one.cause.name for one in found.findings}
    assert not any(one.likely for one in found.findings)
    assert diagnose(document).findings[0].cause.name == "pcie-generation"


def test_a_second_cause_is_found_in_what_the_first_leaves() -> None:
    """The first is part of what is predicted for the second, and no value counts for too much."""
    found = diagnose(measured("hgx-h200-2+gen3@gpu0+gen3@gpu1"))
    assert {(one.cause.name, one.place, one.likely, one.cells) for one in found.findings} == {
        ("pcie-generation", "gpu0", True, 16), ("pcie-generation", "gpu1", True, 16),
    }  # fmt: skip


def test_what_slows_only_collectives_down_explains_no_copies() -> None:
    document = measured("dgx-a100-8", READ)
    (result,) = document.testcases
    (table,) = result.tables
    cells = list(table.cells)
    cells[3] = replace(cells[3], value=(cells[3].value or 0.0) / 4)  # one pair, which no link explains
    slow = replace(result, tables=(replace(table, cells=tuple(cells)),))
    settings = (Fact(Known.NCCL_VARIABLES, ("NCCL_MAX_NCHANNELS=1",)),)
    found = diagnose(replace(document, testcases=(slow,), facts=settings))
    assert (found.findings, found.slow, found.unexplained) == ((), 1, 1)


def test_both_directions_of_a_link_are_no_path_of_a_pair() -> None:
    """Each of the links is fast by itself, so that only a pair could explain the low value; there is none."""
    machine = wirespeed.machine("simulated:dgx-a100-8")
    ways = ("gpu1->pcie0", "pcie0->numa0", "numa0->pcie0", "numa0->pcie1")
    links = [machine.links_at(way)[0] for way in ways]
    both = Observation("mixed", 0.4, 0.8, tuple((link, 1.0, 1.0) for link in links), low=True)
    one_each = [
        Observation(way, 0.8, 0.8, ((link, 1.0, 1.0),)) for way, link in zip(ways, links, strict=True)
    ]
    assert localise(machine, [both, *one_each]) == []
    straight = replace_links(both, [links[0], links[1], links[3]])
    (culprit,) = localise(machine, [straight, *one_each])
    assert culprit.suspects[0].ends == ("gpu1", "pcie1") and culprit.suspects[0].one_way


def replace_links(observation: Observation, links: list[int]) -> Observation:
    return observation._replace(links=tuple((link, 1.0, 1.0) for link in links))


def test_of_equally_telling_testcases_that_whose_values_differ_most_is_next() -> None:
    document = replace(wirespeed.described("simulated:dgx-a100-8"), testcases=())
    machine = document.machine
    to_gpu, from_gpu = (set(machine.links_at(way)) for way in ("pcie1->gpu3", "gpu3->pcie1"))
    slow = scaled(scaled(machine, to_gpu, 0.8), from_gpu, 0.4)
    chosen = distinguishing(document, (Hypothesis(slow, "gpu3"), Hypothesis(machine)))
    assert chosen is not None and chosen.name == "device_to_host_memcpy_ce"
    slow = scaled(scaled(machine, to_gpu, 0.4), from_gpu, 0.8)
    chosen = distinguishing(document, (Hypothesis(slow, "gpu3"), Hypothesis(machine)))
    assert chosen is not None and chosen.name == "host_to_device_memcpy_ce"


@pytest.mark.parametrize(
    ("machine", "culprit", "values"),
    [
        # Host <-> gpu1 is within its wide range, but below host <-> gpu0.
        ("hgx-h200-2+speed@gpu1=0.8", "gpu1", 56),
        ("hgx-h200-2+speed@gpu0=0.7", "gpu0", 60),
        ("hgx-h200-2+speed@gpu0-gpu1=0.8", "NVLink gpu0-gpu1", 48),
        ("h100-nvl-2+speed@gpu1=0.75", "gpu1", 56),
        ("pcie-2-no-p2p+speed@gpu0=0.7", "gpu0", 12),
        # Both directions at once are limited by the memory of the host, which does not acquit the link.
        ("gh200-1+speed@gpu0-numa0=0.5", "C2C link gpu0-numa0", 8),
        ("gh200-1+speed@gpu0->numa0=0.5", "C2C link gpu0->numa0", 4),
        ("gh200-1+speed@gpu0=0.5", "gpu0", 16),
        ("gh200-1+speed@gpu0-gpu0=0.5", "memory of gpu0", 8),
    ],
)
def test_the_slow_part_of_a_small_machine_is_named(machine: str, culprit: str, values: int) -> None:
    found = judge(wirespeed.run(machine=f"simulated:{machine}", tier="quick")).culprits
    assert [(str(one), len(one.cells)) for one in found] == [(culprit, values)]


def test_a_comparison_names_what_the_check_names() -> None:
    from wirespeed.reports.html.comparison import compared

    for machine, fault in (("hgx-h200-2", "speed@gpu1=0.8"), ("gh200-1", "speed@gpu0-numa0=0.5")):
        good, slow = (
            wirespeed.run(machine=f"simulated:{spec}", tier="quick")
            for spec in (machine, f"{machine}+{fault}")
        )
        for pair in ((good, slow), (slow, good)):
            places = compared(pair, ("a", "b")).runs[1].places
            assert places[0].name == str(judge(slow).culprits[0])


def test_memory_that_cpu_and_gpu_share_has_no_ecc_of_the_gpu() -> None:
    document = wirespeed.run("device_local_copy", machine="simulated:dgx-spark+speed@gpu0-gpu0=0.5")
    advice = overview(document, judge(document)).advice
    assert "share" in advice.do and "ECC" not in advice.command and "CLOCK" in advice.command
