"""What the tests of reports share: recorded and simulated runs, and a browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import wirespeed
from wirespeed.document import Document

RECORDED = Path(__file__).parents[1] / "recorded" / "two-h200.json"
#: Set where the tests in a browser must not be skipped.
REQUIRED = "WIRESPEED_REQUIRE_CHROMIUM"
CHROMIUM_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="session")
def recorded() -> Document:
    """Nvbandwidth's whole suite on two H200s, as it was recorded."""
    return wirespeed.load(RECORDED)


@pytest.fixture(scope="session")
def eight() -> Document:
    return wirespeed.run(machine="simulated:dgx-a100-8", samples=3, copies=1)


@pytest.fixture(scope="session")
def seventy_two() -> Document:
    cases = ["multinode_device_to_device_memcpy_read_ce", "multinode_bisect_write_ce"]
    return wirespeed.run(cases, machine="simulated:nvl72", samples=6, copies=1)


@dataclass
class Opened:
    """A page in a browser, and all that it did."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@dataclass
class Browser:
    """Opens files; each in a context of its own."""

    chromium: Any
    folder: Path

    def open(self, html: str, width: int = 1280, height: int = 900, **settings: Any) -> Opened:
        file = self.folder / "report.html"
        file.write_text(html, encoding="utf-8")
        page = self.chromium.new_page(viewport={"width": width, "height": height}, **settings)
        opened = Opened(page)
        page.on("console", lambda message: opened.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: opened.complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (opened.complaints.append("a dialog"), dialog.dismiss()))
        page.on("popup", lambda _: opened.complaints.append("a window"))
        page.on("request", lambda request: opened.requests.append(request.url))
        page.goto(file.as_uri())
        opened.requests.remove(file.as_uri())
        return opened


def chromium() -> str | None:
    """The path of the system's Chromium; None without one."""
    found = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    return next(filter(None, found), None)


@pytest.fixture
def browser(launched: Any, tmp_path: Path) -> Iterator[Browser]:
    """A browser whose pages are closed at the end: those that stay open go on being drawn."""
    before = set(launched.contexts)
    yield Browser(launched, tmp_path)
    for context in set(launched.contexts) - before:
        context.close()


@pytest.fixture(scope="session")
def launched() -> Iterator[Any]:
    found = chromium()
    if found is None and not os.environ.get(REQUIRED):
        pytest.skip("there is no Chromium; Debian's package is called chromium")
    assert found, f"{REQUIRED} is set, and there is no Chromium"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=list(CHROMIUM_FLAGS))
        yield launched
        launched.close()
