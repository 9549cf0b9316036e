"""How fast host memory can be: by firmware, kernel and the model of the CPU, here and in recorded trees."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.test_smbios import END, SERIAL, bios, module, table
from wirespeed.backends.host import host_discovery, memory_facts
from wirespeed.backends.recording import Recorder, machine_in, opened, record_in
from wirespeed.backends.system_files import Tree
from wirespeed.cli.main import main
from wirespeed.hardware.facts import Facts, Known
from wirespeed.hardware.topology import Machine

NODES = "sys/devices/system/node"
DMI = "sys/firmware/dmi/tables/DMI"
GENOA = ("AuthenticAMD", 25, 17, "AMD EPYC 9554 64-Core Processor")
OTHER = ("GenuineIntel", 6, 999, "Intel(R) Xeon(R) of tomorrow")


def host(
    folder: Path,
    cpu: tuple[str, int, int, str] = GENOA,
    *,
    nodes: int = 2,
    sockets: int = 2,
    cpus: int = 8,
    virtual: bool = False,
    vendor: str = "Supermicro",
    files: dict[str, str | bytes] | None = None,
) -> Path:
    """A server with these CPUs; the first hardware thread of each core only."""
    maker, family, model, name = cpu
    flags = "fpu sse hypervisor" if virtual else "fpu sse"
    each = cpus // nodes
    texts: dict[str, str | bytes] = {
        "proc/cpuinfo": f"processor\t: 0\nvendor_id\t: {maker}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
                        f"model name\t: {name}\nflags\t\t: {flags}\n\n",
        "proc/self/status": f"Cpus_allowed_list:\t0-{cpus - 1}\n",
        "proc/meminfo": "MemTotal: 1000000 kB\nMemFree: 500000 kB\n",
        "sys/devices/system/cpu/online": f"0-{cpus - 1}\n",
        "sys/class/dmi/id/sys_vendor": f"{vendor}\n",
        f"{NODES}/online": f"0-{nodes - 1}\n",
        **(files or {}),
    }  # fmt: skip
    for node in range(nodes):
        texts[f"{NODES}/node{node}/cpulist"] = f"{node * each}-{(node + 1) * each - 1}\n"
        texts[f"{NODES}/node{node}/meminfo"] = f"Node {node} MemTotal: 500000 kB\nNode {node} MemFree: 1 kB\n"
    for one in range(cpus):
        texts[f"sys/devices/system/cpu/cpu{one}/topology/physical_package_id"] = f"{one * sockets // cpus}\n"
    for path, content in texts.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def known(folder: Path) -> Facts:
    root = Tree(folder, {}, {}).root
    return Facts(memory_facts.facts(host_discovery.discover(Machine("host"), root), root))


def rates(facts: Facts, node: str = "numa0") -> tuple[float | None, float | None, str]:
    """The rate and the highest rate in GB/s, and their source."""
    rate, most = (facts.number(one, node) for one in (Known.MEMORY_RATE, Known.MEMORY_RATE_MOST))
    return rate and rate / 1e9, most and most / 1e9, facts.text(Known.MEMORY_RATE_SOURCE, node)


def test_the_modules_of_the_firmware_tell_the_rate(tmp_path: Path) -> None:
    facts = known(host(tmp_path, files={DMI: table(*[module(speed=4800)] * 24)}))
    assert facts.number(Known.MODULES) == 24
    rate, most, source = rates(facts)
    assert (rate, most) == (pytest.approx(460.8), pytest.approx(460.8))
    assert source == "SMBIOS: 24 modules of DDR5-4800 on 24 channels of AMD EPYC 9004 (Genoa)"


@pytest.mark.parametrize(
    ("count", "speed", "nodes", "rate", "most"),
    [
        (48, 4000, 2, 384.0, 384.0),  # two modules on each channel, which are slower
        (12, 4800, 2, 230.4, 460.8),  # half of the channels, perhaps all on one socket
        (24, 4800, 8, 115.2, 460.8),  # four nodes on each socket
        (24, 3600, 2, 345.6, 345.6),
    ],
)
def test_channels_and_nodes_that_share_them(
    tmp_path: Path, count: int, speed: int, nodes: int, rate: float, most: float
) -> None:
    facts = known(host(tmp_path, nodes=nodes, cpus=16, files={DMI: table(*[module(speed=speed)] * count)}))
    assert rates(facts)[:2] == (pytest.approx(rate), pytest.approx(most))


def test_without_a_known_cpu_the_modules_are_an_upper_bound(tmp_path: Path) -> None:
    facts = known(host(tmp_path, OTHER, nodes=1, sockets=1, files={DMI: table(*[module(speed=6000)] * 4)}))
    assert rates(facts) == (None, pytest.approx(192.0), "SMBIOS: 4 channels of 6000 MT/s")


@pytest.mark.parametrize(
    "content",
    [b"", b"\x11\xff" * 20, table(module(speed=0)), table(module(), module(kind=0x21)), bios() + END],
    ids=["empty", "garbage", "no speed", "with HBM", "no modules"],
)
def test_a_table_that_tells_nothing_leaves_the_maximum_of_the_cpu(tmp_path: Path, content: bytes) -> None:
    source = "maximum of AMD EPYC 9004 (Genoa): 12 channels of 4800 MT/s"
    assert rates(known(host(tmp_path, files={DMI: content}))) == (None, pytest.approx(460.8), source)


@pytest.mark.parametrize("by", ["cpu", "table", "vendor"])
def test_what_a_hypervisor_invents_is_not_believed(tmp_path: Path, by: str) -> None:
    files: dict[str, str | bytes] = {
        DMI: bios(virtual=by == "table") + module(speed=1600) + END,
        f"{NODES}/node0/access0/initiators/read_bandwidth": "10240\n",
        "sys/devices/system/edac/mc/mc0/dimm0/size": "1024\n",
        "sys/devices/system/edac/mc/mc0/dimm0/dimm_location": "channel 0 slot 0\n",
    }
    vendor = "Amazon EC2" if by == "vendor" else "Supermicro"
    facts = known(host(tmp_path, virtual=by == "cpu", vendor=vendor, files=files))
    assert rates(facts)[:2] == (None, pytest.approx(460.8)) and not facts.knows(Known.MODULES)
    assert "virtual machine" in facts.unreadable(Known.MODULES)


def test_channels_that_edac_shows_lower_the_maximum(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {}
    for number in range(8):  # four of them are plugged in, on two channels
        place = f"sys/devices/system/edac/mc/mc0/dimm{number}"
        files[f"{place}/size"] = f"{65536 * (number < 4)}\n"
        files[f"{place}/dimm_location"] = f"channel {number // 2} slot {number % 2}\n"
    facts = known(host(tmp_path, nodes=1, sockets=1, files=files))
    source = "EDAC and maximum of AMD EPYC 9004 (Genoa): 2 channels of 4800 MT/s"
    assert rates(facts) == (None, pytest.approx(76.8), source)
    assert facts.number(Known.MEMORY_CHANNELS) == 2


@pytest.mark.parametrize(
    ("megabytes", "rate"),
    [("290000\n", 290000 * 2**20 / 1e9), ("0\n", None), ("99999999\n", None), ("-5\n", None),
     ("x" * 99, None), ("900000\n", None)],  # above the maximum of the CPU
    ids=range(6),
)  # fmt: skip
def test_the_firmware_tells_the_performance_of_each_node(
    tmp_path: Path, megabytes: str, rate: float | None
) -> None:
    place = f"{NODES}/node0/access0/initiators"
    files = {f"{place}/read_bandwidth": megabytes, f"{place}/read_latency": "105\n"}
    facts = known(host(tmp_path, files=files))
    assert rates(facts)[0] == (rate and pytest.approx(rate))
    assert rates(facts, "numa1")[0] is None
    assert facts.number(Known.MEMORY_LATENCY, "numa0") == pytest.approx(105e-9)


@pytest.mark.parametrize(
    ("cpus", "nodes", "virtual", "most"),
    [
        (8, 1, True, 460.8),
        (48, 1, True, 460.8),
        (64, 1, True, 921.6),  # as many CPUs may be of two sockets
        (256, 1, False, 921.6),  # sockets interleaved by the firmware
        (16, 8, True, 460.8),  # how many of a virtual machine's nodes are on a socket is unknown
        (16, 8, False, 115.2),
    ],
)
def test_a_node_may_be_more_or_less_than_a_socket(
    tmp_path: Path, cpus: int, nodes: int, virtual: bool, most: float
) -> None:
    sockets = 1 if virtual else 2
    facts = known(host(tmp_path, nodes=nodes, sockets=sockets, cpus=cpus, virtual=virtual))
    assert rates(facts)[1] == pytest.approx(most)


@pytest.mark.parametrize(
    "cpu",
    [OTHER, ("AuthenticAMD", 25, 1, "AMD EPYC-Milan Processor"), ("", 0, 0, ""), ("A\nB", 25, 17, "?")],
    ids=["new", "imitated", "none", "odd"],
)
def test_a_cpu_that_is_not_known_bounds_nothing(tmp_path: Path, cpu: tuple[str, int, int, str]) -> None:
    facts = known(host(tmp_path, cpu))
    assert rates(facts) == (None, None, "") and facts.unreadable(Known.MEMORY_RATE_MOST, "numa0")


def test_a_recorded_tree_says_the_same_without_what_is_private(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    host(source, files={DMI: table(*[module()] * 24)})
    record_in(copy, Recorder(source))
    assert SERIAL not in (copy / DMI).read_bytes()
    root = opened(copy)
    again = Facts(memory_facts.facts(machine_in(root), root))
    assert rates(again) == rates(known(source)) and rates(again)[0] == pytest.approx(460.8)


@pytest.mark.parametrize("kind", ["folder", "link out", "pipe", "large"])
def test_a_table_that_is_no_file_is_not_read(tmp_path: Path, kind: str) -> None:
    import os

    place = host(tmp_path / "host") / DMI
    place.parent.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.write_bytes(table(*[module()] * 24))
    if kind == "folder":
        place.mkdir()
    elif kind == "link out":
        place.symlink_to(outside)
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        with place.open("wb") as file:
            file.truncate(2**24 + 1)
    assert rates(known(tmp_path / "host"))[0] is None


def test_doctor_shows_the_rate_and_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    tree = Path(__file__).parents[1] / "data/trees/epyc-2-sockets"
    main(["doctor", "-v", "--root", str(tree)])
    out = capsys.readouterr().out
    for line in (
        r"numa1 +line rate of the memory +314\.6 GB/s",
        r"numa1 +highest possible line rate of the +460\.8 GB/s",
        r"numa1 +latency of the memory by the +110 ns",
        r"numa1 +source of the line rate +HMAT of the firmware",
    ):
        assert re.search(line, out), out


def test_a_server_whose_table_only_the_administrator_may_read() -> None:
    """One socket has modules on half of its channels."""
    root = opened(Path(__file__).parents[1] / "data/trees/epyc-2-sockets")
    facts = Facts(memory_facts.facts(machine_in(root), root))
    assert rates(facts, "numa1") == (
        pytest.approx(314.57, rel=1e-4),
        pytest.approx(460.8),
        "HMAT of the firmware",
    )
    assert facts.number(Known.MEMORY_CHANNELS) == 18 and not facts.knows(Known.MODULES)
    assert facts.number(Known.MEMORY_LATENCY, "numa1") == pytest.approx(110e-9)
