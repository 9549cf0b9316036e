"""docs/reference/attributes.md: its lists are made from the docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import pytest

from wirespeed.document import Document, TestcaseResult
from wirespeed.judging.check import Check
from wirespeed.judging.diagnosis import Diagnosis
from wirespeed.judging.finding import Finding
from wirespeed.judging.judged import Judged
from wirespeed.tables import Cell, Table
from wirespeed.testcases.table import Testcase

PAGE = Path(__file__).parents[2] / "docs/reference/attributes.md"
HEAD = "## Classes\n"
SHOWN = (Judged, Check, Diagnosis, Finding, Document, TestcaseResult, Table, Cell, Testcase)


def attributes(kind: type) -> Iterator[tuple[str, str]]:
    """Name and description of each attribute: of the docstring, and of properties."""
    section = (inspect.getdoc(kind) or "").partition("\nAttributes:\n")[2]
    for entry in re.split(r"\n(?=    \S)", section.partition("\n\n")[0]):
        names, _, text = entry.strip().partition(": ")
        if text:
            yield names, " ".join(text.split())
    for name, value in vars(kind).items():
        if isinstance(value, property | cached_property) and not name.startswith("_"):
            yield name, " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())


def listed() -> str:
    """The attributes of all kinds, each kind a table."""
    parts = [HEAD]
    for kind in SHOWN:
        first = (inspect.getdoc(kind) or "").partition("\n\n")[0]
        parts.append(f"\n**{kind.__name__}**: {' '.join(first.split())}\n\n| attribute | |\n|---|---|\n")
        parts += [
            f"| `{name}` | {text.replace('``', '`').replace('|', chr(92) + '|')} |\n"
            for name, text in attributes(kind)
        ]
    return "".join(parts)


def test_the_attributes_are_those_of_the_docstrings(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text()
    if request.config.getoption("--update-golden"):
        PAGE.write_text(text.partition(HEAD)[0] + listed())
    assert PAGE.read_text().partition(HEAD)[2] == listed().removeprefix(HEAD), "run `pytest --update-golden`"


@pytest.mark.parametrize("kind", SHOWN)
def test_every_public_field_is_described(kind: type) -> None:
    names = {name for names, _ in attributes(kind) for name in re.split(", ", names)}
    fields = getattr(kind, "__struct_fields__", ()) or getattr(kind, "__dataclass_fields__", {})
    assert {name for name in fields if not name.startswith("_")} <= names
