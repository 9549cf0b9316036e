"""Which parts may import which libraries: all else must work where those are not installed."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "wirespeed"
ALLOWED = {
    "cuda": ("backends/cuda/", "features/storage/cufile.py"),
    "nccl": ("backends/nccl/",),
    "pynvml": ("backends/cuda/",),
    "mpi4py": ("worlds/mpi.py", "backends/mpi/"),
}


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text())))


def imported(path: Path) -> Iterator[str]:
    """The top-level packages that a file imports, wherever in it."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).partition(".")[0]


#: Imported where they are asked for, by functions that say so where they are missing.
OPTIONAL = {"pandas"}
#: They come with those that need them.
WITH = {"markdown_it": "markdown_it_py", "markupsafe": "jinja2"}


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


#: Each may import what stands above it, and its own parts. A folder stands for all that is in it, but
#: ``features`` for the table of them.
LAYERS = (
    ("files", "model", "terminal", "version"),
    ("errors", "measurement"),
    ("native", "thresholds", "units"),
    ("tables",),
    ("peer_access", "qualification", "statistics"),
    ("options",),
    ("collectives",),
    ("hardware",),
    ("features",),
    ("data", "document", "testcases"),
    ("run_errors", "worlds"),
    ("backends",),
    ("driver",),
    ("results",),
    ("judging",),
    ("reports", "progress"),
    ("screens",),
    ("api",),
    ("answers",),
    ("cli", "__main__"),
)


def module_of(path: Path) -> str:
    """The dotted name of a file inside the package; empty for the package itself."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix("__init__").rstrip(".")


MODULES = {module_of(path): path for path in SOURCE.rglob("*.py")}


@cache
def own_imports(module: str) -> frozenset[str]:
    """The modules of the package that a module imports, wherever in it, those for types alone too."""
    path = MODULES[module]
    folder = path.relative_to(SOURCE).parent.parts
    imports = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*folder[: len(folder) - node.level + 1], *(node.module or "").split(".")]
            for alias in node.names:
                name = ".".join(filter(None, [*base, alias.name]))
                imports.add(name if name in MODULES else name.rpartition(".")[0])
    return frozenset(imports - {module})


def feature_of(module: str) -> str:
    """The feature to which a module belongs; empty for the core."""
    return module.split(".")[1] if module.startswith("features.") else ""


def test_no_part_imports_one_below_it() -> None:
    rank = {part: i for i, layer in enumerate(LAYERS) for part in layer}
    assert {module.partition(".")[0] for module in MODULES if module} == rank.keys()
    wrong = [
        f"{module} imports {other}"
        for module in sorted(MODULES)
        for other in sorted(own_imports(module))
        if module and other and not feature_of(module) and not feature_of(other)
        if rank[other.partition(".")[0]] > rank[module.partition(".")[0]]
    ]
    assert wrong == []


#: Parts of the core that name features; all others ask the table of features.
FACADE = ("",)
#: Features that another feature needs.
NEEDED = {
    "bandwidth": {"transfers"},
    "blocks": {"storage"},
}


def test_the_core_imports_no_feature() -> None:
    found = {
        (module, other)
        for module in MODULES
        for other in own_imports(module)
        if feature_of(other) and not feature_of(module) and module not in FACADE
    }
    assert found == set()


def test_features_hardly_need_each_other() -> None:
    needed: dict[str, set[str]] = {}
    for module in MODULES:
        for other in own_imports(module):
            if (mine := feature_of(module)) and (theirs := feature_of(other)) not in ("", mine):
                needed.setdefault(mine, set()).add(theirs)
    assert needed == NEEDED


def test_every_feature_has_a_row() -> None:
    from wirespeed.features import FEATURES

    folders = {feature_of(module) for module in MODULES if feature_of(module)}
    assert folders == {feature.name for feature in FEATURES}


def test_files_import_each_other_in_no_circle() -> None:
    order = TopologicalSorter({module: own_imports(module) for module in MODULES if module})
    try:
        order.prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_class_name_has_two_meanings() -> None:
    found: dict[str, list[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_no_file_imports_private_names() -> None:
    private = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in SOURCE.rglob("*.py")
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and node.level
        for name in (*(node.module or "").split("."), *(alias.name for alias in node.names))
        if name.startswith("_") and not name.startswith("__")
    ]
    assert private == []
