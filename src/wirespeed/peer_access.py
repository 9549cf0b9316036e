"""Peer access as it was tried: whether data that one GPU writes to another's memory arrives there. A pair is
directed: the first GPU accesses the memory of the second. A driver *offers* peer access from what it knows of
models and chipsets; whether a posted write arrives, only an attempt shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum

import msgspec

from .tables import Amount, Whole
from .terminal import brief
from .units import many

#: The testcase whose values attempts give.
PEER_ACCESS = "peer_access"
#: Time after which a kernel that waits for a flag gives up, in s.
FLAG_S = 0.35
#: Maximum number of GPUs whose memory a GPU can access at once without NVSwitch, in all processes together
#: (CUDA C++ programming guide, "Peer-to-Peer Memory Access").
MOST_PEERS = 8
#: An accessing GPU, and the one whose memory it accesses.
Pair = tuple[str, str]


class PeerMechanism(StrEnum):
    """How a GPU accesses the memory of another."""

    COPY = "copy"  #: its copy engine writes
    STORE = "store"  #: a kernel writes
    LOAD = "load"  #: a kernel reads
    BOTH = "both"  #: both GPUs write to each other at once
    FLAG = "flag"  #: a kernel sets a flag that a kernel of the other GPU waits for, and answers
    ORDER = "order"  #: a kernel writes data, then a flag; who sees the flag must see the data
    ATOMICS = "atomics"  #: both GPUs add to one counter
    IPC = "ipc"  #: a kernel writes to memory of another process (CUDA IPC)
    DESCRIPTOR = "descriptor"  #: the same, shared by a descriptor
    NCCL = "nccl"  #: NCCL sends between two processes

    @property
    def about(self) -> str:
        """Its name in texts."""
        return _ABOUT[self]


#: Mechanism -> its name in texts.
_ABOUT = {
    PeerMechanism.COPY: "copy engine", PeerMechanism.STORE: "kernel stores",
    PeerMechanism.LOAD: "kernel loads", PeerMechanism.BOTH: "both directions at once",
    PeerMechanism.FLAG: "flag and answer", PeerMechanism.ORDER: "data before its flag",
    PeerMechanism.ATOMICS: "atomics", PeerMechanism.IPC: "between processes (CUDA IPC)",
    PeerMechanism.DESCRIPTOR: "between processes (descriptor)", PeerMechanism.NCCL: "NCCL",
}  # fmt: skip
#: Maximum number of GPUs among which the largest group that works is searched.
_MOST_SEARCHED = 24
#: The mechanisms of a complete attempt, in order; NCCL is tried on request. And those of the short form: all
#: but copies, which testcases verify and time.
ALL = tuple(mechanism for mechanism in PeerMechanism if mechanism is not PeerMechanism.NCCL)
SHORT = tuple(mechanism for mechanism in ALL if mechanism is not PeerMechanism.COPY)


class PeerVerdict(StrEnum):
    """What an attempt showed; the worst first."""

    HANGS = "hangs"
    FAILS = "fails"  #: a call of the driver or a library reported an error
    WRONG = "wrong data"
    SLOW = "slow"
    WORKS = "works"
    NOT_TRIED = "not tried"
    NOT_OFFERED = "not offered"

    @property
    def letter(self) -> str:
        """One character, for a matrix."""
        return _LETTERS[self]

    @property
    def is_broken(self) -> bool:
        """Whether a program that uses the pair hangs or computes wrong values."""
        return self in (PeerVerdict.HANGS, PeerVerdict.FAILS, PeerVerdict.WRONG)


_WORST = list(PeerVerdict)
_LETTERS = dict(zip(_WORST, "HEXs+?-", strict=True))


def worst(verdicts: Iterable[PeerVerdict]) -> PeerVerdict:
    """The worst of several verdicts; not tried if there are none."""
    return min(verdicts, key=_WORST.index, default=PeerVerdict.NOT_TRIED)


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one mechanism did for one pair.

    Attributes:
        source: The GPU that accesses.
        destination: The GPU whose memory it accesses.
        mechanism: How.
        verdict: What it showed.
        detail: What was found, as a phrase.
        stage: What did not end; empty if everything did.
        by: Who does not offer it: the driver, NVML, the container; empty if it is offered.
        rate: Rate of the copy engine, in B/s; None if it was not measured.
        latency: Time from a store to the answer of the other GPU and back, in s; None if unknown.
        words, wrong: Number of words of 8 bytes that were verified, and of those that were wrong.
        stale: Number of wrong words that were what the memory contained before.
        late: Whether the words were right some time later.
    """

    source: str
    destination: str
    mechanism: PeerMechanism
    verdict: PeerVerdict
    detail: str = ""
    stage: str = ""
    by: str = ""
    rate: Amount | None = None
    latency: Amount | None = None
    words: Whole = 0
    wrong: Whole = 0
    stale: Whole = 0
    late: bool = False

    @property
    def pair(self) -> Pair:
        return self.source, self.destination


class PeerAccess(msgspec.Struct, frozen=True, omit_defaults=True):
    """All attempts on a machine.

    Attributes:
        attempts: The attempts, by pair and mechanism.
        through_host: GPU -> the slower of its copies to and from the host, in B/s.
        unusable: GPU -> why it could not be used after an attempt that hung.
        seconds: Duration in s.
        short: Whether copies were left out.
    """

    attempts: tuple[Attempt, ...]
    through_host: dict[str, Amount] = {}
    unusable: dict[str, str] = {}
    seconds: Amount = 0
    short: bool = False

    def __repr__(self) -> str:
        return brief(f"PeerAccess of {many(len(self.gpus), 'GPU')}: {self.counted or 'no pair'}")

    @property
    def counted(self) -> str:
        """How many pairs have each verdict, the worst first: ``works 6, not offered 6``."""
        counts = Counter(self.verdicts.values())
        return ", ".join(f"{verdict} {counts[verdict]}" for verdict in PeerVerdict if counts[verdict])

    @property
    def pairs(self) -> dict[Pair, tuple[Attempt, ...]]:
        """The attempts of each pair."""
        pairs: dict[Pair, list[Attempt]] = {}
        for attempt in self.attempts:
            pairs.setdefault(attempt.pair, []).append(attempt)
        return {pair: tuple(attempts) for pair, attempts in pairs.items()}

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs, in order."""
        return tuple(dict.fromkeys(end for attempt in self.attempts for end in attempt.pair))

    @property
    def verdicts(self) -> dict[Pair, PeerVerdict]:
        """The worst verdict of each pair."""
        return {pair: worst(a.verdict for a in attempts) for pair, attempts in self.pairs.items()}

    @property
    def verdict(self) -> PeerVerdict:
        """The worst verdict of all pairs."""
        return worst(self.verdicts.values())

    def deciding(self, pair: Pair) -> Attempt | None:
        """The first attempt of a pair with its worst verdict; None without attempts."""
        verdict = self.verdicts.get(pair)
        return next((a for a in self.pairs.get(pair, ()) if a.verdict is verdict), None)

    def bad(self) -> dict[Pair, PeerVerdict]:
        """The pairs that are offered and broken or slow, the worst first."""
        found = {pair: verdict for pair, verdict in self.verdicts.items() if verdict in _WORST[:4]}
        return dict(sorted(found.items(), key=lambda item: _WORST.index(item[1])))

    @property
    def hanging(self) -> frozenset[Pair]:
        """The pairs of usable GPUs that hang, and so would every copy between them."""
        return frozenset(
            pair
            for pair, verdict in self.verdicts.items()
            if verdict is PeerVerdict.HANGS and self.unusable.keys().isdisjoint(pair)
        )

    @property
    def left_out(self) -> str:
        """What a run does not measure after these attempts, and why; empty if it measures everything."""
        parts = [f"{', '.join(self.unusable)} (unusable)"] if self.unusable else []
        if hanging := self.hanging:
            parts.append(f"{worded(hanging, self.gpus)} (peer access hangs)")
        return f"not measured: {'; '.join(parts)}" if parts else ""

    def working_group(self) -> tuple[str, ...]:
        """The largest group of GPUs that work among each other, the first of equals; empty below two.

        Of very many GPUs, a large group, because finding the largest takes too long.
        """
        verdicts, gpus = self.verdicts, self.gpus

        def works(a: str, b: str) -> bool:
            return all(verdicts.get(p) is PeerVerdict.WORKS for p in ((a, b), (b, a)))

        best: tuple[str, ...] = ()

        def extend(group: tuple[str, ...], rest: Sequence[str]) -> None:
            nonlocal best
            if len(group) > len(best):
                best = group
            for i, gpu in enumerate(rest if len(gpus) <= _MOST_SEARCHED else rest[:1]):
                if len(group) + len(rest) - i <= len(best):
                    return
                extend((*group, gpu), [other for other in rest[i + 1 :] if works(gpu, other)])

        extend((), [gpu for gpu in gpus if gpu not in self.unusable])
        return best if len(best) > 1 else ()


def worded(pairs: Collection[Pair], gpus: Sequence[str]) -> str:
    """Pairs as text: ``all pairs``, ``gpu0 -> gpu1``, ``gpu0 <-> gpu1``, ``gpu0 with all others``."""
    left = set(pairs)
    every = {(a, b) for a in gpus for b in gpus if a != b}
    if left >= every and len(gpus) > 2:
        return "all pairs"
    texts: list[str] = []
    for gpu in gpus:
        of_gpu = {pair for pair in every if gpu in pair}
        if len(gpus) > 2 and of_gpu and left >= of_gpu:
            texts.append(f"{gpu} with all others")
            left -= of_gpu
    for pair in sorted(left, key=lambda pair: tuple(map(list(gpus).index, pair))):
        if pair in left:
            a, b = pair
            both = (b, a) in left
            texts.append(f"{a} <-> {b}" if both else f"{a} -> {b}")
            left -= {pair, (b, a)}
    return ", ".join(texts[:4]) + (f" and {many(len(texts) - 4, 'more pair')}" if len(texts) > 4 else "")


def rounds(gpus: Sequence[str]) -> list[list[Pair]]:
    """Unordered pairs in rounds, so that each GPU is in at most one pair of a round (a round-robin)."""
    ring: list[str | None] = [*gpus, *([None] if len(gpus) % 2 else [])]
    result = []
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        ends = zip(ring[:half], reversed(ring[half:]), strict=True)
        result.append([(a, b) if gpus.index(a) < gpus.index(b) else (b, a) for a, b in ends if a and b])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return [pairs for pairs in result if pairs]
