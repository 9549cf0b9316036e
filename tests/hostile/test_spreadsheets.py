"""Texts of a Document that would be formulas in a spreadsheet, or are not allowed in XML."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ET
from typing import Any

import msgspec
import pytest
from msgspec.structs import force_setattr

import wirespeed
from wirespeed.document import Document
from wirespeed.reports import Style

FORMULAS = ("=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(1)", "\t=1", "\r=1", "\n=1")
#: What XML 1.0 allows.
_XML = re.compile("[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")

#: Fields with texts that CSV and JUnit show.
_SHOWN = ("name", "reason", "labels", "host", "started", "key", "title", "command", "cpu", "warnings")


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    """A run with a failure, something waived and values."""
    cases = ["0", "4", "multinode_bisect_write_ce"]
    machine = "simulated:hgx-h200-2+corrupt@gpu0->gpu1"
    found: dict[str, Any] = msgspec.to_builtins(wirespeed.run(cases, machine=machine, samples=2, copies=1))
    return found


def spoiled(plain: dict[str, Any], text: str) -> Document:
    """Return a Document with a text wherever CSV and JUnit show texts of it."""

    def changed(value: Any, key: str = "") -> Any:
        if key in _SHOWN:
            return [text for _ in value] if isinstance(value, (list, tuple)) else text
        if isinstance(value, dict):
            return {name: changed(one, name) for name, one in value.items()}
        return [changed(one) for one in value] if isinstance(value, (list, tuple)) else value

    return msgspec.convert(changed(plain), Document)


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_is_a_formula(text: str, plain: dict[str, Any]) -> None:
    shown = wirespeed.render(spoiled(plain, text), "csv", Style(verbose=True))
    rows = list(csv.DictReader(io.StringIO(shown)))
    cells = [cell for row in rows for cell in row.values()]
    assert f"'{text}".replace("\r", "\u240d") in cells
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))]


def test_numbers_stay_numbers(plain: dict[str, Any]) -> None:
    document = msgspec.convert(plain, Document)
    for cell in document.testcases[0].tables[0].cells:
        force_setattr(cell, "value", -1.5e-9)  # a file with such a value is refused
    text = wirespeed.render(document, "csv")
    assert "-1.5e-09" in {row["value"] for row in csv.DictReader(io.StringIO(text))}


@pytest.mark.parametrize("text", ["\ufffe\uffff", "\x00\x0b\x1f\x7f\x85", "a\U0001fffea"])
def test_junit_is_xml(text: str, plain: dict[str, Any]) -> None:
    shown = wirespeed.render(spoiled(plain, f"a{text}b"), "junit")
    assert _XML.fullmatch(shown)
    assert ET.fromstring(shown).find("testsuite/testcase") is not None
