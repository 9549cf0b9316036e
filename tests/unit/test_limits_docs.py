"""Pages about limits: tables of docs/reference are made from the data, examples are run."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from wirespeed.cli.main import main
from wirespeed.data import cpu_sheets, efficiencies, factors, paths
from wirespeed.hardware.topology import EngineRate
from wirespeed.judging.gates import load
from wirespeed.statistics import grouped
from wirespeed.units import GB, KIB, format_size

DOCS = Path(__file__).parents[2] / "docs"
SOURCE = DOCS.parent / "src/wirespeed"
RANGES, THRESHOLDS = DOCS / "reference/ranges.md", DOCS / "reference/thresholds.md"
CHECKS = DOCS / "checks.md"


def ranges() -> str:
    """The table of ranges and the list of their sources, an entry for each one of the data file."""
    rows: dict[str, list[tuple[EngineRate, EngineRate]]] = {}
    for low, typical in zip(*efficiencies(), strict=True):
        rows.setdefault(f"{low.link} {low.source}", []).append((low, typical))
    table, sources = [], []
    for entries in rows.values():
        low, typical = entries[0]
        engines = ", ".join(f"`{one.engine}`" for one, _ in entries)
        by = engines + (f", {low.access}" if low.access else "")
        table.append(f"| {low.link} | {by} | {low.efficiency:.2f} | {typical.efficiency:.2f} |\n")
        sources.append(f"- {low.link}, {by}: {' '.join(low.source.split())}\n")
    return "".join([*table, "\nSources:\n\n", *sources])


def cpus() -> str:
    """The table of CPUs and the list of their sources."""
    table, sources = [], []
    for name, sheet in cpu_sheets().items():
        *caches, local, remote = (f"{one:g}" for one in sheet.nanoseconds)
        table.append(f"| {name} | {sheet.fastest / GB:.0f} | {', '.join(caches)} | {local} | {remote} |\n")
        sources.append(f"- {name}: {' '.join(sheet.source.split())}\n")
    factors_source = f"- lowest and typical rates, factors: {' '.join(factors().source.split())}\n"
    return "".join([*table, "\nSources:\n\n", *sources, factors_source])


def gpus() -> str:
    """The table of latencies of GPUs and the list of their sources."""
    table, sources = [], []
    for one in paths():
        typical, most = (f"{value:g}" for value in one.nanoseconds)
        table.append(f"| {one.ends} | {one.link} | {one.capability or 'any'} | {typical} | {most} |\n")
        sources.append(
            f"- {one.ends}, {one.link}, {one.capability or 'any'}: {' '.join(one.source.split())}\n"
        )
    return "".join([*table, "\nSources:\n\n", *sources])


#: Heading of each table, what is after it, and what makes it.
TABLES = (
    ("| link | engine | lowest | typical |\n|---|---|---|---|\n", "\n## CPUs", ranges),
    ("| design | GB/s | L1, L2, L3, ns | memory, ns | remote, ns |\n|---|---|---|---|---|\n",
     "\n## Latencies", cpus),
    ("| memory of | link | compute capability | typical, ns | warning above, ns |\n|---|---|---|---|---|\n",
     "", gpus),
)  # fmt: skip


class Threshold(NamedTuple):
    """A row of the table: a constant with the comment above it, and its unit behind it."""

    subject: str
    name: str
    value: float
    unit: str
    meaning: str
    reason: str
    source: str

    @property
    def amount(self) -> str:
        """The value with its unit."""
        if self.unit == "B" and self.value % KIB == 0:
            return format_size(int(self.value))
        return f"{self.value:g}{'' if self.unit == '%' else ' '}{self.unit}".strip()


def all_thresholds() -> Iterator[Threshold]:
    """The rows of the table, in the order of the page."""
    for part in ("facts", "values", "causes", "changes", "clusters"):
        values = vars(importlib.import_module(f"wirespeed.thresholds.{part}"))
        subject, comment = "", ""
        for line in (SOURCE / f"thresholds/{part}.py").read_text().splitlines():
            if line.startswith("# "):
                subject = line[2:]
            elif line.startswith("#: "):
                comment += line[2:]
            elif row := re.match(r"([A-Z_]+) = .+?(?:  # (.*))?$", line):
                meaning, _, why = comment.strip().partition(" Why: ")
                reason, _, source = why.partition(" Source: ")
                yield Threshold(
                    subject, row[1], values[row[1]], row[2] or "", meaning, reason, source or "chosen"
                )
                comment = ""


def thresholds() -> str:
    """The sections of the page of thresholds."""
    parts = []
    for subject, rows in grouped((one.subject, one) for one in all_thresholds()).items():
        parts.append(f"## {subject}\n\n| name | value | meaning | reason; source |\n|---|---|---|---|\n")
        for one in rows:
            why = f"{one.reason.removesuffix('.')}; *{one.source}*"
            parts.append(f"| `{one.name}` | {one.amount} | {one.meaning} | {why} |\n")
        parts.append("\n")
    return "".join(parts).rstrip() + "\n"


def test_the_page_of_thresholds_is_that_of_the_table(request: pytest.FixtureRequest) -> None:
    before = THRESHOLDS.read_text().partition("## ")[0]
    if request.config.getoption("--update-golden"):
        THRESHOLDS.write_text(before + thresholds())
    assert before + thresholds() == THRESHOLDS.read_text(), "run `pytest --update-golden`"


def test_every_threshold_has_a_meaning_a_reason_a_source_and_a_user() -> None:
    rows = {one.name: one for one in all_thresholds()}
    assert len(rows) == len([*all_thresholds()]) > 160, "two rows have one name"
    users = [path.read_text() for path in SOURCE.rglob("*.py") if path.parent.name != "thresholds"]
    used = {word for text in users for word in re.findall(r"\b[A-Z]\w+\b", text)}
    for name, one in rows.items():
        assert one.source and one.unit in ("", "%", "B", "B/s", "s"), name
        assert one.meaning.endswith(".") and one.reason.endswith("."), name
        assert name in used, f"{name} has no user"


#: Files that judge, compare or blame, with their numbers that decide nothing: of sentences, of searches, of
#: arithmetic, of hardware and other programs; and measured variation.
DECIDING = {
    "hardware/limits.py": "START_OF_COLLECTIVE_S _RANKS_OF_START NOTED",
    "hardware/judged_sizes.py": "_GPU_CACHE_BYTES _ANY_GPU_CACHE_BYTES START_S",
    "driver/concurrency.py": "_TYPICAL",
    "driver/contention.py": "",
    "driver/slow_rows.py": "",
    "results/baseline.py": "_NAMED",
    "results/compare.py": "_REASONS",
    "results/comparison_doubts.py": "",
    "results/comparison_evidence.py": "SHARED UNSEEN _UNSEEN_DF",
    "results/imported_limits.py": "_CORES _MEMORY_BYTES",
    "results/overrides.py": "",
    "results/settings.py": "_TEXTS",
    "results/significance.py": "_PRIOR_RANGE _MOST_EXPONENT _NORMAL _ACCURACY _MOST_TERMS _MOST_STEPS _TINY",
    "features/blocks/block_models.py": "VLLM_BLOCK VLLM_BLOCKS",
    "features/blocks/block_map.py": "_ALIKE",
    "features/blocks/saturation.py": "BLOCK _BLOCKS _COUNTS",
    "features/fleet/analysis.py": "_MOST_ATTRIBUTES",
    "features/history/change_points.py": "",
    "features/history/events.py": "_AROUND _RECENT",
    "features/p2p/causes.py": "",
    "features/p2p/attempts.py": "",
    "features/qualify/carriers.py": "_NAMED",
    "features/qualify/inference.py": "_MOST_CULPRITS _CORRECTION",
    "features/qualify/limits.py": "_GBIT_BYTES",
    "features/qualify/lossy_cables.py": "",
    "features/qualify/procedure.py": "PAIR_ROUNDS _PAIRS_OF_SWITCH",
    "judging/**/*.py": """
        _DDR4 _GBIT _HOPELESS _LONGEST _LONGEST_VALUE _LOWEST _MAX_SHOWN_VALUES
        _MOST_CAUSES _MOST_FACTS _MOST_GPUS _MOST_MEASUREMENTS _NAMED _NVLS_CAPABILITY _NVLS_RANKS _OF_MEDIAN
        _PARTS _QUANTILE_DISTANCE _SAME _SECOND_BYTES _SLOTS _SUSPECTED_FACTOR _WORST HOST_GPUS SLOWEST
    """,
}


def numbers(code: ast.AST) -> Iterator[ast.Constant]:
    """The numbers in a piece of code that are more than counting."""
    for node in ast.walk(code):
        value = getattr(node, "value", None)
        if isinstance(node, ast.Constant) and isinstance(value, (int, float)) and value not in (0, 1, 2):
            yield node


@pytest.mark.parametrize("pattern", DECIDING)
def test_numbers_that_decide_are_in_the_table(pattern: str) -> None:
    found: dict[str, str] = {}
    for path in SOURCE.glob(pattern):
        tree = ast.parse(path.read_text())
        for node in tree.body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                parts = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    parts = [*zip(target.elts, node.value.elts, strict=True)]
                found |= {ast.unparse(name): path.name for name, value in parts if any(numbers(value))}
    assert found.keys() == {*DECIDING[pattern].split()}, "decides: a row of thresholds/; else: `DECIDING`"


@pytest.mark.parametrize("pattern", [one for one in DECIDING if not one.startswith("results/significance")])
def test_comparisons_name_their_thresholds(pattern: str) -> None:
    bare = [
        f"{path.name}: {ast.unparse(node)}"
        for path in SOURCE.glob(pattern)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare) and [*numbers(node)]
    ]
    assert [text for text in bare if not re.search(r"\blen\(|\[", text)] == []


@pytest.mark.parametrize(("head", "end", "made"), TABLES, ids=["links", "cpus", "gpus"])
def test_the_tables_are_those_of_the_data(
    head: str, end: str, made: Callable[[], str], request: pytest.FixtureRequest
) -> None:
    before, _, rest = RANGES.read_text().partition(head)
    after = rest[rest.index(end) :] if end else ""
    if request.config.getoption("--update-golden"):
        RANGES.write_text(before + head + made() + after)
    assert before + head + made() + after == RANGES.read_text(), "run `pytest --update-golden`"


def test_the_page_says_the_factors_of_the_data() -> None:
    text = " ".join((DOCS / "limits.md").read_text().split())
    by = factors()
    assert f"below {by.lowest_core:g} GB/s (bytes read" in text and by.lowest_share == 0.2
    assert f"values below {by.lowest_line:.0%} of it" in text
    assert f"a warning above {by.warn:g} times" in text and f"a failure above {by.fail:g} times" in text
    assert (by.virtual, by.loaded) == (2, 4) and "twice as much for memory in a virtual" in text
    assert f"{by.lowest_remote:g} GB/s for each CPU is low, at most {by.lowest_link:g} GB/s" in text


def test_the_examples_show_what_the_commands_print(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    page = CHECKS.read_text()
    overrides, gates = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "overrides.toml").write_text(overrides)
    (tmp_path / "gates.toml").write_text(gates)
    assert len(load("gates.toml").gates) == 1
    examples = re.findall(r"```console\n\$ wirespeed (.*?)\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 3
    for command, shown in examples:
        assert main(command.split()) in (0, 1)
        printed = capsys.readouterr().out
        if request.config.getoption("--update-golden"):
            CHECKS.write_text(CHECKS.read_text().replace(f"{command}\n{shown}", f"{command}\n{printed}"))
        else:
            assert shown == printed
