"""Errors of one process in plain values, so that all processes can raise them."""

from __future__ import annotations

from typing import Any

from ...errors import (
    BackendError,
    BackendLost,
    MeasurementTimeout,
    OutOfMemory,
    Unreachable,
    VerificationError,
    WirespeedError,
)
from ...terminal import visible


def told(error: WirespeedError) -> list[Any]:
    """An error as plain values."""
    if isinstance(error, VerificationError):
        return ["wrong", str(error), error.offset, error.wrong, error.words, error.way]
    if isinstance(error, MeasurementTimeout):
        return ["late", str(error)]
    if isinstance(error, BackendLost):
        return ["lost", str(error)]
    if isinstance(error, Unreachable):
        return ["unreachable", str(error)]
    if isinstance(error, OutOfMemory):
        return ["memory", str(error)]
    return ["error", str(error)]


def heard(who: str, told: list[Any]) -> WirespeedError:
    """Another process' error as one that can be raised here.

    Args:
        who: The other process, for the message.
        told: Result of ``told`` in that process.
    """
    kind, text, *more = told
    text = visible(text)
    error: WirespeedError
    if kind == "wrong":
        error = VerificationError("", *more)
        error.args = (text,)
        return error
    if kind == "late":
        error = MeasurementTimeout("", 0.0)
        error.args = (f"{who}: {text}",)
        return error
    known: dict[str, type[WirespeedError]] = {
        "lost": BackendLost, "memory": OutOfMemory, "unreachable": Unreachable,
    }  # fmt: skip
    return known.get(kind, BackendError)(f"{who}: {text}")
