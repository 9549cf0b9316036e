"""Which parts may import which libraries: all else must work where those are not installed."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "wirespeed"
ALLOWED = {
    "cuda": ("backends/cuda/", "backends/nccl/", "collectives/nccl/"),
    "nccl": ("backends/cuda/", "backends/nccl/", "collectives/nccl/"),
    "pynvml": ("backends/cuda/",),
    "mpi4py": ("worlds/mpi.py", "collectives/mpi.py"),
}


def imported(path: Path) -> Iterator[str]:
    """The top-level packages that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).partition(".")[0]


#: Imported where they are asked for, by functions that say so where they are missing.
OPTIONAL = {"pandas", "plotly"}
#: They come with those that need them.
WITH = {"llvmlite": "numba", "markupsafe": "jinja2"}


def test_the_base_install_brings_what_it_imports() -> None:
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text())["project"]
    brought = {re.split(r"\W", text.replace("-", "_"))[0] for text in project["dependencies"]}
    known = sys.stdlib_module_names | {"wirespeed"} | ALLOWED.keys() | OPTIONAL
    used = {WITH.get(name, name) for path in SOURCE.rglob("*.py") for name in imported(path)}
    assert used - known == brought


@pytest.mark.parametrize("library", ALLOWED)
def test_only_its_own_parts_import_a_library(library: str) -> None:
    users = [str(p.relative_to(SOURCE)) for p in SOURCE.rglob("*.py") if library in imported(p)]
    assert users or library == "nccl", "nothing imports it: is the name right?"
    assert [user for user in users if not user.startswith(ALLOWED[library])] == []
