"""A Document whose every string is hostile: all forms are inert, and the page keeps its shape."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

import wirespeed
from wirespeed.document import Document
from wirespeed.judging.judged import Judged
from wirespeed.reports import Style, formats
from wirespeed.reports.html.page import page

STRINGS = {
    "script": "</script><script>window.hacked = 1; alert(1)</script>",
    "attribute": "\"><img src=x onerror='window.hacked = 1'><a href=\"javascript:alert(1)\" x='",
    "style": "</style><style>*{display:none}</style>{}",
    "template": "{{ 7 * 7 }}{% raw %}${alert(1)}`",
    "comment": "<!--<script>]]>--!><svg/onload=alert(1)>",
    "entity": "&lt;b&gt;&#60;script&#62;&amp",
    "long": "x" * 4000,
    "words": "many words " * 400,
    "direction": "\u202egpj.exe\u202c\u2066\u2067\u061c\u200f",
    "terminal": "\x1b[31m\x1b]0;title\x07\x9b2J\r\b\x00\x7f",
    "table": "| a | b |\n|---|---|\n# heading\n- list\n```",
    "formula": "=cmd|' /C calc'!A0,\"\n",
    "address": "http://evil.example/?x=1 //evil.example @import url(//evil.example)",
    "empty": "",
    "unicode": "\u2028\u2029\ufeff\U0001f4a9\u0301\u0301\u0301",
}
_KEPT = {"status", "kind", "access", "link", "peers"}


def hostile(value: Any, text: str, key: str = "", parent: Any = None) -> Any:
    """Replace every string of plain data that is not of an enumeration, keys of free mappings too."""
    if isinstance(value, str):
        of_table = key == "unit" and isinstance(parent, dict) and "cells" in parent
        of_rate = key == "engine" and isinstance(parent, dict) and "efficiency" in parent
        return value if key in _KEPT or of_table or of_rate else text
    if isinstance(value, dict):
        if key in ("libraries", "options"):
            return {f"{text} {i}": hostile(one, text) for i, one in enumerate(value.values())}
        return {name: hostile(one, text, name, value) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [hostile(one, text, key, parent) for one in value]
    return value


def spoiled(document: Document, text: str) -> Document:
    return msgspec.convert(hostile(msgspec.to_builtins(document), text), Document)


@pytest.fixture(scope="module")
def whole() -> Document:
    """A run with every kind of table, a failure, something waived and a culprit."""
    machine = "simulated:hgx-h200-2+speed@gpu0-gpu1=0.5+corrupt@numa0->gpu0"
    cases = ["0", "4", "6", "44", "device_to_device_sm_scaling", "host_latency_ladder"]
    return wirespeed.run(cases, machine=machine, samples=2, copies=1)


def with_state(document: Document) -> Document:
    plain = msgspec.to_builtins(document)
    for result in plain["testcases"]:
        result["state_before"], result["state_after"] = (
            [
                {"device": "gpu0", "name": "temperature", "value": degrees, "unit": "°C"},
                {"device": "gpu0", "name": "throttle reasons", "value": reasons},
            ]
            for degrees, reasons in ((40.0, ["power"]), (50.0, []))
        )
        result["warnings"] = ["a warning"]
    plain["warnings"], plain["interrupted"] = ["a warning"], "Ctrl-C"
    plain["libraries"] = {"numba": "1.0"}
    plain["machine"]["notes"] = ["a note"]
    return msgspec.convert(plain, Document)


@pytest.fixture(scope="module")
def documents(whole: Document) -> dict[str, Document]:
    """A Document of each string."""
    return {kind: spoiled(with_state(whole), text) for kind, text in STRINGS.items()}


@pytest.mark.parametrize("format", sorted(set(formats()) - {"html"}))
def test_text_forms(documents, format):
    for kind, document in documents.items():
        text = wirespeed.render(document, format)
        if format == "csv":
            assert len(list(csv.DictReader(io.StringIO(text)))) > 10, kind
        elif format.endswith("json"):
            json.loads(text)
        else:
            unsafe = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
            assert not re.search(unsafe, text), kind
        if format == "junit":
            ET.fromstring(text)
        if format == "prometheus":
            assert list(text_string_to_metric_families(text)), kind
        if format == "markdown":
            assert "<script" not in text and "<img" not in text and "\n# heading" not in text, kind


@pytest.mark.parametrize("format", ["table", "plot"])
def test_terminals_get_no_escape_sequence_but_ours(documents, format):
    for kind, document in documents.items():
        text = wirespeed.render(document, format, Style(color=True))
        assert not re.search(r"\x1b(?!\[[0-9;]*m)", text), kind
        assert "\x9b" not in text and "\x07" not in text, kind


def test_checks_and_comparisons_too(documents):
    from wirespeed.reports.comparisons import text as comparison_text
    from wirespeed.screens.check import render as check_text
    from wirespeed.screens.machine import render_machine as machine_text

    for kind, document in documents.items():
        texts = [
            check_text(Judged(document), Style(verbose=True)),
            comparison_text(wirespeed.compare(document, document), Style(verbose=True)),
            machine_text(document.machine, Style()),
        ]
        assert not any("\x1b" in text or "\u202e" in text for text in texts), kind


@pytest.mark.parametrize("kind", STRINGS)
def test_the_page_is_inert_and_keeps_its_shape(kind, documents, whole, browser):
    html = page([documents[kind], with_state(whole)])
    for width in (390, 1280) if kind in ("long", "words") else (390,):
        opened = browser.open(html, width)
        opened.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        opened.page.locator("table.heat td").nth(1).click()
        opened.page.locator(".detail:not([hidden])").first.wait_for()
        assert opened.page.evaluate("window.hacked") is None
        assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        assert opened.page.locator("img, iframe, object, embed, a[href^=javascript]").count() == 0
        assert opened.page.locator("section").count() == 3
        assert not opened.complaints and not opened.requests
        opened.page.close()
