"""Parts of the page: colours, their contrast, groups by kind of path, the drawing, causes."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import pytest
from msgspec.structs import replace

import wirespeed
from wirespeed.hardware.devices import NumaNode
from wirespeed.hardware.topology import Link, LinkKind, Machine
from wirespeed.judging.judge import judge
from wirespeed.judging.judged import Judged
from wirespeed.judging.overview import overview
from wirespeed.judging.verdict import Judgement, Verdict
from wirespeed.measurement import Unit
from wirespeed.reports.html.charts import STEPS, ColorScale, step
from wirespeed.reports.html.diagram import draw
from wirespeed.reports.html.environment import surroundings
from wirespeed.reports.html.link_use import Use, uses
from wirespeed.reports.html.page import page, page_of_sides
from wirespeed.reports.values import GLANCE, number
from wirespeed.results.cells import Key

from .states import command, sixteen

STYLE = (files("wirespeed.reports.html") / "style.css").read_text("utf-8")
#: Copies between two GPUs, side by side in the page, and more of them.
PAIRS = [
    f"device_to_device_{both}memcpy_{access}_{engine}"
    for both in ("", "bidirectional_")
    for engine in ("sm", "ce")
    for access in ("write", "read")
]
KEY = Key("x", "", "a", "b")


def run(machine: str, *testcases: str, **options: str) -> wirespeed.Document:
    return wirespeed.run(testcases, machine=f"simulated:{machine}", samples=3, copies=1, **options)


def themes() -> dict[str, dict[str, str]]:
    """The variables of the style: light, dark, print."""
    light, dark, paper = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    read = (dict(re.findall(r"--([\w-]+): (#\w+)", block)) for block in (light, dark, paper))
    return dict(zip(("light", "dark", "print"), read, strict=True))


def luminance(color: str) -> float:
    digits = color[1:] if len(color) == 7 else "".join(2 * one for one in color[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours as WCAG 2 defines it."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_text_is_legible_on_every_background(theme):
    colors = themes()[theme]
    texts = ("text", "soft", "link", "pass", "warn", "fail", "unknown", "implausible")
    pairs = [(text, back) for text in texts for back in ("page", "panel")]
    pairs += [(f"{css}-text", css) for css, _ in STEPS] + [("text", "track")]
    for text, back in pairs:
        assert contrast(colors[text], colors[back]) >= 4.5, (theme, text, back)
    for mark in ("fail", "wire", "s0"):  # lines and marks
        assert contrast(colors[mark], colors["page"]) >= 2.3, (theme, mark)


def test_slow_is_darker_than_healthy_which_is_nearly_the_page():
    for theme, darker in (("light", True), ("dark", False)):
        colors = themes()[theme]
        assert contrast(colors["n"], colors["page"]) < 1.3
        assert contrast(colors["w4"], colors["page"]) > 3
        assert (luminance(colors["w4"]) < luminance(colors["n"])) == darker


@pytest.mark.parametrize(
    ("speed", "verdict", "css"),
    [
        (1.0, Verdict.PASS, "n"),
        (0.5, Verdict.FAIL, "w4"),
        (0.93, Verdict.PASS, "w1"),
        (1.0, Verdict.WARN, "w1"),
        (1.0, Verdict.FAIL, "w2"),
        (1.1, Verdict.PASS, "c1"),
        (0.9, Verdict.IMPLAUSIBLE, "c2"),
        (0.0, Verdict.FAIL, "w4"),
    ],
)
def test_colours_diverge_and_follow_the_verdict(speed, verdict, css):
    assert step(speed, verdict) == css


def test_values_that_pass_are_the_middle_of_the_colours(recorded):
    cell = recorded.testcases[0].tables[0].cells[0]

    def judged(value: float, verdict: Verdict) -> tuple[object, Judgement]:
        return replace(cell, value=value), Judgement(KEY, Unit.RATE, verdict, value, 300.0, 210.0, 249.0)

    values = [judged(276.0, Verdict.PASS)] * 3 + [judged(138.0, Verdict.FAIL)]
    colors = ColorScale.of(Unit.RATE, values)
    assert [colors.css(one.value, judgement) for one, judgement in values] == ["n", "n", "n", "w4"]
    assert not ColorScale.of(Unit.RATE, values[:2]).colored  # two values say nothing about each other
    late = [(replace(cell, value=value), None) for value in (*[1e-6] * 12, 2e-6)]
    assert ColorScale.of(Unit.TIME, late).css(2e-6, None) == "w4"
    assert ColorScale.of(Unit.TIME, late[-3:]).css(2e-6, None) == ""


@pytest.mark.parametrize(
    ("value", "text"), [(276.4, "276"), (25.96, "26.0"), (9.3, "9.30"), (1304.2, "1304"), (0.01234, "0.0123")]
)
def test_values_have_three_digits(value, text):
    assert number(value, digits=GLANCE) == text


def test_the_text_about_a_cause_is_in_the_page_and_linked():
    html = page([run("dgx-a100-8+nvlinks=6@gpu3", PAIRS[0])])
    assert html.count('href="#about-0-nvlinks"') == 1
    pattern = r'<summary>About nvlinks</summary><div id="about-0-nvlinks">(.*?)</div></details>'
    (about,) = re.findall(pattern, html, re.DOTALL)
    assert "fewer active NVLinks" in about and "<code>nvidia-smi nvlink -s</code>" in about
    assert "docs/doctor.md" not in html


def test_failures_come_first_and_passes_are_folded():
    html = page([run("dgx-a100-8+nvlinks=6@gpu3", "0", "1", *PAIRS, "host_stream_triad")])
    groups = re.findall(
        r'<details class="group" id="[^"]*"( open)?>\n<summary><h3>.*?</span></span>(.*?)</h3>', html
    )
    assert groups == [(" open", "GPU ↔ GPU"), ("", "host ↔ GPU"), ("", "host memory")]
    opened = html[html.index("GPU ↔ GPU</h3>") : html.index("host ↔ GPU</h3>")]
    order = re.findall(r"<article[^>]*>\s*<h4>.*?</span></span>(.*?)</h4>", opened)[:3]
    assert [name.replace("<wbr>", "") for name in order] == [
        "device_to_device_memcpy_read_ce",
        "device_to_device_memcpy_write_ce",
        "device_to_device_memcpy_read_sm",
    ]
    assert "more tables with values that are not as expected" in opened
    shared = html[html.index("host ↔ GPU</h3>") : html.index("host memory</h3>")]
    assert shared.count("<table") == 1 and shared.count("data-case=") == 2  # rows of one table


def test_causes_have_evidence_and_remedy():
    html = page([run("dgx-a100-8+nvlinks=6@gpu3", "4", "5")])
    cause = html[html.index('id="causes-0"') : html.index('id="results-0"')]
    for text in (
        "likely cause",
        "NVLinks are down (gpu3)",
        "evidence",
        "remedy",
        "<code>nvidia-smi nvlink -s",
    ):
        assert text in cause
    assert '<a href="#causes-0">evidence and remedy</a>' in html[: html.index("<main")]


def test_the_culprit_is_marked_and_links_are_as_thick_as_their_capacity():
    html = page([run("dgx-a100-8+nvlinks=6@gpu3", "0", "4", "5")])
    assert re.search(r'data-place="gpu3"[^>]*><rect [^>]*class="box fail"', html) and "✖ gpu3</text>" in html
    widths = {
        kind: float(re.search(rf"<title>{kind} [^<]*</title><path [^>]*stroke-width=\"([\d.]+)\"", html)[1])
        for kind in ("pcie", "nvlink")
    }
    assert widths["nvlink"] > 1.5 * widths["pcie"]


def test_wrong_data_and_busy_devices_are_marked():
    wrong = page([run("dgx-a100-8+corrupt@gpu3->gpu5", "4", "5")])
    for gpu in ("gpu3", "gpu5"):
        assert re.search(rf'data-place="{gpu}"[^>]*><rect [^>]*class="box fail"', wrong)
    assert "✖ gpu4" not in wrong and 'class="w4 bad"' in wrong and 'class="tile fail"' in wrong
    busy = page([run("hgx-h200-2+busy@gpu1", "0", "4")])
    assert '<span class="word">BUSY</span>' in busy and 'class="box busy"' in busy


def test_many_gpus_are_a_matrix(seventy_two):
    html = page([seventy_two])
    drawn = html[
        html.index('<svg viewBox="0 0 986 904"') : html.index(
            "</svg>", html.index('<svg viewBox="0 0 986 904')
        )
    ]
    assert "72 GPUs: 0 pairs of 5112 not as expected" in drawn and drawn.count("data-place") == 72
    slow = replace(
        seventy_two,
        testcases=tuple(
            replace(one, tables=(replace(one.tables[0], cells=tuple(
                replace(cell, value=cell.value / 2) if cell.row == 5 and cell.value else cell
                for cell in one.tables[0].cells)),))
            for one in seventy_two.testcases[:1]
        ),
    )  # fmt: skip
    assert len(re.findall(r'class="cell w4"><title>5/gpu1 and', page([slow]))) == 71


def test_the_reasons_of_a_group_are_counted():
    document = wirespeed.run(["0"], machine="simulated:dgx-a100-8", size="64KiB", samples=3, copies=1)
    assert "8 values: buffers too small: starting a copy" in page([document])
    check = judge(document)
    assert sum(one.why.startswith("buffers too small") for one in check.judgements) == 8


def test_the_first_screen_says_what_to_do():
    def advice(machine: str, *testcases: str, **options: str) -> str:
        html = page([run(machine, *testcases, **options)])
        found = re.search(r'<p class="advice">(.*?)</p>', html)
        return re.sub("<[^>]*>", "", found[1]) if found else ""

    assert advice("dgx-a100-8", "0", "4") == ""
    assert "Reset the GPU; if they stay down" in advice("dgx-a100-8+nvlinks=6@gpu3", "4", "5")
    assert "Check slot and riser" in advice("dgx-a100-8+speed@gpu5-pcie2=0.5", "0", "1")
    assert "Do not use this path" in advice("dgx-a100-8+corrupt@gpu3->gpu5", "4")
    assert "· wirespeed check --wait-idle 5min" in advice("hgx-h200-2+busy@gpu1", "0", "4")
    assert "8 values: buffers too small" in advice("dgx-a100-8", "0", size="64KiB")


def test_sixteen_gpus_are_drawn_in_two_blocks():
    """Each block has its own NUMA nodes and switches above its GPUs."""
    html = page([wirespeed.run(["0"], machine=sixteen(), samples=2, copies=1)])
    place = re.compile(r'data-place="(\w+)"[^>]*><rect x="[\d.]+" y="([\d.]+)"')
    heights = {name: float(y) for name, y in place.findall(html)}
    order = ["numa0", "pcie0", "gpu0", "numa2", "pcie4", "gpu8"]
    assert sorted(order, key=heights.__getitem__) == order
    assert heights["gpu0"] == heights["gpu7"] and heights["gpu8"] == heights["gpu15"]


def test_a_key_figure_ignores_values_without_an_expected_range():
    sizes = command(
        "all_reduce_perf", "--machine", "simulated:hgx-h200-2", "-g", "2", "-b", "1K", "-e", "1G", "-f", "8"
    )
    (figure,) = overview(sizes, judge(sizes)).figures
    assert (
        figure.typical.least and (figure.slowest.value or 0) > figure.typical.least
    )  # not the median of all sizes


@pytest.mark.parametrize(
    ("devices", "gone"), [([0], "gpu1 gpu7 pcie1 pcie3 nvswitch"), ([0, 5], "gpu1 pcie3")]
)
def test_the_drawing_has_no_stubs_of_other_gpus(devices, gone):
    machine = wirespeed.run(["4"], machine="simulated:dgx-a100-8", devices=devices, samples=2).machine
    svg = draw(
        machine, [Use(link, None, Verdict.NOT_JUDGED, None, i) for i, link in enumerate(machine.links)]
    )
    assert svg is not None
    drawn = {end for group in svg.iter() for end in group.get("data-place", "").split("–")}
    assert drawn.isdisjoint(gone.split())
    assert {"numa0", "numa1", "pcie0", *(f"gpu{i}" for i in devices)} <= drawn


def test_a_machine_whose_only_links_are_memory_is_drawn():
    node = NumaNode(0, (0, 1), memory_bytes=2**34)
    link = Link("numa0", "numa0", LinkKind.MEMORY)
    svg = draw(Machine("bare", numa=(node,), links=(link,)), [Use(link, None, Verdict.NOT_JUDGED)])
    assert svg is not None
    assert [group.get("data-place") for group in svg.iter() if group.get("data-place")] == ["numa0"]


def test_the_page_names_the_curve_that_differs_from_many():
    sizes = run_sizes("simulated:dgx-a100-8+speed@gpu7=0.5")
    text = page([sizes])
    assert re.search(r'class="f0"[^>]*>gpu7 \(-\d+% from median\)', text)
    assert text.count('class="curve many"') == 7


def run_sizes(machine: str) -> wirespeed.Document:
    return wirespeed.run(["host_to_device_memcpy_ce"], machine=machine, sizes="4KiB:256MiB:x16", samples=2)


def test_links_are_not_red_for_what_another_device_slows():
    cases = ["host_to_device_memcpy_ce", "device_stream_copy", "all_reduce"]
    document = wirespeed.run(cases, machine="simulated:dgx-a100-8+speed@gpu7=0.5", tier="quick")
    judged = Judged(document)
    assert [str(suspect) for one in judged.check.culprits for suspect in one.suspects] == ["gpu7"]
    found = uses(judged)
    red = [use.link for use in found if use.verdict is Verdict.FAIL]
    assert red
    assert all("gpu7" in (link.source, link.destination) for link in red)


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({}, {"stopping rule": "at a 95% interval of ±0.5%, or after 5 s per value; at least 6 samples; "
              "7 rounds", "preset": "standard", "verify the data after every sample": "yes"}),
        ({"samples": 3, "copies": 1, "size": "64MiB", "verify": False, "pageable": True, "within": "20min"},
         {"stopping rule": "3 samples of 1 copy; 1 round", "buffer size": "64 MiB",
          "verify the data after every sample": "no",
          "maximum time of the run, from start to exit": "20 min"}),
    ],
)  # fmt: skip
def test_the_environment_has_no_names_of_options(options: dict[str, Any], rows: dict[str, str]) -> None:
    document = wirespeed.run(["0"], machine="simulated:hgx-h200-2", **options)
    shown = dict(surroundings(document))
    assert rows.items() <= shown.items()
    assert not [name for name in shown if "_" in name] and "options" not in shown
    assert "affinity" not in str(shown) and "time_budget" not in str(shown)
    assert shown["gpu0 to gpu1"].startswith("2 × NVIDIA H200, ")


def test_options_of_other_tools_are_shown_as_they_are() -> None:
    document = wirespeed.run(["0"], machine="simulated:cpu-2-sockets")
    strange = {
        "rule": "precise",
        "precision": "x",
        "size": "big",
        "step_factor": 2,
        "off": False,
        "more": ["a", 1],
    }
    shown = dict(surroundings(replace(document, options=strange)))
    assert shown["buffer size"] == "big" and shown["step factor"] == "2" and shown["more"] == "a, 1"
    assert "off" not in shown and "stopping rule" not in shown


def test_the_page_of_block_lists_begins_with_one_map_of_each_direction() -> None:
    """Their values are drawn once, and neither submissions nor the other GPUs have charts."""
    found = wirespeed.blocks(machine="simulated:dgx-a100-8")
    html = page([found.document])
    assert (
        html.count('<table class="heat blocks" aria-label="host → GPU (numa0-&gt;gpu0)') == 2
    )  # with p50 and p99
    assert 'class="curve' not in html and "submission" not in html and "numa0-&gt;gpu5)" not in html
    assert html.index('id="blocks-0"') < html.index('id="machine-0"') and 'id="results-0"' not in html
    slow = wirespeed.blocks(machine="simulated:dgx-a100-8+speed@pcie0-gpu0=0.5")
    assert 'id="results-0"' in page([slow.document])  # what is not as expected


def test_no_drawing_of_a_machine_of_which_nothing_was_measured() -> None:
    nothing = run("gh200-1", "device_to_device_memcpy_read_ce")
    assert 'class="drawing' not in page([nothing])
    assert 'class="drawing' in page([run("gh200-1", "host_to_device_memcpy_ce")])


def test_runs_before_and_after_are_one_page_with_their_verdict() -> None:
    """The page of `compare --format html` is that of `report` with the answer of the comparison."""
    before, after = run("hgx-h200-2", *PAIRS[:2]), run("hgx-h200-2+speed@gpu0-gpu1=0.9", *PAIRS[:2])
    html = page_of_sides(wirespeed.compare([before], [after]))
    head = html[html.index("<header") : html.index("</header>")]
    assert ">FAIL<" in head and "4 values slower, median −10" in html
    assert html.count('<details class="run') == 2 and 'id="changes"' in html
