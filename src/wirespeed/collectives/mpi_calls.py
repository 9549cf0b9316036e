"""The calls of MPI that make an operation, by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .base import Case
from .operations import unequal

Step = Callable[[], object]


@dataclass(frozen=True)
class MpiSite:
    """Where a rank's calls go.

    Parameters
    ----------
    in_place
        What MPI is given for a buffer that is the other one, too.
    send, receive
        The arrays; in place, both are views of one buffer.
    operator
        MPI's; None where the operation has none.
    """

    comm: Any
    in_place: Any
    rank: int
    send: Any
    receive: Any
    operator: Any = None


def _all_reduce(case: Case, site: MpiSite) -> Step:
    return partial(site.comm.Allreduce, _source(case, site), site.receive, site.operator)


def _all_gather(case: Case, site: MpiSite) -> Step:
    return partial(site.comm.Allgather, _source(case, site), site.receive)


def _alltoall(case: Case, site: MpiSite) -> Step:
    return partial(site.comm.Alltoall, _source(case, site), site.receive)


def _source(case: Case, site: MpiSite) -> Any:
    return site.in_place if case.in_place else site.send


def _reduce_scatter(case: Case, site: MpiSite) -> Step:
    send, receive, each = site.send, site.receive, case.counts.each
    if not case.in_place:
        return partial(site.comm.Reduce_scatter_block, send, receive, site.operator)

    # MPI leaves the result at the beginning, NCCL at the rank's own part.
    def reduce() -> None:
        site.comm.Reduce_scatter_block(site.in_place, send, site.operator)
        np.copyto(receive, send[:each])

    return reduce


def _alltoallv(case: Case, site: MpiSite) -> Step:
    sends, receives = unequal(case.counts, case.width, site.rank, case.ranks)
    source = np.empty_like(site.send) if case.in_place else site.send  # in place, MPI wants equal parts
    exchange = partial(site.comm.Alltoallv, [source, sends], [site.receive, receives])
    return _after_copy(source, site.send, exchange) if case.in_place else exchange


def _broadcast(case: Case, site: MpiSite) -> Step:
    root = case.setting.root
    spread = partial(site.comm.Bcast, site.receive, root)
    if case.in_place or site.rank != root:
        return spread
    return _after_copy(site.receive, site.send, spread)


def _reduce(case: Case, site: MpiSite) -> Step:
    reduce, operator, root = site.comm.Reduce, site.operator, case.setting.root
    here = site.rank == root
    if not case.in_place:
        return partial(reduce, site.send, site.receive if here else None, operator, root)
    if here:
        return partial(reduce, site.in_place, site.receive, operator, root)
    return partial(reduce, site.receive, None, operator, root)


def _gather(case: Case, site: MpiSite) -> Step:
    root = case.setting.root
    here = site.rank == root
    source = site.in_place if here and case.in_place else site.send
    return partial(site.comm.Gather, source, site.receive if here else None, root)


def _scatter(case: Case, site: MpiSite) -> Step:
    root = case.setting.root
    here = site.rank == root
    destination = site.in_place if here and case.in_place else site.receive
    return partial(site.comm.Scatter, site.send if here else None, destination, root)


def _sendrecv(case: Case, site: MpiSite) -> Step:
    after, before = (site.rank + 1) % case.ranks, (site.rank - 1) % case.ranks
    if case.in_place:
        return partial(site.comm.Sendrecv_replace, site.receive, after, 0, before, 0)
    return partial(site.comm.Sendrecv, site.send, after, 0, site.receive, before, 0)


def _hypercube(case: Case, site: MpiSite) -> Step:
    """An all-gather in steps, each with the rank whose number differs in one bit."""
    here, comm, send, receive, each = site.rank, site.comm, site.send, site.receive, case.counts.each
    in_place = case.in_place
    exchanges = []
    for bit in range(case.ranks.bit_length() - 1):
        mask = 1 << bit
        mine = here & ~(mask - 1)
        theirs = mine ^ mask
        exchanges.append((
            receive[mine * each : (mine + mask) * each], receive[theirs * each : (theirs + mask) * each],
            here ^ mask,
        ))  # fmt: skip

    def run() -> None:
        if not in_place:
            np.copyto(receive[here * each : (here + 1) * each], send)
        for give, take, peer in exchanges:
            comm.Sendrecv(give, peer, 0, take, peer, 0)

    return run


def _after_copy(destination: Any, source: Any, step: Step) -> Step:
    """Return an operation that first moves a rank's own data to where MPI takes it from."""

    def run() -> None:
        np.copyto(destination, source)
        step()

    return run


#: Operation -> what makes a call that runs it once.
STEPS: dict[str, Callable[[Case, MpiSite], Step]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "alltoall": _alltoall,
    "alltoallv": _alltoallv,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "gather": _gather,
    "scatter": _scatter,
    "sendrecv": _sendrecv,
    "hypercube": _hypercube,
}
