"""Facts from trees like those of real machines, and from trees full of nonsense."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from wirespeed import backends
from wirespeed.backends.host.host_facts import facts
from wirespeed.backends.nccl.debug import settings
from wirespeed.backends.simulated import parse
from wirespeed.backends.system_files import HERE, Tree, TreePath
from wirespeed.hardware.facts import OFF, ON, UNLIMITED, Facts, Known

#: A container on a host with two sockets, as far as facts look at it.
CONTAINER = {
    "proc/self/mounts": "overlay / overlay rw 0 0\nshm /dev/shm tmpfs rw,nosuid,size=65536k,inode64 0 0\n",
    "proc/self/limits": "Limit  Soft Limit  Hard Limit\nMax locked memory   65536     65536     bytes\n",
    "proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-1,8\nMems_allowed_list:\t0-3\n",
    "proc/self/cgroup": "0::/kubepods/pod1\n",
    "proc/meminfo": "MemTotal:  1000 kB\n",
    "proc/cpuinfo": "processor : 0\nflags : fpu hypervisor sse\n",
    "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/sda1 iommu=pt pci=noacs quiet\n",
    "proc/loadavg": "3.50 1.00 0.50 2/900 1\n",
    "proc/pressure/cpu": "some avg10=25.50 avg60=1.00 avg300=0.10 total=1\nfull avg10=0.00\n",
    "proc/sys/kernel/numa_balancing": "1\n",
    "sys/fs/cgroup/kubepods/cpu.max": "200000 100000\n",
    "sys/fs/cgroup/kubepods/pod1/cpu.max": "max 100000\n",
    "sys/devices/system/cpu/online": "0-15\n",
    "sys/devices/system/node/online": "0-1\n",
    "sys/devices/system/node/node0/cpulist": "0-7\n",
    "sys/devices/system/node/node1/cpulist": "8-15\n",
    "sys/devices/system/cpu/cpu0/topology/physical_package_id": "0\n",
    "sys/devices/system/cpu/cpu8/topology/physical_package_id": "0\n",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "powersave\n",
    "sys/devices/system/cpu/cpufreq/policy8/scaling_governor": "performance\n",
    "sys/devices/system/edac/mc/mc0/size_mb": "65536\n",
    "sys/devices/system/edac/mc/mc0/ce_count": "0\n",
    "sys/devices/system/edac/mc/mc1/size_mb": "32768\n",
    "sys/kernel/iommu_groups/0/type": "DMA-FQ\n",
    "sys/kernel/iommu_groups/1/type": "identity\n",
    "sys/class/iommu/dmar0": "",
    "sys/module/nvidia_peermem/version": "1",
    "sys/class/dmi/id/sys_vendor": "QEMU\n",
}


def tree(root: Path, files: dict[str, str]) -> TreePath:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return Tree(root).root


def test_a_container(tmp_path: Path) -> None:
    found = Facts(facts(tree(tmp_path, CONTAINER)))
    assert found.number(Known.SHM) == 64 * 2**20
    assert found.number(Known.MEMLOCK) == 65536
    assert (found.number(Known.CPUS), found.number(Known.CPUS_ONLINE)) == (3, 16)
    assert (found.number(Known.NODES), found.number(Known.NODES_ONLINE)) == (2, 2)
    assert found.number(Known.CPU_QUOTA) == 2
    assert found.several(Known.GOVERNOR) == ("performance", "powersave")
    assert found.text(Known.NUMA_BALANCING) == ON
    assert found.number(Known.NODES_PER_SOCKET) == 2
    assert found.several(Known.IOMMU) == ("DMA-FQ", "identity")
    assert found.several(Known.KERNEL_OPTIONS) == ("iommu=pt", "pci=noacs")
    assert found.text(Known.HYPERVISOR) == "QEMU"
    assert found.number(Known.DIMM_BYTES, "mc1") == 32 * 2**30
    assert found.number(Known.LOAD) == 3.5 and found.number(Known.PRESSURE) == 25.5
    assert found.text(Known.PEERMEM) == ON
    assert found.devices() == ("mc0", "mc1")


@pytest.mark.parametrize(
    ("options", "bytes"),
    [("rw", 512_000), ("rw,size=50%", 512_000), ("size=2m", 2 * 2**20), ("rw,size=7", 7), ("size=1g", 2**30)],
)
def test_sizes_of_shared_memory(tmp_path: Path, options: str, bytes: int) -> None:
    mounts = {
        "proc/self/mounts": f"tmpfs /dev/shm tmpfs {options} 0 0\n",
        "proc/meminfo": CONTAINER["proc/meminfo"],
    }
    assert Facts(facts(tree(tmp_path, mounts))).number(Known.SHM) == bytes


def test_limits_that_are_none(tmp_path: Path) -> None:
    files = {
        "proc/self/limits": "Max locked memory   unlimited  unlimited  bytes\n",
        "proc/self/cgroup": "0::/\n",
    }
    found = Facts(facts(tree(tmp_path, files)))
    assert found.text(Known.MEMLOCK) == UNLIMITED and found.text(Known.CPU_QUOTA) == UNLIMITED
    assert found.several(Known.IOMMU) == (OFF,) and found.text(Known.PEERMEM) == OFF


def test_links_of_this_machine_and_of_a_folder_are_resolved(tmp_path: Path) -> None:
    assert (HERE / "proc/self").resolve().name == str(os.getpid())
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a/b")
    root = Tree(tmp_path).root
    assert (root / "link").resolve() == root / "a/b"


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    found = Facts(facts(Tree(tmp_path).root))
    lacking = [
        Known.SHM,
        Known.MEMLOCK,
        Known.CPUS,
        Known.GOVERNOR,
        Known.DIMM_BYTES,
        Known.LOAD,
        Known.PRESSURE,
    ]
    assert all(found.unreadable(name) == "the kernel does not show it here" for name in lacking)
    assert not found.unreadable("nothing that exists")


@pytest.mark.parametrize("seed", range(20))
def test_nonsense_is_no_fact_and_no_error(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    files = {}
    for name, text in CONTAINER.items():
        broken = list(text)
        for _ in range(draw.randrange(1, 6)):
            broken.insert(draw.randrange(len(broken) + 1), draw.choice("9-,:\x00 \n=.%µ"))
        files[name] = "".join(broken)
    for fact in facts(tree(tmp_path, files)):
        assert fact.value is not None or fact.reason


def test_settings_of_nccl(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {"etc/nccl.conf": "# a comment\nNCCL_NET=Socket\nNCCL_DEBUG=WARN\n", "own.conf": "NCCL_ALGO=Ring\n"},
    )
    variables = {
        "NCCL_CONF_FILE": "/own.conf", "NCCL_P2P_DISABLE": "1", "NCCL_DEBUG": "INFO",
    }  # fmt: skip
    assert settings(Tree(tmp_path, variables).root).value == (
        "NCCL_P2P_DISABLE=1", "/etc/nccl.conf: NCCL_NET=Socket", "/own.conf: NCCL_ALGO=Ring",
    )  # fmt: skip
    assert settings(Tree(tmp_path / "none", {}).root).value == ()


def test_a_simulated_machine_has_facts_and_this_one_has() -> None:
    faulty = Facts(backends.facts(parse("hgx-h200-2+gen4@gpu1+busy@gpu0")))
    generations = [faulty.number(Known.PCIE_GENERATION_LOADED, gpu) for gpu in ("gpu0", "gpu1")]
    assert generations == [5, 4] and faulty.number(Known.UTILISATION, "gpu0") == 97
    assert Facts(backends.facts(backends.discover())).number(Known.CPUS)
