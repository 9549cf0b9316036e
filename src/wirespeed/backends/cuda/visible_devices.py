"""The GPUs that ``CUDA_VISIBLE_DEVICES`` selects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def visible(handles: Sequence[Any], uuids: Sequence[str], environment: Mapping[str, str]) -> list[Any]:
    """The devices that ``CUDA_VISIBLE_DEVICES`` selects, in its order.

    Entries are numbers or prefixes of UUIDs; the list ends at the first entry without a match.
    """
    return [handles[i] for i in _chosen(uuids, environment)[0]]


def unmatched(uuids: Sequence[str], environment: Mapping[str, str]) -> str:
    """The entry of ``CUDA_VISIBLE_DEVICES`` without a match; empty if it is meant to hide devices."""
    entry = _chosen(uuids, environment)[1]
    return "" if entry in ("-1", "NoDevFiles") else entry


def _chosen(uuids: Sequence[str], environment: Mapping[str, str]) -> tuple[list[int], str]:
    """The visible devices in order, and the entry at which the list ended."""
    text = environment.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return list(range(len(uuids))), ""
    chosen = list[int]()
    for entry in (part.strip() for part in text.split(",")):
        if entry.isdecimal():
            fitting = [int(entry)] if int(entry) < len(uuids) else []
        else:
            fitting = [i for i, uuid in enumerate(uuids) if entry and uuid.startswith(entry)]
        if len(fitting) != 1:
            return chosen, entry
        chosen.append(fitting[0])
    return chosen, ""
