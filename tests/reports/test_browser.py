"""Reports in a real browser: nothing complains, nothing is asked of any network, all is there."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

import wirespeed
from wirespeed.document import Document
from wirespeed.reports.html.page import page
from wirespeed.results.store import decode
from wirespeed.statistics import summarise
from wirespeed.tables import THROTTLED, Quantity, Reading

WIDTHS = (390, 1280, 3840)


def fits(opened) -> bool:
    """Whether the page is no wider than its window."""
    return opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def cut(opened) -> list[str]:
    """Texts of drawings that stand out over the edge."""
    return opened.page.evaluate("""() => [...document.querySelectorAll("svg text")].filter((text) => {
        const outer = text.ownerSVGElement.getBoundingClientRect(), inner = text.getBoundingClientRect();
        return inner.width && (inner.right > outer.right + 1 || inner.left < outer.left - 1);
    }).map((text) => text.textContent)""")


def tall(opened) -> list[str]:
    """Rows of lists that are broken into a column of letters."""
    return opened.page.evaluate("""() => [...document.querySelectorAll("table.list tbody tr")].filter((row) =>
        row.getBoundingClientRect().height > 12 * parseFloat(getComputedStyle(row).fontSize)
    ).map((row) => row.textContent)""")


@pytest.mark.parametrize("name", ["recorded", "eight", "seventy_two"])
def test_reports_open_in_silence(name, request, browser):
    document: Document = request.getfixturevalue(name)
    html = page([document])
    for width in WIDTHS:
        opened = browser.open(html, width)
        assert fits(opened) and not cut(opened) and not tall(opened)
        assert opened.page.locator("svg[role=img], svg[role=group]").count() >= 1
        headings = [text for text in opened.page.locator("h2").all_inner_texts() if text != "Notes"]
        assert headings[:2] == ["Machine", "Measurements"]
        assert opened.page.locator("details.group").count() >= 1
        assert opened.page.locator(".drawing .place").count() > 0
        assert not opened.complaints and not opened.requests
        opened.page.close()


def test_dark_and_light_differ_and_are_legible(recorded, browser):
    html = page([recorded])
    colours = {}
    for scheme in ("light", "dark"):
        opened = browser.open(html, color_scheme=scheme)
        colours[scheme] = opened.page.evaluate("""() => {
            const chosen = [...document.querySelectorAll("td, th, p, a, dt, small, .verdict, .soft, .line")];
            const back = (e) => getComputedStyle(e).backgroundColor;
            const none = "rgba(0, 0, 0, 0)";
            const behind = (e) => back(e) === none ? behind(e.parentElement) : back(e);
            return chosen.map((e) => [getComputedStyle(e).color, behind(e)]);
        }""")
        opened.page.close()
    assert colours["light"] != colours["dark"]
    for pairs in colours.values():
        for text, back in {tuple(pair) for pair in pairs}:
            assert contrast(text, back) >= 4.5, (text, back)


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_a_cell_shows_its_samples_by_mouse_and_by_keyboard(eight, browser):
    opened = browser.open(page([eight]))
    opened.page.locator("summary", has_text="GPU ↔ GPU").click()
    block = opened.page.locator("article", has_text="device_to_device_memcpy_read_ce").first
    table, panel = block.locator("table.heat"), block.locator(".detail")
    table.locator("td").nth(1).click()
    panel.locator("svg").wait_for()
    assert "device_to_device_memcpy_read_ce gpu0, gpu1" in " ".join(panel.inner_text().split())
    samples = eight.testcases[4].tables[0].cells[0].samples
    assert panel.locator("circle").count() == len(samples)
    for key in ("ArrowDown", "ArrowRight", "Enter"):
        opened.page.keyboard.press(key)
    panel.locator("p", has_text="gpu1, gpu2").wait_for()
    assert opened.page.evaluate("document.activeElement.tagName") == "TD"
    assert table.locator("td[tabindex='0']").count() == 1
    assert not opened.complaints and not opened.requests
    opened.page.close()


def test_curves_have_values_behind_them(browser):
    document = wirespeed.run(["host_bandwidth_ladder"], machine="simulated:cpu-2-sockets", samples=3)
    opened = browser.open(page([document]))
    opened.page.locator("details summary", has_text="Values").first.click()
    opened.page.locator("table.heat").first.locator("td").nth(3).click()
    title = opened.page.locator(".detail p").first
    title.wait_for()
    sizes = document.testcases[0].tables[0].columns.labels
    assert title.inner_text() == f"host_bandwidth_ladder size numa1, {sizes[1]}"
    assert opened.page.locator("svg .curve").count() == 4
    assert "Peak:" in opened.page.locator("svg .peak-text").first.text_content()
    opened.page.close()


def test_a_packed_table_opens(seventy_two, browser):
    opened = browser.open(page([seventy_two]))
    opened.page.locator("details.packed summary").first.click()
    table = opened.page.locator("details.packed table.heat").first
    table.wait_for()
    assert table.locator("td").count() == 72 * 72
    table.locator("tbody tr").nth(70).locator("td").nth(3).click()
    opened.page.locator("details.packed .detail svg").first.wait_for()
    assert "70, 3" in opened.page.locator("details.packed .detail p").first.inner_text()
    assert not opened.complaints and not opened.requests
    opened.page.close()


def test_the_document_can_be_saved(recorded, browser):
    opened = browser.open(page([recorded]))
    with opened.page.expect_download() as waiting:
        opened.page.get_by_role("button", name="Download the run").click()
    download = waiting.value
    assert download.suggested_filename.endswith(".json")
    assert decode(Path(download.path()).read_bytes(), "download") == recorded
    assert all(url.startswith("blob:") for url in opened.requests) and not opened.complaints
    opened.page.close()


def test_the_first_tab_skips_to_the_results(recorded, browser):
    opened = browser.open(page([recorded]))
    opened.page.keyboard.press("Tab")
    assert opened.page.evaluate("document.activeElement.textContent") == "Skip to the results"
    opened.page.keyboard.press("Enter")
    assert opened.page.evaluate("document.activeElement.id") == "main"
    opened.page.close()


def test_one_node_is_printed_on_four_pages(browser):
    """What is folded stays folded: the page would otherwise have 16."""
    document = wirespeed.run(machine="simulated:dgx-a100-8+nvlinks=6@gpu3", samples=3, copies=1, rounds=1)
    opened = browser.open(page([document]))
    assert len(re.findall(rb"/Type /Page\b", opened.page.pdf(format="A4"))) <= 4
    assert len(re.findall(rb"/Type /Page\b", opened.page.pdf(format="Letter"))) <= 4
    opened.page.close()


def test_menu_and_tables_of_eight_gpus_fit_a_phone(eight, browser):
    opened = browser.open(page([eight]), 390)
    opened.page.locator("summary", has_text="GPU ↔ GPU").first.click()
    assert fits(opened)
    ends = opened.page.evaluate(
        "[...document.querySelectorAll('nav a')].map((link) => link.getBoundingClientRect().right)"
    )
    assert ends and max(ends) <= 390
    article = opened.page.locator("article", has_text="device_to_device_memcpy_read_ce").first
    scroll = article.locator(".scroll").evaluate("(scroll) => scroll.scrollWidth - scroll.clientWidth")
    assert scroll <= 0
    opened.page.close()


def test_every_sign_that_is_drawn_is_in_the_legend(browser):
    machine = "simulated:dgx-a100-8+nvlinks=6@gpu3"
    opened = browser.open(page([wirespeed.run(["0", "4", "host_latency"], machine=machine, samples=3)]))
    legend = opened.page.locator(".signs .verdict").all_inner_texts()
    assert legend == list(dict.fromkeys(legend))
    drawn = opened.page.locator("main details.group .verdict > span[aria-hidden]").all_text_contents()
    drawn += opened.page.locator("main table.heat th .verdict").all_text_contents()
    marks = opened.page.evaluate("""() => [...document.querySelectorAll("table.heat td")].map(
        (cell) => getComputedStyle(cell, "::before").content).filter((text) => text !== "none")""")
    drawn += [mark.strip('" ') for mark in marks]
    assert "✖" in drawn and {sign.strip() for sign in drawn} <= {*legend}
    caption = opened.page.locator("figcaption").first.inner_text()
    signs = opened.page.locator("svg.machine text").all_text_contents()
    assert {"✖", "▲", "‼", "◷", "?", "–"} & set("".join(signs)) <= set(caption)
    assert opened.page.locator("p.legend .key").count() == 3  # the marks of the bars
    opened.page.close()


def test_the_map_of_blocks_is_coloured_by_method(browser):
    html = page([wirespeed.blocks(machine="simulated:hgx-h200-2", samples=3).document])
    for width in (390, 1440):
        opened = browser.open(html, width)
        table = opened.page.locator("table.blocks").first
        letters = {"m0": "L", "m1": "B", "m2": "K", "m3": "U", "m4": "S"}
        cells = table.locator("td:not(.none)")
        shown = cells.evaluate_all("""(cells) => cells.map(
            (cell) => [cell.className, cell.innerText, getComputedStyle(cell).backgroundColor]
        )""")
        assert len(shown) > 10
        assert all(text.startswith(letters[css]) for css, text, _ in shown)
        seen = {css: colour for css, _, colour in shown}
        assert len(seen) > 1 and len({*seen.values()}) == len(seen)
        title = table.locator("td.m2").first.get_attribute("title")
        assert "kernel" in title and "batch" in title and "GB/s" in title
        cells.first.click()  # no samples behind it
        assert opened.page.locator("#blocks-0").is_visible() and fits(opened)
        assert not opened.complaints and not opened.requests
        opened.page.close()


def test_it_prints_what_is_open(recorded, browser):
    opened = browser.open(page([recorded]))
    opened.page.emulate_media(media="print")
    assert opened.page.locator("nav").is_hidden()
    assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    folded = opened.page.locator("details:not([open])").count()
    opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert opened.page.locator("details:not([open])").count() == folded > 0
    assert opened.page.pdf().startswith(b"%PDF")
    opened.page.close()


def test_without_scripts_all_but_the_samples_is_there(recorded, browser):
    opened = browser.open(page([recorded]), java_script_enabled=False)
    opened.page.locator("summary", has_text="GPU ↔ GPU").click()
    assert opened.page.locator("details.group[open] td").first.is_visible()
    assert opened.page.get_by_role("button", name="Download the run").count() == 0
    assert "enable scripts to save it" in opened.page.locator("main").inner_text()
    opened.page.close()


def test_the_state_over_time_is_drawn(recorded, browser):
    first = recorded.testcases[0]
    readings = tuple(
        Reading(
            float(i),
            (
                Quantity("gpu0", "temperature", 40.0 + i, "°C"),
                Quantity("gpu0", THROTTLED, ("power",) if i > 2 else ()),
            ),
        )
        for i in range(5)
    )
    document = replace(recorded, testcases=(replace(first, readings=readings, seconds=5.0),))
    opened = browser.open(page([document]))
    titles = [t.text_content() for t in opened.page.locator(".charts svg > title").all()]
    assert any("temperature" in title and "44" in title for title in titles)
    assert "none → power" in opened.page.locator("main").text_content()
    charts = opened.page.locator(".charts svg").all()
    ticks = [chart.locator(".tick.middle").all_text_contents() for chart in charts]
    assert all(marks == ticks[0] for marks in ticks) and ticks[0][-1] == "4 s"
    opened.page.close()


def test_a_device_filters_the_tables(eight, browser):
    opened = browser.open(page([eight]))
    field = opened.page.get_by_label("Filter", exact=True)
    bright = opened.page.locator("table.heat td[data-l]:not(.faint)")
    everything = bright.count()
    place = opened.page.get_by_role("button", name="Show the values of gpu3")
    place.focus()
    opened.page.keyboard.press("Enter")
    assert field.input_value() == "gpu3" and 0 < bright.count() < everything / 2
    pairs = opened.page.locator("article", has_text="device_to_device_memcpy_read_ce").first
    assert pairs.locator("td[data-l]:not(.faint)").count() == 14
    assert opened.page.locator("details.group[open]").count() >= 3
    assert opened.page.locator("summary", has_text="host memory").is_hidden()
    assert opened.page.locator("output").inner_text().endswith(" values")
    opened.page.keyboard.press("Enter")
    assert field.input_value() == "" and bright.count() == everything
    field.fill("gpu3 write_sm")
    assert pairs.is_hidden()
    assert opened.page.locator("article", has_text="device_to_device_memcpy_write_sm").first.is_visible()
    field.fill("")
    opened.page.locator(".place[data-place='gpu5–nvswitch']").dispatch_event("pointerenter")
    assert pairs.locator("td[data-l]:not(.faint)").count() == 14 and not opened.complaints
    opened.page.close()


def test_names_do_not_break_within_a_word(eight, browser):
    """A word that is broken is higher than one line."""
    opened = browser.open(page([eight]), 390)
    opened.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    broken = opened.page.evaluate("""() => [...document.querySelectorAll("th, h3, h4")].flatMap((element) => {
        const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT), found = [];
        while (texts.nextNode()) {
            const range = document.createRange(), text = texts.currentNode.data;
            for (const word of text.matchAll(/[a-z0-9]+/gi)) {
                range.setStart(texts.currentNode, word.index);
                range.setEnd(texts.currentNode, word.index + word[0].length);
                if (new Set([...range.getClientRects()].map((box) => box.top)).size > 1) found.push(word[0]);
            }
        }
        return found;
    })""")
    assert not broken
    opened.page.close()


def test_several_runs_in_one_page(recorded, eight, browser):
    opened = browser.open(page([recorded, recorded, eight]))
    assert opened.page.locator("h2").first.inner_text() == "Comparison"
    assert opened.page.locator("section").count() == 4
    assert fits(opened) and not opened.complaints
    opened.page.locator("table.runs a", has_text="C:").click()
    opened.page.locator("#machine-2").wait_for(timeout=5000)  # the browser tells of the new hash later
    assert not opened.page.locator("#machine-1").is_visible()
    opened.page.close()


def large(document: Document) -> Document:
    """Half of the suite between 72 ranks: eight tables, six samples a cell, all of all digits."""
    numbers = random.Random(1)
    one = document.testcases[0]
    results = []
    for i in range(8):
        cells = []
        for cell in one.tables[0].cells:
            samples = tuple(numbers.gauss(7.6e11, 1e9) for _ in range(6))
            statistics = summarise(samples)
            cells.append(replace(cell, value=statistics.median, samples=samples, statistics=statistics))
        table = replace(one.tables[0], cells=tuple(cells))
        results.append(replace(one, name=f"{one.name}_{i}", tables=(table,)))
    return replace(document, testcases=tuple(results))


@pytest.mark.long
def test_half_of_the_suite_between_72_ranks_is_small_and_opens(seventy_two, browser):
    html = page([large(seventy_two)])
    assert len(html.encode()) < 4_000_000
    opened = browser.open(html)
    opened.page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    assert opened.page.locator("details.packed").count() == 8
    opened.page.locator("details.packed summary").nth(7).click()
    opened.page.locator("details.packed").nth(7).locator("td").nth(1).click()
    detail = opened.page.locator("details.packed .detail")
    detail.get_by_text("This page does not contain the samples.").wait_for()  # with them it has 6.4 MB
    assert not opened.complaints and not opened.requests
    assert json.loads(opened.page.evaluate("JSON.stringify(performance.getEntriesByType('resource'))")) == []
    opened.page.close()


def test_on_a_phone_the_drawing_begins_at_what_is_wrong(browser):
    machine = "simulated:dgx-a100-8+nvlinks=6@gpu6"
    html = page([wirespeed.run(["4", "5"], machine=machine, samples=3, copies=1)])
    for width in (390, 1440):
        opened = browser.open(html, width)
        box = opened.page.locator(".box.fail").bounding_box()
        assert box and box["x"] > 0 and box["x"] + box["width"] < width
        assert fits(opened) and not opened.complaints
        opened.page.close()
