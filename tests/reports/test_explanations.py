"""What explains low values stands first in every report, once; what was interrupted is called so."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from msgspec.structs import replace

import wirespeed
from wirespeed.document import Document, Status
from wirespeed.judging.judged import Judged
from wirespeed.reports import Style
from wirespeed.reports import comparisons as compare_screen
from wirespeed.reports.explanations import explanations
from wirespeed.screens import check as check_screen
from wirespeed.tables import GENERATION, THROTTLED, Quantity, State

BUSY = "gpu0 is in use by python3 (PID 3088)"
LOAD = "16 processes use the CPUs"


@pytest.fixture(scope="module")
def plain() -> Document:
    return wirespeed.run(["0", "2", "4"], machine="simulated:hgx-h200-2", samples=2, copies=1)


@pytest.fixture(scope="module")
def explained(plain: Document) -> Document:
    """The same while something else used the machine, a GPU grew hot and a link made errors."""
    ecc = Quantity("gpu1", "ECC", "on")

    def state(*reasons: str, replays: float, last: Quantity) -> State:
        errors = Quantity("gpu1", "PCIe replays", replays, counter=True)
        return ecc, Quantity("gpu1", THROTTLED, reasons), errors, last

    states = [
        state("idle", replays=3.0, last=Quantity("gpu1", GENERATION, 1.0)),
        state("power cap", "idle", replays=3.0, last=Quantity("gpu1", "power", 9.0, "W")),
        state(replays=8.0, last=Quantity("gpu1", GENERATION, 5.0)),
    ]
    first, second, third = plain.testcases
    return replace(
        plain,
        warnings=(LOAD,),
        testcases=(
            replace(first, warnings=(BUSY,), state_before=states[0], state_after=states[1]),
            replace(second, warnings=(BUSY, LOAD), state_before=states[1], state_after=states[1]),
            replace(third, warnings=("the fabric blocks",), state_before=states[2], state_after=states[2]),
        ),
    )


def test_each_is_collected_once(explained: Document, plain: Document) -> None:
    assert explanations(plain) == []
    assert explanations(explained) == [
        LOAD,
        f"{BUSY} (in 2 testcases)",
        "gpu1 throttle reasons: power cap (in 2 testcases)",
        "the fabric blocks (in device_to_device_memcpy_read_ce)",
        "gpu1 PCIe replays: 5 during the run",
    ]


@pytest.mark.parametrize("form", ["table", "plot", "markdown", "html"])
def test_they_stand_before_anything_else(explained: Document, form: str) -> None:
    text = wirespeed.render(explained, form, Style(width=200))
    begin = text.index("<main") if form == "html" else 0
    places = [text.index(line, begin) for line in explanations(explained)]
    assert places == sorted(places)
    for later in ("host_to_device_memcpy_ce", "testcases:", "Testcases:", "data verified"):
        after = text.replace("(in device_to_device_memcpy_read_ce)", "").find(later, begin)
        assert after < 0 or after > places[-2]
    assert text.count(LOAD) == 1 or form == "html"  # there beside its testcase too


def test_a_check_shows_two_before_the_verdict(explained: Document) -> None:
    judged = Judged(explained)
    short, full = (check_screen.render(judged, Style(200, verbose=more)) for more in (False, True))
    assert short.index("\nwarning: ") < short.index("\n✓  host") < short.index("\nPASS  ")
    assert short.count("warning: ") == 2 and "\n3 more warnings; -v shows all\n" in short
    assert [f"warning: {text}" for text in explanations(explained)] == [
        line for line in full.splitlines() if line.startswith("warning: ")
    ]


def test_programs_find_them(explained: Document, plain: Document) -> None:
    properties = ET.fromstring(wirespeed.render(explained, "junit")).iterfind(".//property")
    assert [(p.get("name"), p.get("value")) for p in properties if p.get("name") == "warning"] == [
        ("warning", text) for text in explanations(explained)
    ]
    for document, count in ((explained, 5), (plain, 0)):
        assert f'wirespeed_run_warnings{{host="hgx-h200-2",simulated="true"}} {count}.0' in wirespeed.render(
            document, "prometheus"
        )


def test_a_comparison_shows_those_of_each_run(explained: Document, plain: Document) -> None:
    text = compare_screen.text(wirespeed.compare(plain, explained), Style(width=200))
    assert text.index("B: ") < text.index(LOAD) and text.count(LOAD) == 1


@pytest.fixture(scope="module")
def interrupted(plain: Document) -> Document:
    first, second, third = plain.testcases
    why = "Ctrl-C while measuring"
    table = third.tables[0]
    cells = (table.cells[0], replace(table.cells[1], value=None, statistics=None, samples=(), reason=why))
    ended = replace(third, status=Status.INTERRUPTED, reason=why, tables=(replace(table, cells=cells),))
    return replace(plain, testcases=(first, second, ended), interrupted="Ctrl-C")


def test_what_was_interrupted_is_not_called_a_failure(interrupted: Document) -> None:
    screen = check_screen.render(Judged(interrupted), Style())
    assert "\nINTERRUPTED  the run ended early: " in screen and "fail" not in screen.lower()
    assert screen.count("Ctrl-C") == 1
    html = wirespeed.render(interrupted, "html")
    assert '<span class="word">INTERRUPTED</span>' in html and "✖</span>" not in html
    assert "■</span>" in html and "device_to_device_memcpy_read_ce: interrupted: " in html
    numbers = wirespeed.render(interrupted, "prometheus")
    assert not re.search('verdict="fail"} [^0]', numbers) and 'verdict="interrupted"} 1' in numbers


def test_what_failed_before_an_interruption_has_failed(interrupted: Document) -> None:
    first = replace(interrupted.testcases[0], status=Status.FAILED, reason="wrong data")
    document = replace(interrupted, testcases=(first, *interrupted.testcases[1:]))
    screen = check_screen.render(Judged(document), Style())
    assert "\nFAIL  host_to_device_memcpy_ce: failed: wrong data\n" in screen
    assert "\ninterrupted: Ctrl-C\n" in screen


def test_values_are_counted_by_their_verdicts() -> None:
    slow = wirespeed.run(["0", "4"], machine="simulated:hgx-h200-2+speed@gpu0-gpu1=0.5")
    html = wirespeed.render(slow, "html")
    assert "2 of 2 values worse than expected" in html and "2 values OK" in html
