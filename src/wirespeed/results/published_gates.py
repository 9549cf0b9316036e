"""Published gates: thresholds below which operators take a node out of service, from TOML files."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from datetime import date
from fnmatch import filter as matching
from importlib.resources import files
from typing import Annotated, Literal, get_args

import msgspec

from ..errors import UsageError
from ..files import LARGEST_WRITTEN, read
from ..spelling import unknown_name
from ..terminal import neutral
from ..testcases import TABLE
from ..topology import LinkKind
from ..units import parse_rate, parse_size


class PublishedGate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One threshold. It applies to machines that match all given fields.

    Attributes:
        measures: What it measures, for people.
        at_least: The lowest rate that passes, with its unit.
        source: Repository and file.
        testcases: Testcases that measure the same, with the wildcards ``*`` and ``?``.
        models: Models of GPUs, with the wildcards ``*`` and ``?``; empty for any machine.
        gpus: Number of GPUs per node; 0 for any.
        nodes: Number of nodes.
        size: Lowest size at which a lower rate is a failure. The default is that of expected ranges.
        link: Kind of the links that limit the rate; a path without such a link does not make the gate
            impossible.
        network: Rate of the network of a node in each direction, if known.
        needs: What no testcase measures; empty if one does.
    """

    measures: str
    at_least: str
    source: str
    testcases: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    gpus: Annotated[int, msgspec.Meta(ge=0)] = 0
    nodes: Annotated[int, msgspec.Meta(ge=1)] = 1
    size: str = "256MiB"
    link: LinkKind | None = None
    network: str = ""
    needs: str = ""


class _GateFile(msgspec.Struct, forbid_unknown_fields=True):
    read: date
    gate: tuple[PublishedGate, ...]


@dataclass(frozen=True)
class GateSet:
    """The gates of one operator or file.

    Attributes:
        name: Name of the set, or the path of the file.
        read: When the source was read.
        gates: The gates.
    """

    name: str
    read: date
    gates: tuple[PublishedGate, ...]


#: The sets that wirespeed contains; the file of each has its name.
GateSetName = Literal["aws", "azure", "dcgm", "gcp", "oci"]
_SETS = files("wirespeed.data").joinpath("gates")


def known() -> tuple[GateSetName, ...]:
    """Names of the sets that wirespeed contains."""
    names: tuple[GateSetName, ...] = get_args(GateSetName)
    return names


def load(name: str) -> GateSet:
    """Load a set of gates.

    Args:
        name: Name of a known set, or path of a TOML file.

    Returns:
        The gates.

    Raises:
        UsageError: If there is no such set or file, or an entry is invalid.
    """
    try:
        shipped = name in known()
        text = _SETS.joinpath(f"{name}.toml").read_bytes() if shipped else read(name, LARGEST_WRITTEN)
        content = neutral(tomllib.loads(text.decode()))
        if wrong := unknown_name(content, _GateFile):
            raise ValueError(str(wrong))
        parsed = msgspec.convert(content, _GateFile)
    except OSError as error:
        sets = ", ".join(known())
        raise UsageError(
            f"cannot read the thresholds {name!r}: {error.strerror}; known sets: {sets}"
        ) from error
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        sets = ", ".join(known())
        raise UsageError(f"{name} is not a valid file of thresholds: {error}; known sets: {sets}") from error
    for gate in parsed.gate:
        try:
            _check(gate)
        except UsageError as error:
            raise UsageError(f"{name}: the threshold {gate.measures!r}: {error}") from error
    return GateSet(name, parsed.read, parsed.gate)


def _check(gate: PublishedGate) -> None:
    """Refuse a gate with a value that cannot be used, or that would never be compared."""
    for rate in filter(None, (gate.at_least, gate.network)):
        parse_rate(rate)
    if not gate.at_least or not gate.source.strip():
        raise UsageError("it has no threshold or no source; add at_least and source")
    parse_size(gate.size)
    if not gate.testcases and not gate.needs:
        raise UsageError("it names no testcases; add testcases, or needs if none measures the same")
    for pattern in gate.testcases:
        if not matching([case.name for case in TABLE], pattern):
            raise UsageError(f"there is no testcase {pattern!r}; see `wirespeed list`")
