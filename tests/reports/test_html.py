"""The page itself: what is in it, and what it may do. `test_browser` opens it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from msgspec.structs import replace

import wirespeed
from tests.conftest import SHAPES, SPECS, with_long
from wirespeed.cli.main import main
from wirespeed.document import Document, Status
from wirespeed.reports.html.page import page
from wirespeed.reports.values import GLANCE, number
from wirespeed.results.store import decode, encode
from wirespeed.tables import Statistics

from .conftest import RECORDED

VOID = {"meta", "link", "br", "img", "input", "hr", "wbr"}


class Tree(HTMLParser):
    """Checks that tags close in order, and collects what the tests ask for."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def html(recorded: Document) -> str:
    return page([recorded])


def test_it_is_whole_and_has_landmarks(html):
    tree = Tree(html)
    names = [tag for tag, _ in tree.tags]
    for landmark in ("header", "nav", "main", "footer"):
        assert names.count(landmark) == 1
    ids = [attributes["id"] for _, attributes in tree.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for link in tree.of("a"):
        assert link["href"].startswith("#") and link["href"][1:] in ids
    assert all(cell.get("scope") in ("row", "col") for cell in tree.of("th"))
    for attributes in (a for _, a in tree.tags if "aria-labelledby" in a):
        assert attributes["aria-labelledby"] in ids
    assert all(svg.get("role") == "img" for svg in tree.of("svg"))
    assert html.count("<title>") >= 1 + len(tree.of("svg"))
    levels = [int(name[1]) for name in names if re.fullmatch("h[1-6]", name)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for table in (attributes for name, attributes in tree.tags if name == "table"):
        named = table.get("aria-labelledby") in ids or table.get("aria-label")
        assert named or table.get("class") in ("list", "list runs")  # these have a caption
    assert {label["for"] for label in tree.of("label")} == {field["id"] for field in tree.of("input")}


def test_nothing_but_its_own_script_and_style_may_act(html):
    tree = Tree(html)
    policy = next(m["content"] for m in tree.of("meta") if m.get("http-equiv"))
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy and "http" not in policy
    for tag in ("script", "style"):
        source = re.search(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    for _, attributes in tree.tags:
        assert not {"src", "srcset", "style", "data", "action"} & attributes.keys()
        assert not any(name.startswith("on") for name in attributes)
    assert "http" not in re.sub(r'http-equiv|"http://www.w3.org/2000/svg"', "", html)


def test_the_document_is_in_it_whole(html, recorded):
    packed = re.search(r'id="document-0">([^<]+)<', html)[1]
    assert decode(gzip.decompress(base64.b64decode(packed)), "page") == recorded


def test_every_measured_value_is_in_it(html, recorded):
    text = Tree(html).text
    for result in recorded.testcases:
        assert result.name in text
        for table in result.tables:
            for value in table.values():
                shown = value / 1e9 if value > 1 else value * 1e9
                assert number(shown, digits=GLANCE) in text, (result.name, table.key, value)
    assert "143 values OK, 2 not judged" in text and "55.4 / 55.3 of 63.01" in text


def test_links_show_measured_over_limit(recorded, html):
    text = Tree(html).text
    assert "4595 of 4814" in text  # the fastest kernel on it only writes
    assert "396 of 478.1" in text  # the same both ways


def test_a_slow_link_is_marked_in_the_drawing():
    """The totals of all_to_one, which the link hardly carries, say nothing of it."""
    machine = "simulated:dgx-a100-8+speed@gpu3->nvswitch=0.5"
    slow = wirespeed.run(["4", "5", "all_to_one_write_ce", "one_to_all_read_ce"], machine=machine)
    html = page([slow])
    row = re.search(r"<th scope=\"row\">gpu3 → nvswitch</th><td>nvlink</td>(.*?)</tr>", html)
    measured, limit, share = re.findall(r'class="number"[^>]*>([^<]*)<', row[1])
    assert float(measured) == pytest.approx(138, rel=0.01) and (limit, share) == ("300", "46%")
    marked = re.findall(r'<title>([^<]*)</title><path [^>]*class="link w3 fail"', html)
    assert len(marked) == 1 and "gpu3 to nvswitch" in marked[0] and "fail" in marked[0]
    assert "✖ 276 / 138 of 300" in html or "✖ 138 / 276 of 300" in html
    assert re.search(r'<h1><span class="word">FAIL</span> <span class="why">NVLink .*gpu3-&gt;nvswitch', html)


@pytest.mark.parametrize("name", with_long(sorted(set(SHAPES) - {"nvl72"}), "l40s-8", "ppu-8", "rtx5090-4"))
def test_every_machine_is_drawn(name):
    document = wirespeed.run(machine=SPECS[name], samples=1, copies=1)
    tree = Tree(page([document]))
    machine = document.machine
    ranks = [f"{rank.index}/{rank.device}" for rank in machine.ranks]
    for vertex in (*(n.name for n in machine.numa), *(ranks or [gpu.name for gpu in machine.gpus])):
        assert vertex in tree.text
    pairs = {frozenset((link.source, link.destination)) for link in machine.links} - {
        frozenset((link.source,)) for link in machine.links
    }
    drawn = [a for a in tree.of("path") if str(a.get("class")).startswith("link")]
    assert len(drawn) == len(pairs)


def test_times_of_collectives_are_in_microseconds(capsys, tmp_path):
    saved = tmp_path / "run.json"
    arguments = ["--machine", "simulated:dgx-a100-8", "-g", "8", "-b", "8", "-e", "64M", "-f", "64"]
    assert main(["all_reduce_perf", *arguments, "--output", str(saved)]) == 0
    text = Tree(page([wirespeed.load(saved)])).text
    assert "all_reduce: time" in text and "µs; rows: size" in text and "Peak:" in text
    plot = wirespeed.render(wirespeed.load(saved), "plot")
    assert "µs" in plot and "1e+0" not in plot


def test_a_simulated_pass_is_no_pass(eight):
    html = page([eight])
    header = html[html.index("<header") : html.index("</header>")]
    assert "SIMULATED: no hardware was measured" in header and "<title>PASS (simulated) · dgx-a100-8" in html


def test_pages_of_two_runs_compare_them(tmp_path):
    for name in ("before.json", "after.json"):
        (tmp_path / name).write_bytes(RECORDED.read_bytes())
    runs = [str(tmp_path / "before.json"), str(tmp_path / "after.json")]
    assert main(["report", *runs, "-o", str(tmp_path / "both.html")]) == 0
    compared = (tmp_path / "both.html").read_text()
    assert ">before.json</a>" in compared and ">after.json</a>" in compared


def test_equal_file_names_are_told_apart_by_their_folders(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.json").write_bytes(RECORDED.read_bytes())
    files = [str(tmp_path / folder / "run.json") for folder in ("one", "two")]
    assert main(["report", *files, "-o", str(tmp_path / "x.html")]) == 0
    html = (tmp_path / "x.html").read_text()
    assert all(f">{file}</a>" in html for file in files)


def test_labels_are_those_of_all_runs(recorded):
    with pytest.raises(wirespeed.UsageError, match="1 labels for 2 runs"):
        page([recorded, recorded], labels=["before"])


def test_runs_are_compared():
    good = wirespeed.run(["4"], machine="simulated:hgx-h200-2")
    slow = wirespeed.run(["4"], machine="simulated:hgx-h200-2+speed@gpu0->gpu1=0.5")
    text = Tree(
        page([good, slow, wirespeed.run(["host_stream_copy"], machine="simulated:cpu-2-sockets")])
    ).text
    assert "✖ worse" in text and "-50." in text and "1 worse of 2 values" in text
    assert "no cell has a value on both sides" in text
    assert "no cell has a value on both sides" in text


def test_the_page_of_a_run_is_the_same_again(recorded, html):
    assert page([recorded]) == html


@pytest.mark.long
def test_large_tables_are_packed(seventy_two):
    html = page([seventy_two])
    assert len(html) < 2_000_000
    assert "Show the 72 x 72 table" in html and "5112 values" in html
    inside = re.search(r'<script type="application/octet-stream">([^<]+)<', html)[1]
    table = Tree(gzip.decompress(base64.b64decode(inside)).decode())
    assert len(table.of("td")) == 72 * 72


def test_a_large_document_is_shortened_and_says_so(seventy_two):
    exact = len(re.search(r'id="document-0">([^<]+)<', page([seventy_two]))[1])
    html = page([seventy_two], exact - 1)
    assert "The run in this page has no samples, to keep" in html
    packed = re.search(r'id="document-0">([^<]+)<', html)[1]
    shorter = decode(gzip.decompress(base64.b64decode(packed)), "page")
    for one, other in zip(seventy_two.testcases, shorter.testcases, strict=True):
        for cell, short in zip(one.tables[0].cells, other.tables[0].cells, strict=True):
            assert short.value == cell.value and cell.samples and not short.samples
            assert isinstance(short.statistics, Statistics)


def test_waived_and_broken_testcases(recorded):
    first = recorded.testcases[0]
    cells = tuple(replace(cell, value=None, statistics=None, samples=(), reason="lost <it>") for cell in
                  first.tables[0].cells)  # fmt: skip
    broken = replace(
        first, status=Status.ERROR, reason="the GPU is gone", tables=(replace(first.tables[0], cells=cells),)
    )
    document = replace(recorded, testcases=(broken,), interrupted="the GPU is gone")
    html = page([decode(encode(document), "memory")])
    assert "lost &lt;it&gt;" in html and "Run interrupted: the GPU is gone" in html
    assert f"{first.name}: error: the GPU is gone" in Tree(html).text


@pytest.mark.parametrize("suffix", ["html", "md", "csv", "prom", "xml", "txt", "json"])
def test_the_command_writes_by_the_name_of_the_file(suffix, tmp_path, capsys):
    target = tmp_path / f"report.{suffix}"
    assert main(["report", str(RECORDED), "-o", str(target)]) == 0
    text = target.read_text()
    beginnings = {"html": "<!doctype html>", "md": "# wirespeed", "csv": "testcase,", "prom": "# HELP",
                  "xml": "<?xml", "txt": "wirespeed", "json": "{"}  # fmt: skip
    assert text.startswith(beginnings[suffix])
    assert str(target) in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.json", "-o", "x.html"], "cannot read a.json"),
        ([str(RECORDED), "-o", "x.what"], "pass --format"),
        ([str(RECORDED), "-o", "x.md", "--format", "nonsense"], "there is no format"),
        ([str(RECORDED), str(RECORDED), "-o", "x.md"], "only HTML reports can contain several runs"),
        ([str(RECORDED), "-o", "/nowhere/x.html"], "the folder does not exist"),
        ([str(RECORDED), "--fleet"], "--fleet is a page: pass -o FILE.html"),
        ([], "a file is required"),
    ],
)
def test_wrong_use_is_one_line(arguments, message, capsys):
    assert main(["report", *arguments]) in (2, 5)
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_saved_run_is_not_replaced(tmp_path, capsys):
    before = tmp_path / "before.json"
    before.write_bytes(RECORDED.read_bytes())
    assert main(["report", "-o", str(before), str(RECORDED)]) == 2
    assert "is a saved run" in capsys.readouterr().err
    assert before.read_bytes() == RECORDED.read_bytes()


def test_documents_that_cannot_be_are_refused(recorded, tmp_path):
    text = encode(recorded).decode()
    for wrong in (text.replace('"row": 0', '"row": 7', 1), text.replace('"row": 0', '"row": -1', 1)):
        with pytest.raises(wirespeed.DocumentError, match="broken saved run of wirespeed"):
            decode(wrong.encode(), "a.json")
