"""The signs of causes at GPUs and their NVLinks in the facts of a host."""

from __future__ import annotations

from collections.abc import Iterator

from ...data import gpu_sheet
from ...data.causes import Weight
from ...hardware.facts import FABRIC_READY, ON, Facts, Known
from ...hardware.topology import Machine
from ...tables import IDLE
from ...thresholds.facts import BUSY_PERCENT, LOW_CLOCK, THROTTLED_PERCENT, USUAL_BAR_BYTES, USUAL_LIMIT
from ...units import format_size, many, some
from .record import Sign

#: Throttle reasons that hold nothing back, or only as the user wants.
_HARMLESS = {IDLE, "application clocks", "display clocks"}


def fabric(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        state = facts.text(Known.FABRIC, gpu.name)
        problems = facts.several(Known.FABRIC_HEALTH, gpu.name)
        if states := [*([state] if state not in ("", FABRIC_READY) else []), *problems]:
            yield Sign(gpu.name, ", ".join(states))


def nvlinks(machine: Machine, facts: Facts) -> Iterator[Sign]:
    active = {gpu.name: facts.number(Known.NVLINKS, gpu.name) for gpu in machine.gpus}
    models = {gpu.name: gpu.model for gpu in machine.gpus}
    for name, count in active.items():
        most = max((n for other, n in active.items() if n is not None and models[other] == models[name]),
                   default=0)  # fmt: skip
        if count is not None and count < most:
            yield Sign(name, f"{count:.0f} links are active, {most:.0f} on other GPUs of this model")


def nvlinks_inactive(machine: Machine, facts: Facts) -> Iterator[Sign]:
    fewer = {sign.device for sign in nvlinks(machine, facts)}  # than others: another cause
    for gpu in machine.gpus:
        down, up = (facts.number(name, gpu.name) for name in (Known.NVLINKS_INACTIVE, Known.NVLINKS))
        sheet = gpu_sheet(gpu.model)
        by_design = sheet is not None and up is not None and up >= sheet[1].links_of_gpu
        if down and up and gpu.name not in fewer and not by_design:
            yield Sign(gpu.name, f"{down:.0f} of {down + up:.0f} links are inactive")


def nvlink_errors(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        failed, retried = (
            facts.number(name, gpu.name) or 0 for name in (Known.NVLINK_FAILED, Known.NVLINK_RETRIED)
        )
        if failed or retried:
            text = f"{failed:.0f} recoveries and {retried:.0f} other errors during the run"
            yield Sign(gpu.name, text, Weight.DEFECT)
        elif errors := facts.several(Known.NVLINK_ERRORS, gpu.name):
            yield Sign(gpu.name, f"{', '.join(errors)} before the run")


def bandwidth_mode(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        if (mode := facts.text(Known.BANDWIDTH_MODE, gpu.name)) not in ("", "full"):
            yield Sign(gpu.name, f"the bandwidth mode is {mode}")


def ecc(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        errors = [f"{many(int(count), 'uncorrected error')}"
                 for count in [facts.number(Known.ECC_ERRORS, gpu.name)] if count]  # fmt: skip
        errors += [name for name in (Known.REMAP_PENDING, Known.REMAP_FAILED)
                  if facts.text(name, gpu.name) == ON]  # fmt: skip
        if errors:
            yield Sign(gpu.name, ", ".join(errors))


def throttled(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        share, seconds = (facts.number(name, gpu.name) for name in (Known.THROTTLED_TIME, Known.OBSERVED))
        if share is None or seconds is None:
            if reasons := [r for r in facts.several(Known.THROTTLED, gpu.name) if r not in _HARMLESS]:
                yield Sign(gpu.name, f"{', '.join(reasons)} before anything was measured")
        elif share > THROTTLED_PERCENT:
            reason = facts.text(Known.THROTTLED_BY, gpu.name)
            yield Sign(gpu.name, f"throttled by {reason} for {share:.0f}% of {seconds:.0f} s")


def low_clocks(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """The GPUs that were measured at low clocks, although nothing throttled them."""
    clocks = {gpu.name: facts.number(Known.SM_CLOCK_SEEN, gpu.name) or 0.0 for gpu in machine.gpus}
    for gpu in machine.gpus:
        if (facts.number(Known.THROTTLED_TIME, gpu.name) or 0) > THROTTLED_PERCENT:
            continue
        others = [clocks[other.name] for other in machine.gpus if other.model == gpu.model]
        memory, most, state = (
            facts.number(name, gpu.name)
            for name in (Known.MEMORY_CLOCK_SEEN, Known.MEMORY_CLOCK_POSSIBLE, Known.P_STATE_SEEN)
        )
        texts = []
        if memory and most and memory < most * LOW_CLOCK:
            texts.append(f"memory clock at most {memory / 1e6:.0f} of {most / 1e6:.0f} MHz")
        if 0 < clocks[gpu.name] < max(others) * LOW_CLOCK:
            known = f"{clocks[gpu.name] / 1e6:.0f} MHz, others of its model {max(others) / 1e6:.0f}"
            texts.append(f"SM clock at most {known}")
        if texts:
            at = f", P-state P{state:.0f}" if state is not None else ""
            yield Sign(gpu.name, f"{', '.join(texts)}{at} while it was measured, without a throttle reason")


def lowered(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        for name, usual, unit, scale in (
            (Known.POWER_LIMIT, Known.POWER_LIMIT_USUAL, "W", 1.0),
            (Known.MEMORY_CLOCK, Known.MEMORY_CLOCK_POSSIBLE, "MHz", 1e6),
        ):
            now, most = (facts.number(fact, gpu.name) for fact in (name, usual))
            if now and most and now < most * USUAL_LIMIT:
                yield Sign(gpu.name, f"{name} {now / scale:.0f} {unit}, {usual} {most / scale:.0f} {unit}")


def busy_gpu(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        use, processes = (facts.number(name, gpu.name) for name in (Known.UTILISATION, Known.PROCESSES))
        if use and use > BUSY_PERCENT:
            who = f" by {many(int(processes), 'process')}" if processes else ""
            yield Sign(gpu.name, f"used {use:.0f}% of the time{who} before anything was measured")


def driver(machine: Machine, facts: Facts) -> Iterator[Sign]:
    kernel, library = facts.text(Known.DRIVER_KERNEL), facts.text(Known.DRIVER_LIBRARY)
    if kernel and library and kernel != library:
        yield Sign("", f"kernel module {kernel}, library {library}")


def no_peers(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus if not facts.host else ():  # the machine has the GPUs of the first host
        others = [other.name for other in machine.gpus if other is not gpu]
        if lacking := [name for name in others if name not in gpu.peers]:
            yield Sign(gpu.name, f"it cannot access {', '.join(lacking)}")


def wrong_numa(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        if len(machine.numa) > 1 and facts.text(Known.NUMA_NODE, gpu.name) == "unknown":
            yield Sign(gpu.name, "the kernel reports no NUMA node for it")


def bar1(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        bar, memory = (facts.number(name, gpu.name) for name in (Known.BAR1, Known.MEMORY))
        if bar and memory and bar < memory and not _is_largest(facts, gpu.name, bar):
            yield Sign(gpu.name, f"BAR1 has {format_size(int(bar))}, the memory {format_size(int(memory))}")


def _is_largest(facts: Facts, gpu: str, bar: float) -> bool:
    """Whether no setting can make a BAR1 larger: the firmware of the GPU supports no larger one.

    One that is larger than without Resizable BAR has the size that the firmware supports.
    """
    most = facts.number(Known.BAR1_MOST, gpu)
    return bar >= most if most else bar > USUAL_BAR_BYTES


def bar1_largest(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        bar, memory = (facts.number(name, gpu.name) for name in (Known.BAR1, Known.MEMORY))
        if bar and memory and bar < memory and _is_largest(facts, gpu.name, bar):
            sizes = f"BAR1 has {format_size(int(bar))}, the memory {format_size(int(memory))}"
            yield Sign(gpu.name, f"{sizes}; the GPU supports no larger one")


def mig(machine: Machine, facts: Facts) -> Iterator[Sign]:
    for gpu in machine.gpus:
        if facts.text(Known.MIG, gpu.name) == ON:
            yield Sign(gpu.name, f"{Known.MIG} is on")


def confidential(machine: Machine, facts: Facts) -> Iterator[Sign]:
    if gpus := [gpu.name for gpu in machine.gpus if facts.text(Known.CONFIDENTIAL, gpu.name) == ON]:
        yield Sign("", f"{Known.CONFIDENTIAL} is on ({some(gpus)})")
