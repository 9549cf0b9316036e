"""Advice about logs is tried: what a check of a log of the tests advises judges more of its values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import wirespeed
from tests.conftest import with_long
from tests.features.imports.test_judged_logs import everything, imported, log
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.judging.judge import judge
from wirespeed.judging.replanned import with_host_memory
from wirespeed.judging.verdict import Verdict

DATA = Path(__file__).parents[2] / "data"
LOGS = sorted(path for folder in ("logs", "published", "reports") for path in (DATA / folder).glob("*.txt"))


def judged(document: Document) -> int:
    return sum(judgement.verdict.is_judged for judgement in judge(document).judgements)


@pytest.mark.parametrize("path", with_long(LOGS, *LOGS[1::2]), ids=lambda path: path.stem)
def test_every_advice_changes_something(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    code = main(["check", str(path), "-v"])
    text = capsys.readouterr().out
    document = wirespeed.load_log(path)
    machine, nics, memory = (
        next(iter(re.findall(rf"{option} (?:NAME-N,? |such as |, such as )*([\w.-]*[\dG])\b", text)), None)
        for option in ("--machine", "--nics,?", "--host-memory")
    )
    assert "--size" not in text and "with ranks" not in text and "number of all GPUs" not in text
    before = judged(document)
    if machine or nics:
        assert judged(wirespeed.load_log(path, machine, nics)) > before
    if memory:
        assert judged(with_host_memory(document, 100e9)) > before
    if "wirespeed baseline FILE" in text:
        baseline = str(tmp_path / "baseline.json")
        assert main(["baseline", str(path), "-o", baseline]) == 0
        capsys.readouterr()
        main(["check", str(path), "--baseline", baseline, "-v"])
        assert capsys.readouterr().out != text
    if code == 4 and any(table.values() for result in document.testcases for table in result.tables):
        assert machine or nics or memory or "baseline" in text or "several ranks" in text


def test_amd_gpus_are_no_hgx_h100(tmp_path: Path) -> None:
    """As rccl-tests print ranks whose GPUs have no name."""
    row = "  8589934592  2147483648  float  sum  -1  323300  26.57  46.50  0  323300  26.57  46.50  0\n"
    head = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"
    ranks = "".join(f"#   Rank {r} Pid 27 on node1 device {r} [0000:0{r}:00.0]\n" for r in range(8))
    for named, asked in (("", True), ("RCCL version 2.18.3+hip6.0\n", False)):
        document = imported(tmp_path, f"{named}{ranks}{head}{row}")
        assert ("hgx-h100-8" in everything(document)) == asked


def test_a_domain_of_more_gpus_than_a_machine_can_have_is_not_advised(tmp_path: Path) -> None:
    text = (DATA / "logs/advice-machine-all-gpus.txt").read_text()
    assert "--machine gb200-128" in everything(imported(tmp_path, text))
    assert "--machine" not in everything(imported(tmp_path, text.replace("Rank 127", "Rank 1439")))
    with pytest.raises(wirespeed.UsageError):
        imported(tmp_path, text.replace("Rank 127", "Rank 1439"), "gb200-1440")


def test_processes_that_nvlink_connects_are_judged() -> None:
    for machine in (None, "gb200-8"):
        document = log("multinode-advice", machine)
        assert judge(document).verdict is Verdict.PASS and len(document.machine.ranks) == 8
