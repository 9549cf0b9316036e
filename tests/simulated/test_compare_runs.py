"""Several runs on each side: false changes, changes that are found, pairs of hosts, missing files."""

from __future__ import annotations

import itertools
import json
import math
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import replace as changed
from pathlib import Path

import numpy
import pytest
from msgspec.structs import replace

import wirespeed
from tests.conftest import with_long
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.errors import UsageError
from wirespeed.judging.verdict import Verdict
from wirespeed.reports import Style
from wirespeed.reports.comparisons import FORMATS, verdict_on
from wirespeed.results.compare import Change, Comparison, Outcome
from wirespeed.results.comparison_evidence import Evidence
from wirespeed.results.store import decode, encode, save
from wirespeed.tables import LARGEST, SMALLEST, Cell

PAIRS = "device_to_device_memcpy_read_ce"
#: Standard deviations of a cell between rounds and between runs, relative to its value.
ROUND, RUN = 0.004, 0.002


@pytest.fixture(scope="module")
def plain() -> Document:
    return wirespeed.run(machine="simulated:hgx-h200-2", tier="quick", samples=3, copies=1)


def cells_of(document: Document, change) -> Document:
    """The Document with other cells: `change` gets testcase and cell."""
    testcases = tuple(
        replace(
            r, tables=tuple(replace(t, cells=tuple(change(r.name, c) for c in t.cells)) for t in r.tables)
        )
        for r in document.testcases
    )
    return replace(document, testcases=testcases)


def noisy(
    document: Document,
    seed: int,
    rounds: int = 4,
    factor: Mapping[tuple[str, int, int], float] = {},
    host: str = "",
) -> Document:
    """A run with noise at each level; cells of a testcase, row and column can be faster."""
    draw = numpy.random.default_rng(seed)

    def of_run(name: str, cell: Cell) -> Cell:
        if not cell.value:
            return cell
        level = cell.value * factor.get((name, cell.row, cell.column), 1.0) * math.exp(draw.normal(0, RUN))
        values = [level * math.exp(draw.normal(0, ROUND)) for _ in range(rounds)]
        return replace(cell, value=float(numpy.median(values)), rounds=tuple(values), samples=())

    made = cells_of(document, of_run)
    return replace(made, host=host, machine=changed(made.machine, host=host)) if host else made


def test_runs_of_one_machine_do_not_differ(plain: Document) -> None:
    runs = [noisy(plain, seed) for seed in range(20)]
    pairs = list(itertools.combinations(runs, 2))[::5]
    found = [pair for pair in pairs if wirespeed.compare(*pair).those(Outcome.WORSE, Outcome.BETTER)]
    assert len(found) <= 0.05 * len(pairs)
    first = wirespeed.compare(runs[0], runs[1])
    assert first.compared > 100 and {one.evidence for one in first.changes} == {Evidence.ROUNDS}


def test_a_change_of_3_percent_in_one_cell_is_found_and_only_it(plain: Document) -> None:
    slow = {(PAIRS, 0, 1): 0.97}
    found = exact = 0
    for seed in range(40):
        before, after = noisy(plain, seed), noisy(plain, 1000 + seed, factor=slow)
        worse = wirespeed.compare(before, after).those(Outcome.WORSE, Outcome.BETTER)
        found += any(
            (one.key.testcase, one.key.row, one.key.column) == (PAIRS, "gpu0", "gpu1") for one in worse
        )
        exact += len(worse) == 1
    assert found >= 38 and exact >= 36


def test_several_runs_find_less(plain: Document) -> None:
    slow = {(PAIRS, 0, 1): 0.985}
    before = [noisy(plain, seed) for seed in range(6)]
    after = [noisy(plain, 50 + seed, factor=slow) for seed in range(6)]
    comparison = wirespeed.compare(before, after, least=0.01)
    (change,) = comparison.those(Outcome.WORSE, Outcome.BETTER)
    assert change.key.testcase == PAIRS and change.runs == (6, 6) and change.evidence is Evidence.RUNS
    assert change.interval and change.interval[0] < 0.985 < change.interval[1]
    assert change.before == numpy.median([value_of(one, PAIRS) for one in before])
    assert not wirespeed.compare(before[:3], before[3:]).regressed


def value_of(document: Document, name: str) -> float:
    cells = next(r for r in document.testcases if r.name == name).tables[0].cells
    return next(cell.value or 0.0 for cell in cells if (cell.row, cell.column) == (0, 1))


def hosts(plain: Document, names: Sequence[str], seed: int, factor: float = 1.0) -> list[Document]:
    """A run of each host; hosts differ by 10 %, which does not change from run to run."""
    level = {name: math.exp(0.1 * numpy.random.default_rng(i).normal()) for i, name in enumerate(names)}
    of_host = {name: {(PAIRS, 0, 1): level[name] * factor} for name in names}
    return [noisy(plain, seed + i, factor=of_host[name], host=name) for i, name in enumerate(names)]


def test_hosts_are_compared_with_themselves(plain: Document) -> None:
    names = [f"node{i:02}" for i in range(8)]
    before, after = hosts(plain, names, 0), hosts(plain, names, 100, factor=0.97)
    comparison = wirespeed.compare(before, after)
    (change,) = comparison.those(Outcome.WORSE, Outcome.BETTER)
    assert change.key.testcase == PAIRS and change.change == pytest.approx(-0.03, abs=0.005)
    assert comparison.hosts == tuple(names) and comparison.unmatched == ()
    others = [f"other{i}" for i in range(8)]
    unpaired = wirespeed.compare(before, hosts(plain, others, 100, factor=0.97))
    assert unpaired.hosts == () and not unpaired.regressed  # hosts differ by more


def test_one_slow_host_among_many_is_found(plain: Document) -> None:
    names = [f"node{i:02}" for i in range(12)]
    before, after = hosts(plain, names, 0), hosts(plain, names, 100)
    assert not wirespeed.compare(before, after).those(Outcome.WORSE, Outcome.BETTER)
    slower = {(PAIRS, 0, 1): 0.88}
    comparison = wirespeed.compare(before, [noisy(after[0], 7, factor=slower, host=names[0]), *after[1:]])
    (change,) = comparison.those(Outcome.WORSE, Outcome.BETTER)
    (found,) = change.hosts
    assert (found.host, found.is_better) == ("node00", False) and found.ratio == pytest.approx(0.88, abs=0.02)
    assert change.outcome is Outcome.WORSE and abs(change.change) < 0.02
    for format in FORMATS:
        assert "node00" in FORMATS[format](comparison, Style(width=400)), format
    assert "; only on node00 -1" in FORMATS["text"](comparison, Style(width=400, verbose=True))
    assert " on node00  " in FORMATS["text"](comparison, Style(width=400))


def test_a_host_on_one_side_only_is_named(plain: Document) -> None:
    names = [f"node{i}" for i in range(5)]
    comparison = wirespeed.compare(hosts(plain, names, 0), hosts(plain, names[:4], 100))
    assert comparison.unmatched == ("node4",) and comparison.hosts == tuple(names[:4])
    assert not comparison.regressed
    for format in FORMATS:
        text = " ".join(FORMATS[format](comparison, Style(width=400)).split())
        assert "node4" in text, format
    assert "not compared, runs on one side only: node4" in FORMATS["text"](comparison, Style())


def test_a_value_that_fewer_runs_have_is_lost(plain: Document) -> None:
    def without(name: str, cell: Cell) -> Cell:
        return replace(cell, value=None, rounds=(), reason="link down") if name == PAIRS else cell

    runs = [noisy(plain, seed) for seed in range(6)]
    after = [*runs[3:5], cells_of(runs[5], without)]
    comparison = wirespeed.compare(runs[:3], after)
    assert comparison.regressed
    assert {one.key.testcase for one in comparison.those(Outcome.LOST)} == {PAIRS}
    lost = comparison.those(Outcome.LOST)[0]
    assert lost.reason == "no value in 1 of 3 runs after" and lost.runs == (3, 2) and lost.interval
    assert not wirespeed.compare(after, runs[:3]).regressed  # a value that was lacking is no loss


@pytest.mark.parametrize("runs", [(1, 2), (2, 2), (2, 3), (5, 5), (20, 20)])
def test_one_slow_run_after_is_never_the_same(plain: Document, runs: tuple[int, int]) -> None:
    before = [noisy(plain, seed) for seed in range(runs[0])]
    after = [noisy(plain, 100 + seed) for seed in range(runs[1])]
    assert verdict_on(wirespeed.compare(before, after)) is Verdict.PASS
    after[-1] = noisy(plain, 99, factor={(PAIRS, 0, 1): 0.5})
    comparison = wirespeed.compare(before, after)
    (unknown,) = comparison.those(Outcome.UNKNOWN)
    assert verdict_on(comparison) is Verdict.WARN and unknown.key.testcase == PAIRS
    found = json.loads(FORMATS["json"](comparison, Style()))
    assert (found["conclusion"], found["uncertain"], found["regressed"]) == ("cannot tell", 1, False)
    assert found["cells"]["cannot tell"] == 1 and found["changes"][0]["outcome"] == "cannot tell"


def test_noise_cannot_be_told_in_all_formats(
    plain: Document, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(tmp_path / f"{seed}.json") for seed in range(2)]
    for seed, file in enumerate(files):
        save(noisy(plain, seed), file)
    for format in FORMATS:
        code, text, _ = shown(capsys, *files, "--format", format, "-v")
        assert code == 3 and "cannot tell" in text.lower(), format
        assert "too noisy to rule out a 5% change" in text, format
    assert "Cannot tell whether " in text and 'class="hero warn"' in text  # the page
    code, text, _ = shown(capsys, *files, "--least", "50%")
    assert code == 0 and "cannot tell" not in text
    (tmp_path / "broken.json").write_text("{")
    assert shown(capsys, *files[:1], "--to", files[1], str(tmp_path / "broken.json"))[0] == 5


def test_without_rounds_less_is_claimed(plain: Document) -> None:
    sampled = wirespeed.compare(plain, plain)
    assert {one.evidence for one in sampled.changes} == {Evidence.SAMPLES}
    assert sampled.weak == sampled.compared
    bare = cells_of(plain, lambda _, cell: replace(cell, samples=(), statistics=None))
    lower = cells_of(bare, lambda _, cell: replace(cell, value=0.97 * cell.value if cell.value else None))
    values = wirespeed.compare(bare, lower)
    assert {one.evidence for one in values.changes} == {Evidence.VALUES}
    widest = [max(one.half_width for one in found.changes) for found in (sampled, values)]
    assert widest[0] < widest[1]
    assert not [one for one in values.those(Outcome.WORSE) if one.change > -0.025]
    mixed = wirespeed.compare(noisy(plain, 0), plain)  # what both have
    assert {one.evidence for one in mixed.changes} == {Evidence.VALUES}
    for text in (FORMATS["text"](one, Style(width=200)) for one in (sampled, values)):
        assert "from single-round runs: run-to-run variation is assumed" in text


@pytest.mark.parametrize("value", [SMALLEST, LARGEST])
@pytest.mark.parametrize(
    "rounds",
    with_long([(), (0.0, 0.0, 0.0), (0.0, 1e-300, LARGEST), (SMALLEST, LARGEST)], (), (0.0, 0.0, 0.0)),
)
def test_extreme_values_are_compared(plain: Document, value: float, rounds: tuple[float, ...]) -> None:
    strange = cells_of(plain, lambda _, cell: replace(cell, value=value, rounds=rounds, samples=rounds))
    strange = decode(encode(strange), "strange")
    for sides in ((plain, strange), (strange, plain), ([strange, plain], [plain] * 2), (strange, strange)):
        comparison = wirespeed.compare(*sides)
        for change in comparison.changes:
            assert change.p is not None and 0 <= change.p <= 1 and change.interval
            assert all(map(math.isfinite, (*change.interval, change.change, change.half_width)))
        for format in FORMATS:
            assert FORMATS[format](comparison, Style(verbose=True))
        json.loads(FORMATS["json"](comparison, Style()), parse_constant=pytest.fail)


def test_a_side_without_runs_is_refused(plain: Document) -> None:
    with pytest.raises(UsageError, match="at least one run on each side"):
        wirespeed.compare([], [plain])


@pytest.fixture
def folder(plain: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs in `before`, three slower ones in `after`."""
    monkeypatch.chdir(tmp_path)
    for side, factor in (("before", 1.0), ("after", 0.9)):
        (tmp_path / side).mkdir()
        for seed in range(3):
            slower = {(PAIRS, 0, 1): factor}
            save(noisy(plain, seed + 10 * (side == "after"), factor=slower), tmp_path / side / f"{seed}.json")
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["compare", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_files_and_folders_are_sides(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = shown(capsys, "before", "after")
    assert code == 1 and "1 worse" in text and "A: 3 runs of hgx-h200-2" in text
    assert "3 → 3 runs" in shown(capsys, "before", "after", "-v")[1]
    files = [[f"{side}/{i}.json" for i in range(3)] for side in ("before", "after")]
    assert shown(capsys, *files[0], "--to", *files[1]) == (1, text, "")
    assert shown(capsys, *files[0], files[0][0], "--to", "after")[1] == text  # a file counts once
    assert shown(capsys, *files[0], "--to", "before")[0] == 0
    for wrong in (("before",), ("before", "after", "before")):
        with pytest.raises(SystemExit) as ended:
            raise SystemExit(main(["compare", *wrong]))
        assert ended.value.code == 2 and "--to" in capsys.readouterr().err


def test_a_file_that_cannot_be_read_is_named_and_counted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "before" / "broken.json").write_text("{")
    code, text, _ = shown(capsys, "before", "--to", "before/0.json", "before/1.json", "--least", "5%")
    assert code == 5 and "unreadable: before/broken.json is not a saved run of wirespeed" in text
    assert "1 file unreadable" in text
    for format in FORMATS:
        code, text, _ = shown(capsys, "before", "after", "--format", format)
        assert code == 1 and "broken.json" in text, format
    code, text, error = shown(capsys, "before/broken.json", "after")
    assert (code, text) == (2, "") and "broken.json" in error and error.count("\n") == 1


def test_formats_show_runs_medians_and_intervals(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(shown(capsys, "before", "after", "--format", "json")[1])
    assert found["cells"]["worse"] == 1 and found["regressed"] and len(found["before"]) == 3
    change = found["changes"][0]
    assert (change["outcome"], change["runs_before"], change["runs_after"]) == ("worse", 3, 3)
    assert change["change_low"] < change["change"] < change["change_high"] < -0.05 and change["p"] < 0.02
    suite = ET.fromstring(shown(capsys, "before", "after", "--format", "junit")[1])
    failures = [case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None]
    assert failures == [PAIRS] and suite.get("failures") == "1"
    markdown, page = (shown(capsys, "before", "after", "--format", name)[1] for name in ("markdown", "html"))
    for text in (markdown, page):
        assert "3 → 3 runs" in text and "% (" in text and "3 runs of hgx-h200-2" in text
    assert "http-equiv" in page


def test_a_change_of_a_time_has_its_own_direction() -> None:
    from wirespeed.measurement import Unit
    from wirespeed.results.cells import Key

    slower = Change(Key("latency", "", "", ""), Unit.TIME, Outcome.WORSE, 1.0, 2.0, 2.0, (1.6, 2.5))
    assert slower.change == -0.5 and slower.bounds == (1 / 2.5 - 1, 1 / 1.6 - 1)
    assert isinstance(slower, Change) and not hasattr(Comparison, "first")


def test_a_cell_that_a_file_has_twice_is_one_value(plain: Document) -> None:
    twice = replace(
        plain,
        testcases=tuple(
            replace(r, tables=tuple(replace(t, cells=t.cells * 2) for t in r.tables)) for r in plain.testcases
        ),
    )
    for change in wirespeed.compare(twice, twice).changes:
        assert change.runs == (1, 1) and change.evidence is Evidence.SAMPLES
