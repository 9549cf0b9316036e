"""Discovery on made-up sysfs trees, and on the machine that runs the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wirespeed.backends.host.host_discovery import discover
from wirespeed.backends.host.procfs import cpu_list
from wirespeed.backends.system_files import Tree as SystemTree
from wirespeed.hardware.devices import NumaNode
from wirespeed.hardware.topology import Cache, Link, LinkKind, Machine
from wirespeed.units import GIB, KIB, MIB

PAGE = os.sysconf("SC_PAGE_SIZE")


class Tree:
    """Writes the files of a made-up machine."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = SystemTree(root).root, root

    def write(self, name: str, text: str | int) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def kernel(self, arch: str, cpuinfo: str, total: int, huge: str = "always [madvise] never") -> None:
        self.write("proc/sys/kernel/hostname", "box")
        self.write("proc/sys/kernel/osrelease", "6.8.0")
        self.write("proc/sys/kernel/arch", arch)
        self.write("proc/cpuinfo", cpuinfo)
        self.write("proc/meminfo", f"MemTotal: {total // KIB} kB\nMemFree: {total // 2 // KIB} kB")
        self.write("sys/kernel/mm/transparent_hugepage/enabled", huge)
        self.write("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", 2 * MIB)

    def cpu(self, cpu: int, siblings: str, caches: tuple[tuple[int, str, str, str], ...] = ()) -> None:
        base = f"sys/devices/system/cpu/cpu{cpu}"
        self.write(f"{base}/topology/thread_siblings_list", siblings)
        for i, (level, kind, size, shared) in enumerate(caches):
            for name, value in (
                ("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared),
            ):  # fmt: skip
                self.write(f"{base}/cache/index{i}/{name}", value)

    def node(self, index: int, cpus: str, memory: int, distances: str) -> None:
        base = f"sys/devices/system/node/node{index}"
        self.write(f"{base}/cpulist", cpus)
        self.write(f"{base}/distance", distances)
        self.write(
            f"{base}/meminfo",
            f"Node {index} MemTotal: {memory // KIB} kB\nNode {index} MemFree: {memory // 4 // KIB} kB",
        )


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def memory_link(name: str) -> Link:
    return Link(name, name, LinkKind.MEMORY, None, "unknown")


def socket_links(*pairs: tuple[str, str]) -> tuple[Link, ...]:
    return tuple(Link(a, b, LinkKind.SOCKET, None, "unknown") for a, b in pairs)


def two_sockets(tree: Tree) -> None:
    """Two sockets of two cores with two threads each: CPU n and n + 4 are siblings."""
    tree.kernel("x86_64", "processor: 0\nmodel name\t: Some  CPU @ 2GHz\n\nprocessor: 1", 64 * GIB)
    tree.write("sys/devices/system/node/online", "0-1")
    for cpu in range(8):
        first = cpu % 4
        pair, socket = f"{first},{first + 4}", "0-1,4-5" if first < 2 else "2-3,6-7"
        caches = (
            (1, "Data", "48K", pair),
            (1, "Instruction", "32K", pair),
            (2, "Unified", "2048K", pair),
            (3, "Unified", "32M", socket),
        )
        tree.cpu(cpu, pair, caches)
    tree.node(0, "0-1,4-5", 32 * GIB, "10 21")
    tree.node(1, "2-3,6-7", 32 * GIB, "21 10")


def test_two_sockets_with_smt(tree):
    two_sockets(tree)
    assert discover(Machine("m"), tree.root, range(8)) == Machine(
        "m",
        host="box",
        cpu="Some CPU @ 2GHz",
        architecture="x86_64",
        kernel="6.8.0",
        page_bytes=PAGE,
        huge_page_bytes=2 * MIB,
        transparent_huge_pages="madvise",
        caches=(
            Cache(1, "data", 48 * KIB, 2),
            Cache(1, "instruction", 32 * KIB, 2),
            Cache(2, "unified", 2 * MIB, 2),
            Cache(3, "unified", 32 * MIB, 4),
        ),
        numa=(
            NumaNode(0, (0, 1, 4, 5), 2, 32 * GIB, 8 * GIB, (10, 21)),
            NumaNode(1, (2, 3, 6, 7), 2, 32 * GIB, 8 * GIB, (21, 10)),
        ),
        links=(
            memory_link("numa0"),
            memory_link("numa1"),
            *socket_links(("numa0", "numa1"), ("numa1", "numa0")),
        ),
    )


def test_set_of_cpus_with_holes(tree):
    two_sockets(tree)
    machine = discover(Machine("m"), tree.root, {1, 5, 6})
    assert [(n.cpus, n.threads_per_core, n.cores) for n in machine.numa] == [
        ((1, 5), 2, (1,)),
        ((6,), 1, (6,)),
    ]
    assert machine.notes == ()


def test_cores_with_unequal_numbers_of_usable_threads(tree):
    two_sockets(tree)
    machine = discover(Machine("m"), tree.root, {0, 1, 4})
    assert machine.numa[0] == NumaNode(0, (0, 1, 4), 2, 32 * GIB, 8 * GIB, (10, 21), 2)
    assert machine.numa[0].cores == (0, 1)
    assert machine.numa[1].cpus == ()
    assert machine.notes == ("numa0: some cores have more usable threads than others",)


def test_a_core_of_which_only_the_second_thread_may_be_used_is_a_core(tree):
    two_sockets(tree)
    assert discover(Machine("m"), tree.root, {0, 5}).numa[0].cores == (0, 5)


def test_arm_without_a_model_name(tree):
    tree.kernel("aarch64", "processor: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n", 480 * GIB)
    tree.write("sys/devices/system/node/online", "0")
    for cpu in (0, 1):
        tree.cpu(cpu, str(cpu))
    tree.node(0, "0-1", 480 * GIB, "10")
    machine = discover(Machine("m"), tree.root, (0, 1))
    assert machine.cpu == "Arm Neoverse-V2"
    assert machine.caches == ()
    assert machine.notes == ("caches: unknown, not reported by the kernel",)
    tree.write("proc/cpuinfo", "CPU implementer\t: 0x99\nCPU part\t: 0x123\n")
    assert discover(Machine("m"), tree.root, (0, 1)).cpu == "Arm implementer 0x99 part 0x123"


def test_node_with_memory_only(tree):
    two_sockets(tree)
    tree.write("sys/devices/system/node/online", "0-1,3")
    tree.node(3, "", 128 * GIB, "14 24 10")
    machine = discover(Machine("m"), tree.root, range(8))
    assert machine.numa[2] == NumaNode(3, (), 1, 128 * GIB, 32 * GIB, (14, 24, 10))
    assert machine.numa[2].cores == ()
    assert memory_link("numa3") in machine.links
    assert sum(link.kind is LinkKind.SOCKET for link in machine.links) == 6


def test_node_without_memory_has_no_memory_link(tree):
    two_sockets(tree)
    tree.node(1, "2-3,6-7", 0, "21 10")
    machine = discover(Machine("m"), tree.root, range(8))
    assert machine.numa[1].memory_bytes == 0
    assert memory_link("numa1") not in machine.links


def test_nothing_is_readable(tree):
    machine = discover(Machine("m", host="known"), tree.root, {4, 2})
    assert machine.numa == (NumaNode(0, (2, 4)),)
    assert machine.host == "known"
    assert (machine.cpu, machine.kernel, machine.caches, machine.links) == ("", "", (), ())
    assert machine.architecture == os.uname().machine
    for what in ("host name", "CPU model", "kernel release", "caches", "NUMA", "MemTotal", "huge pages"):
        assert sum(what in note for note in machine.notes) == 1, what


def test_container_without_sysfs(tree):
    tree.write("proc/meminfo", f"MemTotal: {8 * MIB} kB\nMemFree: {MIB} kB\nHugepagesize: 2048 kB")
    tree.write("proc/cpuinfo", "model name: X")
    machine = discover(Machine("m"), tree.root, {0, 1})
    assert machine.numa == (NumaNode(0, (0, 1), 1, 8 * GIB, GIB),)
    assert machine.links == (memory_link("numa0"),)
    assert machine.huge_page_bytes == 2 * MIB
    assert any("NUMA: unknown" in note for note in machine.notes)


def test_memory_plugged_in_later_counts_on_a_single_node(tree):
    tree.kernel("x86_64", "model name: X", 24 * GIB)
    tree.write("sys/devices/system/node/online", "0")
    tree.node(0, "0", 4 * GIB, "10")
    assert discover(Machine("m"), tree.root, {0}).numa[0].memory_bytes == 24 * GIB


def test_node_that_does_not_say_how_much_memory_it_has(tree):
    two_sockets(tree)
    (tree.folder / "sys/devices/system/node/node1/meminfo").unlink()
    machine = discover(Machine("m"), tree.root, range(8))
    assert machine.numa[1].memory_bytes == 0
    assert machine.notes == ("memory of numa1: unknown, not reported by the kernel",)


def test_cpus_of_no_node_are_noted(tree):
    two_sockets(tree)
    machine = discover(Machine("m"), tree.root, {0, 9})
    assert machine.notes == ("CPUs 9 belong to no NUMA node and are not used",)


def test_garbage_is_unknown(tree):
    two_sockets(tree)
    tree.write("sys/devices/system/node/online", "what?")
    tree.write("sys/devices/system/cpu/cpu0/cache/index0/size", "big")
    tree.write("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "-1")
    (tree.folder / "proc/cpuinfo").write_bytes(b"\xff\xfe: \x80\n")
    machine = discover(Machine("m"), tree.root, range(8))
    assert len(machine.numa) == 1
    assert machine.cpu == ""
    assert machine.huge_page_bytes == 0
    assert Cache(1, "data", 48 * KIB, 2) not in machine.caches


def test_what_is_known_already_stays(tree):
    two_sockets(tree)
    link = Link("gpu0", "numa0", LinkKind.PCIE, 63e9)
    machine = discover(Machine("m", links=(link,), notes=("before",)), tree.root, range(8))
    assert machine.links[0] == link
    assert machine.notes[0] == "before"


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-2,8", (0, 1, 2, 8)), ("5", (5,)), ("", ()), ("a-b", ()), ("1-", (1,)), ("3,x", ()), ("-1", ())],
)
def test_lists_of_cpus(text, cpus):
    assert cpu_list(text) == cpus


def test_this_machine(machine):
    usable = {cpu for node in machine.numa for cpu in node.cpus}
    assert usable <= os.sched_getaffinity(0)
    assert sum(node.memory_bytes for node in machine.numa) > 0


def test_discovery_loads_no_heavy_module():
    script = (
        "import sys; from wirespeed.backends.host import discover;"
        "from wirespeed.hardware.topology import Machine;"
        "discover(Machine('')); print([m for m in ('numpy', 'wirespeed.native') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
