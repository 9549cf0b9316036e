"""``wirespeed doctor`` measures what its suspicions require, and names what would tell causes apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import wirespeed
from wirespeed.cli.main import main
from wirespeed.document import Document, Status
from wirespeed.errors import UsageError
from wirespeed.judging.diagnosis import diagnose
from wirespeed.judging.explain_steps import Adaptive
from wirespeed.judging.omissions import measurable

FAST = {"tier": "quick", "samples": 3, "copies": 1}


def examined(spec: str) -> tuple[Document, Adaptive]:
    adaptive = Adaptive()
    document = wirespeed.run(machine=f"simulated:{spec}", following=adaptive, **FAST)
    return document, adaptive


def names(document: Document) -> list[str]:
    return [result.name for result in document.testcases if result.status is not Status.WAIVED]


@pytest.mark.parametrize(
    ("machine", "fault", "cause", "place", "testcases"),
    [
        ("dgx-a100-8", "pcie-width=8@gpu3", "pcie-width", "gpu3", 2),
        ("dgx-a100-8", "pcie-width=8@pcie1", "pcie-width", "pcie1", 3),
        ("dgx-a100-8", "nvlinks=6@gpu0", "nvlinks", "gpu0", 1),
        ("hgx-h200-2", "throttle=0.6@gpu1", "throttled", "gpu1", 1),
        ("hgx-h200-2", "busy-gpu=0.5@gpu1", "busy-gpu", "gpu1", 4),
        ("hgx-h200-2", "bandwidth-mode=0.75", "bandwidth-mode", "", 2),
        ("hgx-h200-2", "fabric", "fabric", "", 1),
        ("hgx-h200-2", "nccl-disabled", "nccl-disabled", "", 1),
        ("hgx-h200-2", "pcie-errors=0.7@gpu1", "pcie-errors", "gpu1", 2),
        ("dgx-a100-8", "dimms=4@numa1", "dimms", "numa1", 1),
        ("gb200-4", "busy-cpus=0.5", "busy-cpus", "", 1),
    ],
)
def test_a_defect_is_confirmed_by_few_testcases(
    machine: str, fault: str, cause: str, place: str, testcases: int
) -> None:
    document, adaptive = examined(f"{machine}+{fault}")
    assert adaptive.concluded is not None
    first = adaptive.concluded.diagnosis.findings[0]
    assert (first.cause.name, first.place, first.likely) == (cause, place, True)
    assert len(names(document)) <= testcases
    assert document.options["testcases"] == [result.name for result in document.testcases]
    assert f"to confirm {cause}" in adaptive.steps[0].why


def test_several_suspicions_are_measured_together() -> None:
    document, adaptive = examined("dgx-a100-8+throttle=0.6@gpu2+gen3@gpu5")
    assert adaptive.concluded is not None and len(names(document)) == 3 and len(adaptive.steps) == 1
    found = {(one.cause.name, one.place) for one in adaptive.concluded.diagnosis.findings if one.likely}
    assert found == {("throttled", "gpu2"), ("pcie-generation", "gpu5")}


@pytest.mark.parametrize("spec", ["hgx-h200-2", "hgx-h200-2+lowered=0.6@gpu1", "cpu-2-sockets+nps4"])
def test_without_a_defect_the_quick_tier_is_measured(spec: str) -> None:
    document, adaptive = examined(spec)
    assert [step.why for step in adaptive.steps] == ["the quick preset: the readings show no defect"]
    assert set(names(document)) == {case.name for case in measurable(document)}


def test_what_the_suspicion_does_not_explain_is_measured() -> None:
    document, adaptive = examined("hgx-h200-2+pcie-errors=0.99@gpu1+speed@gpu0=0.6")
    assert [step.why for step in adaptive.steps] == [
        "to confirm pcie-errors (gpu1)", "the quick preset, to explain what is slow",
    ]  # fmt: skip
    assert set(names(document)) == {case.name for case in measurable(document)}
    assert len(names(document)) == len(set(names(document)))


def test_equal_causes_are_told_apart_by_another_testcase() -> None:
    """Half a PCIe link may be a link, or all that a busy GPU does: copies between GPUs tell them apart."""
    document = wirespeed.run(["0", "1"], machine="simulated:dgx-a100-8+gen3@gpu5", **FAST)
    document = replace(document, facts=())
    (found,) = diagnose(document, wirespeed.judge(document)).findings
    assert "busy-gpu" in {one.name for one in found.others} and found.next is not None
    more = wirespeed.run(["0", "1", found.next], machine="simulated:dgx-a100-8+gen3@gpu5", **FAST)
    more = replace(more, facts=())
    (after,) = diagnose(more, wirespeed.judge(more)).findings
    assert after.place == "gpu5" and "busy-gpu" not in {after.cause.name, *(one.name for one in after.others)}


def test_causes_with_equal_values_are_told_apart_by_no_testcase() -> None:
    document = wirespeed.run(["host_stream_copy"], machine="simulated:cpu-2-sockets+nps4", **FAST)
    document = replace(document, facts=())
    (found,) = diagnose(document, wirespeed.judge(document)).findings
    assert found.others and found.next is None


def test_rounds_that_tell_causes_apart_are_part_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    adaptive = Adaptive()
    monkeypatch.setattr("wirespeed.backends.facts", lambda machine: ())
    monkeypatch.setattr("wirespeed.judging.explain_steps._quick", lambda document: (wirespeed.TESTCASES[0],))
    wirespeed.run(machine="simulated:hgx-h200-2+gen4@gpu1", following=adaptive, **FAST)
    whys = [step.why for step in adaptive.steps]
    assert whys[1].startswith("to distinguish ") and "busy-gpu" in whys[1]
    assert sum(why.startswith("to distinguish ") for why in whys) <= 2


def test_the_command_says_what_it_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = ["--machine", "simulated:dgx-a100-8+pcie-width=8@gpu3", "--samples", "3"]
    assert main(["doctor", *machine, "-o", str(tmp_path / "d.json")]) == 1
    out = " ".join(capsys.readouterr().out.split())
    measured = "host_to_device_memcpy_ce, device_to_host_memcpy_ce"
    assert f"measured 2 of 62 testcases, to confirm pcie-width (gpu3): {measured}" in out
    assert ", ".join(names(wirespeed.load(tmp_path / "d.json"))) == measured
    assert main(["doctor", *machine, "-t", "device_local_copy"]) == 3  # only the defect
    assert "measured 2 of" not in capsys.readouterr().out


@pytest.mark.parametrize("chosen", [["--tier", "quick"], ["-t", "0"], ["-p", "host_stream"]])
def test_the_user_may_choose(chosen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def run(**arguments: object) -> Document:
        assert arguments["following"] is None
        raise UsageError("seen")

    monkeypatch.setattr("wirespeed.api.run", run)
    assert main(["doctor", "--machine", "simulated:hgx-h200-2", *chosen]) == 2


def test_a_job_needs_names() -> None:
    with pytest.raises(UsageError, match="omit following"):
        wirespeed.run(world=object(), following=Adaptive())  # type: ignore[arg-type]
