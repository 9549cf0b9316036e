"""Facts in, causes out."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from dataclasses import replace as changed
from pathlib import Path

import pytest
from msgspec.structs import replace

import wirespeed
from tests.conftest import still
from wirespeed.backends.simulated import parse
from wirespeed.cli.main import main
from wirespeed.data.causes import Cause, Weight, causes
from wirespeed.data.causes import parse as parse_causes
from wirespeed.document import Document
from wirespeed.errors import UsageError
from wirespeed.features.p2p.causes import PEER_CAUSES
from wirespeed.hardware.devices import Gpu
from wirespeed.hardware.facts import OFF, ON, Fact, Facts, Known
from wirespeed.hardware.topology import LinkKind, Machine, Rank
from wirespeed.judging.advice import at_device
from wirespeed.judging.causes import CAUSES, evidence_of, signs_of
from wirespeed.judging.criteria import Criteria
from wirespeed.judging.diagnosis import diagnose
from wirespeed.judging.judge import judge
from wirespeed.judging.judged import Judged
from wirespeed.reports import Style
from wirespeed.screens import check as check_screen
from wirespeed.screens import doctor as doctor_screen

EIGHT = parse("dgx-a100-8")
RECORDED = Path(__file__).parents[1] / "recorded"
ON_TWO_HOSTS = changed(parse("hgx-h200-2"), ranks=(Rank(0, "a", "gpu0"), Rank(1, "b", "gpu0")))
#: What a good machine reports.
OF_HOST = {
    Known.SHM: 64e9, Known.MEMLOCK: "unlimited", Known.CPUS: 128, Known.CPUS_ONLINE: 128, Known.NODES: 2,
    Known.NODES_ONLINE: 2, Known.CPU_QUOTA: "unlimited", Known.NUMA_BALANCING: OFF,
    Known.HUGE_PAGES: "madvise",
    Known.IOMMU: ("identity",),
    Known.GOVERNOR: ("performance",), Known.NODES_PER_SOCKET: 1, Known.HYPERVISOR: OFF, Known.LOAD: 0.5,
    Known.PRESSURE: 0.0, Known.NCCL_VARIABLES: (), Known.DRIVER_KERNEL: "580.1",
    Known.DRIVER_LIBRARY: "580.1", Known.PEERMEM: ON,
    Known.RDMA_FILES: ON, Known.NCCL_PLUGINS: (), Known.CPU_DESIGN: "AuthenticAMD 23 49",
}  # fmt: skip
OF_GPU = {
    Known.PCIE_WIDTH: 16, Known.PCIE_WIDTH_POSSIBLE: 16, Known.PCIE_GENERATION_POSSIBLE: 4,
    Known.PCIE_GENERATION_OF_GPU: 4, Known.AER: 0, Known.AER_CORRECTED: 3, Known.BAR1: 64e9,
    Known.MEMORY: 40e9, Known.NVLINKS: 12, Known.NVLINKS_INACTIVE: 0, Known.NVLINK_ERRORS: (),
    Known.FABRIC: "ready, or there is none", Known.FABRIC_HEALTH: (), Known.BANDWIDTH_MODE: "full",
    Known.THROTTLED: ("idle",), Known.POWER_LIMIT: 400, Known.POWER_LIMIT_USUAL: 400,
    Known.MEMORY_CLOCK: 1.215e9, Known.MEMORY_CLOCK_POSSIBLE: 1.215e9, Known.ECC_ERRORS: 0,
    Known.REMAP_PENDING: OFF, Known.REMAP_FAILED: OFF, Known.MIG: OFF, Known.CONFIDENTIAL: OFF,
    Known.UTILISATION: 0, Known.PROCESSES: 0,
}  # fmt: skip
OF_NIC = {
    Known.NIC_DRIVER: "mlx5_core", Known.PCIE_WIDTH: 16, Known.PCIE_WIDTH_POSSIBLE: 16,
    Known.PCIE_GENERATION: 5, Known.PCIE_GENERATION_POSSIBLE: 5, Known.PORT_STATE: "ACTIVE",
    Known.PORT_LAYER: "InfiniBand", Known.PORT_ERRORS: 0, Known.PORT_LOST: 0,
    Known.NIC_CARD: "1f2e3d4c", Known.NIC_ADDRESS: "0000:01:00.0", Known.PORT_RATE: 200,
    Known.PORT_MTU: 9000, Known.PORT_USED: ON, Known.NUMA_NODE: "0",
}  # fmt: skip
GOOD = (
    *(Fact(name, value) for name, value in OF_HOST.items()),
    *(Fact(Known.DIMM_BYTES, 64e9, "B", f"mc{i}") for i in range(2)),
    *(Fact(name, value, "", f"gpu{i}") for i in range(8) for name, value in OF_GPU.items()),
    *(Fact(name, value, "", f"mlx5_{i}") for i in range(2) for name, value in OF_NIC.items()),
    Fact(Known.NUMA_NODE, "1", "", "mlx5_1"),  # each socket has GPUs and a NIC
    *(Fact(Known.SWITCH, f"0000:0{i // 2}:00.0", "", f"gpu{i}") for i in range(8)),
    *(Fact(Known.IOMMU_GROUP, f"{i // 2}", "", f"gpu{i}") for i in range(8)),
)
#: Cause -> a fact that speaks for it, and the device that must be named.
SIGNS = {
    "fabric": (Fact(Known.FABRIC_HEALTH, ("unhealthy route",), "", "gpu3"), "gpu3"),
    "nvlinks": (Fact(Known.NVLINKS, 6, "", "gpu3"), "gpu3"),
    "pcie-width": (Fact(Known.PCIE_WIDTH, 8, "", "gpu3"), "gpu3"),
    "ecc": (Fact(Known.REMAP_PENDING, ON, "", "gpu3"), "gpu3"),
    "throttled": (Fact(Known.THROTTLED, ("power cap",), "", "gpu3"), "gpu3"),
    "bandwidth-mode": (Fact(Known.BANDWIDTH_MODE, "half", "", "gpu3"), "gpu3"),
    "nccl-disabled": (Fact(Known.NCCL_VARIABLES, ("NCCL_P2P_DISABLE=1",)), ""),
    "shm": (Fact(Known.SHM, 2.0**26, "B"), ""),
    "memlock": (Fact(Known.MEMLOCK, 65536, "B"), ""),
    "busy-gpu": (Fact(Known.UTILISATION, 90, "%", "gpu3"), "gpu3"),
    "busy-cpus": (Fact(Known.PRESSURE, 40.0, "%"), ""),
    "driver": (Fact(Known.DRIVER_LIBRARY, "580.2"), ""),
    "pcie-errors": (Fact(Known.AER, 2, "", "gpu3"), "gpu3"),
    "nvlink-errors": (Fact(Known.NVLINK_ERRORS, ("3 replays",), "", "gpu3"), "gpu3"),
    "dimms": (Fact(Known.DIMM_BYTES, 32e9, "B", "mc1"), ""),
    "wrong-numa": (Fact(Known.NUMA_NODE, "unknown", "", "gpu3"), "gpu3"),
    "confined": (Fact(Known.CPUS, 64), ""),
    "acs": (Fact(Known.IOMMU_GROUP, "77", "", "gpu3"), "gpu2"),
    "iommu": (Fact(Known.IOMMU, ("DMA",)), ""),
    "pcie-generation": (Fact(Known.PCIE_GENERATION_POSSIBLE, 3, "", "gpu3"), "gpu3"),
    "lowered": (Fact(Known.POWER_LIMIT, 300, "W", "gpu3"), "gpu3"),
    "nccl-settings": (Fact(Known.NCCL_VARIABLES, ("NCCL_ALGO=Ring",)), ""),
    "nvlinks-inactive": (Fact(Known.NVLINKS_INACTIVE, 6, "", "gpu3"), "gpu3"),
    "confidential": (Fact(Known.CONFIDENTIAL, ON, "", "gpu3"), ""),
    "mig": (Fact(Known.MIG, ON, "", "gpu3"), "gpu3"),
    "bar1": (Fact(Known.BAR1, 2.0**28, "B", "gpu3"), "gpu3"),
    "bar1-largest": (Fact(Known.BAR1, 2.0**35, "B", "gpu3"), "gpu3"),
    "nodes-per-socket": (Fact(Known.NODES_PER_SOCKET, 4), ""),
    "whole-sockets": (Fact(Known.SWITCH, "none", "", "gpu3"), ""),
    "link-lost": (Fact(Known.INTERFACE_LOST, 1, "", "eth0"), ""),
    "governor": (Fact(Known.GOVERNOR, ("powersave",)), ""),
    "huge-pages": (Fact(Known.HUGE_PAGES, "never"), ""),
    "numa-balancing": (Fact(Known.NUMA_BALANCING, ON), ""),
    "virtual": (Fact(Known.HYPERVISOR, "QEMU"), ""),
    "nic-down": (Fact(Known.PORT_STATE, "DOWN", "", "mlx5_1"), ""),
    "nic-pcie": (Fact(Known.PCIE_WIDTH, 8, "", "mlx5_1"), ""),
    "nic-errors": (Fact(Known.PORT_ERRORS, 7, "", "mlx5_1"), ""),
    "nic-selection": (Fact(Known.NCCL_VARIABLES, ("NCCL_IB_HCA==mlx5_0",)), ""),
    "mtu": (Fact(Known.PORT_MTU, 1500, "B", "mlx5_1"), ""),
    "nic-detour": (Fact(Known.INTERFACE_KIND, "wireguard", "", "wg0"), ""),
    "nic-numa": (Fact(Known.NUMA_NODE, "unknown", "", "mlx5_1"), ""),
    "nic-endpoint": (Fact(Known.PORT_USED, OFF, "", "mlx5_1"), ""),
    "nic-slower": (Fact(Known.PORT_RATE, 100, "Gbit/s", "mlx5_1"), ""),
    "nic-bond": (Fact(Known.BOND_WITHOUT_LINK, ("eth1",), "", "bond0"), ""),
    "rdma-files": (Fact(Known.RDMA_FILES, OFF), ""),
    "wsl": (Fact(Known.HYPERVISOR, "WSL2"), ""),
    "plugin-missing": (Fact(Known.NIC_DRIVER, "efa", "", "mlx5_1"), ""),
}


def test_a_good_machine_has_no_cause() -> None:
    assert [(c.name, found) for c in CAUSES for found in signs_of(c, EIGHT, Facts(GOOD))] == []
    assert [(c.name, found) for c in CAUSES for found in signs_of(c, EIGHT, Facts(()))] == []


@pytest.mark.parametrize("name", SIGNS)
def test_one_fact_speaks_for_one_cause(name: str) -> None:
    fact, device = SIGNS[name]
    facts = Facts((*GOOD, fact))
    unknown = tuple(changed(gpu, model=f"{gpu.model} of a cloud") for gpu in EIGHT.gpus)
    of_sheet = changed(EIGHT, gpus=unknown) if name == "nvlinks-inactive" else EIGHT  # else the sheet knows
    found = [(c.name, sign.device) for c in CAUSES for sign in signs_of(c, of_sheet, facts)]
    assert found == [(name, device)]


@pytest.mark.parametrize(("active", "is_named"), [(12, False), (11, True)])
def test_links_that_the_data_sheet_does_not_give_are_inactive_by_design(active: int, is_named: bool) -> None:
    """Of the 18 links of an H100 NVL its bridges have 12."""
    machine = parse("h100-nvl-2")
    numbers = ((Known.NVLINKS, active), (Known.NVLINKS_INACTIVE, 18 - active))
    facts = Facts([Fact(name, value, "", f"gpu{i}") for i in range(2) for name, value in numbers])
    (cause,) = (cause for cause in CAUSES if cause.name == "nvlinks-inactive")
    assert bool([*signs_of(cause, machine, facts)]) is is_named


def test_causes_that_the_machine_itself_shows() -> None:
    (no_peers,) = (c for c in CAUSES if c.name == "no-peers")
    found = [(s.device, s.text) for s in signs_of(no_peers, parse("pcie-2-no-p2p"), Facts(()))]
    assert found == [("gpu0", "it cannot access gpu1"), ("gpu1", "it cannot access gpu0")]
    (peermem,) = (c for c in CAUSES if c.name == "peermem")
    assert list(signs_of(peermem, ON_TWO_HOSTS, Facts([Fact(Known.PEERMEM, OFF)])))
    assert not list(signs_of(peermem, EIGHT, Facts([Fact(Known.PEERMEM, OFF)])))


def of_two(*different: Fact) -> list[tuple[str, str, str]]:
    """The causes that two good hosts show of which the second differs in some facts."""
    facts = [*(replace(fact, host=host) for host in "ab" for fact in GOOD)]
    facts += [replace(fact, host="b") for fact in different]
    return [(c.name, sign.host, sign.text) for c in CAUSES for sign in signs_of(c, EIGHT, Facts(facts))]


def test_hosts_that_differ() -> None:
    assert of_two() == []
    unknown = of_two(Fact(Known.NIC_FIRMWARE, "28.39", "", "mlx5_0"))
    assert unknown == [], "the firmware of the other host is unknown"
    found = of_two(Fact(Known.PEERMEM, OFF))
    assert ("node-settings", "a", "nvidia_peermem: on on a, off on b") in found
    assert {name for name, *_ in found} == {"node-settings", "peermem"}


def of_ways(used: str, *, speeds: dict[str, float], address: str = "192.168.1.1/20") -> list[str]:
    """What speaks for a wrong interface if two hosts have two of them, and the first sends by one."""
    facts = [Fact(Known.ROUTE_INTERFACE, used, host="a")]
    for host, own in (("a", ("192.168.0.1/20", address)), ("b", ("192.168.0.2/20", "10.0.0.2/24"))):
        for name, at in zip(("eno1", "ens1"), own, strict=True):
            facts.append(Fact(Known.INTERFACE_ADDRESS, at, device=name, host=host))
    facts += [Fact(Known.INTERFACE_SPEED, s, "Gbit/s", name, host="a") for name, s in speeds.items()]
    (cause,) = (c for c in CAUSES if c.name == "nic-route")
    return [sign.text for sign in signs_of(cause, EIGHT, Facts(facts))]


def test_two_interfaces_in_one_subnet_and_a_faster_one_between_the_same_nodes() -> None:
    same = "; ens1 (192.168.1.1) is in the same subnet"
    assert of_ways("eno1", speeds={}) == [f"a sends to b by eno1 (192.168.0.1){same}"]
    elsewhere = "10.0.0.1/24"
    faster = of_ways("eno1", speeds={"eno1": 10, "ens1": 100}, address=elsewhere)
    slow, fast = "eno1 (10 Gbit/s, 192.168.0.1)", "ens1 (100 Gbit/s, 10.0.0.1)"
    assert faster == [f"a sends to b by {slow}; {fast} reaches it, too"]
    assert of_ways("eno1", speeds={"eno1": 10, "ens1": 10}, address=elsewhere) == []
    assert of_ways("eno1", speeds={"eno1": 10, "ens1": 100}, address="10.9.0.1/24") == []
    assert of_ways("ens1", speeds={"eno1": 10, "ens1": 100}, address=elsewhere) == []


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ([Fact(Known.NCCL_VARIABLES, ("NCCL_IB_GID_INDEX=0",))],
         "NCCL_IB_GID_INDEX=0 is IB/RoCE v1 of mlx5_1; RoCE v2 has 1, 3"),
        ([Fact(Known.NCCL_VARIABLES, ("/etc/nccl.conf: NCCL_IB_GID_INDEX=7",))],
         "NCCL_IB_GID_INDEX=7 is no GID of mlx5_1; RoCE v2 has 1, 3"),
        ([Fact(Known.NCCL_VARIABLES, ("NCCL_IB_GID_INDEX=3",))], ""),
        ([Fact(Known.NCCL_VARIABLES, ("NCCL_IB_HCA=^mlx5_0",))], "NCCL_IB_HCA leaves out mlx5_0"),
    ],
)  # fmt: skip
def test_selections(facts: list[Fact], text: str) -> None:
    gids = ("0: IB/RoCE v1", "1: RoCE v2", "2: IB/RoCE v1", "3: RoCE v2")
    roce = [Fact(Known.PORT_GIDS, gids, "", "mlx5_1"), Fact(Known.PORT_LAYER, "Ethernet", "", "mlx5_1")]
    (cause,) = (c for c in CAUSES if c.name == "nic-selection")
    found = [sign.text for sign in signs_of(cause, EIGHT, Facts((*GOOD, *roce, *facts)))]
    assert found == ([text] if text else [])


@pytest.mark.parametrize(
    ("value", "lets_in"),
    [
        ("^docker0,eth1", True), ("=lo", True), ("lo,eth0", True), ("l", True), ("^=docker0", True),
        ("^docker,lo", False), ("^l", False), ("eth0", False), ("=eth0,lo0", False), ("lo0", False),
        ("", False),
    ],
)  # fmt: skip
def test_settings_that_let_nccl_use_the_loopback_interface(value: str, lets_in: bool) -> None:
    (cause,) = (c for c in CAUSES if c.name == "nic-selection")
    setting = Fact(Known.NCCL_VARIABLES, (f"NCCL_SOCKET_IFNAME={value}",))
    found = [(sign.text, sign.weight) for sign in signs_of(cause, EIGHT, Facts((*GOOD, setting)))]
    assert found == ([(f"NCCL_SOCKET_IFNAME={value} lets lo in", Weight.NOTE)] if lets_in else [])


@pytest.mark.parametrize(("layer", "gids", "found"), [("Ethernet", 0, True), ("Ethernet", 1, False)])
def test_a_port_without_gid(layer: str, gids: int, found: bool) -> None:
    (cause,) = (c for c in CAUSES if c.name == "nic-no-gid")
    facts = [Fact(Known.PORT_LAYER, layer, "", "mlx5_1"), Fact(Known.PORT_GIDS_IN_USE, gids, "", "mlx5_1")]
    assert bool(list(signs_of(cause, EIGHT, Facts((*GOOD, *facts))))) is found


def test_a_socket_with_gpus_and_without_nics() -> None:
    (cause,) = (c for c in CAUSES if c.name == "nic-numa")
    facts = [Fact(Known.NUMA_NODE, "0", "", f"mlx5_{i}") for i in range(2)]
    split = changed(EIGHT, gpus=tuple(changed(gpu, numa=gpu.index // 4) for gpu in EIGHT.gpus))
    found = [sign.text for sign in signs_of(cause, split, Facts((*GOOD, *facts)))]
    assert found == ["no NIC is at NUMA node 1 of gpu4, gpu5, gpu6, gpu7 (mlx5_0, mlx5_1 at 0)"]
    facts[1] = Fact(Known.NUMA_NODE, "1", "", "mlx5_1")
    assert not list(signs_of(cause, split, Facts((*GOOD, *facts))))


@pytest.mark.parametrize(
    ("own", "theirs", "way", "route", "text"),
    [
        (9000, 9000, 9000, 9000, ""),
        (9000, 1500, 1500, 9000, ""),  # another cause: the ends differ
        (9000, 4200, 1450, 1450, "MTU 9000 on a, 4200 on b, 1450 on the way there"),
        (1500, 1500, 1400, 1500,
         "MTU 1500 on a, 1500 on b, 1400 on the way there; larger packets vanish without a message"),
    ],
)  # fmt: skip
def test_packets_that_are_smaller_on_the_way(own: int, theirs: int, way: int, route: int, text: str) -> None:
    """It is a defect if the kernel is not told, and goes on to send larger ones."""
    (cause,) = (c for c in CAUSES if c.name == "path-mtu")
    values = {Known.INTERFACE_MTU: own, Known.PATH_MTU: way, Known.ROUTE_MTU: route}
    facts = [Fact(name, value, "B", "eth0", host="a") for name, value in values.items()]
    facts.append(Fact(Known.INTERFACE_MTU, theirs, "B", "ens1", host="b"))
    weight = Weight.DEFECT if "vanish" in text else Weight.CONDITION
    assert [(s.host, s.text, s.weight) for s in signs_of(cause, EIGHT, Facts(facts))] == (
        [("a", text, weight)] if text else []
    )


def test_gpus_that_no_nic_can_access_have_no_gpudirect() -> None:
    """Those of DGX Spark share the host's memory: NVIDIA's forum for developers, topic 348787."""
    (cause,) = (c for c in CAUSES if c.name == "peermem")
    off = [Fact(Known.PEERMEM, OFF, host="a"), Fact(Known.NCCL_GDR, OFF, host="a")]
    assert list(signs_of(cause, ON_TWO_HOSTS, Facts(off)))
    gb10 = Fact(Known.GPUDIRECT, OFF, device="gpu0", host="a")
    assert not list(signs_of(cause, ON_TWO_HOSTS, Facts([*off, gb10])))
    assert not list(signs_of(cause, parse("cpu-2-sockets"), Facts(off[:1]))), "no GPUs"


def test_every_cause_is_tested() -> None:
    names = [cause.name for cause in CAUSES]
    own = {"no-peers", "peermem", "node-settings", "path-mtu", "nic-route"}
    own |= {"empty-channels", "nic-isolated", "slot", "nic-lanes", "drive-pcie"}  # see test_posted_machines
    own |= {"nic-no-gid", "low-clocks"}
    assert len(set(names)) == len(names) and set(names) == SIGNS.keys() | own


ROOT = Path(__file__).parents[2]
DATA = ROOT / "src/wirespeed/data/causes.toml"
INDEX, PAGE = ROOT / "docs/doctor.md", ROOT / "docs/reference/causes.md"
#: What is slow -> whether a cause is of it, by the links that it slows down; the first that fits.
SYMPTOMS = {
    "only collectives": lambda cause: cause.collectives,
    "only what goes between hosts": lambda cause: cause.slows == {LinkKind.NETWORK},
    "any path": lambda cause: len(cause.slows) == len(LinkKind),
    "host memory, and copies with it": lambda cause: {LinkKind.MEMORY, LinkKind.SOCKET} <= cause.slows,
    "a GPU: its memory, kernels and links": lambda cause: cause.slows >= {LinkKind.MEMORY, LinkKind.NVLINK},
    "only memory, of a GPU or of the host": lambda cause: cause.slows == {LinkKind.MEMORY},
    "only copies over NVLink": lambda cause: cause.slows == {LinkKind.NVLINK},
    "copies over PCIe: host and GPU, or GPU and GPU": lambda cause: LinkKind.PCIE in cause.slows,
    "nothing that this run measured": lambda cause: not cause.slows,
}


def by_symptom() -> dict[str, list[Cause]]:
    """The causes that have a section, by what is slow if they are there."""
    made: dict[str, list[Cause]] = {symptom: [] for symptom in SYMPTOMS}
    for cause in CAUSES:
        made[next(symptom for symptom, fits in SYMPTOMS.items() if fits(cause))].append(cause)
    return made


def sections() -> str:
    """The sections of the causes, by symptom, as the documentation has them."""
    made = []
    for symptom, ones in by_symptom().items():
        made.append(f"## Slow: {symptom}\n")
        for cause in ones:
            commands = ", ".join(f"`{one}`" for one in at_device(cause.confirm, Machine("")).split("; "))
            shown = f" ({cause.shows})" if cause.shows else ""
            todo = f"Confirm: {commands}{shown}. Remedy: {cause.marked_remedy}."
            todo += f" Source: {'; '.join(cause.sources)}." if cause.sources else ""
            lines = textwrap.wrap(todo, 126, break_on_hyphens=False, break_long_words=False)
            made.append("\n".join([f"### {cause.name}", cause.text.strip(), *lines]) + "\n")
    return "\n".join(made)


def index() -> str:
    """The table of causes by symptom: those that are wrong on any machine, and all others."""
    rows = []
    for symptom, ones in by_symptom().items():
        faults = [cause.name for cause in ones if cause.weight in (Weight.DEFECT, Weight.BUSY)]
        others = [cause.name for cause in ones if cause.name not in faults]
        anchor = re.sub(r"[^\w -]", "", f"slow {symptom}".lower()).replace(" ", "-")
        row = f"[{symptom}](reference/causes.md#{anchor}) | {', '.join(faults)} | {', '.join(others)}"
        rows.append(f"| {row} |\n")
    return "".join(rows)


@pytest.mark.parametrize(
    ("page", "start", "end", "made"),
    [
        (INDEX, "conditions, settings and notes |\n|---|---|---|\n", "\n`wirespeed help NAME`", index),
        (PAGE, "", "", sections),
    ],
    ids=["index", "sections"],
)  # fmt: skip
def test_the_pages_have_the_causes_of_the_data(
    page: Path, start: str, end: str, made: Callable[[], str], request: pytest.FixtureRequest
) -> None:
    start = start or page.read_text().partition("\n## ")[0] + "\n"
    before, _, rest = page.read_text().partition(start)
    after = rest[rest.index(end) :] if end else ""
    if request.config.getoption("--update-golden"):
        page.write_text(before + start + made() + after)
    assert before + start + made() + after == page.read_text(), "run `pytest --update-golden`"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('weight = "defect"', 'weight = "bad"', "cause 'nvlinks': Invalid enum value 'bad' - at `$.weight`"),
        ("title =", "titel =", "cause 'nvlinks': Object contains unknown field `titel`"),
        ('does = "slower"', 'does = "slow"', "cause 'nvlinks': does is 'slow' (did you mean 'slower'?)"),
        ("text = ", "shows = ", "cause 'nvlinks': it has no text"),
        ("[[cause]]", "[[causes]]", "unknown table 'causes'; write [[cause]] or [[error]]"),
        ("[[cause]]", "[[error]]", "cause is no array of tables; write [[cause]]"),
        ("[[cause]]", "[[cause]", "is not valid TOML"),
        ('of = "nvlink"\n', "", "cause 'nvlinks': 'with_links' requires the kind of the links"),
    ],
)
def test_a_wrong_file_is_one_line_with_the_entry(old: str, new: str, why: str) -> None:
    text = DATA.read_text().split("[[cause]]")[2]
    with pytest.raises(UsageError) as error:
        parse_causes(f"[[cause]]{text}".replace(old, new, 1))
    assert why in str(error.value) and "\n" not in str(error.value) and "causes.toml" in str(error.value)


def test_a_cause_without_signs_or_with_a_name_that_exists_is_refused() -> None:
    (known,) = (cause for cause in CAUSES if cause.name == "nvlinks")
    with pytest.raises(UsageError, match="'nvlnks': no function nvlnks yields its signs"):
        evidence_of(replace(known, name="nvlnks"))
    with pytest.raises(UsageError, match="no function nvlinks_between"):
        evidence_of(replace(known, between=True))
    text = DATA.read_text()
    with pytest.raises(UsageError, match="the cause 'fabric' is there twice"):
        parse_causes(text.replace('name = "nvlinks"', 'name = "fabric"', 1))


def test_peer_access_has_the_causes_with_an_effect_on_it() -> None:
    assert {cause.name for cause, _, _ in PEER_CAUSES} == {cause.name for cause in causes() if cause.peers}
    assert all(cause.peers for cause in causes() if cause.only_peers)


def measured(
    fault: str, *facts: Fact, cases: tuple[str, ...] = ("0", "device_to_device_memcpy_read_ce")
) -> Document:
    """Two GPUs with a fault, as if their facts had been read."""
    document = wirespeed.run(cases, machine=f"simulated:hgx-h200-2{fault}", samples=2, copies=1)
    return still(replace(document, facts=facts))


def named(document: Document) -> list[tuple[str, str, int]]:
    found = diagnose(document, wirespeed.judge(document))
    return [(f.cause.name, f.place, f.cells) for f in found.findings]


WIDTH = (Fact(Known.PCIE_WIDTH, 8, "", "gpu1"), Fact(Known.PCIE_WIDTH_POSSIBLE, 16, "", "gpu1"),
         Fact(Known.PCIE_NARROWEST, "0000:15:00.0", "", "gpu1"))  # fmt: skip
ERRORS = Fact(Known.NVLINK_ERRORS, ("3 replays",), "", "gpu1")


def test_a_cause_explains_the_cells_of_its_links_and_its_device_only() -> None:
    slow = measured("+speed@numa0-gpu1=0.5", *WIDTH, ERRORS)
    assert named(slow) == [("pcie-width", "gpu1", 1)]
    elsewhere = measured("+speed@numa0-gpu0=0.5", *WIDTH)
    assert named(elsewhere) == [("pcie-width", "gpu0", 1), ("pcie-width", "gpu1", 0)]
    by_numbers = diagnose(elsewhere, wirespeed.judge(elsewhere)).findings[0]
    assert not by_numbers.likely and [other.name for other in by_numbers.others] == [
        "pcie-generation",
        "pcie-errors",
    ]
    assert named(measured("+speed@gpu0-gpu1=0.5", ERRORS)) == [("nvlink-errors", "gpu1", 2)]
    assert named(measured("", ERRORS)) == []


def test_settings_of_nccl_explain_collectives_only() -> None:
    disabled = Fact(Known.NCCL_VARIABLES, ("NCCL_P2P_DISABLE=1",))
    assert named(measured("+speed@gpu0-gpu1=0.5", disabled)) == [
        ("bandwidth-mode", "", 2),
        ("nccl-disabled", "", 0),
    ]
    assert named(measured("+nccl-disabled", disabled, cases=("all_reduce",))) == [("nccl-disabled", "", 2)]


def test_what_is_left_is_counted() -> None:
    found = diagnose(document := measured("+speed@gpu0->gpu1=0.37", *WIDTH), wirespeed.judge(document))
    assert found.slow > 0 and found.unexplained == found.slow and found.has_facts
    assert not diagnose(measured("")).has_facts


def test_text(
    golden, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    document = measured(
        "+speed@numa0-gpu1=0.5", *WIDTH, SIGNS["shm"][0], Fact(Known.GOVERNOR, reason="not there")
    )
    wirespeed.save(document, tmp_path / "d.json")
    golden("doctor/found.txt", doctor_screen.render(Judged(document), Style(verbose=True)))
    assert main(["doctor", str(tmp_path / "d.json")]) == 1
    out = capsys.readouterr().out
    assert "likely cause: a PCIe link runs at reduced width (gpu1), explains 1 of 1 slow value" in " ".join(
        out.split()
    )
    assert "1 reading could not be read; -v shows all" in out and "SIMULATED" in out
    old = replace(measured("+speed@gpu0-gpu1=0.5"), facts=())
    wirespeed.save(old, tmp_path / "old.json")
    assert main(["doctor", str(tmp_path / "old.json")]) == 1
    assert "this run has no readings of the system" in capsys.readouterr().out


def test_check_names_the_first_cause() -> None:
    document = measured("+speed@numa0-gpu1=0.5", *WIDTH)
    text = " ".join(check_screen.render(Judged(document), Style()).split())
    assert "FAIL a PCIe link runs at reduced width (gpu1) explains 1 of 1 slow value" in text
    assert "remedy reseat the card or riser" in text
    healthy = measured("", *WIDTH)
    assert "cause" not in check_screen.render(Judged(healthy), Style())


def test_without_measuring(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--no-measure", "-v"]) in (3, 4)  # nothing measured is no pass
    out = capsys.readouterr().out
    assert "CPUs of the host" in out and ("this is not a pass" in out or "finding" in out)
    assert main(["doctor", "--no-measure", "--machine", "simulated:hgx-h200-2"]) == 4
    assert "SIMULATED" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["d.json", "-t", "0"], "has no effect on saved runs"),
        (["d.json", "--no-measure"], "--no-measure is about a machine, not about a saved run"),
        (["--no-measure", "-o", "d.json"], "--no-measure measures nothing"),
        (["nowhere.json"], "nowhere.json"),
    ],
)
def test_wrong_use(capsys: pytest.CaptureFixture[str], arguments: list[str], why: str) -> None:
    assert main(["doctor", *arguments]) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line


def test_it_measures_and_saves_facts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    main(
        [
            "doctor",
            "-t",
            "host_stream_copy",
            "--size",
            "1MiB",
            "--samples",
            "1",
            "--copies",
            "1",
            "-o",
            str(path),
        ]
    )
    assert "slow value" in capsys.readouterr().out
    assert Facts(wirespeed.load(path).facts).number(Known.CPUS)


@pytest.mark.parametrize(
    ("bus", "lspci", "smi"),
    [
        ("00000000:04:00", "lspci -s 04:00.0", "nvidia-smi -i 0000:04:00.0"),
        ("00010000:04:00", "lspci -s 10000:04:00.0", "nvidia-smi -i 10000:04:00.0"),
        ("00000009:04:00", "lspci -s 0009:04:00.0", "nvidia-smi -i 0009:04:00.0"),
        ("0000:04:00.0", "lspci -s 04:00.0", "nvidia-smi -i 0000:04:00.0"),
        ("04; rm -rf /", "lspci", "nvidia-smi"),
        ("", "lspci", "nvidia-smi"),
    ],
)
def test_commands_name_the_gpu_by_its_bus_id(bus, lspci, smi):
    machine = Machine("m", gpus=(Gpu(0, "A", "00000000:03:00"), Gpu(3, "A", bus)))
    assert at_device("lspci{pci}", machine, "nvswitch", "gpu3") == lspci
    assert at_device("nvidia-smi{gpu}", machine, "gpu3") == smi
    assert at_device("lspci{pci}", machine, "pcie1") == "lspci"


def test_a_finding_and_its_advice_name_the_device():
    document = wirespeed.run((), machine="simulated:dgx-a100-8+gen3@gpu3", tier="quick")
    bus = document.machine.gpus[3].bus_id.partition(":")[2]
    assert f"lspci -vv -s {bus}.0 |" in diagnose(document).findings[0].commands[0]
    slow = wirespeed.run(["4"], machine="simulated:dgx-a100-8+speed@gpu3-nvswitch=0.5")
    text = check_screen.render(Judged(slow), Style())
    assert f"nvidia-smi nvlink -s -i 0000:{bus}.0" in text


@pytest.mark.parametrize(("run", "gpu"), [("busy-host-link", "gpu1"), ("busy-nvlink", "gpu0")])
def test_another_process_explains_the_links_that_it_uses(run: str, gpu: str) -> None:
    """Recorded on two H100s while another process copied from the host to gpu1, and from gpu0 to gpu1.

    It slows only some links of a GPU. The width of the PCIe links was read during copies, and is not reduced.
    """
    document = wirespeed.load(RECORDED / f"two-h100-{run}.json")
    check = judge(document, Criteria(ignore_busy=True))
    finding = diagnose(document, check).findings[0]
    assert (finding.cause.name, finding.place) == ("busy-gpu", gpu) and finding.cells
    if run == "busy-nvlink":
        assert "gpu0->nvswitch" in str(check.culprits[0])
