"""What to do about errors, by what CUDA, NCCL, MPI, Slurm and shells say of them."""

from __future__ import annotations

import re

from ..data.causes import advice_on_errors
from .advice import Advice

_DEVICE = Advice("look for errors of the device in the kernel log", "sudo dmesg | tail")
_UNKNOWN = Advice("run it again; if it fails again, read the lines of the log around this one")


def of_error(reason: str, *, imported: bool) -> Advice:
    """What to do about an error, by its text, which a library or a log gives.

    Args:
        reason: The text.
        imported: Whether it is of another tool's log, which may have failed for reasons that are none of the
            device's.
    """
    for known in advice_on_errors():
        if re.search(known.pattern, reason, re.IGNORECASE):
            return Advice(known.remedy, known.confirm)
    return _UNKNOWN if imported else _DEVICE
