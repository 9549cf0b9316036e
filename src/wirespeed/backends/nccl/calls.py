"""The calls of NCCL that make an operation, as data: names of C functions with their arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...testcases.collective_ops import unequal
from ..native import Call
from ..provider import Case

#: Calls that NCCL must see as one, and those that are not its own, in their order.
Part = tuple[bool, list[Call]]

_NONE = -1
_SEND, _RECEIVE, _COPY = "ncclSend", "ncclRecv", "cuMemcpyDtoDAsync_v2"


@dataclass(frozen=True)
class Site:
    """Where a rank's calls go.

    Parameters
    ----------
    send, receive
        Addresses of its buffers.
    context
        The GPU's context: stream 0 is the null stream of the context that is current.
    operator
        NCCL's number of it.
    """

    rank: int
    comm: int
    stream: int
    context: int
    send: int
    receive: int
    operator: int = _NONE


def addresses(case: Case, site: Site, shift: int) -> tuple[int, int]:
    """Return the addresses that a rank sends from and receives at, in bytes."""
    if not case.in_place:
        return site.send + shift, site.receive + shift
    base = site.receive + shift
    at = site.rank * case.width
    return base + case.counts.send_at * at, base + case.counts.receive_at * at


def calls(case: Case, sites: Sequence[Site], shift: int) -> list[Call]:
    """Return the calls by which the ranks of one thread run an operation once."""
    parts: list[Part] = []
    for site in sites:
        send, receive = addresses(case, site, shift)
        for i, part in enumerate(CALLS[case.setting.operation.name](case, site, send, receive)):
            if i == len(parts):
                parts.append((part[0], []))
            parts[i][1].extend(part[1])
    made: list[Call] = []
    for is_nccl, some in parts:
        made += grouped(some) if is_nccl else some
    return made


def in_context(site: Site, name: str, *arguments: int) -> list[Call]:
    """Return a call of the driver that acts on a rank's stream.

    NCCL finds the GPU by the communicator, the driver by the current context.
    """
    return [("cuCtxSetCurrent", (site.context,)), (name, arguments)]


def grouped(made: list[Call]) -> list[Call]:
    """Return calls such that NCCL sees them as one."""
    return made if len(made) == 1 else [("ncclGroupStart", ()), *made, ("ncclGroupEnd", ())]


#: Makes a rank's calls of an operation, from the addresses that it sends from and receives at.
Make = Callable[[Case, Site, int, int], list[Part]]


def _function(name: str, *, reduces: bool = False, rooted: bool = False) -> Make:
    """Return what makes an operation of one function of NCCL."""

    def make(case: Case, site: Site, send: int, receive: int) -> list[Part]:
        setting = case.setting
        operator = (site.operator,) if reduces else ()
        root = (setting.root,) if rooted else ()
        arguments = (send, receive, case.counts.each, setting.type.code, *operator, *root)
        return [(True, [(name, (*arguments, site.comm, site.stream))])]

    return make


def _ring(case: Case, site: Site, send: int, receive: int) -> list[Part]:
    kind, each, where = case.setting.type.code, case.counts.each, (site.comm, site.stream)
    after, before = (site.rank + 1) % case.ranks, (site.rank - 1) % case.ranks
    return [(True, [
        (_SEND, (send, each, kind, after, *where)),
        (_RECEIVE, (receive, each, kind, before, *where)),
    ])]  # fmt: skip


def _unequal(case: Case, site: Site, send: int, receive: int) -> list[Part]:
    kind, width, where = case.setting.type.code, case.width, (site.comm, site.stream)
    made: list[Call] = []
    for peer, (out, back) in enumerate(zip(*unequal(case.counts, width, site.rank, case.ranks), strict=True)):
        if out:
            made.append((_SEND, (send, out, kind, peer, *where)))
        if back:
            made.append((_RECEIVE, (receive, back, kind, peer, *where)))
        send += out * width
        receive += back * width
    return [(True, made)]


def _hypercube(case: Case, site: Site, send: int, receive: int) -> list[Part]:
    """An all-gather in steps, each with the rank whose number differs in one bit."""
    kind, part, where = case.setting.type.code, case.counts.each * case.width, (site.comm, site.stream)
    own = receive + site.rank * part
    parts: list[Part] = []
    if part and own != send:
        parts.append((False, in_context(site, _COPY, own, send, part, site.stream)))
    for bit in range(case.ranks.bit_length() - 1):
        mask = 1 << bit
        mine = site.rank & ~(mask - 1)
        count = case.counts.each * mask
        peer = site.rank ^ mask
        parts.append((True, [
            (_SEND, (receive + mine * part, count, kind, peer, *where)),
            (_RECEIVE, (receive + (mine ^ mask) * part, count, kind, peer, *where)),
        ]))  # fmt: skip
    return parts


#: Operation -> what makes its calls.
CALLS: dict[str, Make] = {
    "all_reduce": _function("ncclAllReduce", reduces=True),
    "all_gather": _function("ncclAllGather"),
    "reduce_scatter": _function("ncclReduceScatter", reduces=True),
    "alltoall": _function("ncclAlltoAll"),
    "alltoallv": _unequal,
    "broadcast": _function("ncclBroadcast", rooted=True),
    "reduce": _function("ncclReduce", reduces=True, rooted=True),
    "gather": _function("ncclGather", rooted=True),
    "scatter": _function("ncclScatter", rooted=True),
    "sendrecv": _ring,
    "hypercube": _hypercube,
}
