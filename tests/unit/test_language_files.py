"""Files of transfers: tables, axes, expectations, and the way back from plans to text."""

from __future__ import annotations

from pathlib import Path

import pytest

import wirespeed
from wirespeed.backends import describe
from wirespeed.document import Document
from wirespeed.errors import UsageError
from wirespeed.features.transfers import toml_file
from wirespeed.features.transfers.syntax import line_of
from wirespeed.judging.criteria import Criteria
from wirespeed.judging.judge import judge
from wirespeed.judging.verdict import Verdict
from wirespeed.measurement import Expectation, Reduce
from wirespeed.model import Transfer
from wirespeed.results.baseline import encode, make
from wirespeed.results.store import decode
from wirespeed.results.store import encode as encoded
from wirespeed.testcases.table import Testcase

TWO = describe("simulated:hgx-h200-2")
ABOUT = '[[measurement]]\nname = "a"\n'


def test_transfers_become_a_line_and_back() -> None:
    text = "gpu0 -> gpu1 256MiB; load pageable(numa0) -> gpu1 12345B; gpu1 <- gpu0 sm 4KiB blocks=3"
    (case,) = toml_file.of_line(text).testcases
    transfers = case.plan(TWO).measurements[0].transfers
    assert line_of(transfers, TWO) == text
    assert all(isinstance(one, Transfer) for one in transfers)


def planned(text: str) -> tuple[Testcase, ...]:
    return toml_file.loads(text).testcases


def test_measurements_of_one_name_share_a_table() -> None:
    (case,) = planned(ABOUT + 'label = "push"\ntransfers = "gpu0 -> gpu1"\n'
                      + ABOUT + 'label = "pull"\ntransfers = "gpu1 <- gpu0"\n')  # fmt: skip
    (layout,) = case.plan(TWO).tables
    assert layout.rows.labels == ("push", "pull") and layout.columns.labels == ("bandwidth",)


def test_axes_are_columns_and_devices_are_rows() -> None:
    (case,) = planned(ABOUT + 'transfers = "near($) -> $"\neach = "gpus"\nsizes = "1MiB,4MiB"\n')
    plan = case.plan(TWO)
    assert plan.tables[0].rows.labels == ("gpu0", "gpu1") and plan.tables[0].columns.values == (2**20, 2**22)
    assert [m.transfers[0].bytes for m in plan.measurements] == [2**20, 2**22] * 2
    (case,) = planned(ABOUT + 'transfers = "gpu0 -> gpu1 sm"\nblocks = [1, 8]\n')
    assert [m.transfers[0].executor.blocks for m in case.plan(TWO).measurements] == [1, 8]


def test_reductions_choose_the_values() -> None:
    def reduced(reduce: str) -> list[tuple[str, Reduce]]:
        (case,) = planned(ABOUT + f'transfers = "gpu0 -> gpu1; gpu1 -> gpu0"\nreduce = {reduce}\n')
        plan = case.plan(TWO)
        rows = plan.tables[0].rows.labels
        return [(rows[p.row], p.reduce) for p in plan.measurements[0].places]

    assert reduced('"first"') == [("gpu0->gpu1", Reduce.FIRST)]
    assert reduced('["sum", "wall"]') == [("sum", Reduce.SUM), ("wall", Reduce.WALL)]
    assert [label for label, _ in reduced('"each"')] == ["gpu0->gpu1", "gpu1->gpu0"]


def run(text: str, machine: str = "simulated:hgx-h200-2") -> Document:
    return wirespeed.run(planned(text), machine=machine, samples=6, copies=2)


@pytest.mark.parametrize(
    ("expect", "line", "verdict"),
    [
        ("of_limit = 0.7", "gpu0 -> gpu1", Verdict.PASS),
        ("of_limit = 0.95", "gpu0 -> gpu1", Verdict.FAIL),
        ('least = "350 GB/s"', "gpu0 -> gpu1", Verdict.PASS),
        ('least = "450 GB/s"', "gpu0 -> gpu1", Verdict.FAIL),
        ('most = "1 us"', "latency gpu0 <- gpu1", Verdict.PASS),
        ('most = "800 ns"', "latency gpu0 <- gpu1", Verdict.FAIL),
        ('least = "100 GB/s"', "gpu0 -> gpu1 1MiB blocks=1 sm", Verdict.FAIL),
    ],
)
def test_expectations_are_judged_and_stored(expect: str, line: str, verdict: Verdict) -> None:
    document = run(ABOUT + f'transfers = "{line}"\nexpect = {{ {expect} }}\n')
    saved = decode(encoded(document), Path("a.json"))
    (judgement,) = judge(saved).judgements
    assert judgement.verdict is verdict
    assert ("that are expected of it" in judgement.why) is (verdict is Verdict.FAIL)


def test_a_baseline_is_an_expectation_too(tmp_path: Path) -> None:
    text = ABOUT + 'transfers = "gpu0 -> gpu1; latency gpu0 <- gpu1"\n'
    good = run(text)
    (tmp_path / "good.json").write_bytes(encode(make([good])))
    file = tmp_path / "file.toml"
    file.write_text(text + 'expect = { like = "good.json" }\n')
    program = toml_file.load(file)
    options = {"samples": 6, "copies": 2}
    same = wirespeed.run(program.testcases, machine="simulated:hgx-h200-2", **options)
    slow = wirespeed.run(program.testcases, machine="simulated:hgx-h200-2+speed@gpu0-gpu1=0.5", **options)
    assert judge(same).verdict is Verdict.PASS and judge(slow).verdict is Verdict.FAIL
    assert any("by good.json" in one.why for one in judge(slow).judgements)
    cells = [cell for table in same.testcases[0].tables for cell in table.cells]
    assert all(isinstance(cell.expect, Expectation) and cell.expect.origin == "good.json" for cell in cells)


def test_a_stored_baseline_tightens_an_expectation() -> None:
    text = ABOUT + 'transfers = "gpu0 -> gpu1"\nexpect = { of_limit = 0.1 }\n'
    baseline = make([run(text)])
    slow = run(text, "simulated:hgx-h200-2+speed@gpu0-gpu1=0.5")
    assert judge(slow).verdict is Verdict.PASS
    assert judge(slow, Criteria(baseline=baseline)).verdict is Verdict.FAIL


def test_a_saved_run_makes_no_other_file_be_read() -> None:
    text = ABOUT + 'transfers = "gpu0 -> gpu1"\nexpect = { like = "/etc/passwd" }\n'
    assert toml_file.loads(text, judged=False).testcases
    with pytest.raises(UsageError, match="/etc/passwd"):
        toml_file.loads(text)


TABLE_OF_ONE = """[[testcase]]
name = "a"
[[testcase.table]]
key = ""
title = "t"
unit = "B/s"
rows = { name = "GPU", labels = ["r"] }
columns = { name = "GPU", labels = ["c"] }
[[measurement]]
name = "a"
transfers = "gpu0 -> gpu1"
"""
PLACED = 'values = [{{ row = "r", column = "c", {} }}]'
#: A file, and a part of the error.
WRONG = [
    ("", "has no measurement"),
    ("a = ", "is not valid TOML"),
    (
        ABOUT + 'transfers = "gpu0 -> gpu1"\nlabel = "\ud800"',
        "line 4, column 10: the character is not a Unicode",
    ),
    ("[[measurement]]\n", "line 1 is not valid: Object missing required field `name`"),
    (ABOUT, "give transfers, or waived"),
    (ABOUT + 'transfer = "gpu0 -> gpu1"', "did you mean 'transfers'?"),
    (ABOUT + 'transfers = "gpu0 -> gpu9"', "f.toml, line 3, column 22: gpu9: this machine has"),
    (
        ABOUT + 'transfers = ["gpu0 -> gpu1",\n"gpu0 -> gpuX"]',
        "f.toml, line 4, column 10: there is no memory 'gpuX'",
    ),
    (ABOUT + 'transfers = ["gpu0 -> gpu1",\n"gpu0 -> gpu9"]', "f.toml, line 4, column 10: gpu9"),
    (ABOUT + 'transfers = "gpu0 -> gpu1"\nreduce = "some"', "unknown reduce 'some'"),
    (ABOUT + 'transfers = "gpu0 -> gpu1"\nreduce = "wall"', "wall needs at least two transfers"),
    (ABOUT + 'transfers = "gpu0 -> gpu1"\nsizes = "1"\nblocks = [1]', "give sizes or blocks"),
    (ABOUT + 'transfers = "gpu0 -> gpu1"\nsizes = "1x"', "'1x' is not a size"),
    (ABOUT + 'transfers = "gpu0 -> gpu1"\nexpect = { of_limit = 2 }', "Expected `float` <= 1"),
    (ABOUT + 'transfers = "gpu0 -> gpu1"\nexpect = { leats = "1 GB/s" }', "did you mean 'least'?"),
    (ABOUT + 'transfers = "gpu0 -> gpu1"\nexpect = {}', "expect is empty"),
    (ABOUT + 'transfers = "gpu0 -> gpu1"\nexpect = { least = "1 GB" }', "is not a rate"),
    (ABOUT + 'transfers = "gpu0 -> gpu1"\neach = "gpu9"', "line 4, column 9: gpu9"),
    (ABOUT + 'transfers = "$ -> gpu1"', "add each"),
    (ABOUT + 'transfers = "gpu0 -> gpu1"\nvalues = [{ row = "a", column = "b" }]', "there is no table ''"),
    (ABOUT + 'transfers = "latency gpu0 <- gpu1"\nexpect = { of_limit = 0.7 }', "most latencies"),
    (ABOUT + 'transfers = "gpu0 -> gpu1"\neach = "void"', "an axis names devices"),
    (TABLE_OF_ONE, "so the measurement needs values"),
    (TABLE_OF_ONE + PLACED.format("of = [1]"), "not one of 1"),
    (TABLE_OF_ONE + PLACED.format('reduce = "latency"'), "others have neither"),
    (TABLE_OF_ONE + PLACED.format('reduce = "lateness"'), "Invalid enum value 'lateness'"),
    (TABLE_OF_ONE + PLACED.format("of = []"), "Expected `array` of length >= 1"),
    (
        TABLE_OF_ONE.replace("gpu0 -> gpu1", "load gpu0 -> gpu1") + PLACED.format("of = [0]"),
        "nothing is measured",
    ),
    (TABLE_OF_ONE.replace('["r"]', '["r"], values = [nan]'), "not from 0 to 1e+18"),
    (TABLE_OF_ONE.replace('["r"]', '["r"], values = [1, 2]'), "has 1 labels, but 2 values"),
    (TABLE_OF_ONE.replace('"t"', '"{x}"\nengine = "ce"'), "braces other than {engine}"),
    ('[[testcase]]\nname = "b"\n' + ABOUT + 'transfers = "gpu0 -> gpu1"', "no measurement has the name"),
    (ABOUT + 'transfers = "gpu0 -> gpu1 copies=2; gpu1 -> gpu0 copies=3"', "already has copies 2"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_invalid_files_say_where_and_why(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        program = toml_file.loads(text, "f.toml")
        for case in program.testcases:
            case.plan(TWO)
        program.settings({})
    assert message in str(caught.value)


def test_settings_of_the_run_agree() -> None:
    program = toml_file.of_line("gpu0 -> gpu1 copies=2 samples=3; gpu1 -> gpu0 over=vmm-fd")
    assert program.settings({}) == {"copies": 2, "samples": 3, "share": "vmm-fd"}
    with pytest.raises(UsageError, match=r"column 14.*already has copies 5"):
        program.settings({"copies": 5})


def test_a_saved_run_with_an_impossible_expectation_is_refused() -> None:
    document = run(ABOUT + 'transfers = "gpu0 -> gpu1"\nexpect = { of_limit = 0.7 }\n')
    text = encoded(document).replace(b'"of_limit": 0.7', b'"of_limit": -1')
    with pytest.raises(wirespeed.DocumentError, match="invalid expectation"):
        decode(text, Path("a.json"))
