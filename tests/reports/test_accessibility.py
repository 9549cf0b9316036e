"""axe-core finds nothing on pages in any state: light and dark, on a desktop and on a phone."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from importlib.resources import files

import pytest

import wirespeed
from tests.conftest import with_long
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.features.fleet.page import fleet_page
from wirespeed.judging.diagnosis import diagnose
from wirespeed.judging.judge import judge
from wirespeed.judging.judged import Judged
from wirespeed.judging.run_summary import run_summary
from wirespeed.reports.html.notebook import notebook_html
from wirespeed.reports.html.page import page, page_of_sides
from wirespeed.results.read_many import Unreadable

from .states import command, run

#: The standards, and the rules that depend on colours: only these are checked in dark mode, too.
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa", "best-practice"]
OF_COLORS = ["color-contrast", "link-in-text-block"]
TWO = "hgx-h200-2"
CASES = ("host_to_device_memcpy_ce", "device_to_device_memcpy_read_ce", "host_stream_triad")
#: Opens what is folded, and removes what is like what remains: the audit takes long on large pages.
PREPARE = """() => {
    const every = (selector, act) => document.querySelectorAll(selector).forEach(act);
    const more = ["tbody tr:nth-child(n+5)", "svg .place:nth-of-type(n+10)", "article:nth-of-type(n+5)"];
    every(more.join(), (one) => one.remove());
    every("details:not(.packed)", (one) => { one.open = true; });
    every("section:nth-of-type(n+3) details.run", (one) => { one.open = false; });
}"""


def several(count: int) -> str:
    runs = [run(TWO, *CASES), run(f"{TWO}+nvlinks=9@gpu1", *CASES)]
    return page([runs[i == 1] for i in range(count)], labels=[f"run{i}.json" for i in range(count)])


def fleet() -> str:
    def summary(document: Document) -> object:
        return run_summary(Judged(document, file="node.json"))

    good, slow = (summary(run(TWO + fault, *CASES)) for fault in ("", "+nvlinks=9@gpu1"))
    return fleet_page([dataclasses.replace(slow if i == 5 else good, host=f"node{i}") for i in range(12)])


def sides() -> str:
    """A comparison of several runs before and after, of nodes of which one has no run after."""
    before = [run(TWO, *CASES, host=f"node{i}", seed=i) for i in range(3)]
    after = [run(f"{TWO}+nvlinks=9@gpu1", *CASES, host=f"node{i}", seed=5 + i) for i in range(2)]
    return page_of_sides(wirespeed.compare(before, after), [Unreadable("node2.json", "it is empty")])


def qualification() -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/qualified.json"
        main(["qualify", "--machine", "simulated:dgx-a100-8x16+nic=0.5@node3.1+lost@node9", "-q", "-o", file])
        return page([wirespeed.load(file)])


def seventy_two() -> str:
    return page([run("nvl72", "multinode_device_to_device_memcpy_read_ce")])


def notebook() -> str:
    """A notebook that shows a run, its verdicts and its causes, as Jupyter would: in the page of another."""
    document = run(f"{TWO}+nvlinks=9@gpu1", *CASES)
    check = judge(document)
    shown = "".join(notebook_html(one) for one in (document, check, diagnose(document, check)))
    titles = "".join(f"<h{level}>Title</h{level}>" for level in (1, 2, 3))
    return f'<!doctype html><html lang="en"><title>Notebook</title><main>{titles}{shown}</main></html>'


PAGES: dict[str, Callable[[], str]] = {
    "pass": lambda: page([run(TWO, *CASES)]),
    "fail": lambda: page([run(f"{TWO}+nvlinks=9@gpu1", *CASES)]),
    "busy": lambda: page([run(f"{TWO}+busy@gpu1", *CASES)]),
    "not judged": lambda: page([run(TWO, "0", "host_latency_ladder", size="1MiB")]),
    "two runs": lambda: several(2),
    "seven runs": lambda: several(7),
    "twelve nodes": fleet,
    "sides": sides,
    "qualification": qualification,
    "blocks": lambda: page([wirespeed.blocks(machine=f"simulated:{TWO}", samples=3).document]),
    "72 GPUs": seventy_two,
    "notebook": notebook,
    "transfers": lambda: page(
        [command("transfer", "--machine", f"simulated:{TWO}", "gpu0 -> gpu1; gpu1 -> gpu0")]
    ),
}


#: Those that are audited by all rules on a phone, too: their parts are those of the others.
ON_PHONES = {"fail", "seven runs", "twelve nodes"}


@pytest.fixture(scope="module")
def axe() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")


def violations(opened, rules: dict[str, object]) -> list[str]:
    """Return each element that breaks a rule, with the rule."""
    found = opened.page.evaluate(
        """async (rules) => {
            const found = await axe.run(document, {
                runOnly: rules, resultTypes: ["violations"],
                selectors: false, elementRef: true, preload: false,
            });
            const said = (one, node) => `${one.id}: ${node.element.outerHTML.slice(0, 200)}`;
            return found.violations.flatMap((one) => one.nodes.map((node) => said(one, node)));
        }""",
        rules,
    )
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("state", with_long(PAGES, "72 GPUs"))
def test_an_audit_finds_nothing(state, browser, axe):
    opened = browser.open(PAGES[state](), 1440, bypass_csp=True)
    opened.page.evaluate(PREPARE)
    opened.page.evaluate(axe + "; 0")
    assert not violations(opened, {"type": "tag", "values": TAGS})
    opened.page.set_viewport_size({"width": 390, "height": 900})
    if state in ON_PHONES:
        assert not violations(opened, {"type": "tag", "values": TAGS})
    opened.page.emulate_media(color_scheme="dark")
    assert not violations(opened, {"type": "rule", "values": OF_COLORS})
    opened.page.close()


def test_the_audit_finds_something(browser, axe):
    html = (
        page([run(TWO, *CASES)])
        .replace('<html lang="en">', "<html>")
        .replace("--soft: #566070", "--soft: #aaa")
    )
    opened = browser.open(html, 1440, bypass_csp=True)
    opened.page.evaluate(axe + "; 0")
    found = " ".join(violations(opened, {"type": "tag", "values": TAGS}))
    assert "html-has-lang: <html" in found and "color-contrast: " in found
    opened.page.close()
