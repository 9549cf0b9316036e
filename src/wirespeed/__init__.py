"""wirespeed: measure how fast data moves along every path of a machine.
This is the public Python API, such as ``wirespeed.run(["host_stream_copy"])``; importing it loads no backend.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .answers import baseline as baseline
    from .answers import check as check
    from .answers import compare as compare
    from .answers import diagnose as diagnose
    from .answers import doctor as doctor
    from .answers import gates as gates
    from .answers import judge as judge
    from .answers import render as render
    from .api import described as described
    from .api import record as record
    from .api import run as run
    from .backends import describe
    from .document import Document as Document
    from .errors import BackendError as BackendError
    from .errors import DocumentError as DocumentError
    from .errors import MachineError as MachineError
    from .errors import MeasurementTimeout as MeasurementTimeout
    from .errors import MissingPackage as MissingPackage
    from .errors import StorageError as StorageError
    from .errors import UnknownTestcase as UnknownTestcase
    from .errors import UsageError as UsageError
    from .errors import VerificationError as VerificationError
    from .errors import WirespeedError as WirespeedError
    from .features.bandwidth import Bandwidth as Bandwidth
    from .features.bandwidth.memory import memory_bandwidth as memory_bandwidth
    from .features.bandwidth.memory import memory_bandwidth_saxpy as memory_bandwidth_saxpy
    from .features.bandwidth.memory import memory_bandwidth_saxpy_scaling as memory_bandwidth_saxpy_scaling
    from .features.bandwidth.memory import memory_bandwidth_scaling as memory_bandwidth_scaling
    from .features.bandwidth.memory import theoretical_memory_bandwidth as theoretical_memory_bandwidth
    from .features.bandwidth.pairs import host2device_bandwidth as host2device_bandwidth
    from .features.bandwidth.pairs import p2p_bandwidth as p2p_bandwidth
    from .features.bandwidth.pairs import p2p_bandwidth_all as p2p_bandwidth_all
    from .features.bandwidth.pairs import p2p_bandwidth_bidirectional as p2p_bandwidth_bidirectional
    from .features.bandwidth.pairs import p2p_bandwidth_bidirectional_all as p2p_bandwidth_bidirectional_all
    from .features.bandwidth.transfers import Transfers as Transfers
    from .features.bandwidth.transfers import transfer as transfer
    from .features.blocks.api import BlockMap as BlockMap
    from .features.blocks.api import blocks as blocks
    from .features.history.api import MachineHistory as MachineHistory
    from .features.history.api import history as history
    from .features.imports import load_log as load_log
    from .features.p2p.api import p2p as p2p
    from .features.qualify.api import qualify as qualify
    from .hardware.topology import Machine as Machine
    from .options import RunOptions as RunOptions
    from .results.store import load as load
    from .results.store import save as save
    from .run_errors import MeasurementFailed as MeasurementFailed
    from .run_errors import RunInterrupted as RunInterrupted
    from .testcases.table import TABLE
    from .testcases.table import Testcase as Testcase

    machine, TESTCASES = describe, TABLE

# fmt: off
#: Public name -> its module, and its name there if it has another one.
_HOME = {
    **dict.fromkeys((
        "baseline", "check", "compare", "diagnose", "doctor", "gates", "judge", "render",
    ), "answers"),
    **dict.fromkeys((
        "described", "record", "run",
    ), "api"),
    "blocks": "features.blocks.api",
    "history": "features.history.api",
    "p2p": "features.p2p.api",
    "qualify": "features.qualify.api",
    "machine": "backends:describe",
    "Bandwidth": "features.bandwidth",
    **dict.fromkeys((
        "memory_bandwidth", "memory_bandwidth_saxpy", "memory_bandwidth_saxpy_scaling",
        "memory_bandwidth_scaling", "theoretical_memory_bandwidth",
    ), "features.bandwidth.memory"),
    **dict.fromkeys((
        "host2device_bandwidth", "p2p_bandwidth", "p2p_bandwidth_all", "p2p_bandwidth_bidirectional",
        "p2p_bandwidth_bidirectional_all",
    ), "features.bandwidth.pairs"),
    "Transfers": "features.bandwidth.transfers",
    "transfer": "features.bandwidth.transfers",
    "Document": "document",
    **dict.fromkeys((
        "BackendError", "DocumentError", "MachineError", "MeasurementTimeout", "MissingPackage",
        "StorageError", "UnknownTestcase", "UsageError", "VerificationError", "WirespeedError",
    ), "errors"),
    "load_log": "features.imports",
    "BlockMap": "features.blocks.api",
    "MachineHistory": "features.history.api",
    "RunOptions": "options",
    "load": "results.store",
    "save": "results.store",
    "MeasurementFailed": "run_errors",
    "RunInterrupted": "run_errors",
    "Testcase": "testcases.base",
    "TESTCASES": "testcases.table:TABLE",
    "Machine": "hardware.topology",
}
# fmt: on

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that importing the package is fast."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _HOME[name].partition(":")
    return getattr(import_module(f"{__name__}.{module}"), attribute or name)


def __dir__() -> list[str]:
    return __all__


class _Package(ModuleType):
    """This package: a folder in it does not replace the function with its name (``qualify``)."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
