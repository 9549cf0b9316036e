"""The causes of slow paths with their signs, which are functions with the names of the causes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from ...data.causes import FILE, Cause, causes
from ...errors import UsageError
from ...hardware.facts import Facts
from ...hardware.topology import Machine
from . import evidence_gpu, evidence_host, evidence_nccl, evidence_network, evidence_nic, evidence_pcie
from .record import Evidence, Sign

_MODULES = (evidence_gpu, evidence_host, evidence_nccl, evidence_network, evidence_nic, evidence_pcie)
_FUNCTIONS: dict[str, Any] = {
    name: value for module in _MODULES for name, value in vars(module).items() if callable(value)
}
_BETWEEN = "_between"


def evidence_of(cause: Cause) -> Evidence:
    """The function that yields what the facts of one host say for a cause.

    Raises:
        UsageError: If there is none.
    """
    name = cause.name.replace("-", "_")
    required = name + _BETWEEN if cause.between else name
    if required not in _FUNCTIONS:
        raise UsageError(f"{FILE}: cause {cause.name!r}: no function {required} yields its signs")
    return cast(Evidence, _FUNCTIONS.get(name, _nothing))


def _nothing(machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield nothing: one host shows nothing of this cause."""
    yield from ()


#: All causes of slow paths; of equally likely ones, the first is named first.
CAUSES = tuple(cause for cause in causes() if not cause.only_peers)
_EVIDENCE = {cause.name: evidence_of(cause) for cause in CAUSES}


def signs_of(cause: Cause, machine: Machine, facts: Facts) -> Iterator[Sign]:
    """Yield what speaks for a cause in the facts of all hosts, each sign with its host."""
    for of_host in facts.of_each_host:
        for sign in _EVIDENCE[cause.name](machine, of_host):
            yield replace(sign, host=of_host.host)
    if cause.between:
        yield from _FUNCTIONS[cause.name.replace("-", "_") + _BETWEEN](facts)
