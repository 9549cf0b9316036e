"""The thresholds of the table, each just below and just above: what it decides differs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import log

import numpy as np
import pytest

from wirespeed.backends.simulated import parse
from wirespeed.errors import UsageError
from wirespeed.features.blocks.block_models import Model, Point, best_of, model_of
from wirespeed.features.blocks.text import modelled
from wirespeed.features.fleet.analysis import boundary, differing, separating
from wirespeed.features.history.change_points import courses, threshold
from wirespeed.features.qualify.carriers import TCP, carrier
from wirespeed.features.qualify.lossy_cables import lossy
from wirespeed.hardware.judged_sizes import is_judged, is_small
from wirespeed.hardware.link_graph import Demand, Network
from wirespeed.judging import gates, single_value
from wirespeed.judging.criteria import BY_LIMITS
from wirespeed.judging.verdict import Judgement, Verdict
from wirespeed.measurement import Axis, Unit
from wirespeed.model import BlockList, Engine, Executor, Memory, MemoryKind, Method, Transfer
from wirespeed.qualification import Qualification, QualifiedNode, Round, Stage
from wirespeed.results import baseline
from wirespeed.results.baseline import BaselineCell
from wirespeed.results.cells import Key
from wirespeed.results.comparison_doubts import strays, too_noisy
from wirespeed.results.comparison_evidence import CellValues
from wirespeed.results.imported_limits import MESSAGE_BANDWIDTH, ONE_NIC, of_nics, with_network
from wirespeed.results.significance import Significance
from wirespeed.tables import Cell, Table
from wirespeed.units import KIB, MIB, Nics

KEY = Key("t", "", "a", "b")
NETWORK = Network(parse("hgx-h200-2"))


def sent_again(share: float, others: float = 0.0, rounds: int = 7) -> bool:
    """Whether a cable is lossy of which packets to node 0 are lost, from each of the others once."""
    found = [
        Round(Stage.PAIRS, ((0, other),), ((1e9, 1e9),), losses=((others, share),))
        for other in range(1, rounds + 1)
    ]
    found += [Round(Stage.PAIRS, ((8, 9),), ((1e9, 1e9),), losses=((others, others),))] * 20
    return any(part.nodes == (0,) for part in lossy(found))


def slower(value: float) -> CellValues:
    return CellValues(cells=[("host", Cell(0, 0, value))])


def fails(value: float, spread: float) -> bool:
    cell = BaselineCell("t", "", "a", "b", 0, Unit.RATE, 100.0, spread, 3)
    judged = single_value._by_baseline(
        Judgement(KEY, Unit.RATE, Verdict.PASS), value, cell, BY_LIMITS.tolerance
    )
    return judged.verdict is Verdict.FAIL


def disagree(value: float) -> bool:
    try:
        baseline._check_agreement({KEY: {0: 100.0, 1: value}}, ["a", "b"])
    except UsageError:
        return True
    return False


def copy(size: float, *ends: str, engine: Engine = Engine.CE) -> Transfer:
    source, destination = (Memory(name, MemoryKind.DEVICE) for name in ends)
    return Transfer(source, destination, Executor(ends[0]), engine, int(size))


def judged_list(seconds: float, block_s: float, method: Method) -> bool:
    """Whether a list is judged whose copy and whose blocks take this long at 1 TB/s."""
    block = BlockList(method, int(block_s * 1e12), 1)
    moved = replace(copy(seconds * 1e12, "gpu0", "gpu1"), scattered=block)
    return is_judged(NETWORK, moved, Demand({}), 1e12)


def full_from(rate: float) -> int | None:
    """The size of large blocks, of which smaller ones have this rate."""
    sizes = {2**12: rate / 4, 2**14: rate / 2, 2**16: rate, 2**18: 100.0}
    points = [Point(block, 64, Method.LOOP, {Method.LOOP: at}, None) for block, at in sizes.items()]
    fitted = model_of(Method.LOOP, points, 100.0)
    return fitted.nearly_full if fitted else None


def model(error: float) -> Model:
    return Model(Method.LOOP, 1e-6, 1e-6, 1e9, error, None)


def qualification(threshold: float) -> Qualification:
    return Qualification(nodes=(QualifiedNode("a"),), noise=0.1, threshold=threshold)


def steps(runs: int, step: float) -> int:
    """The number of changes that are found between two halves of equal runs."""
    values = np.array([[1.0]] * (runs - runs // 2) + [[1.0 + step]] * (runs // 2))
    return len(courses(values)[0].levels) - 1


def groups(low: float, count: int = 10, others: int = 10, spread: float = 0.0) -> bool:
    noise = (-spread, spread)
    slow = [low + noise[i % 2] for i in range(count)]
    return boundary([*slow, *(100 + noise[i % 2] for i in range(others))]) is not None


def separated(count: int) -> bool:
    slow = [{"firmware": "a"}] * count + [{"firmware": "b"}] * (100 - count)
    return bool(separating(slow, [{"firmware": "b"}] * 100))


def outlier(value: float, peers: int = 20, spread: float = 0.0) -> bool:
    return bool(differing({**{i: 100 + spread * (-1) ** i for i in range(peers)}, 99: value}))


def gap(width: float) -> bool:
    """Whether there are two groups if the widest empty range between 80 and 100 is this."""
    bridge = [80 + (20 - width) / 5 * i for i in range(1, 6)]
    return boundary([80.0] * 20 + bridge + [100.0] * 20) is not None


def message(key: str, size: float) -> object:
    """The expected range of a message of this size over a NIC."""
    axis = Axis("size", ("s",), (size,))
    table = Table(key, "", Unit.RATE, Axis("", ("a",)), axis, (Cell(0, 0, 1e9),))
    machine = with_network(NETWORK.machine, 50e9, "")
    return of_nics(machine, "message_bandwidth", table, Nics(50e9, 1)).cells[0].expected


#: Threshold -> what it decides, with a number just below and just above.
EDGES: dict[str, tuple[Callable[[float], object], float, float]] = {
    "AGREEMENT": (disagree, 104.9, 105.1),
    "CARRIES": (lambda share: carrier({"eth0": (TCP, int(share * 1000))}, 1000).kind, 0.499, 0.501),
    "FALSE_CHANGES": (lambda p: Significance(p, 0.9, 0.99).is_change, 0.0199, 0.0201),
    "DEVIATIONS": (lambda value: fails(value, 0.05), 84.9, 85.1),
    "EQUAL_METHODS": (lambda v: best_of({Method.BATCH: v, Method.KERNEL: 100.0}, None), 96.9, 97.1),
    "FEWEST_PARTNERS": (lambda rounds: sent_again(0.1, rounds=int(rounds)), 2, 3),
    "FEWEST_RUNS": (lambda runs: steps(int(runs), 0.5), 7, 8),
    "GROUP_DEVIATIONS": (lambda low: groups(low, spread=1.0), 88.1, 88.2),
    "GROUP_FRACTION": (lambda count: groups(80, int(count), 1000 - int(count)), 29, 30),
    "GROUP_GAP": (gap, 3.95, 4.05),
    "GROUP_NODES": (lambda count: groups(80, int(count), 20), 2, 3),
    "JUDGED_BLOCK_S": (lambda s: judged_list(1, s, Method.BATCH), 15.9e-6, 16.1e-6),
    "JUDGED_BYTES": (lambda size: is_small(copy(size, "gpu0", "gpu0")), 256 * MIB - 1, 256 * MIB),
    "JUDGED_COPY_BYTES": (lambda size: is_small(copy(size, "gpu0", "gpu1")), 128 * MIB - 1, 128 * MIB),
    "JUDGED_COPY_S": (lambda s: judged_list(s, 1e-3, Method.KERNEL), 0.99e-3, 1.01e-3),
    "JUDGED_KERNEL_BLOCK_S": (lambda s: judged_list(1, s, Method.KERNEL), 0.99e-6, 1.01e-6),
    "LEAST_MESSAGE_BYTES": (lambda size: message(ONE_NIC, size), 64 * KIB - 1, 64 * KIB),
    "LEAST_OF_MPI_BYTES": (lambda size: message(MESSAGE_BANDWIDTH, size), MIB - 1, MIB),
    "LEAST_STEP": (lambda step: steps(40, step), 0.00495, 0.00505),
    "LEAST_THRESHOLD": (lambda threshold: qualification(threshold).varies, 0.499, 0.501),
    "MEANINGLESS": (lambda at: gates._remark(at, (3.0, 4.0)), 0.99, 1.01),
    "MIN_PEERS": (lambda peers: outlier(50, int(peers)), 3, 4),
    "MODEL_ERROR": (lambda error: "depends" in modelled(model(error)), 0.149, 0.151),
    "NEARLY_FULL": (full_from, 89.9, 90.1),
    "NOISY": (lambda loss: too_noisy(loss, 0.0, 0.02), 0.049, 0.051),
    "NOISY_HALF": (lambda half: too_noisy(0.0, half, 0.02), 0.049, 0.051),
    "OUTLIER_DEVIATIONS": (lambda value: outlier(value, spread=1.0), 84.1, 84.3),
    "OUTLIER_FRACTION": (outlier, 96.9, 97.1),
    "SENT_AGAIN": (sent_again, 0.0019, 0.0021),
    "SEPARATED": (lambda count: separated(int(count)), 89, 90),
    "STRAY": (lambda value: strays(slower(100.0), slower(value), 0.02, paired=False), 79.9, 80.1),
    "TAKES_PART": (
        lambda sent: carrier({"eth0": (TCP, 1000), "eth1": (TCP, int(sent))}, 1000).devices, 52, 53,
    ),
    "TIMES_AGAIN": (lambda share: sent_again(share, 0.01), 0.0199, 0.0201),
    "TOLERANCE": (lambda value: fails(value, 0.0), 94.9, 95.1),
}  # fmt: skip


@pytest.mark.parametrize("name", EDGES)
def test_a_threshold_decides_between_just_below_and_just_above(name: str) -> None:
    decided, below, above = EDGES[name]
    assert decided(below) != decided(above)


@pytest.mark.parametrize(("runs", "series"), [(8, 1), (100, 1), (100, 50)])
def test_the_statistic_of_a_change(runs: int, series: int) -> None:
    assert threshold(runs, series) == pytest.approx((3.6 + 0.17 * log(runs * series)) * (1 + 10 / runs))
