"""Storage: a file in a named folder for real, with small sizes; file systems and devices from trees."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import wirespeed
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.errors import BackendError, MachineError, UsageError, VerificationError
from wirespeed.features.storage import folder as storage_folder
from wirespeed.features.storage import prepared as storage_prepared
from wirespeed.features.storage.backend import StorageBackend
from wirespeed.features.storage.folder import Mount, below_of, mount_of, with_folder
from wirespeed.features.storage.scratch_file import ScratchFile
from wirespeed.hardware.devices import STORAGE, NumaNode
from wirespeed.hardware.topology import Machine
from wirespeed.measurement import Measurement
from wirespeed.model import Engine, Executor, FileCalls, Memory, MemoryKind, Transfer
from wirespeed.options import RunOptions
from wirespeed.units import KIB, MIB

HOST, FILE = Memory("numa0", MemoryKind.PAGEABLE), Memory("storage0", MemoryKind.FILE)
MACHINE = Machine("here", numa=(NumaNode(0, (0,), memory_bytes=2**34),))
SMALL: dict[str, Any] = {"storage_size": 8 * MIB, "samples": 2, "copies": 2}


#: Where the kernel or a container has no io_uring, its tests are skipped.
needs_ring = pytest.mark.skipif(bool(storage_prepared.refused()), reason=storage_prepared.refused())
BOTH = [Engine.IO, pytest.param(Engine.IO_URING, marks=needs_ring)]


def calls(
    block: int, depth: int, *, writes: bool = False, random: bool = False, engine: Engine = Engine.IO
) -> Measurement:
    ends = (HOST, FILE) if writes else (FILE, HOST)
    does = FileCalls(block, depth, random)
    return Measurement(
        (Transfer(*ends, Executor("numa0", cpus=(0,)), engine, block * depth, calls=does),), ()
    )


def measured(folder: Path, name: str, **options: Any) -> Document:
    return wirespeed.run([name], machine=MACHINE, storage=folder, size=64 * KIB, **(SMALL | options))


@pytest.mark.parametrize(
    "name",
    [
        "storage_read",
        "storage_write",
        "storage_random_read",
        *(pytest.param(f"storage_{name}_io_uring", marks=needs_ring) for name in ("read", "write")),
    ],
)
def test_storage_is_measured_and_nothing_is_left(tmp_path: Path, name: str) -> None:
    document = measured(tmp_path, name)
    (result,) = document.testcases
    assert (result.status.value, result.reason) == ("passed", "")
    (table,) = result.tables
    assert table.columns.labels == ("1", "4", "16", "64")
    assert [cell.value is not None for cell in table.cells] == [True] * 3 + [
        cell.reason == "" for cell in table.cells[3:]
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("engine", BOTH)
@pytest.mark.parametrize("random", [False, True])
def test_every_place_is_read_and_written_where_it_should_be(
    tmp_path: Path, random: bool, engine: Engine
) -> None:
    machine = with_folder(MACHINE, str(tmp_path), 2 * MIB)
    backend = StorageBackend(machine)
    try:
        for writes in (False, True):
            what = calls(4 * KIB, 3, writes=writes, random=random, engine=engine)
            with backend.prepare(what, RunOptions()) as prepared:
                for copies in (1, 7, 300):  # more blocks than the half of the file has
                    sample = prepared.sample(copies)
                    assert sample.amounts == (3.0 * copies * 4 * KIB,)
                    prepared.verify()
        (file,) = tmp_path.iterdir()
        assert file.stat().st_size == 2 * MIB
        assert file.stat().st_mode & 0o777 == 0o600
    finally:
        backend.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("engine", BOTH)
@pytest.mark.parametrize("writes", [False, True])
def test_wrong_data_is_found(tmp_path: Path, writes: bool, engine: Engine) -> None:
    backend = StorageBackend(with_folder(MACHINE, str(tmp_path), 2 * MIB))
    try:
        with backend.prepare(calls(4 * KIB, 1, writes=writes, engine=engine), RunOptions()) as prepared:
            (file,) = tmp_path.iterdir()
            if writes:
                prepared.sample(1)
            with file.open("r+b") as opened:
                opened.seek(MIB if writes else 0)
                opened.write(bytes(4 * KIB))
            if not writes:
                prepared.sample(1)
            with pytest.raises(VerificationError, match="storage0"):
                prepared.verify()
    finally:
        backend.close()


def test_what_an_earlier_measurement_wrote_does_not_pass(tmp_path: Path) -> None:
    """Writes to the same place have other contents each time."""
    backend = StorageBackend(with_folder(MACHINE, str(tmp_path), 2 * MIB))
    what = calls(4 * KIB, 1, writes=True)
    try:
        with backend.prepare(what, RunOptions()) as prepared:
            prepared.sample(1)
            (file,) = tmp_path.iterdir()
            earlier = file.read_bytes()
        with backend.prepare(what, RunOptions()) as prepared:
            prepared.sample(1)
            prepared.verify()
            file.write_bytes(earlier)
            with pytest.raises(VerificationError, match="storage0"):
                prepared.verify()
    finally:
        backend.close()


@pytest.mark.parametrize("engine", BOTH)
def test_a_shortened_file_is_an_error(tmp_path: Path, engine: Engine) -> None:
    backend = StorageBackend(with_folder(MACHINE, str(tmp_path), 2 * MIB))
    try:
        with backend.prepare(calls(4 * KIB, 4, engine=engine), RunOptions()) as prepared:
            os.truncate(next(tmp_path.iterdir()), 0)
            with pytest.raises(BackendError, match=r"reading at .*: fewer bytes than requested"):
                prepared.sample(20)
    finally:
        backend.close()


@needs_ring
def test_an_error_of_a_call_by_io_uring_is_that_of_the_system(tmp_path: Path) -> None:
    """The error number of a completion: the file may not be written."""
    backend = StorageBackend(with_folder(MACHINE, str(tmp_path), 2 * MIB))
    try:
        what = calls(4 * KIB, 4, writes=True, engine=Engine.IO_URING)
        with backend.prepare(what, RunOptions()) as prepared:
            (file,) = tmp_path.iterdir()
            descriptor = prepared._contents.file.descriptor
            read_only = os.open(file, os.O_RDONLY)
            os.dup2(read_only, descriptor)
            os.close(read_only)
            with pytest.raises(BackendError, match=r"writing at 1\b.*: Bad file descriptor"):
                prepared.sample(20)
    finally:
        backend.close()


@needs_ring
def test_a_cancelled_ring_ends(tmp_path: Path) -> None:
    backend = StorageBackend(with_folder(MACHINE, str(tmp_path), 2 * MIB))
    try:
        with backend.prepare(calls(4 * KIB, 2, engine=Engine.IO_URING), RunOptions()) as prepared:
            backend.cancel()
            with pytest.raises(BackendError, match="cancelled"):
                prepared.sample(2**40)
    finally:
        backend.close()


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.EPERM, "io_uring is not permitted here"),  # a container, or kernel.io_uring_disabled
        (errno.ENOSYS, "io_uring is not permitted here"),  # a kernel or sandbox without it
        (errno.EINVAL, "io_uring cannot be used here: Invalid argument"),
        (errno.ENOMEM, "raise the limit of locked memory"),
    ],
)
def test_without_io_uring_threads_are_measured_and_the_reason_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, says: str
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(storage_prepared, "call", refuse)
    options = SMALL | {"size": 64 * KIB, "machine": MACHINE, "storage": tmp_path}
    document = wirespeed.run(["storage_random_read", "storage_random_read_io_uring"], **options)
    by_threads, by_ring = document.testcases
    assert by_threads.status.value == "passed"
    assert by_ring.status.value == "waived"
    assert says in by_ring.reason
    assert by_ring.reason.count(": ") <= 1  # one reason, not that of each backend
    assert "\n" not in by_ring.reason
    assert list(tmp_path.iterdir()) == []


def test_an_older_kernel_gets_flags_that_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each flag that it does not know is EINVAL, as io_uring_setup(2) says."""
    asked: list[int] = []
    real = storage_prepared.call

    def older(number: int, *arguments: Any) -> int:
        if number == storage_prepared._SETUP:
            asked.append(arguments[1][storage_prepared._SETTING])
            if asked[-1]:
                raise OSError(errno.EINVAL, "Invalid argument")
        return real(number, *arguments)

    monkeypatch.setattr(storage_prepared, "call", older)
    assert storage_prepared.refused() == "" or not asked[-1]
    assert asked == sorted(asked, reverse=True)
    assert asked[-1] == 0


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOSPC, "No space left on device; free some space, or give a smaller --storage-size"),
        (errno.EDQUOT, "quota exceeded; give a smaller --storage-size"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_full_disk_and_a_quota_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, says: str
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(storage_prepared.os, "pwrite", refuse)
    document = measured(tmp_path, "storage_read")
    (result,) = document.testcases
    assert result.status.value == ("error" if number == errno.EIO else "waived")
    assert result.reason.endswith(says)
    assert "\n" not in result.reason
    assert list(tmp_path.iterdir()) == []


def test_a_limit_on_the_size_of_files_is_one_line(tmp_path: Path) -> None:
    """`ulimit -f`, with the real error of the system; the exit code is that of a failed run."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20));"
        "from wirespeed.cli.main import main;"
        f"sys.exit(main(['run', '-t', 'storage_read', '--storage', {str(tmp_path)!r}, "
        "'--storage-size', '8MiB', '--no-save', '--samples', '1']))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert "File too large; `ulimit -f` limits the size of files" in " ".join(done.stdout.split())
    assert done.returncode == 4
    assert list(tmp_path.iterdir()) == []


def test_bad_folders_are_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for folder, size, says in (
        (tmp_path / "none", None, "No such file or directory"),
        (file, None, "not a folder"),
        (tmp_path, 2**50, "no room for 1024 TiB"),
        (tmp_path, 4096, "too small; give 2 MiB or more"),
    ):
        with pytest.raises(MachineError, match=says):
            with_folder(MACHINE, str(folder), size)
    with pytest.raises(MachineError, match="a simulated machine has no folders"):
        with_folder(Machine("x", simulated=True), str(tmp_path), None)
    with pytest.raises(UsageError, match="needs the folder"):
        wirespeed.run(["storage_read"], machine=MACHINE, storage_size=8 * MIB)
    opened = os.open

    def read_only(name: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(name, flags, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(storage_folder.os, "open", read_only)
        with pytest.raises(MachineError, match="cannot create a file: Read-only file system; name a folder"):
            with_folder(MACHINE, str(tmp_path), None)
    with monkeypatch.context() as patch:
        patch.setattr(storage_folder.os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
        if tmp_path.stat().st_uid:
            with pytest.raises(MachineError, match="belongs to another user"):
                with_folder(MACHINE, str(tmp_path), None)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert file.read_text() == "mine"


def test_the_exit_code_of_a_bad_folder_is_that_of_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["blocks", "--storage", str(tmp_path / "none"), "--no-save"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "name a folder of the storage" in error


def test_only_files_of_killed_runs_are_removed(tmp_path: Path) -> None:
    """The file of a run that was killed goes; what is in use or anything else stays."""
    code = (
        "import os, signal; from wirespeed.features.storage.scratch_file import ScratchFile;"
        f"ScratchFile({str(tmp_path)!r}); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    (stale,) = tmp_path.iterdir()
    user = os.geteuid()

    def named(index: int) -> Path:
        return tmp_path / f"wirespeed-storage-{user}-{index:016x}.tmp"

    kept = [tmp_path / "data", named(1), named(2), named(3), tmp_path / f"wirespeed-storage-{user}-1.tmp"]
    kept[0].write_text("mine")
    kept[0].chmod(0o600)  # as the file of a run, so that only the second name in the folder tells them apart
    kept[1].symlink_to(kept[0])
    os.link(kept[0], kept[2])
    kept[3].touch(0o644)
    kept[3].chmod(0o644)
    kept[4].touch(0o600)
    other = tmp_path / f"wirespeed-storage-{user + 1}-{1:016x}.tmp"
    other.touch(0o600)
    running = ScratchFile(str(tmp_path))
    try:
        assert not stale.exists()
        second = ScratchFile(str(tmp_path))  # does not remove the file of the first, which is in use
        second.close()
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {path.name for path in (*kept, other)} | {running._name}
    finally:
        running.close()
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in (*kept, other)}


def test_a_replaced_file_is_not_removed(tmp_path: Path) -> None:
    file = ScratchFile(str(tmp_path))
    place = tmp_path / file._name
    place.unlink()
    place.write_text("somebody else's")
    file.close()
    file.close()
    assert place.read_text() == "somebody else's"


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (signal.SIGINT, "storage_read"),
        (signal.SIGTERM, "storage_read"),
        pytest.param(signal.SIGINT, "storage_random_read_io_uring", marks=needs_ring),
    ],
)
def test_a_signal_leaves_nothing_behind(tmp_path: Path, number: signal.Signals, name: str) -> None:
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from wirespeed.features.storage.prepared import StoragePrepared as P; import os; sample = P.sample\n"
        "def ended(self, copies):\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    return sample(self, copies)\n"
        "P.sample = ended\n"
        f"sys.argv[1:] = ['run', '-t', {name!r}, '--storage', {str(tmp_path)!r}, "
        "'--storage-size', '8MiB', '--no-save']\n"
        "from wirespeed.cli.main import entry; entry()"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 130, done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_direct_calls_the_result_says_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.fcntl

    def refuse(descriptor: int, command: int, value: int = 0) -> int:
        if command == fcntl.F_SETFL and value & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return int(real(descriptor, command, value))

    monkeypatch.setattr(storage_folder.fcntl, "fcntl", refuse)
    document = measured(tmp_path, "storage_read")
    (result,) = document.testcases
    assert result.tables[0].title.endswith("page cache")
    assert any("page cache" in warning for warning in result.warnings)
    assert "page cache" in document.machine.others[STORAGE.name][0].about


MOUNTS = """\
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
23 22 0:21 / /dev/shm rw - tmpfs tmpfs rw
24 22 0:50 / /mnt/my\\040disk rw - nfs4 server:/export rw
25 22 9:0 / /data rw - xfs /dev/md0 rw
26 25 253:1 / /data/secret rw - ext4 /dev/mapper/secret rw
27 22 0:60 / /var/layers rw - overlay overlay rw,upperdir=/x
28 24 0:61 / /data rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("folder", "type"),
    [
        ("/home/me", "ext4"),
        ("/", "ext4"),
        ("/dev/shm/x", "tmpfs"),
        ("/dev/shmx", "ext4"),
        ("/mnt/my disk/a", "nfs4"),
        ("/data/secret/a", "ext4"),
        ("/data", "tmpfs"),  # mounted over the other one
        ("/var/layers", "overlay"),
    ],
)
def test_the_file_system_of_a_folder(folder: str, type: str) -> None:
    assert mount_of(folder, MOUNTS).type == type


def tree(root: Path, drives: int = 2, vendor: str = "0x144d") -> Path:
    """NVMe devices as sysfs shows them, at a PCIe 4 x4 link each, on node 1."""
    by_number = root / "sys/dev/block"
    by_number.mkdir(parents=True)
    for i in range(drives):
        pci = root / f"sys/devices/pci0000:00/0000:0{i}:00.0"
        disk = pci / f"nvme/nvme{i}/nvme{i}n1"
        (disk / f"nvme{i}n1p1").mkdir(parents=True)
        (disk / f"nvme{i}n1p1/partition").write_text("1\n")
        (disk / "device").symlink_to("..")
        (pci / f"nvme/nvme{i}/model").write_text("Fast SSD   \n")
        for name, text in (
            ("current_link_speed", "16.0 GT/s PCIe"), ("current_link_width", "4"), ("max_link_width", "4"),
            ("max_link_speed", "16.0 GT/s PCIe"), ("numa_node", "1"), ("vendor", vendor),
        ):  # fmt: skip
            (pci / name).write_text(text + "\n")
        (by_number / f"259:{i}").symlink_to(disk / f"nvme{i}n1p1")
    return root


def stacked(root: Path, number: str, name: str, members: list[str], **files: str) -> None:
    """A block device of others: ``md__level`` is the file ``md/level``."""
    entry = root / f"sys/devices/virtual/block/{name}"
    (entry / "slaves").mkdir(parents=True)
    for path, text in files.items():
        file = entry / path.replace("__", "/")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text + "\n")
    for member in members:
        target = root / f"sys/dev/block/{member}"
        (entry / "slaves" / target.resolve().name).symlink_to(target.resolve())
    (root / f"sys/dev/block/{number}").symlink_to(entry)


def test_a_partition_of_an_nvme_device(tmp_path: Path) -> None:
    below = below_of(Mount("ext4", "259:0", "/dev/nvme0n1p1"), tree(tmp_path))
    assert below.models == ("Fast SSD",)
    assert below.nodes == (1,)
    assert below.origin == "PCIe 4 x4"
    assert below.read == below.write == pytest.approx(4 * 1.969e9)
    assert below.layers == ()


@pytest.mark.parametrize(("level", "reads", "writes"), [("raid0", 2, 2), ("raid1", 2, 1), ("raid5", 2, 2)])
def test_encryption_on_lvm_on_raid(tmp_path: Path, level: str, reads: int, writes: int) -> None:
    root = tree(tmp_path)
    stacked(root, "9:0", "md0", ["259:0", "259:1"], md__level=level)
    stacked(root, "253:0", "dm-0", ["9:0"], dm__uuid="LVM-abc")
    stacked(root, "253:1", "dm-1", ["253:0"], dm__uuid="CRYPT-LUKS2-0123-secret")
    below = below_of(Mount("xfs", "253:1", "/dev/mapper/secret"), root)
    assert below.layers == ("encrypted", "LVM", f"RAID {level[-1]}")
    line = 4 * 1.969e9
    assert below.read == pytest.approx(reads * line)
    assert below.write == pytest.approx(writes * line)
    assert below.nodes == (1, 1)


def test_what_is_not_known_has_no_limit(tmp_path: Path) -> None:
    """QEMU's devices report a speed that is not real; other devices, networks and memory have no link."""
    assert below_of(Mount("ext4", "259:0", ""), tree(tmp_path / "a", vendor="0x1b36")).read is None
    root = tree(tmp_path / "b", 1)
    disk = root / "sys/devices/virtual/block/sda"
    disk.mkdir(parents=True)
    (root / "sys/dev/block/8:0").symlink_to(disk)
    stacked(root, "9:0", "md0", ["259:0", "8:0"], md__level="raid0")
    assert below_of(Mount("ext4", "8:0", "/dev/sda"), root).models == ("sda",)
    assert below_of(Mount("ext4", "9:0", "/dev/md0"), root).read is None
    assert below_of(Mount("nfs4", "0:50", "server:/x"), root).models == ()
    assert below_of(Mount("tmpfs", "0:21", "tmpfs"), root).read is None


def test_a_simulated_machine_is_judged_and_a_slow_link_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def checked(faults: str) -> tuple[int, str]:
        code = main(
            [
                "check",
                "-p",
                "storage_",
                "--allow-simulated",
                "--no-save",
                "--machine",
                f"simulated:nvme-2{faults}",
            ]
        )
        return code, " ".join(capsys.readouterr().out.split())

    assert checked("")[0] == 0
    code, text = checked("+speed@storage0=0.5")
    assert code == 1
    assert re.search("PCIe link numa0-storage0 runs at (49|50)% of expected", text)  # of its slowest value
    code, text = checked("+corrupt@storage1->numa0")
    assert code == 1
    assert "wrong data in storage1->numa0" in text


def test_blocks_with_storage_as_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            ["blocks", "--machine", "simulated:nvme-2", "--no-save", "--blocks", "16", "--sizes", "4KiB,1MiB"]
        )
        == 0
    )
    text = capsys.readouterr().out
    assert "storage random read storage1->numa0: rate in GB/s" in text
    assert "measured nothing" not in text  # there is no GPU, and nobody asked for one
    assert "calls a second with 4 KiB" in text or "GB/s with 1 MiB" in text
    assert main(["blocks", "--machine", "simulated:nvme-2", "--no-save", "--format", "blocks-json",
                 "--blocks", "16", "--sizes", "1MiB"]) == 0  # fmt: skip
    stored = json.loads(capsys.readouterr().out)["storage"]
    assert {entry["path"] for entry in stored} == {
        "storage0->numa0", "storage1->numa0", "numa0->storage0", "numa0->storage1",
    }  # fmt: skip
    assert [point["depth"] for point in stored[0]["points"]] == [1, 4, 16, 64]


def test_storage_is_only_measured_when_a_folder_is_named(tmp_path: Path) -> None:
    document = wirespeed.run(["storage_read"], machine=MACHINE)
    assert "--storage DIR" in document.testcases[0].reason
    with pytest.raises(MachineError, match="simulated"):
        wirespeed.run(["storage_read"], machine="simulated:nvme-2", storage=tmp_path)


def test_blocks_of_storage_are_whole_pages() -> None:
    document = wirespeed.run(["storage_read"], machine="simulated:nvme-2", size=1000)
    assert "multiple of 4096 B, not 1000 B" in document.testcases[0].reason
