"""Published outputs: no value of a normal machine is bad, a slower one is never milder, and what others asked
about is named. `docs/results/published.md` has the sources.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import wirespeed
from wirespeed.document import Document
from wirespeed.judging.check import Check
from wirespeed.judging.verdict import Verdict
from wirespeed.measurement import Unit

FOLDER = Path(__file__).parents[2] / "data/published"
#: Machines of logs that do not name their GPUs.
MACHINES = {
    "nvbandwidth-a100-readme": "dgx-a100-40g-8",
    "nvbandwidth-h100-issue24": "hgx-h100-8",
    "nvbandwidth-gb200-azure": "gb200-1",
}
#: NICs of the hosts of logs that do not name them.
NICS = {"nccl-tests-2xh100-a3mega": "8x200G"}
#: Logs in which nothing is judged: host memory is unknown.
UNJUDGED = {"mlc-cnf-testbed"}
LOGS = sorted(FOLDER.glob("*.txt"))
#: What is said of logs whose posters ask or complain: the testcase that is slow, and why; nothing if such
#: machines reach no more, as the answers say.
ASKED = {
    "nvbandwidth-a100-issue42": ("", ""),
    "nvbandwidth-a6000-issue50": ("", ""),  # "these look good"
    "nvbandwidth-h100-issue24": ("host_to_device_memcpy_sm", "slower than usual"),
    "nvbandwidth-h20-3e-issue48": ("", ""),
    "nvbandwidth-rtx4090-issue15": ("", ""),
    "p2p-h100-nccl-issue1264": ("", ""),  # 783 of 900 GB/s is what NVLink 4 reaches
    "p2p-rtx4090-tinygrad-issue44": ("device_to_device_memcpy_write_ce", "capacity is unknown"),
}


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_no_value_of_a_healthy_machine_fails(path: Path) -> None:
    document = wirespeed.load_log(path, MACHINES.get(path.stem), NICS.get(path.stem))
    check = wirespeed.judge(document)
    bad = [j for j in check.judgements if j.verdict in (Verdict.FAIL, Verdict.IMPLAUSIBLE, Verdict.WARN)]
    assert bad == []
    assert check.verdict is (Verdict.NOT_JUDGED if path.stem in UNJUDGED else Verdict.PASS)
    assert bool(check.uncovered) == (path.stem in UNJUDGED)
    assert document.imported[0].unknown == 0
    assert sum(len(table.values()) for r in document.testcases for table in r.tables) > 0


@pytest.mark.parametrize("path", sorted(FOLDER.glob("asked/*.txt")), ids=lambda path: path.stem)
def test_what_a_poster_asks_about_is_named(path: Path) -> None:
    check = wirespeed.judge(wirespeed.load_log(path, MACHINES.get(path.stem)))
    testcase, why = ASKED[path.stem]
    assert check.verdict is (Verdict.WARN if testcase else Verdict.PASS)
    assert not testcase or any(j.key.testcase == testcase and why in j.why for j in check.judgements)


def slower(document: Document, factors: float | dict[str, float]) -> Document:
    """A Document whose rates, of all or of some testcases, are multiplied by a factor."""
    results = []
    for result in document.testcases:
        by = factors if isinstance(factors, float) else factors.get(result.name, 1.0)
        tables = tuple(
            replace(table, cells=tuple(replace(c, value=c.value and c.value * by) for c in table.cells))
            if table.unit is Unit.RATE else table
            for table in result.tables
        )  # fmt: skip
        results.append(replace(result, tables=tables))
    return replace(document, testcases=tuple(results))


@pytest.mark.parametrize(
    ("both", "rate", "other", "verdict"),
    [
        ("", 21.85, 27.2, Verdict.PASS), ("", 21.7, 27.2, Verdict.WARN),
        ("bidirectional_", 13.3, 24.0, Verdict.PASS), ("bidirectional_", 13.1, 24.0, Verdict.WARN),
    ],
)  # fmt: skip
@pytest.mark.parametrize("runs", [1, 2])
def test_directions_of_pcie_that_differ(
    both: str, rate: float, other: float, verdict: Verdict, runs: int, tmp_path: Path
) -> None:
    """Each is within what such links reach, but one is a fifth slower than the other, or half as fast."""
    text = "nvbandwidth Version: v0.10.0\nDevice 0: NVIDIA L40S\n\n"
    for name, value in (("host_to_device", rate), ("device_to_host", other)) * runs:
        text += f"Running {name}_{both}memcpy_ce.\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n"
        text += f"           0\n 0     {value:.2f}\n\n"
    (tmp_path / "log.txt").write_text(text)
    check = wirespeed.judge(wirespeed.load_log(tmp_path / "log.txt"))
    assert check.verdict is verdict
    slow = [j for j in check.judgements if "than the other direction" in j.why]
    assert len(slow) == (runs if verdict.is_bad else 0)


@pytest.mark.parametrize(("share", "fits"), [(0.92, False), (0.88, True)])
def test_a_cause_of_certain_amounts_explains_nothing_faster_than_they_allow(share: float, fits: bool) -> None:
    """A mode of NVLinks leaves three quarters: not 92%, whatever machines of a model have in common."""
    document = slower(wirespeed.load_log(FOLDER / "nvbandwidth-h100-azure.txt"), share)
    found = [finding.cause.name for finding in wirespeed.diagnose(document).findings if finding.cells]
    assert found == (["bandwidth-mode"] if fits else [])


@pytest.mark.parametrize("option", ["-b 1", "--bufferSize=256", ""])
@pytest.mark.parametrize("note", ["NOTE: The buffer size is smaller than the default\n", ""])
def test_smaller_buffers_are_not_judged_by_what_large_ones_reach(
    option: str, note: str, tmp_path: Path
) -> None:
    """Whether the tool notes it, or only the command says so."""
    text = f"$ numactl -m0 ./nvbandwidth -t 0 {option}\nnvbandwidth Version: v0.8\n"
    text += "Device 0: NVIDIA A100-SXM4-40GB\n"
    text += "\nRunning host_to_device_memcpy_ce.\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n"
    (tmp_path / "log.txt").write_text(f"{text}           0\n 0     12.13\n\n{note}")
    (judgement,) = wirespeed.judge(wirespeed.load_log(tmp_path / "log.txt")).judgements
    assert judgement.verdict is (Verdict.NOT_JUDGED if option or note else Verdict.FAIL)


#: How good a verdict is; what is not judged must not become so because it is slower.
_MILD = {Verdict.IMPLAUSIBLE: 0, Verdict.FAIL: 0, Verdict.WARN: 1, Verdict.PASS: 2, Verdict.NOT_JUDGED: 3}


def is_milder(now: Check, before: Check) -> bool:
    return _MILD[now.verdict] > _MILD[before.verdict]


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.txt")), ids=lambda path: path.stem)
def test_a_slower_machine_never_gets_a_milder_verdict(path: Path) -> None:
    document = wirespeed.load_log(path, MACHINES.get(path.stem), NICS.get(path.stem))
    before = wirespeed.judge(document)
    for percent in range(95, 4, -10):
        now = wirespeed.judge(slower(document, percent / 100))
        assert not is_milder(now, before), percent
        before = now


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_one_slower_testcase_never_gets_a_milder_verdict(path: Path) -> None:
    document = wirespeed.load_log(path, MACHINES.get(path.stem), NICS.get(path.stem))
    for name in {result.name for result in document.testcases}:
        before = wirespeed.judge(document)
        for by in (0.8, 0.6, 0.3):
            now = wirespeed.judge(slower(document, {name: by}))
            assert not is_milder(now, before), (name, by)
            assert _MILD[now.testcases[name]] <= _MILD[before.testcases[name]], (name, by)
            before = now


def test_every_log_has_a_source() -> None:
    page = (FOLDER.parents[2] / "docs/results/published.md").read_text()
    assert [path.stem for path in FOLDER.rglob("*.txt") if f"`{path.stem}`" not in page] == []


@pytest.mark.parametrize(
    ("rate", "verdict"),
    [(318.0, Verdict.PASS), (316.5, Verdict.WARN), (254.5, Verdict.WARN), (253.0, Verdict.FAIL)],
)
def test_c2c_of_a_model_without_rates_is_compared_with_modules_that_have_such_links(
    rate: float, verdict: Verdict, tmp_path: Path
) -> None:
    """Two publishers know other GH200s: 337.6 GB/s at least; 6% less are usual, a fifth below fails."""
    (tmp_path / "log.txt").write_text(
        "nvbandwidth Version: v0.10.0\nDevice 0: NVIDIA GH200 144G HBM3e\n\n"
        "Running host_to_device_memcpy_ce.\n"
        f"memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n           0\n 0     {rate:.2f}\n\n"
    )
    (judged,) = wirespeed.judge(wirespeed.load_log(tmp_path / "log.txt")).judgements
    assert judged.verdict is verdict and judged.reference == "modules with such links"
