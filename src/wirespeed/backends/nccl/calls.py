"""The calls of NCCL for each collective, as data: names of C functions with their arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..gpu.gpu_driver import NativeCalls
from ..native import Call
from ..provider import Case

#: Whether the calls are those of NCCL, which run as one group, and the calls in their order.
Part = tuple[bool, list[Call]]

_NO_OPERATOR = -1
_SEND, _RECEIVE = "ncclSend", "ncclRecv"


@dataclass(frozen=True)
class Site:
    """Handles and buffers that the calls of a rank use.

    Attributes:
        driver: Calls of the driver.
        rank: Rank in the communicator.
        comm, stream: Communicator and stream.
        context: Context of the GPU; stream 0 is the default stream of the current context.
        send, receive: Addresses of the buffers.
        operator: Value of ncclRedOp_t; -1 if the operation has none.
        make: Function that returns the calls; None for the functions of NCCL.
    """

    driver: NativeCalls
    rank: int
    comm: int
    stream: int
    context: int
    send: int
    receive: int
    operator: int = _NO_OPERATOR
    make: Make | None = None


def addresses(case: Case, site: Site, shift: int) -> tuple[int, int]:
    """The addresses of the send and receive buffers of an operation; ``shift`` in bytes."""
    if not case.in_place:
        return site.send + shift, site.receive + shift
    base = site.receive + shift
    at = site.rank * case.width
    return base + case.counts.send_at * at, base + case.counts.receive_at * at


def calls(case: Case, sites: Sequence[Site], shift: int) -> list[Call]:
    """The calls with which the ranks of one thread run an operation once; ``shift`` in bytes."""
    parts: list[Part] = []
    for site in sites:
        send, receive = addresses(case, site, shift)
        make = site.make or CALLS[case.setting.operation.name]
        for i, part in enumerate(make(case, site, send, receive)):
            if i == len(parts):
                parts.append((part[0], []))
            parts[i][1].extend(part[1])
    program: list[Call] = []
    for is_nccl, members in parts:
        program += grouped(members) if is_nccl else members
    return program


def in_context(site: Site, call: Call) -> list[Call]:
    """A call of the driver on the stream of a rank.

    The driver uses the GPU of the current context; NCCL uses that of the communicator.
    """
    return [site.driver.use(site.context), call]


def grouped(members: list[Call]) -> list[Call]:
    """The calls as one group of NCCL."""
    return members if len(members) == 1 else [("ncclGroupStart", ()), *members, ("ncclGroupEnd", ())]


#: Returns the calls of a rank for an operation, from the addresses of its send and receive buffers.
Make = Callable[[Case, Site, int, int], list[Part]]


def _function(name: str, *, reduces: bool = False, rooted: bool = False) -> Make:
    """The maker of an operation that is one function of NCCL."""

    def make(case: Case, site: Site, send: int, receive: int) -> list[Part]:
        setting = case.setting
        operator = (site.operator,) if reduces else ()
        root = (setting.root,) if rooted else ()
        arguments = (send, receive, case.counts.each, setting.type.code, *operator, *root)
        return [(True, [(name, (*arguments, site.comm, site.stream))])]

    return make


def _ring(case: Case, site: Site, send: int, receive: int) -> list[Part]:
    kind, count, where = case.setting.type.code, case.counts.each, (site.comm, site.stream)
    after, before = (site.rank + 1) % case.ranks, (site.rank - 1) % case.ranks
    return [(True, [
        (_SEND, (send, count, kind, after, *where)),
        (_RECEIVE, (receive, count, kind, before, *where)),
    ])]  # fmt: skip


def _unequal(case: Case, site: Site, send: int, receive: int) -> list[Part]:
    parts = case.setting.operation.parts
    assert parts is not None
    kind, width, where = case.setting.type.code, case.width, (site.comm, site.stream)
    exchanges: list[Call] = []
    for peer, (out, back) in enumerate(zip(*parts(case.counts, width, site.rank, case.ranks), strict=True)):
        if out:
            exchanges.append((_SEND, (send, out, kind, peer, *where)))
        if back:
            exchanges.append((_RECEIVE, (receive, back, kind, peer, *where)))
        send += out * width
        receive += back * width
    return [(True, exchanges)]


def _exchange(
    case: Case, site: Site, sends: Sequence[tuple[int, int]], receives: Sequence[tuple[int, int]]
) -> list[Part]:
    """Sends and receives of equal parts; each of a rank and an address."""
    kind, count, where = case.setting.type.code, case.counts.each, (site.comm, site.stream)
    return [(True, [
        *((_SEND, (address, count, kind, peer, *where)) for peer, address in sends),
        *((_RECEIVE, (address, count, kind, peer, *where)) for peer, address in receives),
    ])]  # fmt: skip


def _parts(case: Case, at: int) -> list[tuple[int, int]]:
    """Each rank and the address of its part of a buffer at ``at``."""
    return [(rank, at + rank * case.counts.each * case.width) for rank in range(case.ranks)]


def _alltoall(case: Case, site: Site, send: int, receive: int) -> list[Part]:
    return _exchange(case, site, _parts(case, send), _parts(case, receive))


def _gather(case: Case, site: Site, send: int, receive: int) -> list[Part]:
    root = case.setting.root
    receives = _parts(case, receive) if site.rank == root else []
    return _exchange(case, site, [(root, send)], receives)


def _scatter(case: Case, site: Site, send: int, receive: int) -> list[Part]:
    root = case.setting.root
    sends = _parts(case, send) if site.rank == root else []
    return _exchange(case, site, sends, [(root, receive)])


def _hypercube(case: Case, site: Site, send: int, receive: int) -> list[Part]:
    """An all-gather in log2(n) steps, each with the rank whose number differs in one bit."""
    kind, part, where = case.setting.type.code, case.counts.each * case.width, (site.comm, site.stream)
    own = receive + site.rank * part
    parts: list[Part] = []
    if part and own != send:
        parts.append((False, in_context(site, site.driver.copy(own, send, part, site.stream))))
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


#: Operation -> function that returns the calls of one execution.
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
#: The same without functions that NCCL has since 2.28.
WITHOUT_2_28: dict[str, Make] = {"alltoall": _alltoall, "gather": _gather, "scatter": _scatter}
