"""Public reports of broken peer access, rebuilt as machine and facts: the cause that their thread found.

Sources: issues of NVIDIA/nccl (257, 606, 814, 2079), NVIDIA/nccl-tests (117), vllm-project/vllm (33041,
51513), aikitoria/open-gpu-kernel-modules (9, 14, 25, 34),
noonghunna/club-3090 (734), stas00/ml-engineering (1), intel/compute-runtime (935),
reports, and NVIDIA's guide of NVSwitch in virtual machines.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
from msgspec.structs import replace as with_fields

import wirespeed
from benchmarks.peer_access import failures, false_alarms
from wirespeed.backends.simulated import parse
from wirespeed.backends.simulated.machines import MACHINES
from wirespeed.document import Document
from wirespeed.features.p2p.causes import PeerFindings, find_peers
from wirespeed.features.p2p.screen import render, to_json
from wirespeed.hardware.facts import OFF, ON, Fact, Known
from wirespeed.hardware.topology import Machine, load
from wirespeed.judging.judge import judge
from wirespeed.judging.verdict import Verdict
from wirespeed.peer_access import ALL, Attempt, PeerAccess, PeerMechanism, PeerVerdict, rounds, worded
from wirespeed.reports import Style

V = PeerVerdict
INTEL, AMD = "Intel(R) Xeon(R) W-2295", "AMD EPYC 7302 16-Core Processor"


def gpus(machine: Machine, model: str, cpu: str, count: int = 0) -> Machine:
    kept = machine.only(range(count or len(machine.gpus)))
    return replace(kept, cpu=cpu, gpus=tuple(replace(gpu, model=model) for gpu in kept.gpus))


def isolated(machine: Machine, *, redirects: bool) -> list[Fact]:
    """Each GPU in an IOMMU group with its root port; the control word read as root, or not readable."""
    facts = []
    for gpu in machine.gpus:
        facts.append(Fact(Known.IOMMU_GROUP, f"{30 + gpu.index}", device=gpu.name))
        facts.append(Fact(Known.BRIDGE_GROUPS, (f"{10 + gpu.index}",), device=gpu.name))
        value = (f"0000:{gpu.index * 0x40:02x}:01.1",) if redirects else None
        facts.append(Fact(Known.ACS_REDIRECTS, value, device=gpu.name, reason="" if redirects else "root"))
    return facts


def of(machine: Machine, facts: list[Fact]) -> PeerFindings:
    document = wirespeed.p2p(machine, seed=7)
    found = find_peers(with_fields(document, facts=(*document.facts, *facts)))
    assert found is not None
    return found


def simulated(spec: str, model: str, cpu: str, count: int = 0) -> Machine:
    return gpus(parse(spec), model, cpu, count)


def two_5880_below_root_ports() -> PeerFindings:
    machine = simulated("rtxpro6000-4+dropped", "NVIDIA RTX 5880 Ada Generation", AMD, 2)
    return of(machine, isolated(machine, redirects=True))


def gtx_1080_ti_on_intel() -> PeerFindings:
    return of(
        simulated("rtx4090-2+unseen", "NVIDIA GeForce GTX 1080 Ti", INTEL), [Fact(Known.IOMMU, ("DMA",))]
    )


def one_pair_of_four_on_amd() -> PeerFindings:
    machine = simulated("rtx3090-4+unseen@gpu2-gpu3", "NVIDIA A40", AMD)
    return of(
        machine, [fact for fact in isolated(machine, redirects=True) if fact.device in ("gpu2", "gpu3")]
    )


def rtx_4090_whose_driver_advertises_peers() -> PeerFindings:
    return of(simulated("rtx5090-4+dropped", "NVIDIA GeForce RTX 4090", INTEL), [Fact(Known.IOMMU, (OFF,))])


def virtual_machines_with_translation() -> PeerFindings:
    machine = simulated("rtxpro6000-4+dropped", "NVIDIA L40S", AMD)
    facts = [
        *isolated(machine, redirects=False),
        Fact(Known.IOMMU, ("DMA-FQ",)),
        Fact(Known.HYPERVISOR, "KVM"),
    ]
    return of(machine, facts)


def amd_with_its_iommu_at_the_default() -> PeerFindings:
    machine = simulated("rtxpro6000-4+dropped", "NVIDIA L40", AMD)
    return of(machine, [*isolated(machine, redirects=False), Fact(Known.IOMMU, ("DMA-FQ",))])


def patched_modules() -> PeerFindings:
    return of(
        simulated("rtx3090-4+corrupt", "NVIDIA GeForce RTX 3090", INTEL, 2),
        [Fact(Known.IOMMU, ("identity",))],
    )


def three_a6000_slower_than_the_host() -> PeerFindings:
    return of(simulated("rtx3090-4+slow=0.1", "NVIDIA RTX A6000", INTEL, 3), [Fact(Known.IOMMU, ("DMA",))])


def a_bar_that_could_not_be_assigned() -> PeerFindings:
    machine = simulated(
        "rtx5090-4+slow@gpu0->gpu1=0.24+slow@gpu1->gpu0=0.04", "NVIDIA GeForce RTX 5090", AMD, 2
    )
    return of(machine, [Fact(Known.BAR1, 256.0 * 2**20, "B", gpu.name) for gpu in machine.gpus])


def amd_forwards_slowly() -> PeerFindings:
    return of(simulated("rtx3090-4+slow=0.45", "NVIDIA GeForce RTX 4090", AMD), [Fact(Known.IOMMU, (OFF,))])


def two_cards_below_a_local_switch() -> PeerFindings:
    machine = simulated("pcie-4-switched+corrupt@gpu0->gpu1", "Intel Arc Pro B50", INTEL, 2)
    facts = [Fact(Known.SWITCH, "0000:03:00.0", device=gpu.name) for gpu in machine.gpus]
    return of(machine, [*facts, *isolated(machine, redirects=False)])


def a_4090_with_more_memory_than_its_bar() -> PeerFindings:
    machine = simulated("rtx4090-2+corrupt", "NVIDIA GeForce RTX 4090", AMD, 2)
    sizes = {Known.BAR1: 32.0 * 2**30, Known.MEMORY: 48.0 * 2**30}
    return of(
        machine, [Fact(name, size, "B", gpu.name) for gpu in machine.gpus for name, size in sizes.items()]
    )


def a_3090_with_its_first_vbios() -> PeerFindings:
    machine = simulated("rtx3090-4+corrupt", "NVIDIA GeForce RTX 3090", AMD, 2)
    sizes = {Known.BAR1: 2.0**28, Known.BAR1_MOST: 2.0**28, Known.MEMORY: 24.0 * 2**30}
    return of(
        machine, [Fact(name, size, "B", gpu.name) for gpu in machine.gpus for name, size in sizes.items()]
    )


def a_display_at_one_of_three() -> PeerFindings:
    faults = "".join(f"+corrupt@{a}->{b}" for i in (1, 2) for a, b in permutations(("gpu0", f"gpu{i}")))
    machine = simulated(f"rtx5090-4{faults}", "NVIDIA GeForce RTX 5090", AMD, 3)
    return of(machine, [Fact(Known.DISPLAY, ON, device="gpu0"), Fact(Known.IOMMU, ("identity",))])


def different_partitions() -> PeerFindings:
    machine = parse("hgx-h200-2+corrupt")
    return of(machine, [Fact(Known.FABRIC_CLIQUE, gpu.index + 1, device=gpu.name) for gpu in machine.gpus])


@pytest.mark.parametrize(
    ("report", "causes", "verdict", "settings"),
    [
        (two_5880_below_root_ports, {"acs"}, V.HANGS, {"NCCL_P2P_DISABLE": "1"}),
        (gtx_1080_ti_on_intel, {"iommu"}, V.HANGS, {"NCCL_P2P_DISABLE": "1"}),
        (one_pair_of_four_on_amd, {"acs"}, V.HANGS, {"NCCL_P2P_DISABLE": "1"}),
        (rtx_4090_whose_driver_advertises_peers, {"peers-advertised"}, V.HANGS, {"NCCL_P2P_DISABLE": "1"}),
        (virtual_machines_with_translation, {"iommu", "acs"}, V.HANGS, {"NCCL_P2P_DISABLE": "1"}),
        (amd_with_its_iommu_at_the_default, {"iommu"}, V.HANGS, {"NCCL_P2P_DISABLE": "1"}),
        (patched_modules, {"peers-advertised"}, V.WRONG, {"NCCL_P2P_DISABLE": "1"}),
        (three_a6000_slower_than_the_host, {"iommu"}, V.SLOW, {"NCCL_P2P_DISABLE": "1"}),
        (a_bar_that_could_not_be_assigned, {"bar1"}, V.SLOW, {"NCCL_P2P_DISABLE": "1"}),
        (amd_forwards_slowly, {"root-forwarding"}, V.SLOW, {"NCCL_P2P_DISABLE": "1"}),
        (two_cards_below_a_local_switch, {"acs"}, V.WRONG, {"NCCL_P2P_DISABLE": "1"}),
        (a_4090_with_more_memory_than_its_bar, {"bar1-largest"}, V.WRONG, {"NCCL_P2P_DISABLE": "1"}),
        (a_3090_with_its_first_vbios, {"bar1-largest"}, V.WRONG, {"NCCL_P2P_DISABLE": "1"}),
        (a_display_at_one_of_three, {"display"}, V.WRONG, {"NCCL_P2P_DISABLE": "1"}),
        (different_partitions, {"partition"}, V.WRONG, {"NCCL_P2P_DISABLE": "1"}),
    ],
)
def test_the_cause_of_a_public_report(
    report: Callable[[], PeerFindings], causes: set[str], verdict: PeerVerdict, settings: dict[str, str]
) -> None:
    found = report()
    first = [finding.cause.name for finding in found.causes[: len(causes)]]
    assert set(first) == causes
    assert set(found.bad.values()) == {verdict} and found.settings == settings
    assert found.verdict is (Verdict.WARN if verdict is V.SLOW else Verdict.FAIL)
    assert not any("replace" in line for finding in found.causes for line in finding.repair)


def test_acs_names_the_bridges_of_the_broken_pair_only() -> None:
    repair = one_pair_of_four_on_amd().causes[0].repair
    assert repair[1:] == (
        "sudo setpci -s 0000:80:01.1 ECAP_ACS+6.w=0000",
        "sudo setpci -s 0000:c0:01.1 ECAP_ACS+6.w=0000",
    )


def test_a_patched_driver_needs_no_iommu_that_is_off() -> None:
    """Issue 25 of aikitoria/open-gpu-kernel-modules: iommu=pt, Resizable BAR and registry keys."""
    finding = patched_modules().causes[0]
    assert "iommu=pt or the IOMMU off" in finding.repair[0] and "RMForceStaticBar1=1" in finding.repair[1]
    machine = simulated("rtx3090-4+corrupt", "NVIDIA GeForce RTX 3090", INTEL, 2)
    found = of(machine, [Fact(Known.REGISTRY_KEYS, ("ForceP2P=17",)), Fact(Known.DISPLAY, ON, device="gpu0")])
    by_name = {finding.cause.name: finding for finding in found.causes}
    assert "registry keys of the driver: ForceP2P=17" in by_name["peers-advertised"].evidence
    assert by_name["display"].repair[1] == 'options nvidia NVreg_RegistryDwords="RMForceStaticBar1=1"'
    static = of(machine, [Fact(Known.REGISTRY_KEYS, ("RMForceStaticBar1=1",)),
                          Fact(Known.DISPLAY, ON, device="gpu0")])  # fmt: skip
    assert "display" not in {finding.cause.name for finding in static.causes}


def test_what_redirects_pcie_does_not_concern_nvlink() -> None:
    found = find_peers(wirespeed.p2p("simulated:hgx-b200-8+acs", seed=1))
    assert found is not None and found.verdict is Verdict.PASS
    broken = find_peers(wirespeed.p2p("simulated:hgx-b200-8+acs+corrupt", seed=1))
    assert broken is not None and broken.bad and "acs" not in {f.cause.name for f in broken.causes}


@pytest.mark.parametrize("mechanism", list(PeerMechanism))
def test_one_mechanism_that_does_not_work(mechanism: PeerMechanism) -> None:
    machine = f"simulated:rtx5090-4+mechanism={mechanism}@gpu0->gpu1"
    found = find_peers(wirespeed.p2p(machine, mechanisms=[*ALL, PeerMechanism.NCCL], seed=1))
    assert found is not None and set(found.bad) == {("gpu0", "gpu1")}
    bad = {a.mechanism for a in found.access.pairs["gpu0", "gpu1"] if a.verdict.is_broken}
    assert bad == {mechanism}


MANY = Path(__file__).parents[2] / "data/machines/pcie-17-gpus-all-peers.machine.json"


@pytest.mark.parametrize(
    ("count", "groups"),
    [(9, ()), (10, (5, 5)), pytest.param(17, (8, 9), marks=pytest.mark.long), (None, (8, 9))],
)
def test_a_gpu_accesses_eight_peers_at_once_over_pcie(count: int | None, groups: tuple[int, ...]) -> None:
    machine = load(MANY) if count is None else load(MANY).only(range(count))
    document = wirespeed.p2p(machine, seed=1)
    found = find_peers(document)
    assert found is not None and tuple(map(len, found.groups)) == groups
    assert sorted(sum(found.groups, ())) == (list(range(len(machine.gpus))) if groups else [])
    assert found.verdict is (Verdict.WARN if groups else Verdict.PASS)
    assert ("for at most 8 peers at once" in found.sentence) is bool(groups)
    text = render(document, found, Style())
    assert text.count("export CUDA_VISIBLE_DEVICES=") == len(groups)
    assert json.loads(to_json(document, found))["groups"] == [list(group) for group in found.groups]
    assert judge(document).verdict is found.verdict


@pytest.mark.parametrize(("machine", "groups"), [("hgx-b200-8", 0), ("l40s-8", 2)])
def test_nvswitch_has_no_maximum_of_peers(machine: str, groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirespeed.features.p2p.causes.MOST_PEERS", 4)
    found = find_peers(wirespeed.p2p(f"simulated:{machine}", seed=1))
    assert found is not None and len(found.groups) == groups


def test_all_commands_of_a_repair_are_shown_or_none() -> None:
    """Half of them repairs nothing."""
    found = find_peers(document := wirespeed.p2p("simulated:l40s-8+acs", seed=1))
    assert found is not None
    finding = found.causes[0]
    nine = replace(finding, repair=(*finding.repair, "sudo setpci -s 0000:00:09.1 ECAP_ACS+6.w=0000"))
    for repair, verbose, shown in ((finding, False, 8), (nine, False, 0), (nine, True, 9)):
        text = render(document, replace(found, causes=(repair,)), Style(verbose=verbose))
        assert text.count("sudo setpci") == shown
        assert ("9 commands; -v shows them" in text) is (shown == 0)


def test_what_needs_root_is_said() -> None:
    assert amd_with_its_iommu_at_the_default().unread == ("bridges whose ACS redirects: root",)


def test_good_pairs_stay_with_a_level_or_in_a_group() -> None:
    switched = of(
        parse("pcie-4-switched+dropped@gpu0-gpu2+dropped@gpu0-gpu3+dropped@gpu1-gpu2+dropped@gpu1-gpu3"), []
    )
    assert switched.settings == {"NCCL_P2P_LEVEL": "PXB"}
    assert switched.group == (0, 1)
    one = of(parse("rtx3090-4+dropped@gpu0->gpu2"), [])
    assert one.settings == {"NCCL_P2P_DISABLE": "1"} and one.group == (0, 1, 3)
    assert one.options == ("--disable-custom-all-reduce",)


def test_only_slow_against_the_mirror_image_changes_no_setting() -> None:
    found = of(parse("hgx-h200-2+slow@gpu0->gpu1=0.3"), [])
    assert found.bad == {("gpu0", "gpu1"): V.SLOW} and found.settings == {}


@pytest.mark.parametrize("name", [name for name in MACHINES if name != "nvl72"])
def test_healthy_machines(name: str) -> None:
    found = find_peers(wirespeed.p2p(f"simulated:{name}", seed=1))
    assert found is not None and not found.bad and not found.settings
    offers = any(gpu.peers for gpu in parse(name).gpus)
    assert found.verdict is (Verdict.PASS if offers else Verdict.NOT_JUDGED)


def test_a_sample_of_the_benchmark() -> None:
    found = failures(60, seed=3)
    assert not any(found[name] for name in ("pairs and kinds", "verdicts", "causes", "replaced devices"))
    assert false_alarms(14) == 0


def test_peers_that_are_not_offered_say_by_whom() -> None:
    document = wirespeed.p2p("simulated:rtx4090-2+no-peers")
    assert document.peers is not None and document.peers.verdict is V.NOT_OFFERED
    assert {(a.by, a.detail) for a in document.peers.attempts} == {("NVML", "chipset not supported")}


def test_eight_gpus_take_ten_seconds_and_a_pair_that_hangs_two_more() -> None:
    peers = wirespeed.p2p("simulated:l40s-8").peers
    hung = wirespeed.p2p("simulated:l40s-8+dropped@gpu0->gpu1").peers
    assert peers is not None and hung is not None and len(peers.pairs) == 56
    assert peers.seconds < 10 and hung.seconds - peers.seconds <= 2.01


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 9])
def test_rounds_have_each_pair_once_and_each_gpu_at_most_once(count: int) -> None:
    names = [f"gpu{i}" for i in range(count)]
    done = [pair for pairs in rounds(names) for pair in pairs]
    assert sorted(done) == sorted({(a, b) for a in names for b in names if a < b})
    assert all(len({end for pair in pairs for end in pair}) == 2 * len(pairs) for pairs in rounds(names))


def test_pairs_are_described_briefly() -> None:
    names = ["gpu0", "gpu1", "gpu2"]
    every = [(a, b) for a in names for b in names if a != b]
    assert worded(every, names) == "all pairs"
    assert worded([pair for pair in every if "gpu1" in pair], names) == "gpu1 with all others"
    assert (
        worded([("gpu0", "gpu1"), ("gpu1", "gpu0"), ("gpu2", "gpu0")], names) == "gpu0 <-> gpu1, gpu2 -> gpu0"
    )


def judged(spec: str) -> tuple[Document, str]:
    document = wirespeed.p2p(spec, seed=1)
    return document, str(judge(document).verdict)


def test_a_saved_run_is_judged_as_the_command_judges_it() -> None:
    document, verdict = judged("simulated:rtx5090-4+acs")
    assert verdict == "fail"
    (missing,) = judge(document).missing
    assert "hangs for all pairs" in missing.text and "PCIe ACS" in missing.text
    assert missing.advice.do.startswith("export NCCL_P2P_DISABLE=1; then: ")
    assert judged("simulated:rtx4090-2")[1] == "pass"
    assert judged("simulated:rtx4090-2+slow")[1] == "warn"


def test_only_the_mechanism_between_processes_is_a_matter_of_the_container() -> None:
    document = wirespeed.p2p("simulated:rtxpro6000-4", seed=1)
    assert document.peers is not None
    attempts = tuple(
        with_fields(a, verdict=V.FAILS) if a.mechanism is PeerMechanism.IPC else a
        for a in document.peers.attempts
    )
    facts = (*document.facts, Fact(Known.CONTAINER, "docker"), Fact(Known.IOMMU, ("identity",)))
    found = find_peers(
        with_fields(document, peers=with_fields(document.peers, attempts=attempts), facts=facts)
    )
    assert found is not None and found.causes[0].cause.name == "container"


def test_a_file_with_unknown_gpus_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    document = wirespeed.p2p("simulated:rtx4090-2+dropped", seed=1)
    other = replace(document.machine, gpus=(), links=())
    found = find_peers(with_fields(document, machine=other))
    assert found is not None and found.verdict is Verdict.FAIL and found.settings == {"NCCL_P2P_DISABLE": "1"}
    assert '"gpu0->gpu1"' in to_json(with_fields(document, machine=other), found)


def test_the_group_of_many_gpus_is_found_at_once() -> None:
    names = [f"gpu{i}" for i in range(72)]
    verdicts = [
        Attempt(a, b, PeerMechanism.COPY, V.WRONG if (int(a[3:]) + int(b[3:])) % 3 == 0 else V.WORKS)
        for a in names for b in names if a != b
    ]  # fmt: skip
    assert len(PeerAccess(tuple(verdicts)).working_group()) > 20


def test_a_flag_that_takes_far_too_long_is_a_warning_of_check() -> None:
    document = wirespeed.p2p("simulated:rtx4090-2", seed=1)
    (result,) = document.testcases
    copies, flags = result.tables
    slow = with_fields(flags, cells=tuple(with_fields(cell, value=60e-6) for cell in flags.cells))
    document = with_fields(document, testcases=(with_fields(result, tables=(copies, slow)),))
    assert judge(document).verdict is Verdict.WARN
