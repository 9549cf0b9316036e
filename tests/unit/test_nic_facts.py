"""Facts of NICs from constructed trees, and the causes that they speak for."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace as changed
from pathlib import Path

import pytest
from msgspec.structs import replace

import wirespeed
from tests.conftest import with_long
from wirespeed.backends.host.nic_facts import counters, facts, of_interface
from wirespeed.backends.recording import Recorder, opened, record_in
from wirespeed.backends.simulated import parse
from wirespeed.backends.system_files import Tree
from wirespeed.data.causes import Weight
from wirespeed.features.qualify.limits import below_limits, fastest, of_rdma, of_tcp
from wirespeed.hardware.facts import COUNTED, OFF, ON, Fact, Facts, Known
from wirespeed.hardware.topology import Rank
from wirespeed.judging.causes import CAUSES, signs_of
from wirespeed.judging.causes.evidence_nic import port_of as shared_port
from wirespeed.judging.causes.record import Sign
from wirespeed.judging.cells_seen import slow_keys
from wirespeed.judging.diagnosis import _slow
from wirespeed.judging.judged import Judged
from wirespeed.qualification import Qualification, QualifiedNode, Round, Stage
from wirespeed.reports import Style
from wirespeed.screens import doctor as doctor_screen

MACHINE = parse("hgx-h200-2")
NIC_CAUSES = [one for one in CAUSES if one.name in ("nic-down", "nic-pcie", "nic-errors", "plugin-missing")]
PCIE = {
    "max_link_speed": "32.0 GT/s PCIe", "current_link_speed": "32.0 GT/s PCIe", "max_link_width": "16",
    "current_link_width": "16", "vendor": "0x15b3",
}  # fmt: skip
INFINIBAND = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)"}
INFINIBAND |= {"link_layer": "InfiniBand", "counters/symbol_error": "0", "counters/link_downed": "0"}
INFINIBAND |= {"counters/port_rcv_errors": "0", "hw_counters/packet_seq_err": "0"}
ETHERNET = INFINIBAND | {"link_layer": "Ethernet", "hw_counters/np_cnp_sent": "7"}
DOWN = {"state": "1: DOWN", "phys_state": "2: Polling"}
DISABLED = {"state": "1: DOWN", "phys_state": "3: Disabled"}
NICS = [f"mlx5_{i}" for i in range(8)]


def written(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")


def nic(root: Path, index: int, port: dict[str, str], driver: str = "mlx5_core") -> Path:
    """Make a NIC with one port below its own bridge; return the folder of its PCI device."""
    name = f"mlx5_{index}" if driver == "mlx5_core" else f"rdmap{index}s0"
    above = root / f"sys/devices/pci0000:{index:02x}/0000:{index:02x}:01.0"
    device = above / f"0000:{index + 32:02x}:00.0"
    written(above, PCIE)
    written(device, PCIE | {f"net/eth{index}/flags": "0x1003"})
    written(device / f"infiniband/{name}/ports/1", port)
    (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
    (device / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")
    (device / f"infiniband/{name}/device").symlink_to("../..")
    (root / "sys/class/infiniband").mkdir(parents=True, exist_ok=True)
    link = root / "sys/class/infiniband" / name
    link.symlink_to(f"../../{device.relative_to(root / 'sys')}/infiniband/{name}")
    return device


def server(root: Path, port: dict[str, str] | None = None, driver: str = "mlx5_core") -> list[Path]:
    """Make a server with eight good NICs; return the folders of their PCI devices."""
    written(root, {"dev/infiniband/uverbs0": "", "etc/ld.so.cache": "ld.so\0/lib/libc.so.6\0"})
    return [nic(root, i, port or INFINIBAND, driver) for i in range(8)]


def port_of(device: Path) -> Path:
    return next(device.glob("infiniband/*/ports/1"))


def read(root: Path, **variables: str) -> Facts:
    return Facts(facts(Tree(root, variables).root))


def signs(found: Facts, *more: Fact) -> list[tuple[str, Weight, str]]:
    found = Facts((*found, *more))
    return [
        (cause.name, sign.weight or cause.weight, sign.text)
        for cause in NIC_CAUSES
        for sign in signs_of(cause, MACHINE, found)
    ]


def test_a_host_without_nics_has_no_facts(tmp_path: Path) -> None:
    (tmp_path / "dev/infiniband").mkdir(parents=True)  # some containers have it without devices
    assert not list(read(tmp_path))


def test_good_nics(tmp_path: Path) -> None:
    server(tmp_path)
    found = read(tmp_path)
    assert found.devices() == tuple(NICS)
    assert found.text(Known.NIC_DRIVER, "mlx5_3") == "mlx5_core"
    assert found.text(Known.NIC_ADDRESS, "mlx5_3") == "0000:23:00.0"
    assert found.text(Known.PORT_STATE, "mlx5_3") == "ACTIVE"
    assert found.text(Known.PORT_PHYSICAL, "mlx5_3") == "LinkUp"
    assert found.text(Known.PORT_LAYER, "mlx5_3") == "InfiniBand"
    names = (Known.PORT_RATE, Known.PCIE_WIDTH, Known.PCIE_GENERATION, Known.PORT_ERRORS, Known.PORT_LOST)
    assert [found.number(name, "mlx5_3") for name in names] == [400, 16, 5, 0, 0]
    assert found.text(Known.RDMA_FILES) == ON
    assert signs(found) == []


def test_ports_that_are_down(tmp_path: Path) -> None:
    devices = server(tmp_path)
    for i in (2, 5):
        written(port_of(devices[i]), DOWN)
    written(port_of(devices[6]), {"state": "2: INIT"})
    assert signs(read(tmp_path)) == [
        ("nic-down", Weight.DEFECT,
         "mlx5_2, mlx5_5: DOWN, Polling; 5 other InfiniBand ports active"),
        ("nic-down", Weight.DEFECT, "mlx5_6: INIT, LinkUp; 5 other InfiniBand ports active"),
    ]  # fmt: skip
    for device in devices:
        written(port_of(device), DOWN)
    assert signs(read(tmp_path)) == []  # nothing says that this host uses InfiniBand


def test_the_second_port_of_a_card_may_have_no_cable(tmp_path: Path) -> None:
    """A condition, unless the port has lost its link."""
    (device, *_) = server(tmp_path)
    second = device.with_name("0000:20:00.1")
    shutil.copytree(device, second, symlinks=True)
    (second / "infiniband/mlx5_0").rename(second / "infiniband/mlx5_9")
    link = tmp_path / "sys/class/infiniband/mlx5_9"
    link.symlink_to(f"../../{second.relative_to(tmp_path / 'sys')}/infiniband/mlx5_9")
    written(port_of(second), DOWN)
    ((name, weight, text),) = signs(read(tmp_path))
    assert (name, weight) == ("nic-down", Weight.CONDITION) and text.startswith("mlx5_9: DOWN")
    written(port_of(second), {"counters/link_downed": "1"})
    assert [weight for _, weight, _ in signs(read(tmp_path))] == [Weight.DEFECT]


def test_ports_of_one_nic_have_numbers(tmp_path: Path) -> None:
    (device, *_) = server(tmp_path)
    written(device / "infiniband/mlx5_0/ports/2", INFINIBAND | DOWN)
    found = read(tmp_path)
    assert found.devices()[:3] == ("mlx5_0", "mlx5_0:1", "mlx5_0:2")
    ((name, weight, text),) = signs(found)
    assert (name, weight) == ("nic-down", Weight.CONDITION) and text.startswith("mlx5_0:2: DOWN")
    one = Fact(Known.NCCL_VARIABLES, ("NCCL_IB_HCA=mlx5_0:1",))
    two = Fact(Known.NCCL_VARIABLES, ("NCCL_IB_HCA=mlx5_0:2",))
    assert (signs(found, one), signs(found, two)[0][1]) == ([], Weight.DEFECT)


@pytest.mark.parametrize(
    ("port", "flags", "weight"),
    [
        (DISABLED, "0x1002", Weight.CONDITION),  # nobody uses it
        (DISABLED, "0x1003", Weight.CONDITION),  # there may never have been a cable
        (DISABLED | {"counters/link_downed": "2"}, "0x1002", Weight.CONDITION),  # by the administrator
        (DISABLED | {"counters/link_downed": "2"}, "0x1003", Weight.DEFECT),  # it lost its link
        (DISABLED | {"counters/link_downed": "2"}, "nonsense", Weight.CONDITION),
        (DOWN | {"phys_state": "4: PortConfigurationTraining"}, "0x1003", Weight.DEFECT),
    ],
)
def test_ethernet_ports_that_are_down(
    tmp_path: Path, port: dict[str, str], flags: str, weight: Weight
) -> None:
    device = server(tmp_path, ETHERNET)[3]
    written(port_of(device), port)
    written(device, {"net/eth3/flags": flags})
    assert read(tmp_path).number(Known.PORT_CONGESTION, "mlx5_3") == 7
    assert [found[:2] for found in signs(read(tmp_path))] == [("nic-down", weight)]


@pytest.mark.parametrize(
    ("setting", "weight"),
    [
        ("NCCL_IB_HCA=mlx5_3", Weight.DEFECT),
        ("/etc/nccl.conf: NCCL_IB_HCA==mlx5_1:1,mlx5_3:1", Weight.DEFECT),
        ("NCCL_IB_HCA=mlx5", Weight.CONDITION),
        ("NCCL_IB_HCA==mlx5", None),
        ("NCCL_IB_HCA=mlx5_0,mlx5_1", None),
        ("NCCL_IB_HCA=^mlx5_3", None),
        ("NCCL_IB_HCA=^=mlx5_1", Weight.CONDITION),
        ("NCCL_IB_HCA=", Weight.CONDITION),
    ],
)
def test_nccl_says_which_ports_it_uses(tmp_path: Path, setting: str, weight: Weight | None) -> None:
    written(port_of(server(tmp_path, ETHERNET)[3]), DISABLED)
    found = signs(read(tmp_path), Fact(Known.NCCL_VARIABLES, (setting,)))
    assert [one[1] for one in found] == ([weight] if weight else [])


def test_errors(tmp_path: Path) -> None:
    for i, device in enumerate(server(tmp_path)):
        written(port_of(device), {"hw_counters/packet_seq_err": str(i * 10), "counters/link_downed": "1"})
    written(port_of(device), {"counters/symbol_error": "5"})
    assert signs(read(tmp_path)) == [
        ("nic-errors", Weight.CONDITION,
         "mlx5_7: 5 symbol_error, 70 packet_seq_err; mlx5_6: 60 packet_seq_err; mlx5_5: 50 packet_seq_err; "
         "4 other ports with up to 40 errors each before the run"),
    ]  # fmt: skip


def test_errors_during_a_run_are_named_before_older_ones(tmp_path: Path) -> None:
    port = port_of(server(tmp_path)[2])
    written(port, {"hw_counters/packet_seq_err": "7"})
    (before,) = (one for one in counters(Tree(tmp_path, {}).root) if one.value)
    written(port, {"hw_counters/packet_seq_err": "207", "counters/symbol_error": "1"})
    (after,) = (one for one in counters(Tree(tmp_path, {}).root) if one.value)
    assert (before.device, before.name) == (after.device, after.name) == ("mlx5_2", "errors of the port")
    assert isinstance(before.value, float) and isinstance(after.value, float)
    assert before.counter and COUNTED[before.name] is Known.PORT_RETRIED
    during = Fact(Known.PORT_RETRIED, after.value - before.value, device="mlx5_2")
    assert signs(read(tmp_path), during) == [
        ("nic-errors", Weight.DEFECT, "mlx5_2: 201 errors during the run")
    ]
    few = Fact(Known.PORT_RETRIED, 3.0, device="mlx5_2")
    assert signs(read(tmp_path), few) == [("nic-errors", Weight.CONDITION, "mlx5_2: 3 errors during the run")]


def test_pcie_links(tmp_path: Path) -> None:
    devices = server(tmp_path)
    for i in (1, 4):
        written(devices[i], {"current_link_width": "8"})
    written(devices[6], {"current_link_speed": "8.0 GT/s PCIe"})
    written(devices[7].parent, {"max_link_width": "8", "current_link_width": "8"})  # a narrow slot
    written(devices[7], {"current_link_width": "8"})
    assert signs(read(tmp_path)) == [
        ("nic-pcie", Weight.DEFECT,
         "mlx5_1 (0000:21:00.0), mlx5_4 (0000:24:00.0): x8, both ends support x16"),
        ("nic-pcie", Weight.NOTE, "mlx5_6 (0000:26:00.0): generation 3, both ends support generation 5"),
    ]  # fmt: skip


EFA = {
    "state": "4: ACTIVE",
    "phys_state": "5: LinkUp",
    "link_layer": "Unknown",
    "rate": "100 Gb/sec (4X EDR)",
}


def test_the_plugin_for_efa(tmp_path: Path) -> None:
    server(tmp_path, EFA, "efa")
    missing = ("plugin-missing", Weight.DEFECT, "8 EFA devices, but the loader finds no libnccl-net*.so")
    assert signs(read(tmp_path)) == [missing]
    assert not read(tmp_path).unreadable(Known.PORT_LOST, "rdmap0s0")  # nobody tried
    installed = "opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so"
    written(tmp_path, {installed: ""})
    ((_, _, text),) = signs(read(tmp_path))
    assert text == f"{missing[2]}; it does not search /{installed}"
    folder = f"/{Path(installed).parent}"
    for variables in ({"LD_LIBRARY_PATH": f".:/none:{folder}:"}, {"NCCL_NET_PLUGIN": f"/{installed}"}):
        found = read(tmp_path, **variables)
        assert found.several(Known.NCCL_PLUGINS) == (f"/{installed}",) and signs(found) == []
    (tmp_path / "etc/ld.so.cache").write_bytes(b"\xff\0/lib/libc.so.6\0/" + installed.encode() + b"\0/\0")
    assert read(tmp_path).several(Known.NCCL_PLUGINS) == (f"/{installed}",)
    (tmp_path / "etc/ld.so.cache").unlink()
    assert read(tmp_path).unreadable(Known.NCCL_PLUGINS) and signs(read(tmp_path)) == []
    others = Facts((Fact(Known.NIC_DRIVER, "mlx5_core", device="mlx5_0"), Fact(Known.NCCL_PLUGINS, ())))
    assert signs(others) == []  # NCCL itself has InfiniBand and RoCE


def test_a_container_without_device_files(tmp_path: Path) -> None:
    server(tmp_path)
    shutil.rmtree(tmp_path / "dev")
    found = Facts((*read(tmp_path), Fact(Known.PEERMEM, ON)))
    assert found.text(Known.RDMA_FILES) == OFF
    (cause,) = (one for one in CAUSES if one.name == "rdma-files")
    assert [sign.text for sign in signs_of(cause, MACHINE, found)] == [
        "mlx5_0, mlx5_1, mlx5_2, mlx5_3 and 4 more exist, but not /dev/infiniband/uverbs*"
    ]


def test_software_devices_have_no_card(tmp_path: Path) -> None:
    written(tmp_path / "sys/class/infiniband/rxe0/ports/1", ETHERNET)
    found = read(tmp_path)
    assert found.unreadable(Known.NIC_DRIVER, "rxe0") and found.text(Known.PORT_STATE, "rxe0") == "ACTIVE"
    assert signs(found) == []


def test_a_recording_has_the_same_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/plugins")
    files = tmp_path / "files"
    devices = server(files)
    written(port_of(devices[2]), DOWN)
    written(files, {"opt/plugins/libnccl-net.so": "", "proc/loadavg": "0.1 0 0 1/1 1"})
    expected = list(facts(Tree(files).root))
    record_in(tmp_path / "recorded", Recorder(files))
    shutil.rmtree(files)
    assert list(facts(opened(tmp_path / "recorded"))) == expected
    assert "/opt/plugins/libnccl-net.so" in Facts(expected).several(Known.NCCL_PLUGINS)


NOISE = ("", "9" * 400, "-1", "4:", ": ", "4: ACTIVE: x", "nan Gb/sec", "1e9 Gb/sec", "µ\x00", "0x", "[]")


@pytest.mark.parametrize("seed", with_long(range(20), *range(8, 20)))
def test_nonsense_is_no_fact_and_no_error(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    server(tmp_path)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file() or path.is_symlink())
    for path in draw.sample(files, 40):
        broken = path.is_symlink()
        path.unlink()
        if broken:
            path.symlink_to(draw.choice((path.name, "/", "nowhere", "../../..")))
        elif draw.random() < 0.2:
            path.mkdir()
        else:
            path.write_text(draw.choice(NOISE))
    found = tuple(fact.checked() for fact in facts(Tree(tmp_path, {}).root))
    assert all(fact.value is not None or fact.reason for fact in found)
    document = replace(wirespeed.described(MACHINE), facts=found)
    assert doctor_screen.render(Judged(document), Style(verbose=True))


def test_text_about_eight_nics(golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    devices = server(tmp_path)
    for device in devices[2:6]:
        written(port_of(device), DOWN)
        written(device, {"current_link_width": "8"})
    document = replace(wirespeed.described("simulated:hgx-h200-2"), facts=tuple(read(tmp_path)))
    golden("doctor/nics.txt", doctor_screen.render(Judged(document), Style()))


def test_nics_of_a_job_may_explain_slow_collectives() -> None:
    """But not those of one host, nor transfers whose links are known."""
    (errors,) = (one for one in CAUSES if one.name == "nic-errors")
    ranks = (Rank(0, "a", "gpu0"), Rank(1, "b", "gpu0"))
    names = ["all_reduce", "device_to_device_memcpy_read_ce"]
    document = wirespeed.run(names, machine="simulated:hgx-h200-2+speed@gpu0-gpu1=0.2", samples=2)
    keys = slow_keys(wirespeed.judge(document).judgements)
    job = replace(document, machine=changed(document.machine, ranks=ranks))
    signs = [Sign("", "", host=host) for host in ("", "b")]
    found = [(one.collective, one.fits(errors, sign)) for one in _slow(job, keys) for sign in signs]
    assert {True, False} == {collective for collective, _ in found}
    assert all(collective is fits for collective, fits in found)
    assert not any(one.fits(errors, signs[0]) for one in _slow(document, keys))


def test_two_endpoints_of_one_port(tmp_path: Path) -> None:
    """Card, firmware, MTU, GIDs and NUMA node, as on a DGX Spark: `ibstat` in sbc-reviews, issue 92."""
    gids = {"gid_attrs/types/0": "IB/RoCE v1", "gid_attrs/types/3": "RoCE v2"}
    for index in (1, 2):
        device = nic(tmp_path, index, ETHERNET | gids)
        folder = device / f"infiniband/mlx5_{index}"
        written(folder, {"sys_image_guid": "fc4c:ea03:00f9:4230", "fw_ver": "28.45.4028"})
        written(device, {f"net/eth{index}/mtu": "1500", "numa_node": "-1"})
    known = Facts(facts(Tree(tmp_path).root))
    (first, second) = (known.text(Known.NIC_CARD, name) for name in ("mlx5_1", "mlx5_2"))
    assert first == second and len(first) == 8 and "4230" not in first
    recorder = Recorder(tmp_path)
    assert Facts(facts(recorder.root)).text(Known.NIC_CARD, "mlx5_1") == "", "a GUID is private"
    assert shared_port(known, "mlx5_1") == shared_port(known, "mlx5_2") == f"{first}.0:"
    assert known.text(Known.NIC_FIRMWARE, "mlx5_1") == "28.45.4028"
    assert known.number(Known.PORT_MTU, "mlx5_2") == 1500
    assert known.several(Known.PORT_GIDS, "mlx5_2") == ("0: IB/RoCE v1", "3: RoCE v2")
    assert known.text(Known.NUMA_NODE, "mlx5_2") == "unknown"
    (limit,) = of_rdma(0, known, 1)
    assert limit.devices == ("mlx5_1", "mlx5_2") and limit.port == 50e9 == limit.slot
    assert limit.least == 0.75 * 50e9


@pytest.mark.parametrize(
    ("files", "kind", "speed"),
    [
        ({"device/vendor": "0x15b3", "uevent": "INTERFACE=x"}, "physical", 100),
        ({"uevent": "DEVTYPE=wlan", "device/vendor": "0x8086"}, "physical", 100),
        ({"uevent": "DEVTYPE=bond\nINTERFACE=x"}, "bond", 100),
        ({"uevent": "DEVTYPE=bridge"}, "bridge", None),
        ({"bridge/bridge_id": "8000"}, "bridge", None), ({"tun_flags": "0x1001"}, "tun", None),
        ({"uevent": "DEVTYPE=wireguard"}, "wireguard", None), ({"uevent": "INTERFACE=x"}, "virtual", None),
    ],
)  # fmt: skip
def test_interfaces(tmp_path: Path, files: dict[str, str], kind: str, speed: float | None) -> None:
    """The speed of a virtual interface is no limit: nothing negotiated it."""
    written(tmp_path / "sys/class/net/x", {"speed": "100000", "mtu": "1500"} | files)
    known = Facts(of_interface("x", Tree(tmp_path).root))
    assert known.text(Known.INTERFACE_KIND, "x") == kind
    assert known.number(Known.INTERFACE_SPEED, "x") == speed
    assert [limit.port for limit in of_tcp(0, known, "x")] == ([12.5e9] if speed else [])


def test_a_bond_with_an_interface_that_lost_its_link(tmp_path: Path) -> None:
    written(tmp_path / "sys/class/net/bond0", {"bonding/slaves": "eth0 eth1", "uevent": "DEVTYPE=bond"})
    for name, state in (("eth0", "up"), ("eth1", "down")):
        written(tmp_path / "sys/class/net" / name, {"operstate": state})
    found = Facts(of_interface("bond0", Tree(tmp_path, {}).root))
    assert found.several(Known.BOND_WITHOUT_LINK, "bond0") == ("eth1",)


def test_ports_that_are_slower_than_those_of_another_node() -> None:
    (cause,) = (one for one in CAUSES if one.name == "nic-slower")
    facts = [
        fact
        for host, rate in (("a", 400), ("b", 200))
        for fact in (Fact(Known.PORT_STATE, "ACTIVE", "", "mlx5_0", host=host),
                     Fact(Known.PORT_RATE, rate, "Gbit/s", "mlx5_0", host=host))
    ]  # fmt: skip
    found = [(sign.host, sign.text) for sign in signs_of(cause, MACHINE, Facts(facts))]
    assert found == [("b", "200 Gbit/s on b, 400 on a")]


def of_ports(rate: float, model: str = "0x1021", count: int = 2) -> Facts:
    """A node whose NICs of a model have ports of a speed."""
    facts = []
    for nic in (f"mlx5_{i}" for i in range(count)):
        facts += [
            Fact(Known.PORT_STATE, "ACTIVE", device=nic), Fact(Known.PORT_RATE, rate, "Gbit/s", nic),
            Fact(Known.PCI_MODEL, model, device=nic), Fact(Known.PORT_LAYER, "InfiniBand", device=nic),
        ]  # fmt: skip
    return Facts(facts)


def test_a_node_whose_ports_are_all_slow_does_not_define_its_own_limit() -> None:
    good, slow, other = of_ports(400), of_ports(100), of_ports(100, "0x101d")
    reached = fastest([(good, ()), (slow, ()), (other, ())])
    limits = [of_rdma(node, facts, 2, (), reached) for node, facts in enumerate((good, slow, other))]
    assert [8 * limit.port / 1e9 for (limit,) in limits] == [400, 400, 100]  # another model is no defect
    paths = Qualification(
        tuple(QualifiedNode(name, rails=2) for name in "ab"),
        (Round(Stage.PAIRS, ((0, 1),), ((12e9, 12e9, 12e9, 12e9),), 1.0),),
        limits=tuple(limit for (limit,) in limits[:2]),
    )
    assert [(part.rail, part.expected) for part in below_limits(paths)] == [(0, 50e9), (1, 50e9)]
    unused = fastest([(of_ports(400, count=1), ()), (of_ports(400), ("mlx5_0",)), (slow, ("mlx5_1",))])
    assert unused[("", "0x1021", "InfiniBand")] == 400
    alone = fastest([(slow, ("mlx5_1",))])
    assert alone == {("", "0x1021", "InfiniBand"): 100}
