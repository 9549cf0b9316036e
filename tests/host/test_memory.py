"""The pool of buffers: where they lie, how long they live, and what there is not enough of."""

from __future__ import annotations

from pathlib import Path

import pytest

from wirespeed.backends.host import kernels, memory
from wirespeed.backends.host.memory import GRANULE, RESERVE_BYTES, HostBuffer, HostBufferPool
from wirespeed.backends.host.procfs import available_bytes
from wirespeed.backends.system_files import Tree
from wirespeed.errors import BackendError, OutOfMemory
from wirespeed.model import Operation
from wirespeed.options import RunOptions
from wirespeed.units import GIB, KIB, MIB


def touch(buffer: HostBuffer) -> None:
    kernels.touch(buffer.address, 0, buffer.bytes)


def mapped(buffer: HostBuffer) -> bool:
    start = f"{buffer.address:x}-"
    return any(line.startswith(start) for line in Path("/proc/self/maps").read_text().splitlines())


@pytest.fixture
def pool():
    pool = HostBufferPool(several=False)
    yield pool
    pool.close()


def test_buffers_are_aligned_reused_and_unmapped(pool):
    first, second = pool.take(0, 100, touch), pool.take(0, 5 * MIB, touch)
    assert first.address % GRANULE == second.address % GRANULE == 0
    assert (first.bytes, second.bytes) == (GRANULE, 6 * MIB)
    pool.give(first)
    pool.give(second)
    assert pool.take(0, 3 * MIB, touch) is second
    assert pool.take(0, 64, touch) is first
    pool.close()
    assert not mapped(first)
    assert not mapped(second)


def test_a_buffer_with_the_right_content_is_preferred(pool):
    buffers = [pool.take(0, size, touch) for size in (MIB, MIB, 8 * MIB)]
    buffers[2].holds = (1, 2)
    for buffer in buffers:
        pool.give(buffer)
    assert pool.take(0, MIB, touch, (1, 2)) is buffers[2]
    assert pool.take(0, MIB, touch, (3, 4)) is not buffers[2]


def test_what_is_in_huge_pages(pool, tmp_path):
    buffer = pool.take(0, 2 * GRANULE, touch)
    assert memory.huge_bytes(buffer.address) in (None, 0, GRANULE, 2 * GRANULE)
    smaps = tmp_path / "proc/self/smaps"
    smaps.parent.mkdir(parents=True)
    smaps.write_text(
        "1000-2000 rw-p 00000000 00:00 0\nRss: 4 kB\nAnonHugePages:         0 kB\n"
        "20000-40000 rw-p 00000000 00:00 0\nRss: 4 kB\nAnonHugePages:      2048 kB\n"
    )
    found = [memory.huge_bytes(at, Tree(tmp_path).root) for at in (0x1000, 0x20000, 0x2000)]
    assert found == [0, 2 * MIB, None]


def test_nodes_do_not_share_buffers(pool):
    first = pool.take(0, MIB, touch)
    pool.give(first)
    assert pool.take(1, MIB, touch) is not first


def test_unused_buffers_give_way():
    room = {"free": 512 * MIB}
    pool = HostBufferPool(False, available=lambda node: room["free"])
    kept, unused = pool.take(0, 2 * MIB, touch), pool.take(0, 4 * MIB, touch)
    pool.give(unused)
    room["free"] = 0
    with pytest.raises(BackendError, match=r"numa0: requested a buffer of 8 MiB, 0 B is available"):
        pool.take(0, 8 * MIB, touch)
    assert mapped(kept)
    assert not mapped(unused)
    pool.close()


def test_too_large_a_buffer_is_refused_before_it_is_touched(backend, measurement):
    with pytest.raises(BackendError, match=r"requested a buffer of 1024 TiB, .* is available"):
        backend.prepare(measurement(Operation.COPY, 2**50), RunOptions())
    with backend.prepare(measurement(), RunOptions()) as prepared:
        prepared.sample(1)


def test_unknown_room_is_no_reason_to_refuse():
    pool = HostBufferPool(False, available=lambda node: None)
    pool.take(0, MIB, touch)
    with pytest.raises(BackendError, match=r"mmap of .* for numa0 failed"):
        pool.take(0, 2**60, touch)
    pool.close()


def test_refused_mapping_leaves_nothing_behind(monkeypatch):
    pool = HostBufferPool(several=False)
    monkeypatch.setattr(memory._libc, "mprotect", lambda *arguments: -1)
    with pytest.raises(BackendError, match=r"mapping 2 MiB for numa0 failed"):
        pool.take(0, MIB, touch)
    assert not pool._mapped


def test_failure_while_touching_leaves_no_mapping(pool):
    seen = []

    def fail(buffer: HostBuffer) -> None:
        seen.append(buffer)
        raise BackendError("no")

    with pytest.raises(BackendError, match="no"):
        pool.take(0, MIB, fail)
    assert not mapped(seen[0])


def test_backend_unmaps_everything(backend, measurement):
    with backend.prepare(measurement(), RunOptions()) as prepared:
        buffers = [prepared.bound[0].sources[0], prepared.bound[0].destination]
        assert all(mapped(buffer) for buffer in buffers)
    assert all(mapped(buffer) for buffer in buffers)  # kept for the next Measurement
    backend.close()
    assert not any(mapped(buffer) for buffer in buffers)


def test_a_cycle_is_built_once_and_again_after_other_use(backend, measurement, monkeypatch):
    built = []
    cycle = kernels.cycle
    monkeypatch.setattr(kernels, "cycle", lambda *a: built.append(a[-1]) or cycle(*a))

    def run(operation: Operation, size: int, seed: int = 0) -> int:
        built.clear()
        with backend.prepare(measurement(operation, size), RunOptions(seed=seed)) as prepared:
            prepared.sample(1)
            prepared.verify()
        return len(built)

    assert run(Operation.CHASE, 2**14) > 0
    assert run(Operation.CHASE, 2**14) == 0
    assert run(Operation.CHASE, 2**14, seed=1) > 0
    assert run(Operation.CHASE, 2**13, seed=1) > 0
    assert run(Operation.WRITE, 2**14, seed=1) == 0
    assert run(Operation.CHASE, 2**13, seed=1) > 0


needs_numa_maps = pytest.mark.skipif(
    not Path("/proc/self/numa_maps").exists(), reason="the kernel has no /proc/self/numa_maps"
)


@needs_numa_maps
def test_memory_is_checked_to_be_on_its_node(node):
    pool = HostBufferPool(several=True)
    buffer = pool.take(node.index, 4 * MIB, touch)
    assert buffer.checked
    pool.close()


@needs_numa_maps
def test_memory_that_lies_elsewhere_is_an_error(node):
    pool = HostBufferPool(several=True, available=lambda node: None)
    with pytest.raises(BackendError, match=r"numa63 \(touched by .*\) is on other nodes: \d+ pages on numa"):
        pool.take(63, 2 * MIB, touch)
    pool.close()


@needs_numa_maps
@pytest.mark.parametrize("architecture", ["x86_64", "sparc"])
def test_without_mbind_the_first_touch_decides(architecture, node, monkeypatch):
    monkeypatch.setattr(memory.platform, "machine", lambda: architecture)
    monkeypatch.setattr(memory._libc, "syscall", lambda *arguments: -1)
    pool = HostBufferPool(several=True)
    assert pool.take(node.index, 2 * MIB, touch).checked
    pool.close()


def test_a_place_that_cannot_be_checked_is_a_warning(backend, measurement, tmp_path, monkeypatch):
    monkeypatch.setattr(backend, "_pool", HostBufferPool(several=True, root=Tree(tmp_path).root))
    with backend.prepare(measurement(), RunOptions()) as prepared:
        prepared.sample(1)
        prepared.verify()
    (warning,) = backend.drain_warnings()
    assert "numa_maps" in warning


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_available_memory_is_the_least_of_all_limits(tmp_path):
    assert available_bytes(Tree(tmp_path).root) is None
    write(tmp_path, {"proc/meminfo": f"MemTotal: 999 kB\nMemAvailable: {8 * MIB} kB\nHugePages_Total: 0"})
    assert available_bytes(Tree(tmp_path).root) == 8 * GIB
    write(
        tmp_path,
        {
            "sys/devices/system/node/node1/meminfo": f"Node 1 MemFree: {2 * MIB} kB\n"
            f"Node 1 Active(file): {MIB} kB\nNode 1 Inactive(file): 0 kB"
        },
    )
    assert available_bytes(Tree(tmp_path).root, node=1) == 3 * GIB
    assert available_bytes(Tree(tmp_path).root, node=0) == 8 * GIB


def test_control_groups_of_version_2_limit_memory(tmp_path):
    write(
        tmp_path,
        {
            "proc/meminfo": f"MemAvailable: {8 * MIB} kB",
            "proc/self/cgroup": "0::/a/b",
            "sys/fs/cgroup/a/b/memory.max": "max",
            "sys/fs/cgroup/a/b/memory.current": "5",
            "sys/fs/cgroup/a/memory.max": str(4 * GIB),
            "sys/fs/cgroup/a/memory.current": str(GIB),
            "sys/fs/cgroup/a/memory.stat": f"anon 1\ninactive_file {KIB}\nactive_file {KIB}",
        },
    )
    assert available_bytes(Tree(tmp_path).root) == 3 * GIB + 2 * KIB


def test_control_groups_of_version_1_limit_memory(tmp_path):
    write(
        tmp_path,
        {
            "proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/docker/not-visible-here\n0::/",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": str(GIB),
            "sys/fs/cgroup/memory/memory.usage_in_bytes": str(2 * GIB),
            "sys/fs/cgroup/memory/memory.stat": "inactive_file 7\ntotal_inactive_file 0",
        },
    )
    assert available_bytes(Tree(tmp_path).root) == 0
    write(tmp_path, {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"})
    assert available_bytes(Tree(tmp_path).root) is None


def test_a_new_round_has_other_pages_while_there_is_room() -> None:
    room = 1024 * GRANULE
    pool = HostBufferPool(False, available=lambda node: room)
    kept = []
    for _ in range(4):
        buffer = pool.take(0, GRANULE, lambda b: None)
        kept.append(buffer.address)
        pool.give(buffer)
        pool.renew()
    assert len(set(kept)) == 4
    pool.close()


def test_buffers_of_earlier_rounds_go_when_memory_is_short() -> None:
    room = {"free": 20 * GRANULE + RESERVE_BYTES}
    pool = HostBufferPool(False, available=lambda node: room["free"])
    for _ in range(3):
        buffer = pool.take(0, 16 * GRANULE, lambda b: None)
        pool.give(buffer)
        pool.renew()
    assert len(pool._retired) <= 1  # a quarter of what is left
    room["free"] = RESERVE_BYTES + GRANULE
    with pytest.raises(OutOfMemory):
        pool.take(0, 16 * GRANULE, lambda b: None)
    assert not pool._retired
    pool.close()
