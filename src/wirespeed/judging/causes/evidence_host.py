"""The signs of causes at CPUs, host memory and the platform in the facts of a host."""

from __future__ import annotations

from collections.abc import Iterator

from ...data import cpu_sheet
from ...data.causes import Weight
from ...hardware.facts import NO_HUGE_PAGES, OFF, ON, WSL, Facts, Known
from ...hardware.topology import Machine
from ...thresholds.facts import BUSY_CPUS, LEAST_MEMORY, MEMLOCK_BYTES, PRESSURE_PERCENT, SHM_BYTES
from ...units import GIB, format_size, some
from .record import Sign


def shm(machine: Machine, facts: Facts) -> Iterator[Sign]:
    size = facts.number(Known.SHM)
    if size is not None and size < SHM_BYTES and len(machine.gpus) > 1:
        yield Sign("", f"/dev/shm has {format_size(int(size))}")


def memlock(machine: Machine, facts: Facts) -> Iterator[Sign]:
    limit = facts.number(Known.MEMLOCK)
    if limit is not None and limit < MEMLOCK_BYTES and machine.gpus:
        yield Sign("", f"the limit is {format_size(int(limit))}")


def confined(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for allowed, online in ((Known.CPUS, Known.CPUS_ONLINE), (Known.NODES, Known.NODES_ONLINE)):
        usable, there = facts.number(allowed), facts.number(online)
        if usable and there and usable < there:
            yield Sign("", f"{usable:.0f} of {there:.0f} {'CPUs' if allowed is Known.CPUS else 'NUMA nodes'}")
    quota, cpus = facts.number(Known.CPU_QUOTA), facts.number(Known.CPUS)
    if quota and cpus and quota < cpus:
        yield Sign("", f"a quota of {quota:g} CPUs")
    yield from apart(machine, facts)


def apart(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """That the CPUs of this process are at other NUMA nodes than the GPUs, and a limit of the memory."""
    usable = {f"{node.index}" for node in machine.numa if node.cpus}
    far = [gpu for gpu in machine.gpus if gpu.numa is not None and f"{gpu.numa}" not in usable]
    if far and usable and len(machine.numa) > 1 and not facts.host:
        at = ", ".join(sorted({f"{gpu.numa}" for gpu in far}))
        text = f"{some([gpu.name for gpu in far])} at NUMA node {at}"
        yield Sign("", f"{text}, the usable CPUs at {', '.join(sorted(usable))}", Weight.DEFECT)
    limit, total = facts.number(Known.MEMORY_LIMIT), facts.number(Known.MEMORY_OF_HOST)
    if limit and total and limit < total * LEAST_MEMORY:
        yield Sign("", f"a memory limit of {limit / 2**30:.3g} GiB, of {total / 2**30:.4g} GiB", Weight.NOTE)


def nodes_per_socket(machine: Machine, facts: Facts) -> Iterator[Sign]:
    if (nodes := facts.number(Known.NODES_PER_SOCKET)) and nodes > 1:
        yield Sign("", f"{nodes:.0f} NUMA nodes per socket")


def dimms(machine: Machine, facts: Facts) -> Iterator[Sign]:
    sizes = {device: size for device in facts.devices() if (size := facts.number(Known.DIMM_BYTES, device))}
    most = max(sizes.values(), default=0.0)
    for device, size in sizes.items():
        if size < most:
            yield Sign("", f"{device} has {size / GIB:.0f} GiB, another controller {most / GIB:.0f} GiB")


def governor(machine: Machine, facts: Facts) -> Iterator[Sign]:
    if slow := [name for name in facts.several(Known.GOVERNOR) if name not in ("performance", "schedutil")]:
        yield Sign("", f"governor {', '.join(slow)}")


def huge_pages(machine: Machine, facts: Facts) -> Iterator[Sign]:
    if facts.text(Known.HUGE_PAGES) == NO_HUGE_PAGES:
        yield Sign("", "the kernel gives no transparent huge pages, so host buffers are in small pages")


def numa_balancing(machine: Machine, facts: Facts) -> Iterator[Sign]:
    if facts.text(Known.NUMA_BALANCING) == ON and len(machine.numa) > 1:
        yield Sign("", "the kernel moves pages between NUMA nodes")


def busy_cpus(machine: Machine, facts: Facts) -> Iterator[Sign]:
    pressure, load, cpus = (facts.number(name) for name in (Known.PRESSURE, Known.LOAD, Known.CPUS_ONLINE))
    if pressure and pressure > PRESSURE_PERCENT:
        yield Sign("", f"tasks waited for a CPU {pressure:.0f}% of the last 10 s")
    elif load and cpus and load > cpus * BUSY_CPUS:
        yield Sign("", f"{load:.1f} tasks run on {cpus:.0f} CPUs")


def virtual(machine: Machine, facts: Facts) -> Iterator[Sign]:
    if machine.gpus and (name := facts.text(Known.HYPERVISOR)) not in ("", OFF, WSL):
        yield Sign("", "a hypervisor is present" + (f" ({name})" if name != ON else ""))


def wsl(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """That this is WSL2."""
    if facts.text(Known.HYPERVISOR) == WSL:
        yield Sign("", "WSL2 has no peer access between GPUs, and limits pinned memory")


def empty_channels(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """That fewer memory channels have modules than the CPUs have."""
    modules = facts.number(Known.MODULES)
    used = facts.number(Known.MEMORY_CHANNELS) or modules
    of_socket, nodes_here = facts.number(Known.NODES_PER_SOCKET), facts.number(Known.NODES_WITH_CPUS)
    sheet = cpu_sheet(machine.cpu, facts.text(Known.CPU_DESIGN)) if not facts.host else None
    if not sheet or not of_socket or not nodes_here:
        return
    possible = sheet[1].channels * max(1, round(nodes_here / of_socket))
    if used and used < possible:
        empty = possible - used
        known = f"; {modules:.0f} modules" if modules else ""
        nodes = [node.name for node in machine.numa if node.cpus]
        text = f"{empty:.0f} of {possible:.0f} channels {'is' if empty == 1 else 'are'} empty{known}"
        yield Sign(nodes[0] if len(nodes) == 1 and not facts.host else "", text)
