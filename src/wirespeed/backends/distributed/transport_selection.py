"""Selection of the transport of each pair of ranks, shared memory or messages: the best one that works."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import BackendError, BackendLost, Unreachable, WirespeedError
from ...hardware.devices import GPU, kind_of
from ...model import Transfer
from .exchange import Exchange
from .job_process import MPI, NCCL, TWO_SIDED, Endpoint

#: Transports by shared memory that reach another host.
FAR = ("fabric",)


class TransportSelector:
    """Transports with their failures so far; the same in all processes.

    Attributes:
        exchange: Exchanges with the other processes.
        side: Hardware of this process.
        share: The only transport to use; None: the best one that works for each pair.
        warn: Report a transport that does not work.
    """

    def __init__(
        self, exchange: Exchange, side: Endpoint, share: str | None, warn: Callable[[str], None]
    ) -> None:
        self._exchange, self._side, self._share, self._warn = exchange, side, share, warn
        self._hosts = [member.host for member in exchange.world.members]
        self._failed: dict[tuple[int | None, int | None, str], str] = {}
        self._messages: dict[str, str] = {}

    def of(self, transfer: Transfer) -> str:
        """The best transport for a transfer that has not failed.

        Raises:
            Unreachable: If none is left; the message contains the reason for each.
            BackendError: The same, if the user selected the transport.
        """
        source, destination = transfer.source.rank, transfer.destination.rank
        assert source is not None and destination is not None
        if source == destination:
            return self._side.plain
        near = self._hosts[source] == self._hosts[destination]
        reasons = []
        for means in self._candidates(transfer):
            if means in TWO_SIDED:
                reason = self._can_send(means)
            elif means not in self._side.mechanisms:
                reason = "this hardware does not support it"
            elif not near and means not in FAR:
                reason = "it does not reach another host"
            else:
                reason = self._failed.get((source, destination, means), "")
            if not reason:
                return means
            reasons.append(f"{means}: {reason}")
        where = "within a host" if near else "with another host"
        text = f"memory cannot be shared {where}: {'; '.join(reasons)}"
        raise Unreachable(text) if self._share is None else BackendError(text)

    def fails(self, transfer: Transfer, means: str, reason: str) -> None:
        """Record that a transport does not work between the ranks of a transfer, in its direction."""
        source, destination = transfer.source.rank, transfer.destination.rank
        self._failed[source, destination, means] = reason
        if self._share is None:
            self._warn(
                f"{means} does not work between ranks {source} and {destination}; trying the next transport: "
                f"{reason}"
            )

    def _candidates(self, transfer: Transfer) -> tuple[str, ...]:
        if self._share is not None:
            return (self._share,)
        gpu = kind_of(transfer.executor.device) is GPU
        return (*self._side.mechanisms, *((NCCL, MPI) if gpu else (MPI,)))

    def _can_send(self, means: str) -> str:
        """Why a transport cannot send messages; empty if it can. All processes ask together, once."""
        if means not in self._messages:
            self._messages[means] = self._connect(means)
        return self._messages[means]

    def _connect(self, means: str) -> str:
        answers = self._exchange.together(lambda: self._side.can_send(means), f"asking for {means}")
        if reason := self._exchange.first(reason for reason, _ in answers):
            return reason
        told = [token for _, token in answers]
        try:
            self._exchange.together(lambda: self._side.connect(means, told), f"connecting {means}")
        except BackendLost:
            raise
        except WirespeedError as error:
            return str(error)
        return ""
