"""The documentation that the package contains: ``wirespeed help``, links in terminals, text in pages."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.conftest import with_long
from wirespeed.cli.commands import ABOUT, COMMANDS, FIRST, functions
from wirespeed.cli.main import main
from wirespeed.judging.causes import CAUSES
from wirespeed.reports import Style
from wirespeed.reports.console import printed
from wirespeed.reports.topics import causes, markup, search, topic, topics
from wirespeed.screens.documentation import linked, render_topic

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/reference/*.md")]
MENTION = re.compile(r"wirespeed help ([a-z0-9#-]+)")


def test_every_page_and_every_cause_is_a_topic() -> None:
    assert topics() == sorted(path.stem for path in PAGES)
    assert sorted(causes()) == sorted(cause.name for cause in CAUSES)
    for name in (*topics(), *causes()):
        found = topic(name)
        assert found and found.text and found.file.is_file(), name
        assert found.link.startswith("file://")


def test_a_section_ends_where_the_next_begins() -> None:
    found = topic("nvlinks")
    assert found and "nvidia-smi nvlink -s" in found.text and "pcie-width" not in found.text
    within = topic("checks#published-thresholds")
    assert within and within.title == "Published thresholds" and "meaningless" in within.text
    code = topic("operate#slurm-prolog-epilog-and-health-check")
    assert code and "# slurm.conf" in code.text, "a comment in code is no heading"


@pytest.mark.parametrize("name", ["", "nothing", "nvlinks#x", "../README", "limits#nothing", "/etc/passwd"])
def test_what_there_is_not(name: str) -> None:
    assert topic(name) is None


def test_every_command_that_shows_a_topic_shows_one() -> None:
    """In messages, help and documentation."""
    files = [*(ROOT / "src").rglob("*.py"), *ROOT.glob("*.md"), *PAGES]
    named = {name for file in files for name in MENTION.findall(file.read_text())}
    assert len(named) > 4
    assert all(topic(name) or search(name) for name in named - {"help"})


def test_no_text_names_a_file_of_the_repository() -> None:
    """Who installed the package has no docs folder."""
    for file in (ROOT / "src").rglob("*.py"):
        texts = re.findall(r'^[^#"]*"[^"]*\bdocs/\w+\.md[^"]*"', file.read_text(), re.M)
        assert not texts, (file, texts)


def test_the_command_shows_pages_sections_and_causes(capsys: pytest.CaptureFixture[str]) -> None:
    for name, says in (
        ("nvlinks", "fewer active NVLinks"),
        ("slow", "Run the check"),
        ("docs/slow.md", "Run the"),
    ):
        assert main(["help", name]) == 0
        out = capsys.readouterr().out
        assert says in out and "\x1b" not in out and "](" not in out
    assert main(["help", "nvlnks"]) == 2
    out, err = capsys.readouterr()
    assert not out and "did you mean 'nvlinks'" in err and len(err.splitlines()) == 1
    with pytest.raises(SystemExit):
        main(["help", "check"])
    assert capsys.readouterr().out.startswith("usage: wirespeed check")


@pytest.mark.parametrize(
    ("word", "title", "also"),
    [
        ("slurm", "Slurm: prolog, epilog and health check", "clusters#how-to-launch"),
        ("Nagios", "A line and a code for a program", ""),
        ("prometheus", "Metrics for Prometheus", "operate"),
        ("busbw", "busbw", "collectives"),
        ("GB/s", "GB/s, GiB/s", ""),
        ("nvlink", "nvlinks", "nvlinks-inactive"),
    ],
)
def test_a_word_is_found(word: str, title: str, also: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", word]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{title}\n") and also in out.partition("See also:")[2], out
    for name in re.findall(r"^  wirespeed help (\S+)", out.partition("See also:")[2], re.M):
        assert topic(name), name


@pytest.mark.parametrize("word", ["xyzzy", "(", "[a", "\\", "\x1b[31m"])
def test_a_word_that_nothing_says_is_an_error(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", word]) == 2 or capsys.readouterr().out.count("\n") > 3
    assert "\x1b" not in capsys.readouterr().err


def test_without_a_word_the_pages_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    out = capsys.readouterr().out
    assert all(re.search(rf"^  {name}  +\S", out, re.M) for name in topics()) and "nvlinks" in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_long_page_is_shown_by_the_pager(tmp_path: Path) -> None:
    """As by man: on a terminal, and only if it is longer than that."""
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\nexec cat > {tmp_path}/paged\n")
    pager.chmod(0o755)
    for name, is_paged in (("slow", True), ("busy-cpus", False)):
        theirs, ours = pty.openpty()
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        process = subprocess.Popen(
            [sys.executable, "-m", "wirespeed", "help", name], stdin=ours, stdout=ours,
            env={**os.environ, "PAGER": str(pager), "TERM": "xterm"},
        )  # fmt: skip
        assert process.wait(60) == 0
        os.close(ours)
        paged = tmp_path / "paged"
        assert paged.exists() is is_paged
        if is_paged:
            assert "Run the check" in paged.read_text()
            paged.unlink()
        os.close(theirs)


def test_references_between_pages_become_commands() -> None:
    shown = topic("slow")
    assert shown
    text = " ".join(render_topic(shown, Style(width=200)).split())
    assert "What makes a path slow (wirespeed help doctor)" in text
    assert "Exit codes (wirespeed help formats#exit-codes)" in text


def test_topics_are_links_only_where_the_terminal_supports_them() -> None:
    text = "see `wirespeed help nvlinks` or wirespeed help nothing"
    plain = printed(Style(), linked(text))
    assert plain == f"{text}\n"
    colored = printed(Style(color=True), linked(text))
    ((where, shown),) = re.findall(r"\x1b\]8;id=\d+;([^\x1b]+)\x1b\\([^\x1b]+)\x1b\]8;;\x1b\\", colored)
    assert shown == "wirespeed help nvlinks" and where.endswith("/docs/reference/causes.md#nvlinks")
    assert Path("/" + where.removeprefix("file://").partition("/")[2].partition("#")[0]).is_file()


def test_markup_has_no_references_and_nothing_active() -> None:
    for name in (*topics(), *causes()):
        found = topic(name)
        assert found
        text = str(markup(found))
        assert "<a " not in text and "<img" not in text and "<script" not in text, name
    (ecc,) = [found for found in (topic("ecc"),) if found]
    assert "<code>nvidia-smi -q -d ECC,ROW_REMAPPER</code>" in str(markup(ecc))


def test_help_begins_with_what_most_people_need(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    listed = re.findall(r"^  ([a-z0-9-]+)  ", text.partition("commands (")[2].partition("\n\n")[0], re.M)
    assert listed == [*FIRST] and len(listed) <= 12
    more = re.findall(r"^more: (.*)", text, re.M)[0]
    assert all(name in more for name in ("baseline", "overalloc", "help", "self", *ABOUT))
    assert "nvbandwidth" in text and "all_reduce_perf" in text
    former = [name for name, row in COMMANDS.items() if row.former and name not in ABOUT]
    assert len(former) == 2 and not {*former} & {*listed, *re.findall(r"[\w-]+", more)}
    assert max(map(len, text.partition("exit codes")[0].splitlines())) < 80


@pytest.mark.parametrize("command", ["check", "doctor"])
def test_help_of_judging_refers_to_run_for_measuring(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    helps = {}
    for name in (command, "run"):
        with pytest.raises(SystemExit):
            main([name, "--help"])
        helps[name] = capsys.readouterr().out
    assert len(helps[command].splitlines()) < 85 and "wirespeed run" in helps[command]
    assert "--time-budget" not in helps[command] and "--time-budget" in helps["run"]
    assert "--time-budget" in functions(command).parser(command)._option_string_actions


def test_code_below_a_heading_stays_lines() -> None:
    page = topic("p2p")
    assert page is not None and page.text.startswith("    wirespeed p2p")
    lines = render_topic(page, Style(120)).splitlines()
    starts = [line.split("#")[0].strip() for line in lines[:8]]
    assert {"wirespeed p2p", "wirespeed p2p --env", "wirespeed p2p --json"} <= set(starts)


@pytest.mark.parametrize("width", with_long([80, 100, 160], 160))
@pytest.mark.parametrize("name", topics())
def test_no_cell_of_a_table_is_cut(name: str, width: int) -> None:
    """Cells may be folded in tables of many columns, but every character is there."""
    page = topic(name)
    assert page is not None
    shown = render_topic(page, Style(width))
    for row in re.findall(r"^\|(?!-)(.+)\|$", page.text, re.MULTILINE):
        columns = row.count("|") + 1
        if columns > 3:
            continue
        for option in re.findall(r"(?<=`)--[a-z-]+", row):
            assert option in shown, option


@pytest.mark.parametrize(
    "lost", with_long(["causes.md", "glossary.md", "p2p.md", "all"], "glossary.md", "p2p.md")
)
def test_an_installation_without_pages_gives_the_same_answers(
    lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page that is missing costs its links and explanations, and nothing else."""
    pages = tmp_path / "docs"
    (pages / "reference").mkdir(parents=True)
    for page in PAGES:
        if page.name != lost and lost != "all":
            (pages / page.relative_to(ROOT / "docs")).write_text(page.read_text())
    monkeypatch.setattr("wirespeed.reports.topics._PAGES", pages)
    machine = ["--machine", "simulated:dgx-a100-8+nvlinks=6@gpu3", "--allow-simulated"]
    run = tmp_path / "run.json"
    assert main(["check", "-t", "4", *machine, "-o", str(run)]) == 1
    assert "NVLinks are down (gpu3)" in capsys.readouterr().out
    for command in ("check", "doctor"):
        for more in ([], ["-v"]):
            assert main([command, str(run), "--allow-simulated", *more]) == 1
    for form in ("html", "markdown", "table", "json"):
        assert main(["report", str(run), "--format", form, "-o", str(tmp_path / form)]) == 0
    assert main(["p2p", "--machine", "simulated:rtx5090-4+acs"]) == 1
    assert main(["help"]) == 0
    capsys.readouterr()


HEAD = re.compile(r'(?:#[^\n]*\n)*"""(.+?)"""', re.DOTALL)


def test_the_head_of_each_module_is_one_paragraph() -> None:
    """A second paragraph is a second subject, or belongs to a function."""
    package = ROOT / "src" / "wirespeed"
    wrong = []
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package)
        head = HEAD.match(path.read_text())
        if head is None or "\n\n" in head[1]:
            wrong.append(str(name))
    assert wrong == []


def test_functions_and_classes_have_a_summary_line() -> None:
    """Rule D205 of ruff, without the heads of modules: their one paragraph may have several lines."""
    command = [sys.executable, "-m", "ruff", "check", "--select=D205", "--output-format=concise"]
    found = subprocess.run([*command, "src", "tests", "benchmarks"], cwd=ROOT, capture_output=True, text=True)
    assert "D205" in found.stdout, found
    assert re.findall(r"^.+:\d+:(?!1:)\d+: D205.*", found.stdout, re.MULTILINE) == []
