"""Attempts of peer access for Python."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace as replace_fields

from ...api import described, machine_named
from ...document import DEVICES, Document
from ...driver.jobs import timestamp
from ...hardware.facts import Facts
from ...hardware.topology import Machine
from ...peer_access import ALL, PeerMechanism
from ...results.output import Output
from ...results.store import encode
from .attempts import as_testcase, attempt_peers


def p2p(
    machine: str | Machine | None = None,
    *,
    mechanisms: Sequence[PeerMechanism] = ALL,
    devices: Sequence[int] | None = None,
    output: str | Path | Output | None = None,
    force: bool = False,
    seed: int | None = None,
    command: str = "",
) -> Document:
    """Try peer access between all GPUs; a Document with ``peers`` and the facts of the machine.

    Args:
        machine: As for ``run``.
        mechanisms: The mechanisms to try.
        devices: Indices of the GPUs to use; None for all.
        output: File to which the Document is saved.
        force: Whether ``output`` may replace a file that exists.
        seed: Seed of the patterns; None for a new one.
        command: Command line, for the Document.

    Raises:
        UsageError: If an argument is invalid.
        StorageError: If the Document cannot be written.

    Examples:
        >>> import wirespeed
        >>> document = wirespeed.p2p("simulated:rtx4090-2+dropped@gpu0->gpu1")
        >>> document.peers.verdicts["gpu0", "gpu1"].value
        'hangs'
    """
    saved = None if output is None else Output.of(output)
    if saved is not None:
        saved.check(force)
    began = time.monotonic()
    target = machine_named(machine, measured=False)
    document = described(target if devices is None else target.only(devices))
    peers = attempt_peers(document.machine, Facts(document.facts), mechanisms, seed=seed)
    document = replace_fields(
        document,
        peers=peers,
        testcases=(as_testcase(peers),),
        seconds=peers.seconds if target.simulated else time.monotonic() - began,
        command=command,
        ended=timestamp(),
        options={} if devices is None else {DEVICES: list(map(str, devices))},
    )
    if saved is not None:
        saved.write(encode(document))
    return document
