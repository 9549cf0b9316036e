"""Commands: which are shown, that former spellings do the same, and that all texts name present ones."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from collections import Counter
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
        ("run --threads 256", "run --kernel-threads 256"),
        ("run --block-counts 16,64", "run --blocks 16,64"),
        ("check --share ipc --all-cells", "check --transport ipc --all-values"),
        ("transfer a --block-counts 1", "transfer a --blocks 1"),
        ("overalloc --sweep --over 0,1 --buffer 1MiB --repeats 3 -T 9s",
         "overalloc --sweep --extra 0,1 --size 1MiB --rounds 3 --timeout 9s"),
        ("qualify --over mpi -T 9s --exclude-format slurm",
         "qualify --transport mpi --timeout 9s --format slurm"),
    ],
)  # fmt: skip
def test_former_options_do_the_same(former: str, present: str) -> None:
    found, expected = (
        vars(functions(name).parser(name).parse_args(words))
        for name, *words in (former.split(), present.split())
    )
    assert found == expected
    hidden = {word for word in former.split() if word.startswith("-")} - {*present.split()}
    assert hidden and not hidden & {*" ".join(shown_options(former.split()[0])).split()}


@pytest.mark.parametrize(
    ("former", "present"),
    [
        ("list --short --machine {m}", "list --format names --machine {m}"),
        ("list --json --machine {m}", "list --format json --machine {m}"),
        ("machine --json --machine {m}", "machine --format json --machine {m}"),
        ("p2p --json --seed 1 --machine {p}", "p2p --format json --seed 1 --machine {p}"),
        ("p2p --env --seed 1 --machine {p}", "p2p --format env --seed 1 --machine {p}"),
        ("qualify --machine {m}x16 --no-save --exclude-format json",
         "qualify --machine {m}x16 --no-save --json"),
        ("qualify --machine {m}x16 --no-save -T 20s --over tcp -q",
         "qualify --machine {m}x16 --no-save --timeout 20s --transport tcp --quiet"),
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
        ("install-names names", "self install-names names"),
    ],
)  # fmt: skip
def test_former_spellings_do_the_same_and_say_nothing(
    former: str, present: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = ROOT / "tests/recorded/two-h200.json"
    machines = {"m": "simulated:dgx-a100-8", "p": "simulated:rtx5090-4+acs"}
    lines = (line.format(good=good, **machines) for line in (former, present))
    found, expected = (call(line, capsys) for line in lines)
    if "--no-measure" in former:  # readings vary
        found, expected = ((code, out[:60], err) for code, out, err in (found, expected))
    assert found == expected and (found[1] or "-q" in former) and ("--for" in former or not found[2])


def test_the_former_diagnosis_saves_nothing_and_the_present_one_does(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = "--machine simulated:hgx-h200-2+nvlinks=9@gpu0"
    former, present = (call(f"{command} {machine}", capsys) for command in ("doctor", "check --explain"))
    assert former[:2] == present[:2] and former[0] == 1 and "to confirm nvlinks" in former[1]
    assert not former[2] and present[2].startswith("saved to wirespeed-")
    (saved,) = run.glob("wirespeed-*.json")
    assert call(f"check --explain {saved}", capsys)[0] == 1


def test_a_report_says_how_to_make_a_page(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not call("report run.json", capsys)[2], "another program reads it"
    for line, page in (
        ("run.json", "run.html"),
        ("run.json run.json", "runs.html"),
        (f"{run}", f"{run}.html"),
    ):
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        hint = call(f"report {line}", capsys)[2].splitlines()[-1]
        assert hint == f"HTML page: wirespeed report {line} -o {page}"
        assert call(hint.partition("wirespeed ")[2], capsys)[0] == 0 and Path(page).is_file()


def test_every_former_command_names_a_present_one() -> None:
    former = {name: row.former.split() for name, row in COMMANDS.items() if row.former}
    assert former.keys() == {"show", "doctor", *ABOUT}
    for name, words in former.items():
        assert words[0] in SHOWN and name not in SHOWN and module_of(name)
        arguments = [word for word in words[1:] if word.startswith("-")]
        options = functions(words[0]).parser(words[0])._option_string_actions
        assert all(option in options for option in arguments), name


#: Shared options: how they are spelled in all commands that have them, with the words for their values.
SHARED = {
    "--allow-simulated": "", "--all-values": "", "--baseline": "FILE", "--blocks": "COUNTS",
    "--devices": "0,2", "--dry-run": "", "--expect": "KEY=VALUE,...", "--fleet": "", "--for": None,
    "--force": "", "--format": "FORMAT", "--history": "FILE|none", "--host-memory": "8x4800",
    "--ignore-busy": "", "--json": "", "--machine": None, "--max-age": "AGE", "--memory": None,
    "--nics": None, "--no-history": "", "--no-save": "", "--output -o": None, "--overrides": "FILE.toml",
    "--prefix -p": "PREFIX", "--processes": "N", "--quiet -q": "", "--rounds": "N", "--samples": "N",
    "--seed": "N", "--short": "", "--since": "AGE", "--size": "SIZE", "--sizes": "SIZES",
    "--testcase -t": "NAME", "--tier": None, "--timeout": "TIME", "--tolerance": "PERCENT",
    "--transport": None, "--verbose -v": "", "--within": "TIME",
}  # fmt: skip
#: Destinations that are one option everywhere, whatever its command.
OF_DESTINATION = {
    "block_counts": "--blocks", "counts": "--blocks", "format": "--format", "output": "--output -o",
    "quiet": "--quiet -q", "timeout": "--timeout", "verbose": "--verbose -v",
}  # fmt: skip
#: Other ways to write one format.
SHORT = {"--json", "--env", "--for"}
PRESENT = [name for name, row in SHOWN.items() if not row.of_others]


def shown_options(command: str) -> dict[str, argparse.Action]:
    """The options of a command that are not hidden, by their spellings in alphabetical order."""
    actions = functions(command).parser(command)._actions
    shown = [action for action in actions if action.option_strings and action.help != argparse.SUPPRESS]
    return {" ".join(sorted(action.option_strings)): action for action in shown}


@pytest.mark.parametrize("command", PRESENT)
def test_one_option_has_one_name_in_all_commands(command: str) -> None:
    spelled = {word: names for names in SHARED for word in names.split()}
    for names, action in shown_options(command).items():
        for word in names.split():
            assert spelled.get(word, names) == names, (word, names)
        metavar = SHARED.get(names)
        assert metavar is None or (action.metavar or "") == metavar, (names, action.metavar)
        if not {names} & SHORT:
            assert OF_DESTINATION.get(action.dest, names) == names, (action.dest, names)
    for action in functions(command).parser(command)._get_positional_actions():
        assert action.dest not in ("files", "source", "saved", "runs", "before") or action.metavar == "FILE"


def test_an_option_of_several_commands_is_in_the_table() -> None:
    counted = Counter(names for command in PRESENT for names in shown_options(command))
    several = {names for names, count in counted.items() if count > 4} - {"--help -h"}
    of_run = {*shown_options("run")}
    assert several - of_run <= SHARED.keys() and not SHARED.keys() - counted.keys()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("check --file run.json", "(did you mean FILE?)"),
        ("run --input run.json", "unrecognized arguments: --input run.json (see"),
        ("run --shar ipc x", "unrecognized arguments: x"),
        ("report --al-values", "(did you mean --all-values?)"),
    ],
)
def test_hints_name_present_options(line: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(line, capsys)
    assert code == 2 and not out and says in err and "--from" not in err


@pytest.mark.parametrize("command", PRESENT)
def test_commands_that_print_values_have_json(command: str) -> None:
    options = shown_options(command)
    if command not in ("baseline", "help", "self"):
        assert "--format" in options and "--json" in options


@pytest.mark.parametrize("command", ["", *PRESENT])
def test_the_short_help_has_three_examples_and_fits_a_screen(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = call(f"{command} -h", capsys)
    assert code == 0 and len(out.splitlines()) <= 30 and max(map(len, out.splitlines())) <= 80
    examples = re.findall(r"^  wirespeed ?(.*?)  +\S", out.partition("examples:")[2], re.MULTILINE)
    assert len(examples) == 3 and out.endswith(f": wirespeed {command}".rstrip() + " --help\n")
    for line in filter(None, examples):
        name, *words = shlex.split(line.removeprefix("self "))
        functions(name).parser(name).parse_args(words)
    whole = call(f"{command} --help", capsys)[1]
    assert whole.count("exit codes:") == (command not in ("help", "self"))
    assert ("interrupted (Ctrl-C)" in whole) is (command == "")
    assert all(f"wirespeed {line}".rstrip() in whole for line in examples)


def test_transfers_and_blocks_refer_to_the_options_of_run(capsys: pytest.CaptureFixture[str]) -> None:
    of_run = shown_options("run").keys()
    for command in ("transfer", "blocks", "check"):
        out = call(f"{command} --help", capsys)[1]
        assert "options of `wirespeed run`" in out.replace("\n", " ") and "--time-budget" not in out
        assert "--time-budget" in of_run and len(out.splitlines()) < 85, command


@pytest.mark.parametrize(
    ("line", "code"),
    [("run -t 0 --blocks 64", 2), ("run -p host --blocks 64", 2), ("run -p blocks_host --blocks 16", 0),
     ("run -t 0 --kernel-blocks 64", 0), ("transfer host->gpu0 --blocks 64", 2)],
)  # fmt: skip
def test_numbers_of_blocks_need_a_testcase_with_blocks(
    line: str, code: int, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = "--machine simulated:hgx-h200-2 --samples 1 --size 1MiB --dry-run"
    found, _, err = call(f"{line} {machine}", capsys)
    assert found == code and ("--kernel-blocks is for copy kernels" in err) is (code == 2)


def test_reports_are_written_in_the_format_of_the_suffix(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = ROOT / "tests/recorded/two-h200.json"
    for command in ("report run.json", f"compare {recorded} {recorded}", f"history {recorded}"):
        for suffix, begins in ((".html", "<!doctype html>"), (".json", "{"), (".txt", "")):
            file = run / f"out{suffix}"
            file.unlink(missing_ok=True)
            code, out, err = call(f"{command} -o {file}", capsys)
            assert code in (0, 3, 4) and not out and err == f"saved to {file}\n", command
            assert file.read_text().startswith(begins)
        code, _, err = call(f"{command} -o out.what", capsys)
        assert code == 2 and "cannot infer the format from 'out.what'; pass --format" in err
        code, _, err = call(f"{command} -o run.json", capsys)
        assert code == 2 and "is a saved run, and a report must not replace it" in err


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
