"""What the documentation says is so."""

from __future__ import annotations

import doctest
import pkgutil
import re
import shlex
from collections.abc import Iterator
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path

import pytest

import wirespeed
from tests.unit.test_layers import LAYERS
from wirespeed.cli.commands import COMMANDS, functions
from wirespeed.errors import WirespeedError
from wirespeed.reports import formats
from wirespeed.testcases.table import TABLE

ROOT = Path(__file__).parents[2]
DOCS = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("docs/reference/*.md")])


def table_of_testcases() -> str:
    """The page of all testcases, made from the table itself."""
    lines = [
        "# Testcases",
        "",
        "`wirespeed list` shows which of them can run on a machine, and why the others cannot. The number is",
        "that of nvbandwidth. Rows, columns and arrows in titles are nvbandwidth's too: in its titles of",
        "reads, `GPU(row) -> GPU(column)` means that the row reads from the column.",
        "",
        "| # | testcase | measures | counts |",
        "|---|---|---|---|",
    ]
    for case in TABLE:
        index = "" if case.index is None else case.index
        lines.append(f"| {index} | `{case.name}` | {case.description} | {case.counts or 'a latency'} |")
    return "\n".join(lines) + "\n"


def test_the_page_of_testcases_is_the_table(request: pytest.FixtureRequest) -> None:
    path = ROOT / "docs/reference/testcases.md"
    if request.config.getoption("--update-golden"):
        path.write_text(table_of_testcases())
    assert path.read_text() == table_of_testcases(), "run `pytest --update-golden`"


def test_links_lead_somewhere() -> None:
    for path in [*ROOT.glob("*.md"), *DOCS]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
            if "://" not in target:
                assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_python_examples_run() -> None:
    for path in [ROOT / "README.md", *DOCS]:
        for example in re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL):
            exec(compile(example, str(path), "exec", dont_inherit=True), {})


def test_the_commands_of_the_procedure_for_slow_machines_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wirespeed.cli.main import main

    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"```console\n\$ wirespeed (.*?)\n", (ROOT / "docs/slow.md").read_text())
    assert len(commands) >= 4
    for command in commands:
        assert main(command.split()) in (0, 1, 3, 4)
        assert "SIMULATED" in capsys.readouterr().out


def test_the_commands_of_the_page_of_transfers_work(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wirespeed.cli.main import main

    page = (ROOT / "docs/transfers.md").read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for block in re.findall(r"```console\n(.*?)```(?:\n\n```\n(.*?)```)?", page, re.DOTALL):
        for command in re.findall(r"\$ wirespeed (.*)", block[0]):
            assert main(shlex.split(command)) == 0, command
        shown = capsys.readouterr().out
        assert block[1] in shown, block[0]


def test_what_a_prompt_shows_is_what_it_shows() -> None:
    page = (ROOT / "docs/python.md").read_text()
    session = "\n".join(re.findall(r"```pycon\n(.*?)```", page, re.DOTALL))
    test = doctest.DocTestParser().get_doctest(session, {}, "docs/python.md", "docs/python.md", 0)
    found = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
    assert found.attempted > 10 and not found.failed


def test_every_module_can_be_imported_and_its_examples_are_so() -> None:
    attempted = 0
    for module in pkgutil.walk_packages(wirespeed.__path__, "wirespeed."):
        # The library of C functions has the ending of a module, and is none.
        if not module.name.endswith(("__main__", ".libwirespeed")):
            found = doctest.testmod(import_module(module.name))
            assert not found.failed, module.name
            attempted += found.attempted
    assert attempted > 20


def test_every_format_is_documented() -> None:
    page = (ROOT / "docs/formats.md").read_text()
    assert all(f"`{name}`" in page for name in formats())


def test_every_option_that_the_readme_shows_exists(capsys: pytest.CaptureFixture[str]) -> None:
    from wirespeed.cli.main import main

    shown = ""
    for command in (
        "run",
        "check",
        "transfer",
        "compare",
        "baseline",
        "list",
        "machine",
        "report",
        "show",
        "nvbandwidth",
        "sailbandwidth",
    ):
        with pytest.raises(SystemExit) if command not in ("nvbandwidth", "sailbandwidth") else nullcontext():
            main([command, "--help"])
        shown += capsys.readouterr().out
    readme = (ROOT / "README.md").read_text()
    commands = re.findall(r"`([^`\n]+)`|^    (wirespeed [^#\n]+)", readme, re.M)
    # Options before the name are those of a launcher.
    options = set(
        re.findall(r"--[a-zA-Z-]+", " ".join("".join(c).partition("wirespeed ")[2] for c in commands))
    )
    assert len(options) > 5 and len(readme.splitlines()) <= 120
    for option in options:
        assert option in shown or option == "--help", option


def test_the_changelog_knows_this_version() -> None:
    assert f"## [{wirespeed.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_architecture_names_what_is_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.splitlines()) <= 140 and max(map(len, text.splitlines())) <= 130
    package = ROOT / "src" / "wirespeed"
    named = re.findall(r"[\w./]*\w(?:\.py|\.md|\.toml|\.json|/)(?=[\s`:,;.)]|$)", text, re.MULTILINE)
    assert len(named) > 60
    assert [path for path in named if not ((ROOT / path).exists() or (package / path).exists())] == []
    block = text.partition("enforces this.")[2].partition("##")[0]
    layers = [set(line.strip().partition("  ")[0].split(", ")) for line in block.splitlines() if line]
    assert layers == [set(layer) - {"__main__"} for layer in LAYERS]


def test_the_documentation_is_short() -> None:
    """Tables of reference have their own folder; what is measured once is not kept for ever."""
    words = {path.stem: len(path.read_text().split()) for path in ROOT.glob("docs/*.md")}
    assert sum(words.values()) <= 35_000 and max(words.values()) <= 2_500 and words["limits"] <= 2_000
    assert len(list(ROOT.glob("docs/results/*.md"))) <= 10


#: A command in a page: behind a launcher or variables, up to a comment, a pipe, a file or the end.
COMMAND = re.compile(r"(?:^|[ `(])wirespeed ([a-z].*?)(?= [#|<>] | &|[`…]|$)")
#: What stands for the reader's choice, or is replaced by a shell.
CHOICE = re.compile(r"\b(NAME|COMMAND|CAUSE|FORMAT|TRANSPORT|FILE|FOLDER|LOG|K)\b|\.\.\.|\$| -o$|^[^']*'$")
PAGES = [ROOT / "README.md", *DOCS, ROOT / "integrations/agents/SKILL.md"]


def commands_of(text: str) -> Iterator[str]:
    """The commands in code of a page: spans, indented lines and blocks for a console."""
    blocks = re.findall(r"^```(?:console)?\n(.*?)^```", text, re.M | re.S)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    outside = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    lines += re.findall(r"^    +(.*)$", outside.replace("\\\n", " "), re.M)
    lines += [f"`{span}`" for span in re.findall(r"`([^`\n]+)`", outside)]
    for line in lines:
        yield from (found.strip().removesuffix(')"') for found in COMMAND.findall(line))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_commands_of_pages_are_understood(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = []
    for command in dict.fromkeys(commands_of(path.read_text())):
        name, _, rest = command.removeprefix("self ").partition(" ")
        if name not in COMMANDS or not rest or CHOICE.search(command) or COMMANDS[name].of_others:
            continue
        try:
            functions(name).parser(name).parse_args(shlex.split(rest))
        except (SystemExit, ValueError, WirespeedError) as error:
            wrong.append(f"{command}: {error} {capsys.readouterr().err}")
    assert wrong == []
