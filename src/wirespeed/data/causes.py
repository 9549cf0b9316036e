"""The causes of slow paths and of broken peer access, and the advice on errors, of ``causes.toml``."""

from __future__ import annotations

import tomllib
from enum import StrEnum
from functools import lru_cache
from importlib.resources import files
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from ..errors import UsageError
from ..hardware.cause_effects import Effect, ReportedFact
from ..hardware.topology import LinkKind
from ..peer_access import PeerMechanism, PeerVerdict
from ..terminal import brief

FILE = "causes.toml"


class Weight(StrEnum):
    """What a cause says of the machine on its own."""

    DEFECT = "defect"  #: wrong on any machine: reported even if nothing is slow
    BUSY = "busy"  #: another process uses a device: no defect, but reported, too
    NOTE = "note"  #: no defect, or not measured here, but worth knowing: reported, and changes no verdict
    CONDITION = "condition"  #: common on good machines: reported if it may explain slow cells


class OnPeers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a cause does to peer access.

    Attributes:
        breaks: Verdicts that it explains.
        mechanisms: Mechanisms that it concerns.
    """

    breaks: frozenset[PeerVerdict]
    mechanisms: frozenset[PeerMechanism] = frozenset(PeerMechanism)


class CauseFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault of a node of a simulated cluster whose facts show its cause.

    Attributes:
        name: Its name in the name of a machine.
        reports: What the node reports then, in place of what a good one does.
        factor: Factor of the rate of the rails of the node.
        speed: Name of the function of an amount that returns the factor instead; empty if there is none.
        amount: The usual amount; 0 if it has none.
        of_gpus: Whether only messages from and to GPU memory are slower.
        cause: Name of the cause.
    """

    name: str
    reports: tuple[ReportedFact, ...]
    factor: float = 1.0
    speed: str = ""
    amount: float = 0.0
    of_gpus: bool = False
    cause: str = ""


class Cause(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that makes paths slow, or breaks peer access; the comments in ``causes.toml`` describe it.

    Attributes:
        name: Short name; also the anchor in ``docs/reference/causes.md``.
        title: The state of the machine, as the subject of a report.
        weight: Whether it is a defect on its own.
        slows: Kinds of the links that it slows down.
        confirm: Command that confirms it, with the places of the device as in ``at_device``.
        marked_remedy: What to do, with backticks around code.
        text: Its section in ``docs/reference/causes.md``.
        shows: What the command shows then; empty if that is plain.
        collectives: Whether it slows only collectives down.
        only_pairs: Whether it slows only transfers between GPUs down, and collectives.
        setting: Whether the user, another process or the configuration of the host causes it, so that slow
            values are no failure of the hardware.
        between: Whether the facts of several hosts together show it.
        only_peers: Whether only attempts of peer access show it.
        sources: Where its numbers and statements are from.
        effect: What it does to a machine; None if that cannot be predicted.
        peers: What it does to peer access; None if it does nothing.
        on_nodes: Faults of simulated nodes that have it.
    """

    name: str
    title: str
    weight: Weight
    slows: frozenset[LinkKind]
    confirm: str
    marked_remedy: str = msgspec.field(name="remedy")
    text: str = ""
    shows: str = ""
    collectives: bool = False
    only_pairs: bool = False
    setting: bool = False
    between: bool = False
    only_peers: bool = False
    sources: tuple[str, ...] = ()
    effect: Effect | None = None
    peers: OnPeers | None = None
    on_nodes: tuple[CauseFault, ...] = ()

    def __post_init__(self) -> None:
        if not (self.text.strip() or self.only_peers):
            raise ValueError("it has no text, which is its section of the documentation")

    def __repr__(self) -> str:
        return brief(f"Cause {self.name}: {self.title}")

    @property
    def remedy(self) -> str:
        """What to do."""
        return self.marked_remedy.replace("`", "")


class ErrorAdvice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to do about an error.

    Attributes:
        pattern: Regular expression on what CUDA, NCCL, MPI, Slurm and shells say.
        remedy: What to do.
        confirm: A command that helps; empty if there is none.
    """

    pattern: str
    remedy: str
    confirm: str = ""


T = TypeVar("T", Cause, ErrorAdvice)


def parse(text: str) -> tuple[tuple[Cause, ...], tuple[ErrorAdvice, ...]]:
    """The causes and the advice of a file.

    Raises:
        UsageError: If it or an entry is wrong; the message names the entry.
    """
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{FILE} is not valid TOML: {error}") from error
    if others := content.keys() - {"cause", "error"}:
        raise UsageError(f"{FILE}: unknown table {min(others)!r}; write [[cause]] or [[error]]")
    causes = _converted(content.get("cause", []), "cause", "name", Cause)
    names = [cause.name for cause in causes]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"{FILE}: the cause {twice[0]!r} is there twice; give each its own name")
    return causes, _converted(content.get("error", []), "error", "pattern", ErrorAdvice)


def _converted(entries: list[dict[str, object]], what: str, key: str, kind: type[T]) -> tuple[T, ...]:
    """The records of the entries of a kind."""
    if not (isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)):
        raise UsageError(f"{FILE}: {what} is no array of tables; write [[{what}]]")
    records = []
    for number, entry in enumerate(entries, 1):
        try:
            records.append(msgspec.convert(entry, kind))
        except msgspec.ValidationError as error:
            raise UsageError(f"{FILE}: {what} {entry.get(key, number)!r}: {error}") from error
    return tuple(records)


@lru_cache(maxsize=1)
def _file() -> tuple[tuple[Cause, ...], tuple[ErrorAdvice, ...]]:
    return parse(files(__package__).joinpath(FILE).read_text())


def causes() -> tuple[Cause, ...]:
    """All causes, in their order: of equally likely ones, the first is named first."""
    return _file()[0]


def advice_on_errors() -> tuple[ErrorAdvice, ...]:
    """What to do about errors; the first that fits counts."""
    return _file()[1]


#: All effects, with the names of their causes.
EFFECTS = {each.name: replace(each.effect, name=each.name) for each in causes() if each.effect}
#: Faults of simulated nodes that have a cause, by their names.
NODE_FAULTS = {fault.name: replace(fault, cause=each.name) for each in causes() for fault in each.on_nodes}
