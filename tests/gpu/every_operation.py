"""All collectives with the same options, one after the other in the same processes.

python -m tests.gpu.every_operation PROCESSES [OPTIONS OF THE PROGRAMS]
"""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

from wirespeed.cli.main import main
from wirespeed.collectives.operations import OPERATIONS
from wirespeed.worlds import launchers


def as_this(command: list[str], **settings: Any) -> subprocess.Popen[bytes]:
    """Start what starts ranks of wirespeed as ranks of this."""
    return subprocess.Popen([sys.executable, "-m", "tests.gpu.every_operation", *sys.argv[1:]], **settings)


if __name__ == "__main__":
    # Only where ranks are started: other libraries start processes too.
    launchers.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": as_this})  # type: ignore[assignment]
    world = launchers.join(60.0, processes=int(sys.argv[1]))
    close, world.close = world.close, lambda: None  # type: ignore[method-assign]
    launchers.join = lambda *_, **__: world  # type: ignore[assignment]
    codes = {name: main([f"{name}_perf", *sys.argv[2:]]) for name in OPERATIONS}
    close()
    sys.exit(", ".join(f"{name}: exit code {code}" for name, code in codes.items() if code) or 0)
