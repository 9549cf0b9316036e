"""Commands: which are shown, that former spellings do the same, and that all texts name present ones."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import wirespeed
from wirespeed.cli.commands import ABOUT, COMMANDS, SHOWN, functions, module_of
from wirespeed.cli.main import main

ROOT = Path(__file__).parents[2]
#: A command in a text: its name, and what follows it in the same quotes or line.
NAMED = re.compile(r"\bwirespeed ([a-z][a-z0-9_-]*)([^`\"\n]*)")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a saved run, ``run.json``, of a machine with a defect."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    wirespeed.run(["4"], machine="simulated:dgx-a100-8+nvlinks=6@gpu3", samples=2, output="run.json")
    return tmp_path


def call(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    try:
        code = int(main(line.split()))
    except SystemExit as ended:
        code = int(ended.code or 0)
    return code, *capsys.readouterr()


@pytest.mark.parametrize(
    ("former", "present"),
    [
        ("show run.json", "report run.json"),
        ("show run.json --format csv", "report run.json --format csv"),
        ("doctor run.json", "check --explain run.json"),
        ("doctor run.json run.json -v", "check --explain run.json run.json -v"),
        ("doctor --no-measure", "check --no-measure"),
        ("doctor --no-measure --machine simulated:l40s-8",
         "check --no-measure --machine simulated:l40s-8"),
        ("doctor run.json --for nagios", "check --explain run.json --for nagios"),
        ("check --from run.json --allow-simulated", "check run.json --allow-simulated"),
        ("check --allow-simulated --from run.json run.json", "check run.json run.json --allow-simulated"),
        ("baseline make {good} -o b.json", "baseline {good} -o b.json --force"),
        ("baseline -o b.json make {good}", "baseline {good} -o b.json --force"),
        ("baseline make -o b.json {good}", "baseline {good} -o b.json --force"),
        ("config", "self config"),
        ("completion bash", "self completion bash"),
        ("man", "self man"),
        ("install-names names", "self install-names names"),
    ],
)  # fmt: skip
def test_former_spellings_do_the_same_and_say_nothing(
    former: str, present: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = ROOT / "tests/recorded/two-h200.json"
    found, expected = (call(line.format(good=good), capsys) for line in (former, present))
    if "--no-measure" in former:  # readings vary
        found, expected = ((code, out[:60], err) for code, out, err in (found, expected))
    assert found == expected and found[1] and ("--for" in former or not found[2])


def test_the_former_diagnosis_saves_nothing_and_the_present_one_does(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = "--machine simulated:hgx-h200-2+nvlinks=9@gpu0"
    former, present = (call(f"{command} {machine}", capsys) for command in ("doctor", "check --explain"))
    assert former[:2] == present[:2] and former[0] == 1 and "to confirm nvlinks" in former[1]
    assert not former[2] and present[2].startswith("saved to wirespeed-")
    (saved,) = run.glob("wirespeed-*.json")
    assert call(f"check --explain {saved}", capsys)[0] == 1


def test_every_former_command_names_a_present_one() -> None:
    former = {name: row.former.split() for name, row in COMMANDS.items() if row.former}
    assert former.keys() == {"show", "doctor", "pt2pt", *ABOUT}
    for name, words in former.items():
        assert words[0] in SHOWN and name not in SHOWN and module_of(name)
        arguments = [word for word in words[1:] if word.startswith("-")]
        options = functions(words[0]).parser(words[0])._option_string_actions
        assert all(option in options for option in arguments), name


def texts_of_modules() -> Iterator[tuple[str, str]]:
    """The texts of all modules but docstrings, with the file."""
    for path in (ROOT / "src").rglob("*.py"):
        tree = ast.parse(path.read_text())
        heads = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
            and node.body and isinstance(node.body[0], ast.Expr)
        }  # fmt: skip
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in heads:
                yield str(path), node.value


def texts_of_files() -> Iterator[tuple[str, str]]:
    """Screens and causes, with the file."""
    for path in [*(ROOT / "tests/golden").rglob("*.txt"), ROOT / "src/wirespeed/data/causes.toml"]:
        yield str(path), path.read_text()


def test_texts_name_present_commands_and_their_options() -> None:
    named = set[str]()
    for file, text in [*texts_of_modules(), *texts_of_files()]:
        for name, rest in NAMED.findall(text):
            if name not in COMMANDS or text.startswith("# made by"):  # words of a sentence, a mark in files
                continue
            assert name in SHOWN, (file, name, rest)
            named.add(name)
            if SHOWN[name].of_others:
                continue
            options = functions(name).parser(name)._option_string_actions
            command = re.split(r"#|[;,:] | wirespeed ", rest)[0]
            for option in re.findall(r"(?<= )--?[a-z][a-z-]*", command):
                action = options.get(option)
                assert action and option in action.option_strings, (file, name, option)
    assert named >= {"check", "report", "run", "list", "baseline", "help", "self"}
