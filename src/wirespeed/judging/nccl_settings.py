"""Transports of NCCL that are disabled in the run of a log, and its slow values that this explains."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import replace

from ..document import Document, TestcaseResult
from ..hardware.facts import Facts
from ..hardware.topology import LinkKind
from ..results.cells import Key, placed
from .causes.evidence_nccl import WITHIN_A_HOST, all_linked, disables, nccl_disabled
from .causes.record import Sign
from .causes.run_facts import facts_of

#: Name of the cause that a transport is disabled.
DISABLED = "nccl-disabled"


def disabling(document: Document, result: TestcaseResult) -> frozenset[str]:
    """What disables the transport that a collective of a log would use: settings of its run.

    Within a host, that is peer access over NVLink, or shared memory if NVLinks do not connect all GPUs. Of a
    log of one run, the transports that NCCL printed are those of its collectives.
    """
    if not (document.imported and result.collective):
        return frozenset()
    machine = document.machine
    found = [setting for setting in result.settings if disables(setting, machine)]
    if found and is_within_a_host(document, result):
        names = WITHIN_A_HOST[: 2 if all_linked(machine) else 3]
        found = [setting for setting in found if setting.partition("=")[0] in names]
    if not found and len(document.imported) == 1:
        signs = (nccl_disabled(machine, of_host) for of_host in facts_of(document).of_each_host)
        found = [sign.text for own in signs for sign in own if not sign.settings]
    return frozenset(found)


def is_within_a_host(document: Document, result: TestcaseResult) -> bool:
    """Whether all ranks of a collective of a log are of one host."""
    ranks = result.collective.ranks if result.collective else 1
    several = len({rank.host for rank in document.ranks}) > 1
    return not several and ranks <= max(1, len(document.machine.gpus))


def disabled_cells(
    document: Document, slow: Collection[Key], facts: Facts, helping: Collection[str]
) -> Iterator[tuple[Sign, set[Key]]]:
    """Yield what disables the transport of slow collectives of a log, with these.

    Shared memory and sockets explain any lower rate. Within a host, shared memory is not faster than PCIe.

    Args:
        document: The log.
        slow: The slow values.
        facts: Its facts.
        helping: Settings without which the same test is slower.
    """
    rates = [link.capacity for link in document.machine.links if link.kind in (LinkKind.PCIE, LinkKind.C2C)]
    most = max((rate for rate in rates if rate), default=math.inf)
    cells = [
        (key, disabling(document, result) - set(helping))
        for key, cell, _, result in placed(document)
        if key in slow and ((cell.value or 0.0) < most or not is_within_a_host(document, result))
    ]  # fmt: skip
    for of_host in facts.of_each_host:
        for sign in nccl_disabled(document.machine, of_host):
            if keys := {key for key, by in cells if not by.isdisjoint({*sign.settings, sign.text})}:
                yield replace(sign, host=of_host.host), keys
