"""What should be there and is not: from files of a system, with answers of NVML, to what is said of it."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

import wirespeed
from tests.unit.test_cuda_discovery import FakeNvml, NVMLError
from wirespeed.backends import discover, facts
from wirespeed.backends.host import host_facts
from wirespeed.backends.recording import Recorder, record_in
from wirespeed.backends.system_files import HERE, Tree
from wirespeed.document import Document, ImportedLog
from wirespeed.errors import UsageError
from wirespeed.hardware.facts import Fact, Facts, Known
from wirespeed.judging.inventory import Missing, missing
from wirespeed.judging.verdict import Verdict
from wirespeed.results.inventory import Inventory, InventoryPart, strictest
from wirespeed.results.inventory import parse_inventory as parse

#: Addresses of eight GPUs, two below each of four PCIe switches.
ADDRESSES = [f"0000:{switch}{3 + port}:00.0" for switch in range(1, 5) for port in range(2)]
FAIL, WARN, WAIVED = Verdict.FAIL, Verdict.WARN, Verdict.WAIVED


def node(
    root: Path,
    *,
    on_bus: Collection[str] = ADDRESSES,
    shown: Collection[str] | None = ADDRESSES,
    unbound: Collection[str] = (),
    driver: str = "nvidia",
    without_file: Collection[str] = (),
    without_information: Collection[str] = (),
    files: Mapping[str, str] | None = None,
) -> Document:
    """Return the description of a node with GPUs on the bus, some of which NVML shows; None: no NVML."""
    texts = {"proc/meminfo": "MemTotal: 1056964608 kB\n", "dev/kmsg": "", **(files or {})}
    links: dict[str, str] = {}
    if driver == "nvidia":
        texts |= {"proc/driver/nvidia/version": "NVRM version: 580.95.05\n", "dev/nvidiactl": ""}
    for i, address in enumerate(ADDRESSES):
        texts[f"sys/bus/pci/slots/{i + 1}/address"] = address.removesuffix(".0")
        if address not in on_bus:
            continue
        bus, port = address[5], i % 2
        place = (
            f"sys/devices/pci0000:{bus}0/0000:{bus}0:01.0/0000:{bus}1:00.0/0000:{bus}2:0{port}.0/{address}"
        )
        texts |= {
            f"{place}/vendor": "0x10de", f"{place}/class": "0x030200", f"{place}/device": "0x2330",
            f"{place}/numa_node": str(i // 4),
        }  # fmt: skip
        links[f"sys/bus/pci/devices/{address}"] = f"../../../devices/{place.removeprefix('sys/devices/')}"
        if driver and address not in unbound:
            texts[f"sys/bus/pci/drivers/{driver}/bind"] = ""
            links[f"{place}/driver"] = f"../../../../../../bus/pci/drivers/{driver}"
        if driver == "nvidia" and address not in {*unbound, *without_information}:
            about = f"Model: \t NVIDIA H100\nGPU UUID: secret\nDevice Minor: \t {i}\n"
            texts[f"proc/driver/nvidia/gpus/{address}/information"] = about
        if driver == "nvidia" and address not in without_file:
            texts[f"dev/nvidia{i}"] = ""
    answers: dict[str, object] = {}
    if shown is not None:
        answers = {"nvmlDeviceGetCount": len(shown)}
        for i, address in enumerate(shown):
            answers[f"nvmlDeviceGetHandleByIndex {i}"] = address
            answers[f"nvmlDeviceGetPciInfo {address}"] = {
                "domain": 0, "bus": int(address[5:7], 16), "device": 0,
            }  # fmt: skip
            answers[f"nvmlDeviceGetName {address}"] = "NVIDIA H100"
    for name, text in {**texts, "nvml.json": json.dumps(answers)}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name, target in links.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target)
    return wirespeed.described(root=root)


#: Parts of these tests about GPUs: the simulated driver has fewer NVLinks than the model.
GPUS = (InventoryPart.GPUS,)


def told(found: Iterable[Missing]) -> list[tuple[Verdict, str]]:
    return [(one.verdict, str(one)) for one in found]


def test_a_whole_node_lacks_nothing(tmp_path: Path) -> None:
    document = node(tmp_path)
    assert missing(document) == ()
    facts = Facts(document.facts)
    assert facts.several(Known.GPUS_ON_BUS) == facts.several(Known.GPUS_OF_DRIVER) == tuple(ADDRESSES)
    assert facts.text(Known.SWITCH, ADDRESSES[2]) == "0000:21:00.0"
    assert (facts.text(Known.PCI_DRIVER, ADDRESSES[2]), facts.text(Known.SLOT, ADDRESSES[2])) == (
        "nvidia",
        "3",
    )


def test_a_gpu_that_the_driver_does_not_show(tmp_path: Path) -> None:
    """With its address and slot; what is expected adds no second sentence."""
    document = node(tmp_path, shown=ADDRESSES[:3] + ADDRESSES[4:])
    text = "the GPU at 0000:24:00.0 (slot 4) is on the PCI bus, but the driver does not show it"
    (found,) = missing(document)
    assert told([found]) == [(FAIL, text)]
    assert (found.part, found.where, found.slots) == (InventoryPart.GPUS, ("0000:24:00.0",), ("4",))
    assert "dmesg" in found.advice.command
    (found,) = missing(document, parse("gpus=8"))
    assert (str(found), found.expected, found.found) == (text, 8, 7)
    (found,) = missing(document, parse("gpus=7"))
    assert (found.verdict, found.expected) == (FAIL, None)  # it is broken nonetheless


XID = "3,1,2,-;NVRM: Xid (PCI:0000:24:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"


def test_a_gpu_that_fell_off_the_bus(tmp_path: Path) -> None:
    others = ADDRESSES[:3] + ADDRESSES[4:]
    messages = {
        "dev/kmsg": f"6,0,0,-;secret\n{XID}3,2,2,-;NVRM: GPU 0000:24:00.0: GPU has fallen off the bus.\n"
    }
    still = node(tmp_path / "still", shown=others, files=messages)
    text = "the GPU at 0000:24:00.0 (slot 4) is on the PCI bus, but the driver does not show it"
    assert told(missing(still)) == [(FAIL, f"{text}; it fell off the bus (Xid 79)")]
    gone = node(tmp_path / "gone", on_bus=others, shown=others, files=messages)
    first, second = missing(gone)
    assert told([first]) == [
        (FAIL, "the GPU at 0000:24:00.0 (slot 4) fell off the PCI bus (Xid 79) and is not back")
    ]
    assert "PCIe switch 0000:21:00.0 has 1 GPU, 3 others have 2" in str(second)
    back = node(tmp_path / "back", files=messages)
    assert told(missing(back)) == [
        (WARN, "the GPU at 0000:24:00.0 (slot 4) fell off the bus since the node was started (Xid 79)")
    ]


def test_other_xids_are_no_lost_gpu(tmp_path: Path) -> None:
    assert not missing(
        node(tmp_path, files={"dev/kmsg": XID.replace("79, pid", "31, pid").replace("GPU has", "")})
    )


@pytest.mark.parametrize("known", [True, False])
def test_devices_that_a_container_was_not_given(tmp_path: Path, known: bool) -> None:
    """The bus shows those of the host; they are not missing, but it is said. Expected GPUs are a warning."""
    few = ADDRESSES[:2]
    hidden = {"without_information": () if known else ADDRESSES[2:]}
    files = {".dockerenv": ""}
    document = node(tmp_path, shown=few, without_file=ADDRESSES[2:], files=files, **hidden)
    ((verdict, text),) = told(missing(document))
    assert verdict is WAIVED
    assert text.startswith("6 GPUs of the host not given to this container or job: 0000:23:00.0 (slot 3)")
    found = missing(document, parse("gpus=8"))
    assert told(found)[0] == (WARN, "2 GPUs (expected: 8); 8 on the PCI bus")
    assert not [one for one in missing(document, parse("gpus=2")) if one.verdict is not WAIVED]


def test_devices_that_a_job_was_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control group denies them, as Slurm's does; recorded, this remains."""
    node(tmp_path / "node")
    allowed = {str(tmp_path / f"node/dev/nvidia{i}") for i in range(2)}
    monkeypatch.setattr("wirespeed.backends.system_files.os.access", lambda path, mode: str(path) in allowed)
    recorder = Recorder(tmp_path / "node")
    found = Facts(host_facts.inventory(recorder.root))
    assert [found.text(Known.DEVICE_FILE, one) for one in ADDRESSES] == ["on", "on", *["off"] * 6]
    (tmp_path / "recorded").mkdir()
    recorder.save(tmp_path / "recorded")
    document = wirespeed.described(root=tmp_path / "recorded")
    shown = Fact(Known.GPUS_OF_DRIVER, tuple(ADDRESSES[:2]))
    ((verdict, text),) = told(missing(replace(document, facts=(*document.facts, shown))))
    assert verdict is WAIVED and text.startswith("6 GPUs of the host not given to this container or job")


def test_a_device_file_that_is_missing_outside_containers(tmp_path: Path) -> None:
    document = node(tmp_path, shown=ADDRESSES[1:], without_file=ADDRESSES[:1])
    ((verdict, text),) = told(missing(document))
    assert verdict is WARN and text.endswith("the driver does not show it; its device file is missing")


def test_a_container_without_gpus_on_a_host_with_gpus(tmp_path: Path) -> None:
    document = node(tmp_path, shown=None, without_file=ADDRESSES, files={"run/.containerenv": ""})
    ((verdict, text),) = told(missing(document))
    assert verdict is WAIVED and text.startswith("8 GPUs of the host not given to this container or job")


def test_no_driver_is_no_pass(tmp_path: Path) -> None:
    document = node(tmp_path, on_bus=ADDRESSES[:1], shown=None, driver="")
    (found,) = missing(document)
    text = (
        "1 NVIDIA GPU on the PCI bus cannot be used: the NVIDIA driver is not loaded; 0000:13:00.0 (slot 1)"
    )
    assert told([found]) == [(WARN, text)] and found.advice.command == "sudo modprobe nvidia"
    other = node(tmp_path / "other", on_bus=ADDRESSES[:1], shown=None, driver="nouveau")
    assert "the NVIDIA driver is not loaded (nouveau is)" in str(missing(other)[0])
    library = node(tmp_path / "library", on_bus=ADDRESSES[:1], shown=None)
    library = replace(
        library,
        machine=wirespeed.Machine("node"),
        facts=tuple(
            replace(one, reason="the package is missing") if one.name == Known.GPUS_OF_DRIVER else one
            for one in library.facts
        ),
    )
    (found,) = missing(library)
    assert found.verdict is WARN and "cannot be used: the package is missing" in str(found)


def test_a_gpu_without_a_driver_next_to_others(tmp_path: Path) -> None:
    some = {"shown": ADDRESSES[1:], "unbound": ADDRESSES[:1]}
    (found,) = missing(node(tmp_path, **some))
    assert found.verdict is FAIL and "(slot 1) is on the PCI bus, but no driver uses it" in str(found)
    (found,) = missing(node(tmp_path / "container", files={".dockerenv": ""}, **some))
    assert found.verdict is WARN
    document = node(tmp_path / "display", **some)
    other = Fact(Known.PCI_MODEL, "0x0fff", device=ADDRESSES[0])  # of a card that the driver does not support
    first, uneven = missing(replace(document, facts=(*document.facts, other)))
    assert (first.verdict, uneven.verdict) == (WARN, WARN) and "no driver uses it" in str(first)


@pytest.mark.parametrize("given", ["vfio-pci", "excluded"])
def test_what_the_administrator_took_away_is_not_missing(tmp_path: Path, given: str) -> None:
    document = node(tmp_path, shown=ADDRESSES[1:])
    fact = {
        "vfio-pci": Fact(Known.PCI_DRIVER, "vfio-pci", device=ADDRESSES[0]),
        "excluded": Fact(Known.DEVICE_FILE, "excluded", device=ADDRESSES[0]),
    }[given]
    (found,) = missing(replace(document, facts=(*document.facts, fact)))
    assert found.verdict is WAIVED


def test_an_excluded_gpu_is_read(tmp_path: Path) -> None:
    about = {f"proc/driver/nvidia/gpus/{ADDRESSES[0]}/information": "Device Minor: 0\nGPU Excluded: Yes\n"}
    document = node(tmp_path, shown=ADDRESSES[1:], without_information=ADDRESSES[:1], files=about)
    assert Facts(document.facts).text(Known.DEVICE_FILE, ADDRESSES[0]) == "excluded"


def test_parts_of_a_gpu_are_no_gpus(tmp_path: Path) -> None:
    node(tmp_path)
    place = tmp_path / f"sys/bus/pci/devices/{ADDRESSES[0]}"
    (place / "physfn").mkdir()
    found = Facts(wirespeed.described(root=tmp_path).facts)
    assert found.several(Known.GPUS_ON_BUS) == tuple(ADDRESSES[1:])


@pytest.mark.parametrize(
    ("on_bus", "short"),
    [
        (ADDRESSES[:7], "PCIe switch 0000:41:00.0 has 1 GPU, 3 others have 2: one may be missing"),
        (ADDRESSES[1:6], "PCIe switch 0000:11:00.0 has 1 GPU, 2 others have 2: one may be missing"),
        (ADDRESSES[:6], ""), (ADDRESSES[:3], ""), (ADDRESSES[:1], ""), (ADDRESSES[::2], ""),
    ],
)  # fmt: skip
def test_one_gpu_less_than_the_other_slots(tmp_path: Path, on_bus: list[str], short: str) -> None:
    found = told(missing(node(tmp_path, on_bus=on_bus, shown=on_bus)))
    assert found == ([(WARN, short)] if short else [])


def test_one_gpu_less_on_a_numa_node() -> None:
    """Without switches: seven GPUs, four of them on one node."""
    document = wirespeed.described("simulated:hgx-b200-8")
    seven = tuple(ADDRESSES[:7])
    known = [Fact(Known.GPUS_ON_BUS, seven), Fact(Known.GPUS_OF_DRIVER, seven)]
    for i, address in enumerate(ADDRESSES[:7]):
        known += [
            Fact(Known.NUMA_NODE, str(i // 4), device=address),
            Fact(Known.SWITCH, "none", device=address),
        ]
    found = [str(one) for one in missing(replace(document, facts=tuple(known))) if one.verdict is WARN]
    assert found == ["NUMA node 1 has 3 GPUs, 1 other has 4: one may be missing"]


def test_memory_is_compared_with_a_share_for_the_firmware(tmp_path: Path) -> None:
    """1008 GiB of 1 TiB are enough for what a user expects; good machines of the same model have more."""
    document = node(tmp_path)
    assert not missing(document, parse("memory=1TiB"))
    (found,) = missing(document, parse("memory=1.1TiB"))
    assert str(found) == "the host has 1008 GiB of memory (expected: 1.1 TiB)"
    baseline = Inventory({InventoryPart.MEMORY: 1024 * 2**30})
    assert [one.verdict for one in missing(document, None, baseline)] == [FAIL]


def test_what_the_run_does_not_say(tmp_path: Path) -> None:
    document = node(tmp_path)
    assert told(missing(document, parse("memory=1TiB,nvlinks=18"))) == [
        (WARN, "nvlinks not compared: this run does not say it")
    ]
    with pytest.raises(UsageError, match=r"nothing of what is expected \(nvlinks\) can be compared"):
        missing(document, parse("nvlinks=18"))
    log = ImportedLog("nvbandwidth", "0.8", "log.txt", 10, 0)
    with pytest.raises(UsageError, match="can be compared"):
        missing(replace(document, imported=(log,)), parse("gpus=8"))
    assert not missing(document, None, Inventory({InventoryPart.NVLINKS: 18}))


def test_what_a_baseline_names(tmp_path: Path) -> None:
    """A GPU that left the bus without a message: its address is that of the good machines."""
    others = ADDRESSES[:7]
    document = node(tmp_path, on_bus=others, shown=others)
    good = Inventory({InventoryPart.GPUS: 8}, (), tuple(ADDRESSES))
    first = missing(document, None, good)[0]
    assert str(first) == "7 GPUs (expected: 8); missing: 0000:44:00.0 (slot 8)"
    assert (first.where, first.slots) == (("0000:44:00.0",), ("8",))


def test_each_host_of_a_job_is_compared() -> None:
    document = wirespeed.described("simulated:nvl72")
    hosts = sorted({one.host for one in document.facts})
    assert len(hosts) > 1
    worse = Fact(Known.NVLINKS, 17, device="gpu1", host=hosts[-1])
    (found,) = missing(replace(document, facts=(*document.facts, worse)), parse("nvlinks=18"))
    assert str(found) == f"{hosts[-1]}: gpu1 has 17 active NVLinks (expected: 18)"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("gpu=8", "cannot expect 'gpu=8' (did you mean 'gpus'?); use KEY=VALUE with the keys gpus"),
        ("", "cannot expect ''"), ("gpus", "gpus= is not a number of devices"),
        ("gpus=0", "gpus=0 is not"), ("gpus=-1", "gpus=-1 is not"), ("gpus=8.5", "gpus=8.5 is not"),
        ("gpus=٣", "is not a number"), ("gpus=" + "9" * 5000, "is not a number"),
        ("gpus=8,gpus=7", "expected twice"),
        ("memory=8 potatoes", "'8 potatoes' is not a size"), ("gpu-model=", "gpu-model needs"),
    ],
)  # fmt: skip
def test_what_cannot_be_expected(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        parse(text)


def test_the_strictest_of_several_counts() -> None:
    found = strictest([parse("gpus=8,nics=2,gpu-model=H200"), parse("gpus=4, nics=4 ,gpu-model=NVL")])
    assert found == Inventory({InventoryPart.GPUS: 8, InventoryPart.NICS: 4}, ("H200", "NVL"))


def test_messages_are_not_waited_for(tmp_path: Path) -> None:
    """A pipe in place of the messages, or what leads to a terminal, is not read."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "terminal").symlink_to("/dev/tty")
    root = Tree(tmp_path).root
    assert (root / "pipe").messages(re.compile("x")) is None
    assert (root / "terminal").messages(re.compile("x")) is None
    (HERE / "dev/kmsg").messages(re.compile("x"))  # readable or not, it returns


def test_only_what_matches_of_the_messages_is_recorded(tmp_path: Path) -> None:
    messages = {"dev/kmsg": f"6,0,0,-;secret\n{XID}"}
    node(tmp_path / "node", files=messages)
    record_in(tmp_path / "recorded", Recorder(tmp_path / "node"))
    assert (tmp_path / "recorded/dev/kmsg").read_text() == "Xid (PCI:0000:24:00): 79"
    about = tmp_path / f"recorded/proc/driver/nvidia/gpus/{ADDRESSES[0]}/information"
    assert "Device Minor" in about.read_text() and "secret" not in about.read_text()


class Nvml(FakeNvml):
    """NVML with the GPUs of the node, by address."""

    def __init__(self, shown: Collection[str], **answers: object) -> None:
        about = {
            i: SimpleNamespace(domain=0, bus=int(address[5:7], 16), device=0, busId=address)
            for i, address in enumerate(shown)
        }
        super().__init__(len(shown), nvmlDeviceGetPciInfo=lambda i: about[i], **answers)


def here(root: Path, monkeypatch: pytest.MonkeyPatch, library: object) -> Document:
    """Return the description of a node as if it were this machine."""
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr("wirespeed.backends.cuda.discovery._Reader.cuda", None)
    tree = Tree(root).root
    machine = discover(tree)
    return replace(wirespeed.described(machine), facts=facts(machine, tree))


def test_what_variables_select_is_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML shows all GPUs, whatever CUDA may use: all expected ones are there."""
    node(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    document = here(tmp_path, monkeypatch, Nvml(ADDRESSES))
    assert len(document.machine.gpus) == 2
    ((verdict, text),) = told(lost for lost in missing(document, parse("gpus=8")) if lost.part in GPUS)
    assert verdict is WAIVED
    assert text.startswith("6 GPUs left out (CUDA_VISIBLE_DEVICES or MIG mode): 0000:23:00.0")


def test_a_lost_gpu_that_nvml_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML counts a GPU that is lost, but has no handle of it."""
    node(tmp_path)
    lost = NVMLError("GPU is lost")

    def handle(index: int) -> int:
        if index == 3:
            raise lost
        return index

    document = here(tmp_path, monkeypatch, Nvml(ADDRESSES, nvmlDeviceGetHandleByIndex=handle))
    assert told(lost for lost in missing(document) if lost.part in GPUS) == [
        (FAIL, "the GPU at 0000:24:00.0 (slot 4) is on the PCI bus, but the driver does not show it")
    ]


@pytest.mark.parametrize("driver", ["nvidia", ""])
def test_without_nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str) -> None:
    """A missing package and a missing driver have different remedies."""
    node(tmp_path, driver=driver)
    monkeypatch.setattr("wirespeed.backends.cuda.find_spec", lambda name: None)
    monkeypatch.setattr("wirespeed.backends.cuda.discovery.find_spec", lambda name: None)
    (found,) = missing(here(tmp_path, monkeypatch, None))
    assert found.verdict is WARN and len(found.where) == 8
    if driver:
        assert "cannot be used: the Python package nvidia-ml-py is missing: pip install" in str(found)
    else:
        assert "the NVIDIA driver is not loaded" in str(found) and "modprobe" in found.advice.command


def test_nvml_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(FakeNvml):
        def nvmlInit(self) -> None:
            raise NVMLError("Driver/library version mismatch")

    node(tmp_path)
    found = missing(here(tmp_path, monkeypatch, Failing()), parse("gpus=8"))
    verdict, text = told(found)[0]
    assert verdict is WARN and text.startswith(
        "8 NVIDIA GPUs on the PCI bus cannot be used: NVML reports Driver/library version mismatch; 0000:13"
    )
    assert told(found)[1] == (WARN, "0 GPUs (expected: 8); 8 on the PCI bus")
