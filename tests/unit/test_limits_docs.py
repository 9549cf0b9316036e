"""Pages about limits: tables of docs/reference are made from the data, examples are run."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wirespeed.cli.main import main
from wirespeed.data import cpu_sheets, efficiencies, factors, paths
from wirespeed.hardware.topology import EngineRate
from wirespeed.judging.gates import load
from wirespeed.statistics import grouped
from wirespeed.thresholds import ROWS, Threshold
from wirespeed.units import GB, KIB, format_size

DOCS = Path(__file__).parents[2] / "docs"
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


def amount(one: Threshold) -> str:
    """The value of a threshold with its unit."""
    if one.unit == "B" and one.value % KIB == 0:
        return format_size(int(one.value))
    return f"{one.value:g}{'' if one.unit == '%' else ' '}{one.unit}".strip()


def all_thresholds() -> Iterator[tuple[str, Threshold]]:
    """All rows of the table with their names, in the order of the page."""
    for part in ("facts", "values", "causes", "clusters"):
        path = Path(str(importlib.import_module(f"wirespeed.thresholds.{part}").__file__))
        nodes = [n for n in ast.parse(path.read_text()).body if isinstance(n, ast.Assign)]
        names = [ast.unparse(n.targets[0]) for n in nodes if ast.unparse(n.value).startswith("row(")]
        subjects = [n.value.value for n in nodes if isinstance(n.value, ast.Constant)]
        yield from zip(names, (one for one in ROWS if one.subject in subjects), strict=True)


def thresholds() -> str:
    """The sections of the page of thresholds."""
    parts = []
    for subject, rows in grouped((one.subject, (name, one)) for name, one in all_thresholds()).items():
        parts.append(f"## {subject}\n\n| name | value | meaning | reason; source |\n|---|---|---|---|\n")
        for name, one in rows:
            why = f"{one.reason.removesuffix('.')}; *{one.source}*"
            parts.append(f"| `{name}` | {amount(one)} | {one.meaning} | {why} |\n")
        parts.append("\n")
    return "".join(parts).rstrip() + "\n"


def test_the_page_of_thresholds_is_that_of_the_data(request: pytest.FixtureRequest) -> None:
    before = THRESHOLDS.read_text().partition("## ")[0]
    if request.config.getoption("--update-golden"):
        THRESHOLDS.write_text(before + thresholds())
    assert before + thresholds() == THRESHOLDS.read_text(), "run `pytest --update-golden`"


def test_every_threshold_has_a_meaning_a_reason_a_source_and_a_user() -> None:
    named = dict(all_thresholds())
    assert len(named) > 60
    folder = DOCS.parent / "src/wirespeed"
    users = [path.read_text() for path in folder.rglob("*.py") if path.parent.name != "thresholds"]
    for name, one in named.items():
        assert one.source and one.unit in ("", "%", "B", "B/s", "s"), name
        assert one.meaning.endswith(".") and one.reason.endswith("."), name
        assert any(re.search(rf"\b{name}\b", text) for text in users), f"{name} has no user"


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
