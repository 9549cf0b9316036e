"""What is said of public logs: values above limits, what is not judged, dips, errors, and advice."""

from __future__ import annotations

from pathlib import Path

import pytest

import wirespeed
from tests.importers.test_assumed import H100, all_reduce, to_gpus
from wirespeed.document import Document
from wirespeed.judging.judge import judge
from wirespeed.judging.judged import Judged
from wirespeed.judging.overview import Overview
from wirespeed.judging.verdict import Verdict

LOGS = Path(__file__).parents[1] / "data/logs"


def log(name: str, machine: str | None = None, nics: str | None = None) -> Document:
    return wirespeed.load_log(LOGS / f"{name}.txt", machine, nics)


def imported(tmp_path: Path, text: str, machine: str | None = None, nics: str | None = None) -> Document:
    path = tmp_path / "log.txt"
    path.write_text(text)
    return wirespeed.load_log(path, machine, nics)


def said(document: Document) -> Overview:
    return Judged(document).overview


def everything(document: Document) -> str:
    """The sentence, the extent and the advice."""
    overview = said(document)
    return f"{overview.sentence}\n{overview.extent}\n{overview.advice.do}\n{overview.advice.command}"


def test_values_above_an_assumed_limit_are_faster_than_the_machine_and_not_slow() -> None:
    document = log("above-limit-power9")
    judged = Judged(document)
    overview = judged.overview
    assert overview.verdict is Verdict.WARN
    assert overview.sentence == "2 values are faster than the assumed machine: up to 426% of its limit"
    assert "--machine" in overview.advice.do and "worse" not in everything(document)
    assert judged.diagnosis.slow == 0 and "2 values above the limit" in overview.extent


@pytest.mark.parametrize(("bus", "advice"), [(90.0, ""), (600.0, "--nics")])
def test_a_network_that_is_too_slow_for_the_values_is_not_the_network(
    bus: float, advice: str, tmp_path: Path
) -> None:
    document = imported(tmp_path, all_reduce(H100, 2, 8, bus), nics="1x400G")
    assert advice in said(document).advice.do and ("faster than" in said(document).sentence) == bool(advice)


@pytest.mark.parametrize(("bus", "verdict"), [(31.6, Verdict.PASS), (144.0, Verdict.WARN)])
def test_the_pcie_link_of_a_gpu_limits_it_whatever_the_nics_do(
    bus: float, verdict: Verdict, tmp_path: Path
) -> None:
    """Switches that reduce halve what a host sends, not what a GPU sends over PCIe."""
    document = imported(tmp_path, all_reduce("NVIDIA L40S", 2, 8, bus), nics="8x400G")
    assert judge(document).verdict is verdict


def test_a_tool_that_ran_on_one_device_lacks_nothing_on_the_others() -> None:
    document = log("lack-values")
    assert judge(document).verdict is Verdict.PASS and not judge(document).missing


def test_impossible_copies_between_gpus_are_wrong_data() -> None:
    for machine in (None, "rtx-5090-3"):
        document = log("p2p-above-link-rate", machine)
        assert judge(document).verdict is Verdict.FAIL
        assert "4 values above the limits" in said(document).sentence
        assert said(document).advice.command == "wirespeed p2p"


def test_a_machine_that_a_user_gives_for_unnamed_gpus_may_be_another(tmp_path: Path) -> None:
    text = to_gpus([55.0] * 2, H100).replace(f"Device 0: {H100}\nDevice 1: {H100}\n", "")
    document = imported(tmp_path, text, "rtx-4090-2")
    assert judge(document).verdict is Verdict.WARN and "--machine" in said(document).advice.do
    named = imported(tmp_path, to_gpus([55.0] * 2, "NVIDIA GeForce RTX 4090"))
    assert judge(named).verdict is Verdict.FAIL
