"""Pairs of GPUs whose copies are slow, by other ways of the same machine."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...peer_access import Attempt, Pair, PeerAccess, PeerMechanism, PeerVerdict
from ...thresholds.causes import ENOUGH_PAIRS, PEER_OF_HOST, PEER_OF_LINE, PEER_OF_MIRROR, PEER_OF_PEERS
from ...units import GB


def with_slow(access: PeerAccess, joined: Mapping[Pair, object], line: Mapping[Pair, float]) -> PeerAccess:
    """The attempts with copies judged by other ways of the same machine: works or slow.

    Args:
        access: The attempts.
        joined: Pair -> how it is joined; only pairs that are joined alike are compared with each other.
        line: Pair -> line rate of its links, in B/s, where only these limit it.
    """
    rates = {a.pair: a.rate for a in access.attempts if a.mechanism is PeerMechanism.COPY and a.rate}

    def judged(attempt: Attempt) -> Attempt:
        rate, pair = rates.get(attempt.pair), attempt.pair
        if (
            rate is None
            or attempt.mechanism is not PeerMechanism.COPY
            or attempt.verdict is not PeerVerdict.WORKS
        ):
            return attempt
        ways = [access.through_host.get(gpu) for gpu in pair]
        host = min(filter(None, ways)) if all(ways) else 0.0
        alike = sorted(other for p, other in rates.items() if joined.get(p) == joined.get(pair))
        median = alike[len(alike) // 2] if len(alike) >= ENOUGH_PAIRS else 0.0
        for least, whole, what in (
            (PEER_OF_HOST, host, "through the host"),
            (PEER_OF_MIRROR, rates.get((pair[1], pair[0]), 0.0), "in the other direction"),
            (PEER_OF_PEERS, median, "is the median of pairs joined alike"),
            (PEER_OF_LINE, line.get(pair, 0.0), "is the line rate"),
        ):
            if rate < least * whole:
                detail = f"{rate / GB:.1f} GB/s; {whole / GB:.1f} {what}"
                return replace(attempt, verdict=PeerVerdict.SLOW, detail=detail)
        return attempt

    return replace(access, attempts=tuple(map(judged, access.attempts)))
