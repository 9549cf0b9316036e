"""wirespeed: measure how fast data moves along every path of a machine.

The public Python API. Importing it loads no backend.

>>> import wirespeed
>>> document = wirespeed.run(["host_stream_copy"], machine="simulated:cpu-2-sockets")
>>> [round(value / 1e9) for value in document.testcases[0].tables[0].values()]
[261, 261]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .api import described, record, run
    from .backends import describe as machine
    from .bandwidth import (
        Bandwidth,
        Transfers,
        host2device_bandwidth,
        memory_bandwidth,
        memory_bandwidth_saxpy,
        memory_bandwidth_saxpy_scaling,
        memory_bandwidth_scaling,
        p2p_bandwidth,
        p2p_bandwidth_all,
        p2p_bandwidth_bidirectional,
        p2p_bandwidth_bidirectional_all,
        theoretical_memory_bandwidth,
        transfer,
    )
    from .document import Document
    from .errors import (
        BackendError,
        DocumentError,
        MachineError,
        MeasurementFailed,
        MeasurementTimeout,
        MissingPackage,
        RunInterrupted,
        StorageError,
        UnknownTestcase,
        UsageError,
        VerificationError,
        WirespeedError,
    )
    from .importers import load_log
    from .judging.diagnosis import diagnose
    from .judging.judge import gates, judge
    from .options import RunOptions
    from .reports import render
    from .results.baseline import make as baseline
    from .results.compare import compare
    from .results.store import load, save
    from .testcases import TABLE as TESTCASES
    from .testcases import Testcase
    from .topology import Machine

__all__ = [
    "TESTCASES",
    "BackendError",
    "Bandwidth",
    "Document",
    "DocumentError",
    "Machine",
    "MachineError",
    "MeasurementFailed",
    "MeasurementTimeout",
    "MissingPackage",
    "RunInterrupted",
    "RunOptions",
    "StorageError",
    "Testcase",
    "Transfers",
    "UnknownTestcase",
    "UsageError",
    "VerificationError",
    "WirespeedError",
    "__version__",
    "baseline",
    "compare",
    "described",
    "diagnose",
    "gates",
    "host2device_bandwidth",
    "judge",
    "load",
    "load_log",
    "machine",
    "memory_bandwidth",
    "memory_bandwidth_saxpy",
    "memory_bandwidth_saxpy_scaling",
    "memory_bandwidth_scaling",
    "p2p_bandwidth",
    "p2p_bandwidth_all",
    "p2p_bandwidth_bidirectional",
    "p2p_bandwidth_bidirectional_all",
    "record",
    "render",
    "run",
    "save",
    "theoretical_memory_bandwidth",
    "transfer",
]

_HOME = {
    "run": ("api", "run"),
    "described": ("api", "described"),
    "record": ("api", "record"),
    "machine": ("backends", "describe"),
    "Machine": ("topology", "Machine"),
    "RunOptions": ("options", "RunOptions"),
    "render": ("reports", "render"),
    "Document": ("document", "Document"),
    "baseline": ("results.baseline", "make"),
    "compare": ("results.compare", "compare"),
    "diagnose": ("judging.diagnosis", "diagnose"),
    "gates": ("judging.judge", "gates"),
    "judge": ("judging.judge", "judge"),
    "load": ("results.store", "load"),
    "load_log": ("importers", "load_log"),
    "save": ("results.store", "save"),
    "TESTCASES": ("testcases", "TABLE"),
    "Testcase": ("testcases", "Testcase"),
    **{
        name: ("bandwidth", name)
        for name in __all__
        if "bandwidth" in name.lower() or "transfer" in name.lower()
    },
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that importing the package is fast."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _HOME.get(name, ("errors", name))
    return getattr(import_module(f"{__name__}.{module}"), attribute)


def __dir__() -> list[str]:
    return __all__
