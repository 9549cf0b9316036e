"""The folder that the user names, as a device: its file system, the devices below it, and their PCIe links.
Sources: Documentation/filesystems/proc.rst (mountinfo), Documentation/ABI (sysfs of block devices, ``dm``,
``md``) and Documentation/filesystems/fscrypt.rst of Linux.
"""

from __future__ import annotations

import fcntl
import math
import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...backends.pci import Port
from ...backends.system_files import Tree
from ...errors import MachineError
from ...hardware.devices import STORAGE, Storage
from ...hardware.pcie import rate
from ...hardware.topology import Link, LinkKind, Machine
from ...units import GIB, MIB, format_size
from .scratch_file import ScratchFile

#: Largest default size of the file in bytes, and as a part of what is free; smallest size that is of use.
_USUAL_BYTES, _FREE_PART, LEAST_BYTES = 4 * GIB, 10, 2 * MIB
#: What is assumed to be free where the file system does not say, in bytes.
_UNKNOWN_ROOM_BYTES = GIB
#: File systems in memory, and those that encrypt.
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_ENCRYPTING = frozenset({"ecryptfs", "fuse.gocryptfs", "fuse.encfs", "fuse.cryfs", "fuse.securefs"})
_NETWORK = re.compile(
    r"nfs4?|cifs|smb3|lustre|ceph|fuse\.(ceph|sshfs|s3fs|glusterfs|juicefs)|gpfs|beegfs|9p|virtiofs"
)
#: FS_IOC_GET_ENCRYPTION_POLICY_EX, and the size of its largest policy.
_ENCRYPTION_POLICY, _POLICY_BYTES = 0xC0096616, 24
#: Prefix of the UUID of a device mapper -> what it is.
_MAPPERS = {"CRYPT-": "encrypted", "LVM-": "LVM", "mpath-": "multipath"}


@dataclass(frozen=True)
class Mount:
    """A mounted file system: its type, the number of its device, and its source."""

    type: str
    device: str
    source: str


@dataclass(frozen=True)
class Below:
    """What is below a file system.

    Attributes:
        layers: As in Storage.
        models: Products.
        nodes: NUMA nodes of the devices; -1 if unknown.
        read, write: Line rate of their PCIe links together, in B/s; None if it is unknown.
        origin: Names of these links.
    """

    layers: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()
    read: float | None = None
    write: float | None = None
    origin: str = ""


def with_folder(machine: Machine, folder: str, size: int | None, root: Path = Path("/")) -> Machine:
    """A Machine with the storage of a folder.

    Args:
        machine: This machine.
        folder: The folder.
        size: Maximum size of the file of a run, in bytes; None for the default.
        root: Folder that contains ``sys`` and ``proc``.

    Raises:
        MachineError: If the folder cannot be measured; the message says why and what to do.
    """
    if machine.simulated:
        raise MachineError(
            f"--storage {folder}: a simulated machine has no folders; choose one with storage, "
            "such as simulated:nvme-2, and omit --storage"
        )
    known = machine.others.get(STORAGE.name, ())
    if any(device.folder == folder for device in known):
        return machine
    file = ScratchFile(folder)
    try:
        past_cache, encrypted = file.past_cache, _is_encrypted(folder)
        file_bytes = _file_bytes(folder, size)
    finally:
        file.close()
    mount = mount_of(os.path.realpath(folder), (root / "proc/self/mountinfo").read_text(errors="replace"))
    below = below_of(mount, root)
    layers = tuple(dict.fromkeys((*(("encrypted",) if encrypted else ()), *_kind(mount), *below.layers)))
    nodes = {node.index for node in machine.numa}
    near = {node for node in below.nodes if node in nodes}
    own = min(near) if len(near) == 1 else (next(iter(nodes)) if len(nodes) == 1 else -1)
    device = Storage(
        len(known), folder, mount.type, ", ".join(below.models), layers,
        past_cache and mount.type not in _IN_MEMORY, file_bytes, own,
    )  # fmt: skip
    host = f"numa{own if own >= 0 else min(nodes, default=0)}"
    links = [Link(device.name, device.name, LinkKind.MEMORY, None, "unknown")]
    for ends, capacity in (((device.name, host), below.read), ((host, device.name), below.write)):
        links.append(Link(*ends, LinkKind.PCIE, capacity, below.origin))
    others = {**machine.others, STORAGE.name: (*known, device)}
    return replace(machine, others=others, links=(*machine.links, *links))


def _file_bytes(folder: str, size: int | None) -> int:
    """The size of the file, in bytes."""
    room = os.statvfs(folder)
    free = room.f_bavail * room.f_frsize if room.f_blocks else _UNKNOWN_ROOM_BYTES
    if size is None:
        size = min(_USUAL_BYTES, free // _FREE_PART)
        if size < LEAST_BYTES:
            raise MachineError(f"--storage {folder}: no room: only {format_size(free)} is free")
    if size > free:
        raise MachineError(
            f"--storage {folder}: no room for {format_size(size)}: {format_size(free)} is free; "
            "give a smaller --storage-size"
        )
    if size < LEAST_BYTES:
        raise MachineError(
            f"--storage-size {format_size(size)} is too small; give {format_size(LEAST_BYTES)} or more"
        )
    return size // LEAST_BYTES * LEAST_BYTES


def _is_encrypted(folder: str) -> bool:
    """Whether the files of a folder are encrypted by the file system (fscrypt)."""
    policy = bytearray(struct.pack("Q", _POLICY_BYTES) + bytes(_POLICY_BYTES))
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(descriptor, _ENCRYPTION_POLICY, policy, True)
    except OSError:  # no policy, or a file system without encryption
        return False
    finally:
        os.close(descriptor)
    return True


def _kind(mount: Mount) -> Iterator[str]:
    """What the type of a file system says about it."""
    if mount.type in _IN_MEMORY:
        yield "in memory"
    if mount.type in _ENCRYPTING:
        yield "encrypted"
    if _NETWORK.fullmatch(mount.type):
        yield "network or host"
    if mount.type == "overlay":
        yield "layers of a container"


def mount_of(folder: str, mountinfo: str) -> Mount:
    """The file system of a folder without links, from the text of ``/proc/self/mountinfo``."""
    best, found = -1, Mount("unknown file system", "0:0", "")
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 2:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
        inside = point == "/" or folder == point or folder.startswith(point + "/")
        if inside and len(point) >= best:  # of several at one place, the last one is seen
            best, found = len(point), Mount(kind[0], fields[2], kind[1])
    return found


def below_of(mount: Mount, root: Path) -> Below:
    """The devices below a file system, from sysfs."""
    entry = root / "sys/dev/block" / mount.device
    if mount.device.startswith("0:"):  # of several devices, or of none: btrfs names the first one
        name = Path(mount.source).resolve().name if mount.source.startswith("/dev/") else ""
        entry = root / "sys/class/block" / name
        if not name:
            return Below()
    return _below(entry.resolve(), root.resolve()) if entry.exists() else Below()


def _below(entry: Path, root: Path) -> Below:
    """The devices that a block device consists of."""
    if (entry / "partition").exists():
        entry = entry.parent
    members = sorted((entry / "slaves").glob("*")) if (entry / "slaves").is_dir() else []
    layer = _layer(entry)
    if not members:
        return _leaf(entry, layer, root)
    parts = [_below(member.resolve(), root) for member in members]
    mirrored = layer == "RAID 1"
    return Below(
        tuple(dict.fromkeys((layer, *(name for part in parts for name in part.layers)))),
        tuple(dict.fromkeys(name for part in parts for name in part.models)),
        tuple(node for part in parts for node in part.nodes),
        _joined(math.fsum, [part.read for part in parts]),
        _joined(min if mirrored else math.fsum, [part.write for part in parts]),
        " + ".join(part.origin for part in parts),
    )


def _joined(join: Callable[[list[float]], float], rates: Sequence[float | None]) -> float | None:
    """The rate of several devices; None if the rate of one is unknown."""
    known = [value for value in rates if value is not None]
    return join(known) if len(known) == len(rates) else None


def _layer(entry: Path) -> str:
    """What a block device of other devices, or of a file, is; empty for a device."""
    uuid, level = _text(entry / "dm/uuid"), _text(entry / "md/level")
    if (entry / "dm").is_dir():
        return next((name for start, name in _MAPPERS.items() if uuid.startswith(start)), "device mapper")
    if level:
        return re.sub(r"^raid(\d+)$", r"RAID \1", level)
    return "loop file" if (entry / "loop").is_dir() or entry.name.startswith("loop") else ""


def _leaf(entry: Path, layer: str, root: Path) -> Below:
    """A device without further ones below it, with its PCIe link if it is an NVMe device."""
    model = _text(entry / "device/model") or entry.name
    layers = (layer,) if layer else ()
    if not entry.name.startswith("nvme"):
        return Below(layers, (model,))
    controllers = [entry, *(path.resolve() for path in sorted(entry.parent.glob("nvme[0-9]*")))]
    for controller in controllers:  # with several paths, the device is not below its controller
        for folder in controller.parents:
            if (folder / "current_link_speed").exists() and folder.is_relative_to(root):
                port = Port.of(Tree(root).root / str(folder.relative_to(root)))
                capacity = None if port.emulated else rate(*port.now)
                node = _text(folder / "numa_node")
                line, name = capacity or (None, "")
                near = int(node) if node.isdecimal() else -1
                return Below(layers, (model,), (near,), line, line, name)
    return Below(layers, (model,))


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
