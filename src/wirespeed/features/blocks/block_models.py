"""Points of the map of block lists, and what is fitted to them: a model of each method, and the rule, with
two constants, by which servers choose between a kernel and the batch call.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...model import Method
from ...tables import Calls
from ...thresholds.values import EQUAL_METHODS, NEARLY_FULL
from ...units import format_size

_SIMPLEST = (Method.BATCH, Method.KERNEL, Method.KERNEL_BULK, Method.LOOP, Method.STAGED)
#: vLLM's constants: it takes a kernel for smaller blocks than this, from this number of blocks on, and else
#: the driver's batch call. Source: vLLM issue 57342, tuned on one H100.
VLLM_BLOCK, VLLM_BLOCKS = 28 * 1024, 16


@dataclass(frozen=True)
class Point:
    """One block size and number of blocks.

    Attributes:
        block, blocks: Size of a block in bytes, and number of blocks.
        best: The best method.
        rates: Rate of each method, in B/s.
        limit: What the links allow, in B/s; None if unknown.
        submissions: Time until the calls of each method have returned, in s.
        calls: Times of single calls by each method.
        slowdown: By how much each method takes longer than without the computation; for lists that move at
            the same time, than the slowest one of them separately. Absent where that was not measured.
        computation_slowdown: By how much the computation takes longer while the lists move.
        lists: Number of lists that move at the same time; the rates count the bytes of all.
    """

    block: int
    blocks: int
    best: Method
    rates: Mapping[Method, float]
    limit: float | None
    submissions: Mapping[Method, float] = field(default_factory=dict)
    calls: Mapping[Method, Calls] = field(default_factory=dict)
    slowdown: Mapping[Method, float] = field(default_factory=dict)
    computation_slowdown: Mapping[Method, float] = field(default_factory=dict)
    lists: int = 1

    @property
    def share(self) -> float | None:
        """The best rate over the limit."""
        return self.rates[self.best] / self.limit if self.limit else None


@dataclass(frozen=True)
class Model:
    """The time of a call by a method: ``call_s + blocks x block_s + bytes / rate``, the bytes of all lists.

    Attributes:
        method: The method.
        call_s, block_s: Time of a call, and of each block, in s.
        rate: Rate of large blocks, in B/s; infinite if the bytes take no time that the blocks do not take.
        error: Median relative error of the model.
        nearly_full: Smallest measured block size that reaches 90% of the fastest rate of all methods, in
            bytes; None if none does.
    """

    method: Method
    call_s: float
    block_s: float
    rate: float
    error: float
    nearly_full: int | None


@dataclass(frozen=True)
class Constants:
    """The choice between a kernel and the batch call by two constants.

    Attributes:
        kernel: The better one of the kernels.
        block_below: The kernel moves smaller blocks than this, in bytes; 0: none, None: all.
        blocks_from: From this number of blocks on.
        loss: Largest loss of the rule against the better one of the two, as a fraction of the time.
        usual_loss: That of vLLM's constants.
    """

    kernel: Method
    block_below: int | None
    blocks_from: int
    loss: float
    usual_loss: float

    def __str__(self) -> str:
        """The rule as a sentence."""
        when = []
        if self.block_below:
            when.append(f"block < {format_size(self.block_below)}")
        if self.blocks_from:
            when.append(f"blocks ≥ {self.blocks_from}")
        chosen = f"{self.kernel} if {' and '.join(when)}, else batch" if when else "always batch"
        return (
            f"vLLM rule for this machine: {chosen} (worst case {self.loss:.0%} slower; vLLM's defaults, "
            f"{format_size(VLLM_BLOCK)} and {VLLM_BLOCKS}: {self.usual_loss:.0%})"
        )


def best_of(rates: Mapping[Method, float], before: Method | None) -> Method:
    """The best method of rates in B/s; ``before``, that with fewer blocks, stays if it is equally good."""
    fastest = max(rates.values())
    equal = [method for method in _SIMPLEST if rates.get(method, 0.0) >= (1 - EQUAL_METHODS) * fastest]
    return before if before in equal else equal[0]


def model_of(method: Method, points: Sequence[Point], fastest: float) -> Model | None:
    """Fit the model of a method, with no negative part, to the relative errors of its times."""
    known = [(point, point.rates[method]) for point in points if method in point.rates]
    if len(known) < 3:
        return None
    import numpy as np  # slow, and few maps are made

    moved = [point.block * point.blocks * point.lists for point, _ in known]
    seconds = np.array([size / rate for size, (_, rate) in zip(moved, known, strict=True)])
    parts = np.array([(1.0, point.blocks, size) for size, (point, _) in zip(moved, known, strict=True)])
    scaled = parts / seconds[:, None]
    best, least = np.zeros(3), math.inf
    for chosen in itertools.chain.from_iterable(itertools.combinations(range(3), n) for n in (1, 2, 3)):
        columns = list(chosen)
        fitted, *_ = np.linalg.lstsq(scaled[:, columns], np.ones(len(known)), rcond=None)
        error = float(((scaled[:, columns] @ fitted - 1) ** 2).sum())
        if (fitted >= 0).all() and error < least:
            best, least = np.zeros(3), error
            best[columns] = fitted
    full = [point.block for point, rate in known if rate >= NEARLY_FULL * fastest]
    errors = np.abs(scaled @ best - 1)
    return Model(
        method, float(best[0]), float(best[1]), 1 / float(best[2]) if best[2] else math.inf,
        float(np.median(errors)), min(full, default=None),
    )  # fmt: skip


def rule_of(points: Sequence[Point]) -> Constants | None:
    """The constants with the least loss against the better one of a kernel and the batch call."""
    kernels = [
        method for method in (Method.KERNEL, Method.KERNEL_BULK) if any(method in p.rates for p in points)
    ]
    both = [p for p in points if Method.BATCH in p.rates and any(kernel in p.rates for kernel in kernels)]
    if not both:
        return None
    score = {m: math.fsum(math.log(p.rates[m]) for p in both if m in p.rates) for m in kernels}
    kernel = max(kernels, key=lambda m: score[m] + (m is kernels[0]) * EQUAL_METHODS * len(both))
    both = [point for point in both if kernel in point.rates]

    def losses(below: float, least: int) -> list[float]:
        """By how much each point takes longer than with the better one."""
        chosen = [p.rates[kernel if p.block < below and p.blocks >= least else Method.BATCH] for p in both]
        return [
            max(p.rates[kernel], p.rates[Method.BATCH]) / rate - 1
            for p, rate in zip(both, chosen, strict=True)
        ]

    blocks, counts = ({*values} for values in zip(*((p.block, p.blocks) for p in both), strict=True))
    candidates = [
        (0.0, 0),
        *((below, least) for below in (*sorted(blocks), math.inf) for least in sorted(counts)),
    ]
    below, least = min(candidates, key=lambda c: math.fsum(math.log1p(loss) for loss in losses(*c)))
    usual = losses(VLLM_BLOCK, VLLM_BLOCKS)
    if below <= min(blocks):
        return Constants(kernel, 0, 0, max(losses(0.0, 0)), max(usual))
    whole = None if math.isinf(below) else int(below)
    return Constants(kernel, whole, least, max(losses(below, least)), max(usual))
