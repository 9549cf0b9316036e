"""docs/limits.md: its table is made from the data, its examples are run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wirespeed.cli.main import main
from wirespeed.data import efficiencies
from wirespeed.results.published_gates import load
from wirespeed.topology import EngineRate

PAGE = Path(__file__).parents[2] / "docs/limits.md"


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


@pytest.fixture
def page(request: pytest.FixtureRequest) -> str:
    return PAGE.read_text()


def test_the_table_is_that_of_the_data(page: str, request: pytest.FixtureRequest) -> None:
    head, end = "| link | engine | lowest | typical |\n|---|---|---|---|\n", "\nThe values are fractions"
    before, _, rest = page.partition(head)
    after = rest[rest.index(end) :]
    if request.config.getoption("--update-golden"):
        PAGE.write_text(before + head + ranges() + after)
    assert ranges() in PAGE.read_text(), "run `pytest --update-golden`"


def test_the_examples_show_what_the_commands_print(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
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
            PAGE.write_text(PAGE.read_text().replace(f"{command}\n{shown}", f"{command}\n{printed}"))
        else:
            assert shown == printed
