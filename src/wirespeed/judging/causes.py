"""Causes: what can make paths slow, the facts that speak for it, how to confirm it, and what to do.

A cause is one record. Its ``evidence`` looks at the facts of one device, or of the host, and returns what it
found. It claims no more than the facts say: whether it explains slow cells is the business of ``diagnosis``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..data import gpu_sheet
from ..hardware.facts import FABRIC_READY, NO_HUGE_PAGES, OFF, ON, WSL, Facts, Known
from ..hardware.topology import LinkKind, Machine
from ..statistics import grouped
from ..tables import IDLE
from ..units import GIB, MIB, format_size, many, some
from . import cause as nic_evidence
from . import host_notes, nccl_settings
from .cause import Cause, Evidence, Sign, Weight

_DEFECT, _BUSY, _NOTE, _CONDITION = Weight
_PCIE = frozenset({LinkKind.PCIE, LinkKind.C2C})
_NVLINK = frozenset({LinkKind.NVLINK})
_MEMORY = frozenset({LinkKind.MEMORY})
_HOST = frozenset({LinkKind.PCIE, LinkKind.C2C, LinkKind.MEMORY, LinkKind.SOCKET})
_NETWORK = frozenset({LinkKind.NETWORK})
_ALL = frozenset(LinkKind)

#: Smallest size of /dev/shm that is not a container's default of 64 MB, and memlock of a current kernel.
_SHM_BYTES, _MEMLOCK_BYTES = 512 * MIB, 8 * MIB
#: A limit or clock that is lower than usual by less than this fraction is not reported as lowered.
_USUAL = 0.99
#: CPUs and GPUs that are busier than this are in use, in percent.
_BUSY_PERCENT, _PRESSURE_PERCENT = 5, 10
#: Size of BAR1 of GPUs of NVIDIA without Resizable BAR, in bytes.
_USUAL_BAR = 256 * MIB
#: Throttling for a smaller share of the time than this is not a defect, in percent.
_THROTTLED_PERCENT = 10
#: Clocks of a GPU under load that are lower than usual by less than this fraction are no sign: GeForce GPUs
#: compute in P2, at a memory clock that is up to 8% below the highest one.
_LOW_CLOCK = 0.9
#: Number of PCIe replays during a run that is not a defect. Source: DCGM's default of max_pcie_replays.
_RETRIED = 80
#: Maximum number of devices that a text names.
_NAMED = 4
#: Throttle reasons that hold nothing back, or only as the user wants.
_HARMLESS = {IDLE, "application clocks", "display clocks"}


def _acs(machine: Machine, facts: Facts) -> Iterator[Sign]:
    below = grouped((facts.text(Known.SWITCH, gpu.name), gpu.name) for gpu in machine.gpus)
    for switch, gpus in below.items():
        groups = {facts.text(Known.IOMMU_GROUP, gpu) for gpu in gpus}
        if switch not in ("", "none") and len(groups) == len(gpus) > 1 and not groups & {"", OFF}:
            text = f"{' and '.join(gpus)} are below one switch ({switch}), in different IOMMU groups"
            yield Sign(gpus[0], text)


def _iommu(machine: Machine, facts: Facts) -> Iterator[Sign]:
    types = [domain for domain in facts.several(Known.IOMMU) if domain.startswith("DMA")]
    text, to_nics = f"domains of type {', '.join(types)}", host_notes.nics_and_gpus(machine, facts)
    if types and (to_nics or len(machine.gpus) > 1):
        yield Sign("", f"{text}, also between NICs and GPUs" if to_nics else text, _NOTE if to_nics else None)


def _no_peers(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus if not facts.host else ():  # the machine has the GPUs of the first host
        others = [other.name for other in machine.gpus if other is not gpu]
        if lacking := [name for name in others if name not in gpu.peers]:
            yield Sign(gpu.name, f"it cannot access {', '.join(lacking)}")


def _shm(machine: Machine, facts: Facts) -> Iterator[Sign]:
    size = facts.number(Known.SHM)
    if size is not None and size < _SHM_BYTES and len(machine.gpus) > 1:
        yield Sign("", f"/dev/shm has {format_size(int(size))}")


def _memlock(machine: Machine, facts: Facts) -> Iterator[Sign]:
    limit = facts.number(Known.MEMLOCK)
    if limit is not None and limit < _MEMLOCK_BYTES and machine.gpus:
        yield Sign("", f"the limit is {format_size(int(limit))}")


def _width(machine: Machine, facts: Facts) -> Iterator[Sign]:
    shared = set[str]()
    for gpu in machine.gpus:
        for now, possible, at, when in (
            (Known.PCIE_WIDTH_LOADED, Known.PCIE_WIDTH_LOADED_POSSIBLE, Known.PCIE_LOADED, " during copies"),
            (Known.PCIE_WIDTH, Known.PCIE_WIDTH_POSSIBLE, Known.PCIE_NARROWEST, ""),
        ):
            lanes, most = facts.number(now, gpu.name), facts.number(possible, gpu.name)
            if lanes and most and lanes < most:
                where = facts.text(at, gpu.name)
                place = host_notes.place_of(machine, gpu.name, where)
                text = f"the link of {where} runs at x{lanes:.0f}{when}, both ends support x{most:.0f}"
                if place not in shared:
                    yield Sign(place, text)
                shared.add(place)
                break


def _generation(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        loaded, both, link, own = (
            facts.number(name, gpu.name)
            for name in (Known.PCIE_GENERATION_LOADED, Known.PCIE_GENERATION_LOADED_POSSIBLE,
                         Known.PCIE_GENERATION_POSSIBLE, Known.PCIE_GENERATION_OF_GPU)
        )  # fmt: skip
        if loaded and both and loaded < both:
            at = facts.text(Known.PCIE_LOADED, gpu.name)
            text = f"the link of {at} runs at generation {loaded:.0f} during copies"
            yield Sign(gpu.name, f"{text}, both ends support {both:.0f}", Weight.DEFECT)
        elif link and own and link < own:
            yield Sign(gpu.name, f"a link above it supports generation {link:.0f}, the GPU {own:.0f}")


def _pcie_errors(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        failed, retried, count, corrected = (
            facts.number(name, gpu.name) or 0
            for name in (Known.PCIE_FAILED, Known.PCIE_RETRIED, Known.AER, Known.AER_CORRECTED)
        )
        if failed or retried:
            weight = Weight.DEFECT if failed or retried > _RETRIED else Weight.CONDITION
            text = f"{failed:.0f} uncorrected and {retried:.0f} corrected errors during the run"
            yield Sign(gpu.name, text, weight)
        elif count or corrected > host_notes.CORRECTED:
            text = f"{many(int(count), 'error')} that were not corrected, {corrected:.0f} corrected"
            yield Sign(gpu.name, text)
    yield from host_notes.errors_of_links(machine, facts)


def _nvlinks(machine: Machine, facts: Facts) -> Iterator[Sign]:
    active = {gpu.name: facts.number(Known.NVLINKS, gpu.name) for gpu in machine.gpus}
    models = {gpu.name: gpu.model for gpu in machine.gpus}
    for name, count in active.items():
        most = max((n for other, n in active.items() if n is not None and models[other] == models[name]),
                   default=0)  # fmt: skip
        if count is not None and count < most:
            yield Sign(name, f"{count:.0f} links are active, {most:.0f} on other GPUs of this model")


def _nvlinks_everywhere(machine: Machine, facts: Facts) -> Iterator[Sign]:
    fewer = {sign.device for sign in _nvlinks(machine, facts)}  # than others: another cause
    for gpu in machine.gpus:
        down, up = (facts.number(name, gpu.name) for name in (Known.NVLINKS_INACTIVE, Known.NVLINKS))
        sheet = gpu_sheet(gpu.model)
        by_design = sheet is not None and up is not None and up >= sheet[1].links_of_gpu
        if down and up and gpu.name not in fewer and not by_design:
            yield Sign(gpu.name, f"{down:.0f} of {down + up:.0f} links are inactive")


def _nvlink_errors(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        failed, retried = (
            facts.number(name, gpu.name) or 0 for name in (Known.NVLINK_FAILED, Known.NVLINK_RETRIED)
        )
        if failed or retried:
            text = f"{failed:.0f} recoveries and {retried:.0f} other errors during the run"
            yield Sign(gpu.name, text, Weight.DEFECT)
        elif errors := facts.several(Known.NVLINK_ERRORS, gpu.name):
            yield Sign(gpu.name, f"{', '.join(errors)} before the run")


def _fabric(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        state = facts.text(Known.FABRIC, gpu.name)
        problems = facts.several(Known.FABRIC_HEALTH, gpu.name)
        if states := [*([state] if state not in ("", FABRIC_READY) else []), *problems]:
            yield Sign(gpu.name, ", ".join(states))


def _bandwidth_mode(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        if (mode := facts.text(Known.BANDWIDTH_MODE, gpu.name)) not in ("", "full"):
            yield Sign(gpu.name, f"the bandwidth mode is {mode}")


def _throttled(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        share, seconds = (facts.number(name, gpu.name) for name in (Known.THROTTLED_TIME, Known.OBSERVED))
        if share is None or seconds is None:
            if reasons := [r for r in facts.several(Known.THROTTLED, gpu.name) if r not in _HARMLESS]:
                yield Sign(gpu.name, f"{', '.join(reasons)} before anything was measured")
        elif share > _THROTTLED_PERCENT:
            reason = facts.text(Known.THROTTLED_BY, gpu.name)
            yield Sign(gpu.name, f"throttled by {reason} for {share:.0f}% of {seconds:.0f} s")


def _low_clocks(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """The GPUs that were measured at low clocks, although nothing throttled them."""
    clocks = {gpu.name: facts.number(Known.SM_CLOCK_SEEN, gpu.name) or 0.0 for gpu in machine.gpus}
    for gpu in machine.gpus:
        if (facts.number(Known.THROTTLED_TIME, gpu.name) or 0) > _THROTTLED_PERCENT:
            continue
        others = [clocks[other.name] for other in machine.gpus if other.model == gpu.model]
        memory, most, state = (
            facts.number(name, gpu.name)
            for name in (Known.MEMORY_CLOCK_SEEN, Known.MEMORY_CLOCK_POSSIBLE, Known.P_STATE_SEEN)
        )
        texts = []
        if memory and most and memory < most * _LOW_CLOCK:
            texts.append(f"memory clock at most {memory / 1e6:.0f} of {most / 1e6:.0f} MHz")
        if 0 < clocks[gpu.name] < max(others) * _LOW_CLOCK:
            known = f"{clocks[gpu.name] / 1e6:.0f} MHz, others of its model {max(others) / 1e6:.0f}"
            texts.append(f"SM clock at most {known}")
        if texts:
            at = f", P-state P{state:.0f}" if state is not None else ""
            yield Sign(gpu.name, f"{', '.join(texts)}{at} while it was measured, without a throttle reason")


def _lowered(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        for name, usual, unit, scale in (
            (Known.POWER_LIMIT, Known.POWER_LIMIT_USUAL, "W", 1.0),
            (Known.MEMORY_CLOCK, Known.MEMORY_CLOCK_POSSIBLE, "MHz", 1e6),
        ):
            now, most = (facts.number(fact, gpu.name) for fact in (name, usual))
            if now and most and now < most * _USUAL:
                yield Sign(gpu.name, f"{name} {now / scale:.0f} {unit}, {usual} {most / scale:.0f} {unit}")


def _wrong_numa(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        if len(machine.numa) > 1 and facts.text(Known.NUMA_NODE, gpu.name) == "unknown":
            yield Sign(gpu.name, "the kernel reports no NUMA node for it")


def _confined(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for allowed, online in ((Known.CPUS, Known.CPUS_ONLINE), (Known.NODES, Known.NODES_ONLINE)):
        usable, there = facts.number(allowed), facts.number(online)
        if usable and there and usable < there:
            yield Sign("", f"{usable:.0f} of {there:.0f} {'CPUs' if allowed is Known.CPUS else 'NUMA nodes'}")
    quota, cpus = facts.number(Known.CPU_QUOTA), facts.number(Known.CPUS)
    if quota and cpus and quota < cpus:
        yield Sign("", f"a quota of {quota:g} CPUs")
    yield from host_notes.apart(machine, facts)


def _split_sockets(machine: Machine, facts: Facts) -> Iterator[Sign]:
    if (nodes := facts.number(Known.NODES_PER_SOCKET)) and nodes > 1:
        yield Sign("", f"{nodes:.0f} NUMA nodes per socket")


def _dimms(machine: Machine, facts: Facts) -> Iterator[Sign]:
    sizes = {device: size for device in facts.devices() if (size := facts.number(Known.DIMM_BYTES, device))}
    most = max(sizes.values(), default=0.0)
    for device, size in sizes.items():
        if size < most:
            yield Sign("", f"{device} has {size / GIB:.0f} GiB, another controller {most / GIB:.0f} GiB")


def _governor(machine: Machine, facts: Facts) -> Iterator[Sign]:
    if slow := [name for name in facts.several(Known.GOVERNOR) if name not in ("performance", "schedutil")]:
        yield Sign("", f"governor {', '.join(slow)}")


def _huge_pages(machine: Machine, facts: Facts) -> Iterator[Sign]:
    if facts.text(Known.HUGE_PAGES) == NO_HUGE_PAGES:
        yield Sign("", "the kernel gives no transparent huge pages, so host buffers are in small pages")


def _balancing(machine: Machine, facts: Facts) -> Iterator[Sign]:
    if facts.text(Known.NUMA_BALANCING) == ON and len(machine.numa) > 1:
        yield Sign("", "the kernel moves pages between NUMA nodes")


def _bar1(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        bar, memory = (facts.number(name, gpu.name) for name in (Known.BAR1, Known.MEMORY))
        if bar and memory and bar < memory and not _is_largest(facts, gpu.name, bar):
            yield Sign(gpu.name, f"BAR1 has {format_size(int(bar))}, the memory {format_size(int(memory))}")


def _is_largest(facts: Facts, gpu: str, bar: float) -> bool:
    """Whether no setting can make a BAR1 larger: the firmware of the GPU supports no larger one.

    One that is larger than without Resizable BAR has the size that the firmware supports.
    """
    most = facts.number(Known.BAR1_MOST, gpu)
    return bar >= most if most else bar > _USUAL_BAR


def _bar1_largest(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        bar, memory = (facts.number(name, gpu.name) for name in (Known.BAR1, Known.MEMORY))
        if bar and memory and bar < memory and _is_largest(facts, gpu.name, bar):
            sizes = f"BAR1 has {format_size(int(bar))}, the memory {format_size(int(memory))}"
            yield Sign(gpu.name, f"{sizes}; the GPU supports no larger one")


def _busy(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        use, processes = (facts.number(name, gpu.name) for name in (Known.UTILISATION, Known.PROCESSES))
        if use and use > _BUSY_PERCENT:
            who = f" by {many(int(processes), 'process')}" if processes else ""
            yield Sign(gpu.name, f"used {use:.0f}% of the time{who} before anything was measured")


def _busy_cpus(machine: Machine, facts: Facts) -> Iterator[Sign]:
    pressure, load, cpus = (facts.number(name) for name in (Known.PRESSURE, Known.LOAD, Known.CPUS_ONLINE))
    if pressure and pressure > _PRESSURE_PERCENT:
        yield Sign("", f"tasks waited for a CPU {pressure:.0f}% of the last 10 s")
    elif load and cpus and load > cpus / 2:
        yield Sign("", f"{load:.1f} tasks run on {cpus:.0f} CPUs")


def _ecc(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        errors = [f"{many(int(count), 'uncorrected error')}"
                 for count in [facts.number(Known.ECC_ERRORS, gpu.name)] if count]  # fmt: skip
        errors += [name for name in (Known.REMAP_PENDING, Known.REMAP_FAILED)
                  if facts.text(name, gpu.name) == ON]  # fmt: skip
        if errors:
            yield Sign(gpu.name, ", ".join(errors))


def _drivers(machine: Machine, facts: Facts) -> Iterator[Sign]:
    kernel, library = facts.text(Known.DRIVER_KERNEL), facts.text(Known.DRIVER_LIBRARY)
    if kernel and library and kernel != library:
        yield Sign("", f"kernel module {kernel}, library {library}")


def _mode(name: Known) -> Evidence:
    def evidence(machine: Machine, facts: Facts) -> Iterator[Sign]:
        for gpu in machine.gpus:
            if facts.text(name, gpu.name) == ON:
                yield Sign(gpu.name, f"{name} is on")

    return evidence


def _confidential(machine: Machine, facts: Facts) -> Iterator[Sign]:
    if gpus := [gpu.name for gpu in machine.gpus if facts.text(Known.CONFIDENTIAL, gpu.name) == ON]:
        yield Sign("", f"{Known.CONFIDENTIAL} is on ({some(gpus, _NAMED)})")


def _virtual(machine: Machine, facts: Facts) -> Iterator[Sign]:
    if machine.gpus and (name := facts.text(Known.HYPERVISOR)) not in ("", OFF, WSL):
        yield Sign("", "a hypervisor is present" + (f" ({name})" if name != ON else ""))


def _peermem(machine: Machine, facts: Facts) -> Iterator[Sign]:
    if any(facts.text(Known.GPUDIRECT, device) == OFF for device in facts.devices()):
        return  # these GPUs never have it
    found = []
    network = facts.text(Known.NCCL_NETWORK)
    if facts.text(Known.NCCL_GDR) == OFF and not network.endswith("/Socket"):
        found.append(f"NCCL used {network} between the hosts without GPUDirect RDMA")
    of_job = facts.host or len({rank.host for rank in machine.ranks}) > 1
    if of_job and machine.gpus and facts.text(Known.PEERMEM) == OFF:
        found.append("the module nvidia_peermem is not loaded")
    if found:
        yield Sign("", "; ".join(found))


def _far(machine: Machine, facts: Facts) -> Iterator[Sign]:
    yield from nic_evidence.far(machine, facts)
    yield from host_notes.far_nics(machine, facts)


def _selection(machine: Machine, facts: Facts) -> Iterator[Sign]:
    yield from nic_evidence.selection(machine, facts)
    yield from host_notes.loopback(facts.several(Known.NCCL_VARIABLES))


def _nothing(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield nothing: one host shows nothing of this cause."""
    yield from ()


#: All causes; of equally likely ones, the first is named first. Sources are in docs/doctor.md.
CAUSES = (
    Cause("fabric", "the NVLink fabric is not healthy", _DEFECT, _ALL, _fabric,
          "nvidia-smi -q{gpu} | grep -A8 Fabric",
          "start nvidia-fabricmanager, in the version of the driver; read its log"),
    Cause("nvlinks", "NVLinks are down", _DEFECT, _NVLINK, _nvlinks, "nvidia-smi nvlink -s{gpu}",
          "reset the GPU; if they stay down, reseat or replace the module"),
    Cause("pcie-width", "a PCIe link runs at reduced width", _DEFECT, _PCIE, _width,
          "sudo lspci -vv{pci} | grep LnkSta:",
          "reseat the card or riser; check the bifurcation in the BIOS"),
    Cause("ecc", "GPU memory has errors that require a reset", _DEFECT, _MEMORY, _ecc,
          "nvidia-smi -q{gpu} -d ECC,ROW_REMAPPER", "reset the GPU; replace it if remapping failed"),
    Cause("throttled", "the GPU is throttled", _DEFECT, _MEMORY | _NVLINK, _throttled,
          "nvidia-smi -q{gpu} -d PERFORMANCE,TEMPERATURE,POWER", "check cooling and power supply"),
    Cause("bandwidth-mode", "NVLinks run in a reduced bandwidth mode", _DEFECT, _NVLINK, _bandwidth_mode,
          "nvidia-smi nvlink -gBwMode", "nvidia-smi nvlink -sBwMode FULL", setting=True),
    Cause("nccl-disabled", "transports of NCCL are disabled or not used", _DEFECT, _ALL,
          nccl_settings.disabled, "env | grep NCCL_; cat /etc/nccl.conf",
          "remove the setting; if NCCL uses sockets without one, make the RDMA devices visible to it", True,
          setting=True),
    Cause("shm", "/dev/shm is small", _DEFECT, _ALL, _shm, "df -h /dev/shm",
          "docker run --shm-size=8g; Kubernetes: an emptyDir with medium Memory at /dev/shm", True,
          setting=True),
    Cause("memlock", "little memory may be locked", _DEFECT, _NETWORK, _memlock,
          "ulimit -l", "ulimit -l unlimited; docker run --ulimit memlock=-1", setting=True),
    Cause("busy-gpu", "another process uses the GPU", _BUSY, _ALL, _busy, "nvidia-smi",
          "end the other process, or measure with wirespeed check --wait-idle 2min", setting=True),
    Cause("busy-cpus", "other processes use the CPUs", _BUSY, _HOST, _busy_cpus, "top",
          "end the other processes", setting=True),
    Cause("driver", "driver and library differ", _DEFECT, _ALL, _drivers, "cat /proc/driver/nvidia/version",
          "restart, or install matching versions; containers get the library from the host"),
    Cause("pcie-errors", "a PCIe link has errors", _DEFECT, _PCIE, _pcie_errors,
          "sudo lspci -vv{pci}; dmesg | grep AER",
          "reseat the card, riser or cable; if errors stay, lower the generation of the slot in the BIOS"),
    Cause("nvlink-errors", "NVLinks have errors", _CONDITION, _NVLINK, _nvlink_errors,
          "nvidia-smi nvlink -e{gpu}",
          "measure again and compare the counters; replace the module if they rise"),
    Cause("dimms", "memory controllers have different amounts of memory", _DEFECT, _MEMORY, _dimms,
          "sudo dmidecode -t 17", "fill the channels of all controllers equally"),
    Cause("nic-down", "a port of a NIC is down", _DEFECT, _NETWORK, nic_evidence.down, "rdma link",
          "check the cable, the switch port and the subnet manager"),
    Cause("nic-pcie", "the PCIe link of a NIC runs at reduced width", _DEFECT, _NETWORK, nic_evidence.pcie,
          "sudo lspci -vv{pci} | grep LnkSta:",
          "reseat the card or riser; check the bifurcation in the BIOS"),
    Cause("nic-bond", "an interface of a bond has no link", _DEFECT, _NETWORK, host_notes.broken_bonds,
          "grep -e Slave -e Status /proc/net/bonding/*",
          "check the cable and the switch port of this interface"),
    Cause("nic-lanes", "endpoints of one NIC have different numbers of lanes", _DEFECT, _NETWORK,
          host_notes.unequal_endpoints, "sudo lspci -vv{pci} | grep LnkSta:",
          "update the firmware of the system (BIOS), which divides the lanes; then reseat the card"),
    Cause("drive-pcie", "the PCIe link of an NVMe drive is slower than both of its ends support", _DEFECT,
          frozenset(), host_notes.drives, "sudo lspci -vv{pci} | grep -e LnkCap: -e LnkSta:",
          "reseat the drive, its adapter or cable; check bifurcation and speed of the slot in the BIOS"),
    Cause("plugin-missing", "NCCL has no network plug-in for EFA", _DEFECT, _NETWORK, nic_evidence.plugin,
          "ldconfig -p | grep libnccl-net; echo $LD_LIBRARY_PATH",
          "install aws-ofi-nccl, or add its folder to LD_LIBRARY_PATH", True, setting=True),
    Cause("link-lost", "a network interface lost its link during the run", _DEFECT, _NETWORK,
          nic_evidence.lost_links, "dmesg | grep -i link; cat /sys/class/net/NAME/carrier_down_count",
          "check or replace the cable, and check the switch port"),
    Cause("slot", "a slot or switch offers less than the device supports", _NOTE, frozenset(),
          host_notes.slots,
          "sudo lspci -vv{pci} | grep -e LnkCap: -e LnkSta:",
          "none required: expected rates include it; the manual of the board names faster slots"),
    Cause("wsl", "this is the Windows Subsystem for Linux", _NOTE, _ALL, host_notes.wsl, "uname -r",
          "measure on Linux without Windows below it", setting=True),
    Cause("empty-channels", "memory channels are empty", _NOTE, _MEMORY, host_notes.empty_channels,
          "sudo dmidecode -t 17", "fill all channels equally; a module that is missing here may have failed"),
    Cause("rdma-files", "programs cannot use RDMA", _NOTE, _NETWORK, host_notes.no_device_files,
          "ls /dev/infiniband", "load ib_uverbs; containers: docker run --device=/dev/infiniband, "
          "or a device plugin of Kubernetes", setting=True),
    Cause("nic-isolated", "traffic between NICs and GPUs does not take the shortest way", _NOTE, _NETWORK,
          host_notes.redirected, "sudo lspci -vvv{pci} | grep ACSCtl",
          "bare metal: disable ACS on the bridges between NIC and GPU; virtual machine: keep it, and use ATS",
          setting=True),
    Cause("nic-no-gid", "RoCE ports have no GID", _NOTE, _NETWORK, host_notes.without_gid,
          "grep . /sys/class/infiniband/*/ports/*/gids/0; ip -br address",
          "give the interface an address; containers: use the network namespace of the host, or move the "
          "interface into that of the container", setting=True),
    Cause("nic-slower", "a port is slower than others of its model", _NOTE, _NETWORK, host_notes.slower_ports,
          "grep . /sys/class/infiniband/*/ports/*/rate", "check cable, transceiver and port of the switch; "
          "expected if these ports are for another network", between=host_notes.slower_than_elsewhere),
    Cause("confined", "this process may not use all CPUs or NUMA nodes", _CONDITION, _HOST, _confined,
          "grep allowed_list /proc/self/status", "use the CPUs and memory next to the GPU: numactl, cpuset",
          setting=True),
    Cause("wrong-numa", "the GPU is not at the NUMA node that the system reports", _CONDITION, _HOST,
          _wrong_numa, "cat /sys/bus/pci/devices/{address}/numa_node",
          "check the slot and the BIOS (ACPI proximity domains); in a "
          "virtual machine, ask for the topology of the host"),
    Cause("acs", "PCIe ACS redirects traffic between GPUs through the root complex", _CONDITION, _PCIE, _acs,
          "sudo lspci -vvv | grep ACSCtl", "bare metal: disable ACS on the bridges between the GPUs; "
          "virtual machine: keep it, and use ATS",
          shows="ReqRedir+ or CmpltRedir+: it redirects", setting=True),
    Cause("iommu", "the IOMMU translates the addresses of GPUs", _CONDITION, _PCIE | _NETWORK, _iommu,
          "cat /sys/kernel/iommu_groups/*/type", "bare metal: boot with iommu=pt",
          shows="DMA or DMA-FQ: it translates; identity: it does not", setting=True),
    Cause("no-peers", "GPUs have no access to each other", _CONDITION, _PCIE | _NVLINK, _no_peers,
          "nvidia-smi topo -p2p rw", "expected for some models; else check ACS, IOMMU and the fabric"),
    Cause("pcie-generation", "a PCIe link runs at an older generation than the GPU", _CONDITION, _PCIE,
          _generation, "sudo lspci -vv{pci} | grep -e LnkCap: -e LnkSta:",
          "if both ends support more: reseat the card, riser or cable; else use another slot; check the "
          "speed in the BIOS"),
    Cause("lowered", "limits of power or clocks are lower than usual", _CONDITION, _MEMORY | _NVLINK,
          _lowered, "nvidia-smi -q{gpu} -d POWER,CLOCK",
          "nvidia-smi -pl WATTS; nvidia-smi -rac; nvidia-smi -rmc", setting=True),
    Cause("low-clocks", "the clocks of the GPU stay low under load", _CONDITION, _MEMORY | _NVLINK | _PCIE,
          _low_clocks, "nvidia-smi -q{gpu} -d CLOCK,PERFORMANCE",
          "nvidia-smi -rgc; nvidia-smi -rmc; check the power cables; reset the GPU, or restart the host"),
    Cause("nccl-settings", "settings of NCCL are not its defaults", _CONDITION, _ALL, nccl_settings.others,
          "env | grep NCCL_; cat /etc/nccl.conf", "measure without the setting", True, setting=True),
    Cause("nvlinks-inactive", "NVLinks are inactive, as many as on other GPUs", _CONDITION, _NVLINK,
          _nvlinks_everywhere, "nvidia-smi nvlink -s{gpu}",
          "check the bridges, or the fabric manager (GPUs on NVSwitch); then reset the GPUs"),
    Cause("confidential", "the GPUs are in confidential computing mode", _NOTE, _HOST,
          _confidential, "nvidia-smi conf-compute -f",
          "the CPU encrypts copies with the host: make them few and large, from pinned memory that CUDA "
          "allocates (cudaMallocHost), never cudaHostRegister; newer drivers and GPUs encrypt faster",
          setting=True),
    Cause("mig", "a GPU is divided into instances", _CONDITION, _ALL, _mode(Known.MIG), "nvidia-smi -L",
          "measure without MIG", setting=True),
    Cause("bar1", "BAR1 is smaller than the memory", _CONDITION, _PCIE, _bar1,
          "nvidia-smi -q{gpu} -d MEMORY", "enable Above 4G Decoding and Resizable BAR in the BIOS",
          shows="the total of BAR1 is below that of FB", setting=True),
    Cause("bar1-largest", "BAR1 is smaller than the memory, and no setting can enlarge it", _CONDITION, _PCIE,
          _bar1_largest, "sudo lspci -vv{pci} | grep -A4 'Resizable BAR'",
          "update the VBIOS of the card, which sets the largest size; if it is the newest, copy through the "
          "host (NCCL_P2P_DISABLE=1)"),
    Cause("nodes-per-socket", "sockets are divided into NUMA nodes", _CONDITION, _HOST | _NETWORK,
          _split_sockets, "lscpu | grep NUMA", "compare NPS1 and NPS4 (SNC off and on) in the BIOS",
          setting=True),
    Cause("whole-sockets", "sockets are not divided into NUMA nodes", _CONDITION, _NETWORK,
          nic_evidence.whole_sockets, "lscpu | grep NUMA; nvidia-smi topo -m",
          "compare NPS4 (NUMA Nodes Per Socket) with NPS1 in the BIOS", setting=True),
    Cause("governor", "CPUs save power", _CONDITION, _HOST | _NETWORK, _governor, "cpupower frequency-info",
          "cpupower frequency-set -g performance", setting=True),
    Cause("huge-pages", "host memory is in small pages", _CONDITION, _HOST, _huge_pages,
          "cat /sys/kernel/mm/transparent_hugepage/enabled",
          "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
          shows="[never]: buffers are in small pages", setting=True),
    Cause("numa-balancing", "the kernel balances NUMA nodes", _CONDITION, _HOST, _balancing,
          "cat /proc/sys/kernel/numa_balancing", "sysctl kernel.numa_balancing=0", setting=True),
    Cause("peermem", "GPUDirect RDMA may not be in use", _CONDITION, _NETWORK, _peermem,
          "lsmod | grep nvidia_peermem; ls /dev/infiniband",
          "modprobe nvidia-peermem, or dma-buf with Linux 5.12 and NCCL 2.23; "
          "containers need /dev/infiniband", setting=True),
    Cause("nic-endpoint", "an endpoint of a NIC is not used", _CONDITION, _NETWORK, nic_evidence.endpoints,
          "ls -l /sys/class/infiniband; ibdev2netdev",
          "name all endpoints of the port: NCCL_IB_HCA=NIC,NIC, and give each an address", setting=True),
    Cause("nic-selection", "NCCL is set to use other ports or GIDs than it should", _CONDITION, _NETWORK,
          _selection,
          "env | grep NCCL_IB_; grep . /sys/class/infiniband/*/ports/*/gid_attrs/types/*",
          "remove NCCL_IB_HCA and NCCL_IB_GID_INDEX, or name all active ports and a GID of RoCE v2",
          setting=True),
    Cause("mtu", "packets are small", _CONDITION, _NETWORK, nic_evidence.small_packets, "ip link",
          "set 9000 at both ends and on the switches: sudo ip link set dev NAME mtu 9000", setting=True),
    Cause("path-mtu", "the MTU on the way is smaller than at both ends", _CONDITION, _NETWORK, _nothing,
          "ping -M do -s 8972 ADDRESS; tracepath ADDRESS",
          "set it on the switches, routers and tunnels on the way, or the smaller one at both ends: "
          "sudo ip link set dev NAME mtu 1500", between=nic_evidence.small_way),
    Cause("nic-detour", "a bridge or VPN carries data between nodes", _CONDITION, _NETWORK,
          nic_evidence.detour, "ip -d link; ip route get ADDRESS",
          "use the address of the fast interface: MASTER_ADDR, NCCL_SOCKET_IFNAME", setting=True),
    Cause("nic-route", "nodes have several interfaces to each other, and may use a slow one", _CONDITION,
          _NETWORK, _nothing, "ip route get ADDRESS; ip -br address",
          "give each interface a subnet of its own, and use the address of the fast one on all nodes: "
          "MASTER_ADDR, NCCL_SOCKET_IFNAME", setting=True, between=nic_evidence.ways),
    Cause("nic-numa", "a NIC is far from the GPUs", _NOTE, _NETWORK, _far,
          "cat /sys/class/infiniband/*/device/numa_node; nvidia-smi topo -m",
          "use the slot next to the GPUs; if the node is unknown, check the BIOS (ACPI proximity domains)"),
    Cause("node-settings", "the two nodes differ", _CONDITION, _NETWORK, _nothing,
          "env | grep NCCL_; cat /proc/driver/nvidia/version; cat /sys/class/infiniband/*/fw_ver; "
          "lsmod | grep nvidia_peermem; lscpu | grep NUMA",
          "give both nodes the same settings, drivers and firmware", between=nic_evidence.differing),
    Cause("nic-errors", "ports of NICs have errors", _CONDITION, _NETWORK, nic_evidence.errors,
          "grep . /sys/class/infiniband/*/ports/*/*counters/*",
          "measure again and compare the counters; if they rise, replace the cable, check PFC and ECN"),
    Cause("virtual", "the machine is virtual", _CONDITION, _PCIE, _virtual, "systemd-detect-virt",
          "ask the provider how GPUs, memory and CPUs are assigned"),
)  # fmt: skip
