"""Documents and baselines that were edited so that a bad machine passes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import wirespeed
from tests.conftest import with_long
from wirespeed.cli.main import main
from wirespeed.document import Document, Status
from wirespeed.errors import DocumentError, UsageError
from wirespeed.judging.criteria import Criteria
from wirespeed.judging.judge import judge
from wirespeed.judging.verdict import Verdict
from wirespeed.reports import formats
from wirespeed.results import baseline
from wirespeed.results.compare import Outcome

MACHINE = "simulated:hgx-h200-2"
RATES, LATENCIES = "4", "32"


def of(*testcases: str, fault: str = "") -> Document:
    return wirespeed.run(testcases, machine=MACHINE + fault, samples=3, copies=1)


def edited(document: Document, edit: Callable[[dict[str, Any]], object]) -> Document:
    """Return a Document as it is loaded after an edit of its JSON."""
    plain = msgspec.to_builtins(document)
    edit(plain)
    return msgspec.convert(plain, Document)


def scaled(document: Document, factor: float) -> Document:
    """Return a run with this part of the speed."""
    results = []
    for result in document.testcases:
        tables = []
        for table in result.tables:
            change = factor if table.unit.more_is_better else 1 / factor
            cells = tuple(replace(cell, value=(cell.value or 0.0) * change) for cell in table.cells)
            tables.append(replace(table, cells=cells))
        results.append(replace(result, tables=tuple(tables)))
    return replace(document, testcases=tuple(results))


@pytest.mark.parametrize(
    "machine",
    with_long(["hgx-h200-2", "dgx-a100-8", "l40s-8", "gh200-1", "rtx4090-2+pcie-width=8@gpu0"], "l40s-8"),
)
def test_a_slower_machine_never_gets_a_milder_verdict(machine: str) -> None:
    """Of the same values, all slower: of the run, and of each testcase."""
    document = wirespeed.run(tier="quick", machine=f"simulated:{machine}", samples=3, copies=1)
    mild = {Verdict.IMPLAUSIBLE: 0, Verdict.FAIL: 0, Verdict.WARN: 1, Verdict.PASS: 2}
    before = judge(document)
    for percent in range(95, 10, -10):
        now = judge(scaled(document, percent / 100))
        assert mild.get(now.verdict, 3) <= mild.get(before.verdict, 3), percent
        before = now


@pytest.mark.parametrize("removed", ["document", "machine"])
def test_one_mark_is_enough_for_a_simulated_run(
    removed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.json"
    wirespeed.run([RATES], machine=MACHINE, samples=3, copies=1, output=path)
    plain = json.loads(path.read_text())
    assert (plain if removed == "document" else plain["machine"]).pop("simulated") is True
    path.write_text(json.dumps(plain))
    document = wirespeed.load(path)
    assert document.simulated and document.machine.simulated
    assert main(["check", "--from", str(path)]) == 2
    assert "refusing to check a simulated machine" in capsys.readouterr().err
    for format in set(formats()) - {"overalloc"}:  # it shows only values
        assert "simulated" in wirespeed.render(document, format).lower(), format
    with pytest.raises(UsageError, match="the baseline is from"):
        judge(
            document, Criteria(baseline=msgspec.structs.replace(baseline.make([document]), simulated=False))
        )


def test_a_baseline_never_loosens_the_expected_range() -> None:
    good = of(RATES)
    low = scaled(good, 0.86)  # at the low end of the range
    assert judge(low).verdict is judge(low, Criteria(baseline=baseline.make([low]))).verdict is Verdict.WARN
    slow = scaled(good, 0.01)
    lax = baseline.make([slow])
    assert judge(slow).verdict is judge(slow, Criteria(baseline=lax)).verdict is Verdict.FAIL
    (judgement, *_) = judge(slow, Criteria(baseline=lax)).judgements
    assert judgement.why == "below the expected range" and judgement.least
    tight = judge(scaled(good, 0.9), Criteria(baseline=baseline.make([good])))
    assert tight.verdict is Verdict.FAIL and judge(scaled(good, 0.9)).verdict is Verdict.PASS


def test_deviations_that_reach_below_zero_judge_nothing() -> None:
    good = of(RATES, LATENCIES)
    made = baseline.make([good])
    vague = {model: tuple(replace(e, spread=0.4) for e in found) for model, found in made.models.items()}
    with pytest.raises(UsageError, match=r"compared with the baseline: its runs differ too much in .*; make"):
        judge(good, Criteria(baseline=replace(made, models=vague)))
    entries = {model: (*found[:-1], replace(found[-1], spread=0.0)) for model, found in vague.items()}
    noisy = replace(made, models=entries)
    slow = judge(scaled(good, 0.01), Criteria(baseline=noisy))
    verdicts = {judgement.unit.more_is_better: judgement.verdict for judgement in slow.judgements}
    assert verdicts == {True: Verdict.FAIL, False: Verdict.FAIL}  # latencies by what is usual


@pytest.mark.parametrize(("field", "value"), [("median", 0.0), ("spread", -1.0), ("runs", 0)])
def test_impossible_baselines_are_refused(field: str, value: float, tmp_path: Path) -> None:
    plain = json.loads(baseline.encode(baseline.make([of(RATES)])))
    (entries,) = plain["models"].values()
    entries[0][field] = value
    path = tmp_path / "base.json"
    path.write_text(json.dumps(plain))
    with pytest.raises(DocumentError, match="is not a baseline"):
        baseline.load(path)


def test_runs_that_differ_make_no_baseline() -> None:
    good = of(RATES)
    assert baseline.make([good, scaled(good, 0.96)])
    cell = r"device_to_device_memcpy_read_ce gpu\d gpu\d by 15\d%"
    with pytest.raises(UsageError, match=f"differ by more than 5% in 2 values: {cell}, {cell}"):
        baseline.make([good, scaled(good, 0.4)])
    with pytest.raises(UsageError, match=r"c\.json differs most in 2 of them: omit it"):
        baseline.make([good, scaled(good, 0.99), scaled(good, 0.4)], ["a.json", "b.json", "c.json"])
    with pytest.raises(UsageError, match=r"b\.json is not usable: .*; omit it"):
        baseline.make([good, replace(good, interrupted="Ctrl-C")], ["a.json", "b.json"])


def test_lost_cells_fail_a_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = of("0", RATES)
    ended = replace(both, testcases=both.testcases[:1], interrupted="Ctrl-C")
    comparison = wirespeed.compare(both, ended)
    assert comparison.regressed and len(comparison.those(Outcome.LOST)) == 2
    for name, document in (("a", both), ("b", ended)):
        (tmp_path / name).write_bytes(msgspec.json.encode(document))
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    out = capsys.readouterr().out
    assert "run interrupted: Ctrl-C" in out and "2 lost" in out
    assert main(["compare", str(tmp_path / "b"), str(tmp_path / "a")]) == 0


@pytest.mark.parametrize("wrong", [{"corrupted": "gpu0->gpu1"}, {"wrong": 7}])
@pytest.mark.parametrize("status", ["passed", "waived"])
@pytest.mark.parametrize("valued", [True, False])
def test_wrong_data_never_passes(wrong: dict[str, Any], status: str, valued: bool) -> None:
    def edit(plain: dict[str, Any]) -> None:
        (result,) = plain["testcases"]
        result["status"] = status
        cell = result["tables"][0]["cells"][0]
        cell |= {**wrong, "reason": "wrong data", **({} if valued else {"value": None})}

    good = of(RATES)
    document = edited(good, edit)
    assert document.testcases[0].status is Status.FAILED and document.testcases[0].reason == "wrong data"
    assert not document.good and judge(document).verdict is Verdict.FAIL
    assert "<failure" in wirespeed.render(document, "junit")
    with pytest.raises(UsageError, match="not usable"):
        baseline.make([document])
    assert wirespeed.compare(good, document).regressed
