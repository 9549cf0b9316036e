"""What should be there and is not: GPUs that the driver does not show, and less than was expected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..data import gpu_sheet
from ..document import DEVICES, Document
from ..errors import UsageError
from ..hardware.facts import ABSENT, EXCLUDED, OFF, ON, Facts, Known
from ..hardware.link_graph import MachineVertices, Network
from ..hardware.topology import LinkKind, Machine
from ..peer_access import worded
from ..results.inventory import Inventory, InventoryPart, Possession, possessions
from ..statistics import grouped
from ..thresholds.facts import ENOUGH_BYTES, ENOUGH_OF_BASELINE, EVEN_GPUS, EVEN_HALF
from ..units import many, some
from .advice import Advice
from .causes.run_facts import facts_of
from .odd_devices import odd_devices
from .verdict import Verdict

#: Drivers that give a GPU to a virtual machine.
_PASSED_ON = ("vfio-pci", "pci-stub", "xen-pciback")
_NVIDIA, _NONE = "nvidia", "none"
_NOTHING = Advice()
#: Command that shows errors of GPUs in the kernel log.
XID = "sudo dmesg | grep -i -e NVRM -e Xid"
_SEEN = Advice(
    "look for errors of the GPU in the kernel log; restart the node, then reseat or replace the GPU", XID
)
_DRIVER = Advice("install the NVIDIA driver, or load it", "sudo modprobe nvidia")
_OTHERS = Advice("measure them with the tools of their vendor; for AMD: TransferBench, rocm-bandwidth-test")
_LIBRARY = Advice("install what is missing, or restart after a driver update", "nvidia-smi")
_SLOTS = Advice(
    "compare the slots with the data sheet, or say what should be there", "wirespeed check --expect gpus=8"
)
_ODD = Advice(
    "compare what the GPUs reach: peer access, NVLinks, the fabric; then reset the GPU that differs",
    "nvidia-smi topo -p2p r",
)
_APART = Advice(
    "start nvidia-fabricmanager in the version of the driver (GPUs on NVSwitch), look for Xid in the kernel "
    "log, then reset the GPUs",
    "systemctl status nvidia-fabricmanager; nvidia-smi topo -p2p r",
)
_NO_NVLINKS = Advice(
    "compare with the data sheet: this model may have no NVLink, or need a bridge; else check the driver",
    "nvidia-smi nvlink -s",
)
_BRIDGES = Advice("check the NVLinks and the bridges between the GPUs", "nvidia-smi nvlink -s")
_NO_GPU = Advice("look for GPUs on the PCI bus, then check their driver", "lspci -d 10de: -nn; nvidia-smi -L")
_UNKNOWN = Advice("measure with this version of wirespeed on the machine itself")
#: Part -> what to do if some of it is missing.
_STEPS = {
    InventoryPart.GPUS: Advice(
        "look for what is missing on the PCI bus; restart the node, then reseat or replace the GPU",
        "lspci -d 10de: -nn",
    ),
    InventoryPart.GPU_MODEL: Advice("check which GPUs are installed", "nvidia-smi -L"),
    InventoryPart.GPU_MEMORY: Advice(
        "check the model of the GPU and its row remapping", "nvidia-smi -q -d MEMORY,ROW_REMAPPER"
    ),
    InventoryPart.NVLINKS: Advice("check the NVLinks and the fabric manager", "nvidia-smi nvlink -s"),
    InventoryPart.NICS: Advice("look for the NIC on the PCI bus, and for its driver", "lspci -nn -d ::0207"),
    InventoryPart.MEMORY: Advice(
        "look for a memory module that is missing or disabled", "sudo dmidecode -t memory"
    ),
    InventoryPart.CPUS: Advice("check sockets, SMT and disabled CPUs", "lscpu"),
    InventoryPart.NUMA: Advice(
        "check sockets and the BIOS setting of NUMA nodes per socket", "numactl --hardware"
    ),
}  # fmt: skip
#: Parts that a host without GPUs cannot have.
_OF_GPUS = (InventoryPart.NVLINKS, InventoryPart.GPU_MEMORY)
#: Places of which a group of GPUs says nothing.
_NOWHERE = {"", "none", "unknown"}


@dataclass(frozen=True)
class Missing:
    """Something that should be there, and is not, or is not given to this process.

    Attributes:
        part: What it is.
        verdict: Fail if it is missing, warn if that is likely or not known, waived if it was left out on
            purpose.
        text: What was found, as a sentence without a full stop.
        where: PCI addresses or devices; empty for the host.
        slots: Slots of the addresses, as far as the system knows them.
        expected, found: What should be there, and what is: numbers of devices or bytes, or the model. None if
            unknown.
        advice: What to do.
        host: Host that it is about; empty for the host of the first process.
    """

    part: InventoryPart
    verdict: Verdict
    text: str
    where: tuple[str, ...] = ()
    slots: tuple[str, ...] = ()
    expected: float | str | None = None
    found: float | str | None = None
    advice: Advice = _NOTHING
    host: str = ""

    def __str__(self) -> str:
        return f"{self.host}: {self.text}" if self.host else self.text


def missing(
    document: Document, expected: Inventory | None = None, baseline: Inventory | None = None
) -> tuple[Missing, ...]:
    """What is missing, the worst first.

    Args:
        document: The run.
        expected: What the user expects of each host.
        baseline: What good machines of this model have.

    Raises:
        UsageError: If something is expected, and the run knows nothing of it.
    """
    absences: list[Missing] = []
    hosts = possessions(document, facts_of(document))
    for host in hosts:
        absent_here = _of_host(host, document, expected, baseline)
        absences += (replace(absent, host=host.facts.host) for absent in absent_here)
    if expected is not None and expected.parts:
        known = {part for host in hosts for part in host.numbers}
        known |= {InventoryPart.GPU_MODEL} if any(host.models for host in hosts) else set()
        if known.isdisjoint(expected.parts):
            raise UsageError(
                f"nothing of what is expected ({', '.join(expected.parts)}) can be compared: this run does "
                "not say what the machine has"
            )
    absences += _apart(document)
    if not any(known and InventoryPart.NVLINKS in known.numbers for known in (expected, baseline)):
        absences += (absent for host in hosts for absent in _fewer_links(host, document))
    hanging = {end for pair in (document.peers.hanging if document.peers else ()) for end in pair}
    for names, text in odd_devices(document, facts_of(document)):
        if not hanging.issuperset(names):  # between them, nothing was measured
            absences.append(Missing(InventoryPart.GPUS, Verdict.WARN, text, names, advice=_ODD))
    return tuple(sorted(absences, key=lambda absent: absent.verdict.rank))


def _apart(document: Document) -> Iterator[Missing]:
    """Yield that GPUs which NVLinks join have no peer access to each other: what they are built for."""
    machine, facts = document.machine, facts_of(document)
    modes = {facts.text(mode, gpu.name) for gpu in machine.gpus for mode in (Known.MIG, Known.CONFIDENTIAL)}
    if document.imported or machine.ranks or ON in modes:
        return
    network, apart = Network(machine), list[tuple[str, str]]()
    for gpu in machine.gpus:
        for other in (other.name for other in machine.gpus if other is not gpu):
            if other not in gpu.peers and network.joined_by(gpu.name, other) == {LinkKind.NVLINK}:
                apart.append((gpu.name, other))
    if apart:
        text = (
            f"no peer access between GPUs that NVLinks join: {worded(apart, [g.name for g in machine.gpus])}"
        )
        where = tuple(dict.fromkeys(end for pair in apart for end in pair))
        yield Missing(InventoryPart.GPUS, Verdict.FAIL, text, where, advice=_APART)


def _fewer_links(host: Possession, document: Document) -> Iterator[Missing]:
    """Yield the GPUs of a host that have fewer NVLinks than the data sheet gives their model, all alike.

    A bridged model may be without a bridge; a model on NVSwitch has all its links. One that differs from the
    others of its model is reported as such.
    """
    numbers, modes = host.numbers.get(InventoryPart.NVLINKS, {}), (Known.MIG, Known.CONFIDENTIAL)
    for model, gpus in grouped((model, gpu) for gpu, model in host.models.items() if gpu in numbers).items():
        if document.imported or len(gpus) < 2 or (found := gpu_sheet(model)) is None:
            continue
        number, need = min(numbers[gpu] for gpu in gpus), found[1].links_of_gpu
        is_alike = {numbers[gpu] for gpu in gpus} == {number}
        has_mode = any(host.facts.text(mode, gpu) == ON for mode in modes for gpu in gpus)
        if is_alike and number < need and not has_mode and (number or found[1].switch):
            text = f"{_has(InventoryPart.NVLINKS, number, gpus)}; the data sheet gives {model} {need}"
            step = _step(InventoryPart.NVLINKS, document.machine, not number and not found[1].switch)
            yield Missing(
                InventoryPart.NVLINKS,
                Verdict.WARN,
                text,
                tuple(gpus),
                (),
                need,
                number,
                step,
                host.facts.host,
            )


def _of_host(
    host: Possession, document: Document, expected: Inventory | None, baseline: Inventory | None
) -> list[Missing]:
    unseen = [*_gpus(host, document), *_uneven(host.facts)]
    compared: dict[tuple[InventoryPart, tuple[str, ...]], Missing] = {}
    if baseline is not None:  # what a run does not say fails no good machine
        of_baseline = _compared(host, baseline, ENOUGH_OF_BASELINE, unseen, document.machine)
        compared = {(absent.part, absent.where): absent for absent in of_baseline if absent.found is not None}
    for absent in _compared(host, expected, ENOUGH_BYTES, unseen, document.machine) if expected else ():
        compared.setdefault((absent.part, absent.where), absent)
    count = next((absent for absent in compared.values() if absent.part is InventoryPart.GPUS), None)
    failed = [
        absent for absent in unseen if absent.part is InventoryPart.GPUS and absent.verdict is Verdict.FAIL
    ]
    if count is not None and failed and len(failed) >= _lacking(count):  # they are what is missing
        unseen = [
            replace(absent, expected=count.expected, found=count.found)
            if absent.verdict is Verdict.FAIL
            else absent
            for absent in unseen
        ]
        compared = {key: absent for key, absent in compared.items() if absent.part is not InventoryPart.GPUS}
    return [*unseen, *compared.values()]


def _lacking(count: Missing) -> float:
    """Number of missing devices; 0 if the numbers are unknown."""
    ends = (count.expected, count.found)
    return ends[0] - ends[1] if isinstance(ends[0], int | float) and isinstance(ends[1], int | float) else 0


def _gpus(host: Possession, document: Document) -> Iterator[Missing]:
    """Yield the GPUs of the PCI bus that cannot be used, and those that left it."""
    facts = host.facts
    on_bus, lost = (dict.fromkeys(facts.several(name)) for name in (Known.GPUS_ON_BUS, Known.GPUS_LOST))
    shown = set(host.gpus)
    models = {facts.text(Known.PCI_MODEL, address) for address in shown}
    withheld: list[str] = []
    if facts.knows(Known.GPUS_OF_DRIVER):
        for address in on_bus:
            if address not in shown:
                absent = _unseen(address, facts, models, is_fallen=address in lost)
                withheld += [address] if absent is None else []
                yield from [absent] if absent is not None else ()
        yield from _left_out(host, document)
    elif why := facts.unreadable(Known.GPUS_OF_DRIVER):
        seen = 0 if facts.host else len(document.machine.gpus)
        usable = [address for address in on_bus if not _is_left_alone(address, facts)]
        files = {facts.text(Known.DEVICE_FILE, address) for address in usable}
        if facts.text(Known.CONTAINER) == ON and facts.text(Known.DRIVER_LOADED) == ON and ON not in files:
            withheld += usable
        elif usable and (facts.text(Known.DRIVER_LOADED) != ON or len(usable) > seen):
            yield _without_driver(usable, facts, why)
    yield from _unsupported(host, document)
    if withheld:
        text = f"{many(len(withheld), 'GPU')} of the host not given to this container or job: "
        yield Missing(InventoryPart.GPUS, Verdict.WAIVED, text + _named(withheld, facts), tuple(withheld))
    for address in lost:
        if address in shown or (address in on_bus and not facts.knows(Known.GPUS_OF_DRIVER)):
            text = f"the GPU at {_place(address, facts)} fell off the bus since the node was started (Xid 79)"
            yield _of_gpu(address, facts, Verdict.WARN, text)
        elif address not in on_bus:
            text = f"the GPU at {_place(address, facts)} fell off the PCI bus (Xid 79) and is not back"
            in_container = facts.text(Known.CONTAINER) == ON
            yield _of_gpu(address, facts, Verdict.WARN if in_container else Verdict.FAIL, text)


def _unsupported(host: Possession, document: Document) -> Iterator[Missing]:
    """Yield the GPUs that nothing here can measure: if there are no others, it is worth a warning."""
    facts, has_gpus = host.facts, bool(host.gpus or document.machine.gpus)
    verdict = Verdict.WAIVED if has_gpus else Verdict.WARN
    vendors = {at: vendor for at in facts.devices() if (vendor := facts.text(Known.PCI_VENDOR, at))}
    for vendor, addresses in grouped((vendor, at) for at, vendor in vendors.items()).items():
        be = "is" if len(addresses) == 1 else "are"
        text = f"only NVIDIA GPUs are measured; {many(len(addresses), f'{vendor} GPU')} {be} here: "
        yield Missing(InventoryPart.GPUS, verdict, text + some(addresses), tuple(addresses), advice=_OTHERS)
    board = facts.text(Known.BOARD)
    if "Jetson" in board and not has_gpus:
        yield Missing(
            InventoryPart.GPUS, verdict, f"the GPU of this board is not measured ({board})", advice=_LIBRARY
        )


def _is_left_alone(address: str, facts: Facts) -> bool:
    """Whether the administrator has given a GPU to virtual machines, or excluded it."""
    passed_on = facts.text(Known.PCI_DRIVER, address) in _PASSED_ON
    return passed_on or facts.text(Known.DEVICE_FILE, address) == EXCLUDED


def _unseen(address: str, facts: Facts, models: Collection[str], *, is_fallen: bool) -> Missing | None:
    """What is wrong with a GPU that the driver does not show; None if it was not given to us."""
    driver, file = facts.text(Known.PCI_DRIVER, address), facts.text(Known.DEVICE_FILE, address)
    in_container = facts.text(Known.CONTAINER) == ON
    fell = "; it fell off the bus (Xid 79)" if is_fallen else ""
    head = f"the GPU at {_place(address, facts)} is on the PCI bus, but"
    if _is_left_alone(address, facts):
        text = f"{head} excluded from the driver" if file == EXCLUDED else f"{head} left to virtual machines"
        return _of_gpu(address, facts, Verdict.WAIVED, text)
    if file == OFF or (driver == _NVIDIA and file != ON and in_container):
        return None
    if driver == _NVIDIA:
        sure = file == ON or is_fallen
        none = "" if file != ABSENT else "; its device file is missing"
        text = f"{head} the driver does not show it{none}{fell}"
        return _of_gpu(address, facts, Verdict.FAIL if sure else Verdict.WARN, text)
    if driver == _NONE:
        alike = facts.text(Known.PCI_MODEL, address) in models  # else the driver may not support it
        verdict = Verdict.FAIL if (alike or is_fallen) and not in_container else Verdict.WARN
        return _of_gpu(address, facts, verdict, f"{head} no driver uses it{fell}")
    return _of_gpu(address, facts, Verdict.WARN, f"{head} used by the driver {driver}")


def _of_gpu(address: str, facts: Facts, verdict: Verdict, text: str) -> Missing:
    advice = _NOTHING if verdict is Verdict.WAIVED else _SEEN
    return Missing(InventoryPart.GPUS, verdict, text, (address,), _slots((address,), facts), advice=advice)


def _without_driver(usable: Iterable[str], facts: Facts, why: str) -> Missing:
    """That GPUs cannot be used because the driver, or a library, is missing."""
    addresses = tuple(usable)
    loaded = facts.text(Known.DRIVER_LOADED) == ON
    reason = why if loaded else "the NVIDIA driver is not loaded"
    others = {facts.text(Known.PCI_DRIVER, address) for address in addresses} - {_NVIDIA, _NONE, ""}
    used = f" ({', '.join(sorted(others))} is)" if others and not loaded else ""
    head = many(len(addresses), "NVIDIA GPU")
    text = f"{head} on the PCI bus cannot be used: {reason}{used}; {_named(addresses, facts)}"
    advice = _LIBRARY if loaded else _DRIVER
    return Missing(InventoryPart.GPUS, Verdict.WARN, text, addresses, _slots(addresses, facts), advice=advice)


def _left_out(host: Possession, document: Document) -> Iterator[Missing]:
    """Yield that options, variables or MIG left out GPUs that the driver shows."""
    machine = document.machine
    if host.facts.host or machine.ranks or (document.peers and document.peers.unusable):
        return
    used = {gpu.bus_id[-len("0000:00:00") :] + ".0" for gpu in machine.gpus}
    if others := [address for address in host.gpus if address not in used]:
        by = "--devices" if document.options.get(DEVICES) is not None else "CUDA_VISIBLE_DEVICES or MIG mode"
        text = f"{many(len(others), 'GPU')} left out ({by}): {_named(others, host.facts)}"
        yield Missing(InventoryPart.GPUS, Verdict.WAIVED, text, tuple(others))


def _uneven(facts: Facts) -> Iterator[Missing]:
    """Yield that one PCIe switch or NUMA node has one GPU less than all others: one may be missing."""
    on_bus = facts.several(Known.GPUS_ON_BUS)
    models = Counter(facts.text(Known.PCI_MODEL, address) for address in on_bus)
    model = max(models, key=lambda model: models[model], default="")
    for name, noun in ((Known.SWITCH, "PCIe switch"), (Known.NUMA_NODE, "NUMA node")):
        places = [
            facts.text(name, address) for address in on_bus if facts.text(Known.PCI_MODEL, address) == model
        ]
        groups = Counter(places)
        most = max(groups.values(), default=0)
        short = [place for place, count in groups.items() if count == most - 1]
        full = [place for place, count in groups.items() if count == most]
        several = len(full) > 1 and most > 1 and len(places) + 1 >= EVEN_GPUS
        both = len(full) == 1 and most >= EVEN_HALF
        is_one = len(short) == 1 == len(groups) - len(full)
        if is_one and (several or both) and _NOWHERE.isdisjoint(groups):
            text = (
                f"{noun} {short[0]} has {many(most - 1, 'GPU')}, {many(len(full), 'other')} "
                f"{'has' if len(full) == 1 else 'have'} {most}: one may be missing"
            )
            yield Missing(InventoryPart.GPUS, Verdict.WARN, text, (short[0],), advice=_SLOTS)
            return


def _compared(
    host: Possession, inventory: Inventory, enough: float, unseen: Iterable[Missing], machine: Machine
) -> Iterator[Missing]:
    """Yield what a host has less of than an inventory, once for each part.

    The memory and NVLinks of GPUs of another model are none: the model says it. So does the number of GPUs
    if there are none.
    """
    others = list(_other_models(host, inventory))
    of_others = {gpu for absent in others for gpu in absent.where}
    no_gpus = InventoryPart.GPUS in inventory.numbers and not any(
        host.numbers.get(InventoryPart.GPUS, {"": 1}).values()
    )
    for part, expected in inventory.numbers.items():
        need = expected * (enough if part.is_size else 1)
        of_devices = host.numbers.get(part)
        if of_devices is None and not (no_gpus and part in _OF_GPUS):
            text = f"{part} not compared: this run does not say it"
            yield Missing(part, Verdict.WARN, text, expected=expected, advice=_UNKNOWN)
        numbers = (of_devices or {}).items()
        short = grouped((n, device) for device, n in numbers if n < need and device not in of_others)
        if short and part in (InventoryPart.GPUS, InventoryPart.NICS):
            yield _count(host, inventory, part, min(short), unseen)
        elif short:
            where = tuple(filter(None, (device for devices in short.values() for device in devices)))
            groups = (_has(part, number, devices) for number, devices in sorted(short.items()))
            text = f"{'; '.join(groups)} (expected: {part.shown(expected)})"
            step = _step(part, machine, not any(short))
            yield Missing(part, Verdict.FAIL, text, where, (), expected, min(short), step)
    if inventory.models and not host.models and not host.facts.host and not no_gpus:
        for model in inventory.models:
            text = f"{InventoryPart.GPU_MODEL} not compared: this run has no GPU"
            yield Missing(InventoryPart.GPU_MODEL, Verdict.WARN, text, expected=model, advice=_UNKNOWN)
    yield from others


def _other_models(host: Possession, inventory: Inventory) -> Iterator[Missing]:
    """Yield the GPUs that are of another model than expected."""
    for model in inventory.models:
        wanted = model.casefold()
        others = grouped((name, gpu) for gpu, name in host.models.items() if wanted not in name.casefold())
        for name, gpus in others.items():
            text = f"{_who(gpus)} {'are' if len(gpus) > 1 else 'is'} {name} (expected: {model})"
            step = _STEPS[InventoryPart.GPU_MODEL]
            yield Missing(InventoryPart.GPU_MODEL, Verdict.FAIL, text, tuple(gpus), (), model, name, step)


def _step(part: InventoryPart, machine: Machine, has_none: bool) -> Advice:
    """What to do if devices have too little of a part; NVLinks depend on how this model has them."""
    if part is not InventoryPart.NVLINKS:
        return _STEPS[part]
    if has_none:
        return _NO_NVLINKS
    links = [link for link in machine.links if link.kind is LinkKind.NVLINK]
    vertices = MachineVertices(machine)
    is_switched = any(None in (vertices.kind(link.source), vertices.kind(link.destination)) for link in links)
    return _STEPS[part] if is_switched else _BRIDGES


def _who(devices: Sequence[str]) -> str:
    """Some devices, or the host, as text."""
    return some(devices) or "the host"


def _has(part: InventoryPart, number: float, devices: Sequence[str]) -> str:
    """The text that some devices, or the host, have a number of a part."""
    where = [*filter(None, devices)]
    return f"{_who(where)} {'have' if len(where) > 1 else 'has'} {_amount(part, number)}"


def _amount(part: InventoryPart, number: float) -> str:
    nouns = {
        InventoryPart.NVLINKS: "active NVLink", InventoryPart.CPUS: "CPU", InventoryPart.NUMA: "NUMA node",
    }  # fmt: skip
    return many(int(number), nouns[part]) if part in nouns else f"{part.shown(number)} of memory"


def _count(
    host: Possession, inventory: Inventory, part: InventoryPart, number: float, unseen: Iterable[Missing]
) -> Missing:
    """That there are fewer GPUs or NICs than expected, and which are missing."""
    facts, expected = host.facts, inventory.numbers[part]
    usable = set(host.gpus if part is InventoryPart.GPUS else host.nics)
    good = inventory.gpu_addresses if part is InventoryPart.GPUS else inventory.nic_addresses
    gone = [address for address in good if address not in usable] if usable or not number else []
    in_doubt = ""
    if part is InventoryPart.GPUS:
        failed = (absent for absent in unseen if absent.part is part and absent.verdict is Verdict.FAIL)
        broken = [address for absent in failed for address in absent.where]
        present = len({*facts.several(Known.GPUS_ON_BUS), *usable} - set(broken))
        in_doubt = f"; {present} on the PCI bus" if present >= expected else ""
        gone = gone or broken
    elif facts.text(Known.CONTAINER) == ON:
        in_doubt = "; this container may have been given only some"
    noun = "GPU" if part is InventoryPart.GPUS else "NIC"
    text = f"{many(int(number), noun)} (expected: {expected})"
    text += in_doubt or (f"; missing: {_named(gone, facts)}" if gone else "")
    if in_doubt:
        return Missing(part, Verdict.WARN, text, (), (), expected, number)
    slots = _slots(gone, facts)
    step = _NO_GPU if part is InventoryPart.GPUS and not number else _STEPS[part]
    return Missing(part, Verdict.FAIL, text, tuple(gone), slots, expected, number, step)


def _slots(addresses: Iterable[str], facts: Facts) -> tuple[str, ...]:
    return tuple(filter(None, (facts.text(Known.SLOT, address) for address in addresses)))


def _named(addresses: Iterable[str], facts: Facts) -> str:
    """Addresses with their slots as text."""
    return some([_place(address, facts) for address in addresses])


def _place(address: str, facts: Facts) -> str:
    slot = facts.text(Known.SLOT, address)
    return f"{address} (slot {slot})" if slot else address
