"""How long Measurements take, estimated from their plan: nothing is measured. The costs were derived from
recorded runs of one, two and four GPUs (`docs/results`); the simulated backend uses the same costs, so that a
limit on the time of a run means the same there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..errors import MachineError
from ..measurement import Measurement
from ..model import FILE_ENGINES, Engine, MemoryKind, Method, Operation, Role, Transfer
from ..statistics import FEWEST_ROUNDS, Rule, grouped
from ..units import KIB
from .link_graph import Network, completions
from .topology import Machine

#: Time to bind buffers, streams and threads of a Measurement, and to reset its gate, in s.
_BIND_S = 0.008
#: Time to start the verification of a sample, in s.
_START_VERIFYING_S = 0.0005
#: Rates at which data is filled and verified, in B/s: in device memory, and in host memory.
_DEVICE_RATE, _HOST_RATE = 1e12, 35e9
#: Time from the start of the process until the first testcase, in s; and with each GPU.
_START_S, _START_OF_GPU_S = 0.8, 0.25
#: Time to close devices, judge, save and print, in s; and with each GPU.
_END_S, _END_OF_GPU_S = 0.6, 0.1
#: Rate and latency that are assumed if the machine's description has none, in B/s and s.
_ASSUMED_RATE, _ASSUMED_LATENCY_S = 20e9, 2e-7
#: Number of loads in one copy of a chase.
_CHASE_LOADS = 2**16


def start_seconds(machine: Machine) -> float:
    """The time from the start of a process until the first testcase, in s."""
    return _START_S + _START_OF_GPU_S * len(machine.gpus)


def end_seconds(machine: Machine) -> float:
    """The time from the last testcase until the process has judged, saved and printed, in s."""
    return _END_S + _END_OF_GPU_S * len(machine.gpus)


#: Time until a library of collectives has connected its ranks, before the first collective, in s: an
#: assumption, no recorded run contains it separately.
CONNECT_S = 2.0
#: Method of a block list -> time of a call, and of each block, besides moving the bytes, in s. From one
#: H100 with driver 580 from the host to the GPU, 1 KiB to 1 MiB x 16 to 16,384 blocks; ``loop`` and the time
#: of a block on CPUs are assumptions.
_OF_LIST = {
    Method.LOOP: (15e-6, 2.5e-6),
    Method.BATCH: (18e-6, 0.7e-6),
    Method.KERNEL: (33e-6, 2e-9),
    Method.KERNEL_BULK: (33e-6, 2e-9),
    Method.STAGED: (45e-6, 30e-9),
}
_BLOCK_OF_CPUS_S = 15e-9
#: The driver copies smaller blocks of a batch in another way; time of each, and for each byte, in s.
_LARGE_BLOCK_BYTES = 28 * KIB
_SMALL_BLOCK_S, _SMALL_BYTE_S = 1.2e-6, 2.4e-10
#: Time of the call that launches a kernel, in s: an assumption.
_LAUNCH_CALL_S = 4e-6
#: Rate at which one core gathers blocks in a buffer, or scatters them, in B/s: an assumption.
_GATHER_RATE = 12e9
#: Time of a call that reads or writes a file besides moving its bytes: an NVMe device in a server, in s. An
#: assumption.
_FILE_CALL_S = 80e-6


def list_seconds(transfer: Transfer) -> float:
    """The time of the calls of a block list or a file besides moving the bytes over the links, in s."""
    if calls := transfer.calls:
        return _FILE_CALL_S * transfer.bytes / (calls.block * calls.depth)
    scattered = transfer.scattered
    if scattered is None:
        return 0.0
    method, block = scattered.method, scattered.block
    if transfer.engine is Engine.CPU:
        return scattered.blocks * _BLOCK_OF_CPUS_S / max(1, len(transfer.executor.cpus))
    call, each = _OF_LIST[method]
    if method is Method.BATCH and block < _LARGE_BLOCK_BYTES:
        each = _SMALL_BLOCK_S + block * _SMALL_BYTE_S
    if method is Method.STAGED:
        each += block / _GATHER_RATE
    return call + scattered.blocks * each


#: Time that the kernel of a list waits for multiprocessors while the GPU computes, in s, and the part of them
#: that the computation lacks while it runs: assumptions.
_WAIT_S, _TAKEN = 60e-6, 0.1
#: Methods that need multiprocessors.
_KERNELS = (Method.KERNEL, Method.KERNEL_BULK, Method.STAGED)


def lists_seconds(transfers: Sequence[Transfer]) -> float:
    """The time of the calls of block lists that move together besides moving the bytes, in s.

    One thread makes the calls of all lists of a GPU. Kernels wait for the kernels of a load on the same GPU.
    """
    lists = [t for t in transfers if t.role is Role.MEASURED]
    of_gpus = grouped((t.executor.device, (list_seconds(t), _submission_seconds(t))) for t in lists)
    each = (
        math.fsum(submitted for _, submitted in calls) + max(every - submitted for every, submitted in calls)
        for calls in of_gpus.values()
    )
    seconds = max(each, default=0.0)
    return seconds + _WAIT_S * (len(lists) < len(transfers) and _needs_multiprocessors(lists))


def left_for_computing(transfers: Sequence[Transfer], moving: float) -> float:
    """The fraction of the rate of a load that the kernels of block lists leave it.

    Args:
        transfers: The lists and the load.
        moving: Fraction of the time for which their bytes move.
    """
    return 1 - _TAKEN * moving * _needs_multiprocessors([t for t in transfers if t.role is Role.MEASURED])


def _needs_multiprocessors(lists: Sequence[Transfer]) -> bool:
    return any(t.scattered is not None and t.scattered.method in _KERNELS for t in lists)


def submission_seconds(transfers: Sequence[Transfer]) -> float:
    """The time until the calls with block lists have returned, in s; kernels and copies run meanwhile."""
    return max(
        math.fsum(calls)
        for calls in grouped((t.executor.device, _submission_seconds(t)) for t in transfers).values()
    )


def _submission_seconds(transfer: Transfer) -> float:
    scattered = transfer.scattered
    if scattered is None or transfer.engine is Engine.CPU:
        return 0.0
    waits = scattered.method in (Method.LOOP, Method.BATCH)
    gathers = scattered.method is Method.STAGED and transfer.source.kind is not MemoryKind.DEVICE
    return list_seconds(transfer) if waits or gathers else _LAUNCH_CALL_S


def connect_seconds(measurement: Measurement) -> float:
    """The time that the first Measurement of its kind in a process takes in addition, in s."""
    return CONNECT_S if measurement.collective else 0.0


def prepare_seconds(measurement: Measurement) -> float:
    """The time to bind and fill the buffers of a Measurement, in s."""
    return _BIND_S + _touched(measurement, sources=True)


def verify_seconds(measurement: Measurement) -> float:
    """The time to verify a sample of a Measurement, in s."""
    return _START_VERIFYING_S + _touched(measurement, sources=False)


def _touched(measurement: Measurement, *, sources: bool) -> float:
    """The time to fill all buffers, or to compare those that were written, in s.

    Devices work concurrently.
    """
    buffers = [
        (end, transfer.bytes)
        for transfer in measurement.transfers if transfer.operation is not Operation.CHASE
        for end in (*((transfer.source,) if sources else ()), transfer.destination)
    ]  # fmt: skip
    if run := measurement.collective:
        buffers += [(end, run.bytes) for end in run.members]
    busy: dict[str, float] = {}
    for end, size in buffers:
        rate = _DEVICE_RATE if end.kind is MemoryKind.DEVICE else _HOST_RATE
        busy[end.device] = busy.get(end.device, 0.0) + size / rate
    return max(busy.values(), default=0.0)


def copy_seconds(network: Network, measurement: Measurement) -> float:
    """The time of one copy of every work of a Measurement at the limits of its links, in s."""
    transfers = measurement.transfers
    if not transfers:
        run = measurement.collective
        return run.bytes / _ASSUMED_RATE if run else 0.0
    chases = [_chase_seconds(network, t) for t in transfers if t.operation is Operation.CHASE]
    flows = [t for t in transfers if t.operation is not Operation.CHASE]
    calls_s = lists_seconds(flows)
    try:
        demands = [network.demand(t, network.machine.rates) for t in flows]
    except MachineError:  # a path is unknown
        times = [t.bytes / _ASSUMED_RATE for t in flows]
        return max([*chases, *times], default=0.0) + calls_s
    amounts = [float(t.bytes) if t.role is Role.MEASURED else math.inf for t in flows]
    ends = completions(demands, network.capacities(), amounts)
    times = [
        (end if 0 < end < math.inf else t.bytes / _ASSUMED_RATE) + calls_s
        for t, end in zip(flows, ends, strict=True)
        if t.role is Role.MEASURED
    ]
    return max([*chases, *times], default=0.0)


def _chase_seconds(network: Network, transfer: Transfer) -> float:
    try:
        return _CHASE_LOADS * network.latency(transfer)
    except MachineError:
        return _CHASE_LOADS * _ASSUMED_LATENCY_S


def least_seconds(
    network: Network, measurement: Measurement, rule: Rule, *, verify: bool = True, sample_s: float = 1e-3
) -> float:
    """The time of one round of a Measurement with the fewest samples that a rule allows, in s.

    Args:
        network: Links of the machine.
        measurement: What is measured.
        rule: When sampling stops.
        verify: Whether every sample is verified.
        sample_s: Minimum duration of a sample, in s.
    """
    checking = verify_seconds(measurement) if verify else 0.0
    return prepare_seconds(measurement) + rule.least_seconds(
        copy_seconds(network, measurement), sample_s, checking
    )


def usual_seconds(
    network: Network, measurement: Measurement, rule: Rule, *, verify: bool = True, sample_s: float = 1e-3
) -> float:
    """The time that a Measurement takes as a rule, in s; parameters as in ``least_seconds``.

    Values of CPUs and of several transfers that share a memory scatter, so that measuring takes the whole
    time budget; the others need the fewest rounds and samples.
    """
    least = least_seconds(network, measurement, rule, verify=verify, sample_s=sample_s)
    rounds = 1 if measurement.happens_once else max(1, rule.rounds)
    if not _scatters(measurement):
        return rounds * least
    usual = rounds * max(least, prepare_seconds(measurement) + rule.round_budget)
    return usual if rounds < FEWEST_ROUNDS else max(usual, rule.time_budget)


def _scatters(measurement: Measurement) -> bool:
    """Whether the samples of a Measurement usually differ by more than the precision."""
    transfers = measurement.transfers
    if any(t.engine in (Engine.CPU, *FILE_ENGINES) for t in transfers):
        return True
    host = sum(any(end.kind is not MemoryKind.DEVICE for end in t.ends) for t in transfers)
    return host > 1 or measurement.collective is not None
