"""Recorded trees: what is recorded is what is read again, elsewhere, whatever the tree contains."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import wirespeed
from tests.conftest import with_long
from tests.unit.test_cuda_discovery import FakeNvml
from wirespeed import backends
from wirespeed.backends.recording import Recorder, machine_in, opened, record_in
from wirespeed.backends.system_files import Tree
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.errors import UsageError
from wirespeed.hardware.facts import OFF, Facts, Known
from wirespeed.hardware.topology import LinkKind, Machine
from wirespeed.judging.causes import CAUSES, signs_of
from wirespeed.judging.judged import Judged
from wirespeed.reports import Style
from wirespeed.results.store import encode
from wirespeed.screens import doctor as doctor_screen

TREES = Path(__file__).parents[1] / "data/trees"
SWITCH = "pci0000:00/0000:00:01.0/0000:01:00.0"
SECRET = "424242424242"

#: A server with two GPUs below one PCIe switch, in different IOMMU groups; one has half of its lanes.
SERVER = {
    "proc/self/mounts": "/dev/sda1 /home/somebody ext4 rw 0 0\nshm /dev/shm tmpfs rw,size=65536k 0 0\n",
    "proc/self/limits": "Limit  Soft Limit  Hard Limit\nMax locked memory   65536     65536     bytes\n",
    "proc/self/status": f"Name:\t{SECRET}\nCpus_allowed_list:\t0-3\nMems_allowed_list:\t0-1\n",
    "proc/self/cgroup": "0::/a/b\n",
    "proc/meminfo": "MemTotal:  1000 kB\nMemFree:  500 kB\n",
    "proc/cpuinfo": f"processor : 0\nmodel name : Some CPU\nflags : fpu sse\n\nSerial : {SECRET}\n",
    "proc/cmdline": f"root=UUID={SECRET} iommu=pt ip={SECRET} pci=realloc quiet\n",
    "proc/loadavg": "0.50 1.00 0.50 2/900 1\n",
    "proc/pressure/cpu": "some avg10=0.50 avg60=1.00 avg300=0.10 total=1\n",
    "proc/sys/kernel/hostname": "server\n",
    "proc/sys/kernel/numa_balancing": "1\n",
    "proc/sys/kernel/arch": "x86_64\n",
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Module  580.159.03  Release\n",
    "proc/driver/nvidia/gpus/0000:03:00.0/information": f"Model: \t NVIDIA H200\nGPU UUID: {SECRET}\n",
    "etc/nccl.conf": f"# {SECRET}\nNCCL_P2P_DISABLE=1\n",
    "sys/fs/cgroup/a/cpu.max": "200000 100000\n",
    "sys/devices/system/cpu/online": "0-3\n",
    "sys/devices/system/node/online": "0-1\n",
    "sys/devices/system/node/node0/cpulist": "0-1\n",
    "sys/devices/system/node/node0/distance": "10 20\n",
    "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal: 500 kB\nNode 0 MemFree: 1 kB\n",
    "sys/devices/system/node/node1/cpulist": "2-3\n",
    "sys/devices/system/node/node1/distance": "20 10\n",
    "sys/devices/system/node/node1/meminfo": "Node 1 MemTotal: 500 kB\nNode 1 MemFree: 1 kB\n",
    "sys/devices/system/cpu/cpu0/topology/physical_package_id": "0\n",
    "sys/devices/system/cpu/cpu0/cache/index0/level": "1\n",
    "sys/devices/system/cpu/cpu0/cache/index0/size": "32K\n",
    "sys/devices/system/cpu/cpu0/cache/index0/type": "Data\n",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "powersave\n",
    "sys/devices/system/edac/mc/mc0/size_mb": "65536\n",
    "sys/devices/system/edac/mc/mc1/size_mb": "32768\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "sys/kernel/iommu_groups/7/type": "identity\n",
    "sys/kernel/iommu_groups/8/type": "identity\n",
    "sys/module/nvidia_peermem/initstate": "live\n",
}


def port(vendor: str, width: int, most: int = 16) -> dict[str, str]:
    return {
        "vendor": vendor, "max_link_speed": "32.0 GT/s PCIe", "current_link_speed": "2.5 GT/s PCIe",
        "max_link_width": str(most), "current_link_width": str(width),
    }  # fmt: skip


def server(root: Path) -> Path:
    """Make the files of the server."""
    files = dict(SERVER)
    ports = {"": port("0x8086", 16), "/0000:01:00.0": port("0x1000", 16)}
    for i, width in enumerate((16, 8)):
        ports[f"/0000:01:00.0/0000:02:0{i}.0"] = port("0x1000", width)
        ports[f"/0000:01:00.0/0000:02:0{i}.0/0000:0{3 + i}:00.0"] = port("0x10de", width) | {
            "class": "0x030200", "device": "0x2335", "numa_node": "0",
            "aer_dev_correctable": "RxErr 0\nTOTAL_ERR_COR 0\n",
        }  # fmt: skip
    for place, attributes in ports.items():
        for name, text in attributes.items():
            files[f"sys/devices/pci0000:00/0000:00:01.0{place}/{name}"] = f"{text}\n"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True)
    for i in range(2):
        place = f"{SWITCH}/0000:02:0{i}.0/0000:0{3 + i}:00.0"
        (root / "sys/devices" / place / "iommu_group").symlink_to(
            f"../../../../../../kernel/iommu_groups/{7 + i}"
        )
        (bus / f"0000:0{3 + i}:00.0").symlink_to(f"../../../devices/{place}")
    return root


def nvml() -> FakeNvml:
    """NVML of the two GPUs of the server."""
    return FakeNvml(
        nvmlDeviceGetPciInfo=lambda i: SimpleNamespace(domain=0, bus=3 + i, device=0, busId=SECRET),
        nvmlDeviceGetUUID=f"GPU-{SECRET}",
        nvmlDeviceGetBAR1MemoryInfo=SimpleNamespace(bar1Total=256 << 20),
        nvmlDeviceGetHandleByPciBusId=lambda text: int(text[9:11], 16) - 3,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda i: 0x4 * i,
        nvmlDeviceGetRemappedRows=(0, 1, 1, 0), nvmlDeviceGetMigMode=[0, 0],
        nvmlDeviceGetUtilizationRates=SimpleNamespace(gpu=97, memory=3),
        nvmlDeviceGetComputeRunningProcesses=[SimpleNamespace(pid=SECRET, usedGpuMemory=1)],
        nvmlSystemGetConfComputeState=SimpleNamespace(ccFeature=0),
        fields={59: 4, 4: 1, 161: lambda link: link + 1, 164: 26562, 94: 3},
    )  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Path]:
    """The server as this machine, with NVML; return the folder with its files."""
    with here(tmp_path):
        yield server(tmp_path / "this machine")


@contextmanager
def here(home: Path) -> Iterator[None]:
    """Replace what is not a file: libraries, variables, the CPUs of this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pynvml", nvml())
        patch.setattr("wirespeed.backends.cuda.discovery._Reader.cuda", None)
        patch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
        patch.delenv("NCCL_NVLS_ENABLE", raising=False)  # the channel over NCCL sets it
        patch.delenv("LD_LIBRARY_PATH", raising=False)
        patch.setenv("NCCL_ALGO", "Ring")
        patch.setenv("HOME", str(home))
        yield


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server, recorded; none of its libraries is here any more."""
    folder = tmp_path_factory.mktemp("server")
    with here(folder):
        record_in(folder / "recorded", Recorder(server(folder / "files")))
    shutil.rmtree(folder / "files")
    return folder / "recorded"


def evidence(document: Document) -> set[tuple[str, str]]:
    """Return (cause, device) of all causes that facts speak for."""
    facts = Facts(document.facts)
    return {(one.name, sign.device) for one in CAUSES for sign in signs_of(one, document.machine, facts)}


def test_what_was_read_is_read_again(machine: Path, tmp_path: Path) -> None:
    root = Tree(machine).root
    described = backends.discover(root)
    facts = backends.facts(described, root)
    assert record_in(tmp_path / "recorded", Recorder(machine)) > 80
    shutil.rmtree(machine)
    sys.modules["pynvml"] = FakeNvml(0)
    document = wirespeed.described(root=tmp_path / "recorded")
    assert all(gpu.uuid for gpu in described.gpus)
    described = replace(described, gpus=tuple(replace(gpu, uuid="") for gpu in described.gpus))
    assert document.machine == described and document.host == "server"
    assert document.facts == facts
    (tmp_path / "recorded/machine.json").unlink()
    again = machine_in(opened(tmp_path / "recorded"))
    assert (again.gpus, again.numa, again.links) == (described.gpus, described.numa, described.links)


def test_nothing_is_recorded_where_others_can_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(UsageError, match="other users can write it; name a new folder"):
        record_in(tmp_path)


def test_nothing_private_is_recorded(recording: Path) -> None:
    assert (recording / "proc/self/limits").read_text().startswith("Max locked")
    for path in recording.rglob("*"):
        assert SECRET not in path.name
        assert not path.is_file() or SECRET not in path.read_text(), path
        assert not path.is_symlink() or not path.readlink().is_absolute()
    assert not (recording / "proc/self").is_symlink()
    assert "somebody" not in (recording / "proc/self/mounts").read_text()
    assert json.loads((recording / "environment.json").read_text()) == {"NCCL_ALGO": "Ring"}


def test_the_causes_of_a_recorded_server(recording: Path) -> None:
    found = evidence(wirespeed.described(root=recording))
    assert found >= {
        ("acs", "gpu0"), ("pcie-width", "gpu1"), ("shm", ""), ("memlock", ""), ("dimms", ""),
        ("nccl-disabled", ""), ("nccl-settings", ""), ("governor", ""), ("confined", ""),
        ("throttled", "gpu1"), ("busy-gpu", "gpu0"), ("bar1", "gpu0"), ("ecc", "gpu0"), ("driver", ""),
    }  # fmt: skip


def test_a_plain_copy_of_sys_and_proc(tmp_path: Path) -> None:
    """GPUs are found by their PCI class and vendor; nothing of this machine gets in."""
    root = server(tmp_path / "copy")
    document = wirespeed.described(root=root)
    found = document.machine
    assert [(gpu.name, gpu.bus_id, gpu.numa) for gpu in found.gpus] == [
        ("gpu0", "00000000:03:00", 0), ("gpu1", "00000000:04:00", 0),
    ]  # fmt: skip
    assert [gpu.model for gpu in found.gpus] == ["NVIDIA H200", "NVIDIA device 0x2335"]
    assert (found.host, found.cpu, found.architecture, found.driver) == (
        "server", "Some CPU", "x86_64", "580.159.03",
    )  # fmt: skip
    assert [node.cpus for node in found.numa] == [(0, 1), (2, 3)]
    assert len([link for link in found.links if link.kind is LinkKind.PCIE]) == 6  # two below one uplink
    assert found.notes[-1].startswith("the tree has no answers of NVML")
    assert {("acs", "gpu0"), ("pcie-width", "gpu1"), ("nccl-disabled", "")} <= evidence(document)
    assert not Facts(document.facts).several(Known.THROTTLED, "gpu0")


def test_a_machine_with_a_folder(recording: Path) -> None:
    """A Machine may replace the recorded one, but not the name of one."""
    assert wirespeed.described(Machine("mine"), root=recording).machine.name == "mine"
    with pytest.raises(wirespeed.UsageError, match="describes its own machine"):
        wirespeed.described("simulated:hgx-h200-2", root=recording)


def test_links_that_leave_the_tree_are_not_followed(tmp_path: Path) -> None:
    root, outside = server(tmp_path / "copy"), tmp_path / "outside"
    (outside / "nvidia_peermem").mkdir(parents=True)
    (outside / "online").write_text("0-1000\n")
    for name, target in (
        ("sys/devices/system/cpu/online", outside / "online"),
        ("sys/module", "../../outside"),
        ("proc/loadavg", "loadavg"),
        ("etc", outside),
    ):
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        path.symlink_to(target)
    os.mkfifo(root / "proc/sys/kernel/osrelease")
    found = Facts(wirespeed.described(root=root).facts)
    assert found.unreadable(Known.CPUS_ONLINE) and found.unreadable(Known.LOAD)
    assert found.text(Known.PEERMEM) == OFF


NOISE = (
    b"", b"9" * 5000, b"0-99999999999", b"0-8191", b"-1", b"nan", b"1e999", b"[]", b"null",
    b"\xff\x80\x00" * 60, b"0,1,,5-3", b"\0", "٣".encode(), b"max max", b"0::/../../../..", b"{" * 100_000,
)  # fmt: skip


def broken(root: Path, draw: random.Random, names: list[str]) -> None:
    """Break a file or a folder of a tree."""
    path = root / draw.choice(names)
    if draw.random() < 0.1:
        path = path.parent
    if path == root or not os.path.lexists(path):
        return
    text = path.read_bytes() if path.is_file() else b""
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    at = draw.randrange(len(text) + 1)
    target = draw.choice((path.name, root.parent / "outside", "/", "../" * draw.randrange(20), "../.."))
    how = draw.randrange(8)
    if how == 0:
        path.mkdir()
    elif how < 3:
        path.symlink_to(target)
    elif how > 3:
        path.write_bytes(draw.choice((draw.choice(NOISE), text[:at] + draw.choice(NOISE) + text[at:])))


@pytest.mark.parametrize("seed", with_long(range(40), *range(12, 40)))
def test_nonsense_gives_reasons_and_never_a_traceback(tmp_path: Path, recording: Path, seed: int) -> None:
    """Eight mutations of a tree at a time: 320."""
    draw = random.Random(seed)
    root = tmp_path / "tree"
    shutil.copytree(recording, root, symlinks=True)
    (tmp_path / "outside").write_text(SECRET)
    if seed % 2:
        (root / "machine.json").unlink()
    names = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    for _ in range(8):
        broken(root, draw, names)
    try:
        document = wirespeed.described(root=root)
    except wirespeed.MachineError as error:
        assert "\n" not in str(error) and ".json" in str(error)
        return
    assert all(fact.value is not None or fact.reason for fact in document.facts)
    assert SECRET.encode() not in encode(document)
    assert doctor_screen.render(Judged(document), Style(verbose=True))


@pytest.mark.parametrize("seed", range(10))
def test_nonsense_in_the_answers_of_nvml(tmp_path: Path, recording: Path, seed: int) -> None:
    """An answer of another kind than NVML gives is none."""
    draw, root = random.Random(seed), tmp_path / "tree"
    shutil.copytree(recording, root, symlinks=True)
    (root / "machine.json").unlink()
    answers = json.loads((root / "nvml.json").read_text())
    wrong: list[Any] = [None, -1, 10**30, 1e300, "text", [], {}, [1], [[]], {"total": "x"}, True, 2**31]
    for name in draw.sample(sorted(answers), 9):
        answers[name] = draw.choice(wrong)
    (root / "nvml.json").write_text(json.dumps(answers))
    document = wirespeed.described(root=root)
    assert all(fact.value is not None or fact.reason for fact in document.facts)
    assert doctor_screen.render(Judged(document), Style(verbose=True))


@pytest.mark.parametrize(
    "tree", sorted(path for path in TREES.iterdir() if path.is_dir()), ids=lambda p: p.name
)
def test_recorded_machines(tree: Path, request: pytest.FixtureRequest) -> None:
    """What facts speak for on real machines. Add one with --record, then --update-golden."""
    document = wirespeed.described(root=tree)
    facts, machine = Facts(document.facts), document.machine
    lines = [f"{gpu.name}: {gpu.model}, peers {', '.join(gpu.peers) or 'none'}" for gpu in machine.gpus]
    lines += [
        f"{sign.weight or cause.weight} {cause.name}{f' ({sign.device})' if sign.device else ''}: {sign.text}"
        for cause in CAUSES
        for sign in signs_of(cause, machine, facts)
    ]
    lines += [f"not readable: {fact.device or 'host'}, {fact.name}" for fact in facts if fact.value is None]
    expected = tree.with_suffix(".txt")
    if request.config.getoption("--update-golden"):
        expected.write_text("\n".join(lines) + "\n")
    assert lines == expected.read_text().splitlines()


def test_the_commands(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = str(tmp_path / "new/tree")
    assert main(["doctor", "--record", folder]) == 0
    assert f"wirespeed check --root {folder}" in capsys.readouterr().out
    assert main(["doctor", "--root", folder, "-v"]) in (0, 1, 3, 4)
    assert "CPUs of the host" in capsys.readouterr().out
    assert main(["doctor", "--record", folder]) == 2
    assert "is not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--root", "x", "--record", "y"], "choose one of them"),
        (["--root", "x", "run.json"], "not about a saved run: omit run.json"),
        (["--record", "x", "run.json"], "not about a saved run: omit run.json"),
        (["--root", "x", "-o", "y.json"], "--root measures nothing"),
        (["--record", "x", "--machine", "simulated:hgx-h200-2"], "--record measures nothing"),
        (["--root", "x", "-t", "0"], "-t/--testcase has no effect because --root measures nothing"),
        (["--root", "nowhere"], "nowhere is not the root of a system"),
        (["--root", ""], "is not the root of a system"),
        (["--record", "/proc/self/status/x"], "cannot record in /proc/self/status/x"),
        (["--record", "/proc/new"], "cannot record in /proc/new"),
        (["--record", "a\0b"], "cannot record in"),
    ],
)
def test_wrong_use(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
    why: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line
    assert not list(tmp_path.iterdir())


POSTED = Path(__file__).parents[1] / "data/machines"


def posted(name: str, folder: Path) -> Path:
    """The files of a machine that somebody described in public, rebuilt: path -> text, link or bytes."""
    for path, content in json.loads((POSTED / f"{name}.json").read_text()).items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            place.write_text(content)
        elif "link" in content:
            place.symlink_to(content["link"])
            if not place.exists():
                place.resolve().mkdir(parents=True, exist_ok=True)  # a driver, of which nothing else is read
        else:
            place.write_bytes(bytes.fromhex(content["hex"]))
    return folder


def examined(root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and text of ``doctor --root`` in one line."""
    capsys.readouterr()
    code = main(["doctor", "--root", str(root)])
    return code, " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("name", "code", "texts"),
    [
        ("acsnic", 4, ["note: traffic between NICs and GPUs does not take the shortest way",
                       "mlx5_0 and gpu0, mlx5_4 and gpu1: ACS of 0000:12:00.0, 0000:12:01.0"]),
        ("chipset3", 4, ["the slots of gpu0, gpu2 offer PCIe 4 x8, at most 15.8 GB/s in each direction",
                         "the link of 0000:02:00.0 above gpu1 offers PCIe 4 x4, at most 7.9 GB/s",
                         "lspci -vv -s 02:00.0"]),
        ("epyc7of8", 4, ["note: memory channels are empty (numa0)", "1 of 8 channels is empty; 7 modules"]),
        ("gx10", 3, ["roceP2p1s0f0: x2, rocep1s0f0: x4", "update the firmware of the system (BIOS)",
                     "lspci -vv -s 0002:01:00.0"]),
        ("jetson", 3, ["0 fatal or non-fatal errors, 214445 corrected", "x1, both ends support x4",
                       "generation 3, both ends support 4"]),
        ("mi300x", 3, ["only NVIDIA GPUs are measured; 8 AMD GPUs are here"]),
        ("nic2_nodev", 4, ["note: programs cannot use RDMA", "not /dev/infiniband/uverbs*"]),
        ("nicdrops", 4, ["note: ports of NICs have errors", "918223 out_of_sequence"]),
        ("oculink", 4, ["the slot of gpu0 offers PCIe 4 x4, at most 7.9 GB/s in each direction"]),
        ("podwrong", 3, ["gpu0, gpu1 at NUMA node 1, the usable CPUs at 0"]),
        ("spark", 3, ["a PCIe link has errors (roceP2p1s0f0, roceP2p1s0f1, rocep1s0f0, rocep1s0f1)",
                      "5 fatal or non-fatal errors"]),
        ("wsl2", 4, ["WSL2 has no peer access between GPUs, and limits pinned memory"]),
    ],
)  # fmt: skip
def test_posted_machines(
    name: str, code: int, texts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each says what its owner found in the end; none passes, because nothing was measured."""
    found, out = examined(posted(name, tmp_path), capsys)
    assert found == code and ("WARN " if code == 3 else "NOT JUDGED ") in out
    assert [text for text in texts if text not in out] == []
    assert "PASS" not in out and "nothing found" not in out and "reseat the card or riser;" not in out


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("epyc7of8", ["memory channels are empty (numa0)", "1 of 8 channels is empty; 7 modules"]),
        ("podwrong", ["gpu0, gpu1 at NUMA node 1, the usable CPUs at 0", "52.9 GB/s"]),
    ],
)
def test_runs_of_posted_machines(name: str, texts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(__file__).parents[1] / f"data/machines/{name}.run.json"
    assert main(["check", str(run), "--allow-simulated"]) == 3
    out = " ".join(capsys.readouterr().out.split())
    assert "WARN" in out and [text for text in texts if text not in out] == []


def test_a_machine_of_which_the_readings_show_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = posted("nicdrops", tmp_path)
    for counter in root.rglob("hw_counters/*"):
        counter.write_text("0\n")
    code, out = examined(root, capsys)
    assert code == 4 and "the readings show no defect; this is not a pass" in out


@pytest.mark.parametrize(("count", "noted"), [(1000, False), (1001, True)])
def test_some_errors_of_a_port_are_usual(
    count: int, noted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = posted("nicdrops", tmp_path)
    for counter in root.rglob("hw_counters/*"):
        counter.write_text(f"{count if counter.name == 'out_of_sequence' else 0}\n")
    next(root.rglob("mlx5_1/ports/1/hw_counters/out_of_sequence")).write_text("0\n")
    assert ("note: ports of NICs have errors" in examined(root, capsys)[1]) is noted


def test_gpus_of_others_beside_nvidia_and_in_the_cpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside a GPU that is measured they are noted; those of a CPU, and the console of a server, are not."""
    root = posted("oculink", tmp_path)
    for address, vendor, kind, memory in (
        ("0000:00:02.0", "0x8086", "0x030000", None),
        ("0000:00:01.3/0000:04:00.0", "0x1a03", "0x030000", None),
        ("0000:00:01.4/0000:0c:00.0", "0x1002", "0x030000", 512 << 20),
        ("0000:00:01.5/0000:0d:00.0", "0x1002", "0x030000", 24 << 30),
    ):
        place = root / "sys/devices/pci0000:00" / address
        place.mkdir(parents=True)
        (place / "vendor").write_text(f"{vendor}\n")
        (place / "class").write_text(f"{kind}\n")
        if memory:
            (place / "mem_info_vram_total").write_text(f"{memory}\n")
        (root / "sys/bus/pci/devices" / place.name).symlink_to(f"../../../devices/pci0000:00/{address}")
    code, out = examined(root, capsys)
    assert code == 4 and "note: only NVIDIA GPUs are measured; 1 AMD GPU is here: 0000:0d:00.0" in out


def test_a_jetson_whose_gpu_is_not_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = posted("jetson", tmp_path)
    (root / "proc/device-tree").mkdir()
    (root / "proc/device-tree/model").write_text("NVIDIA Jetson AGX Orin Developer Kit\0")
    code, out = examined(root, capsys)
    assert code == 3 and "the GPU of this board is not measured (NVIDIA Jetson AGX Orin Developer Kit)" in out


@pytest.mark.parametrize(("limit", "noted"), [(2**30, True), (120 * 2**30, False), (None, False)])
def test_a_memory_limit_of_the_control_group(
    limit: int | None, noted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A limit of half of the memory or more leaves room for buffers."""
    root = posted("spark", tmp_path)
    (root / "sys/fs/cgroup").mkdir(parents=True, exist_ok=True)
    (root / "sys/fs/cgroup/memory.max").write_text(f"{limit or 'max'}\n")
    assert ("a memory limit of 1 GiB, of 119.6 GiB" in examined(root, capsys)[1]) is noted


def test_links_that_both_ends_could_widen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is a defect then, and a link that GPUs share is named once, with its own address."""
    root = posted("chipset3", tmp_path)
    for place in root.rglob("0000:02:00.0"):
        (place / "current_link_width").write_text("2\n")
        (place.parent / "current_link_width").write_text("2\n")
    code, out = examined(root, capsys)
    assert code == 3 and out.count("a PCIe link runs at reduced width") == 1
    assert "reduced width (pcie:0000:02:00.0)" in out
    assert "the link of 0000:02:00.0 runs at x2, both ends support x4" in out
    assert "sudo lspci -vv -s 02:00.0 | grep LnkSta:" in out
