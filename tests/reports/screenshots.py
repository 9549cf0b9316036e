"""Take the images of the documentation: the first screen of a page in each state, desktop and phone.

    python -m tests.reports.screenshots [STATE ...]

The images are the same each time with the same Chromium and fonts.
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from .conftest import CHROMIUM_FLAGS, chromium
from .states import STATES

IMAGES = Path(__file__).parents[2] / "docs" / "images"
#: Name of a view -> width and height of its window, and pixels of the image per pixel of the window.
VIEWS = {"desktop": (1440, 900, 0.8), "phone": (390, 844, 1.0)}
#: Number of colours of an image: a third of the bytes, and no visible difference.
COLORS = 256
#: Part of the page that is shown, where it is not the first screen.
PARTS = {"gates": "#gates-0"}
#: States that are shown in dark mode.
DARK = ("warn", "collectives", "seven-runs")


#: States that the documentation shows, on a desktop.
SHOWN = ("fail", "twelve-nodes")


def take(browser: Browser, state: str, folder: Path, views: Iterable[str]) -> None:
    """Write the images of a state."""
    file = folder / "page.html"
    file.write_text(STATES[state](), encoding="utf-8")
    scheme = "dark" if state in DARK else "light"
    for view in views:
        width, height, scale = VIEWS[view]
        page = browser.new_page(
            viewport={"width": width, "height": height},
            device_scale_factor=scale,
            color_scheme=scheme,
            reduced_motion="reduce",
        )
        page.goto(file.as_uri() + PARTS.get(state, ""))
        image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        plain = image.quantize(COLORS, Image.Quantize.MEDIANCUT, kmeans=2, dither=Image.Dither.NONE)
        plain.save(IMAGES / f"report-{state}-{view}.png", optimize=True)
        page.close()


def main(states: list[str]) -> None:
    """Take the images of some states, on a desktop and on a phone, or those of the documentation."""
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(CHROMIUM_FLAGS))
        for state in states or SHOWN:
            take(browser, state, Path(folder), VIEWS if states else ["desktop"])
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
