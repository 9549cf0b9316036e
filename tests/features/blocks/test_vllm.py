"""The constants of vLLM's offloading connector for a machine, and curves of kernels over thread blocks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

import wirespeed
from wirespeed.backends.simulated import parse
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.features.blocks.block_map import map_of
from wirespeed.features.blocks.saturation import NAME, Saturation, saturations
from wirespeed.hardware.topology import Machine
from wirespeed.model import Engine, Method
from wirespeed.thresholds.values import SATURATED

MACHINE = "simulated:hgx-h200-2"


def measured(machine: str | Machine = MACHINE, **how: object) -> Document:
    cases = ["blocks_host_to_device", "blocks_device_to_host", NAME]
    sizes, counts = "4KiB,28KiB,1MiB", (16, 256, 1024)
    return wirespeed.run(cases, machine=machine, tier="quick", sizes=sizes, block_counts=counts, **how)  # type: ignore[arg-type]


def with_caps(sm: float, bulk: float) -> Machine:
    """Two H200s on which a thread block moves this many bytes per second."""
    machine = parse("hgx-h200-2")
    caps = {Engine.SM: sm, Engine.SM_BULK: bulk}
    rates = [replace(r, block_cap=caps[r.engine]) if r.block_cap else r for r in machine.rates]
    return replace(machine, rates=tuple(rates))


@pytest.mark.parametrize(
    ("sm", "bulk", "needed"),
    [
        (50e9, 50e9, {Method.KERNEL: 1, Method.KERNEL_BULK: 1}),
        (8e9, 45e9, {Method.KERNEL: 8, Method.KERNEL_BULK: 2}),
        (4.2e9, 13e9, {Method.KERNEL: 12, Method.KERNEL_BULK: 4}),
        (0.5e9, 13e9, {Method.KERNEL_BULK: 4}),
    ],
)
def test_a_curve_is_saturated_from_the_first_number_that_reaches_the_link(
    sm: float, bulk: float, needed: Mapping[Method, int]
) -> None:
    machine = with_caps(sm, bulk)
    document = wirespeed.run([NAME], machine=machine, samples=3, copies=1)
    there, back = saturations(document)
    assert (there.direction, there.path) == ("host_to_device", "numa0->gpu0")
    assert (back.direction, back.path) == ("device_to_host", "gpu0->numa0"), "the first GPU of each model"
    assert there.saturating == needed


@pytest.mark.parametrize(("share", "needed"), [(SATURATED - 0.001, 8), (SATURATED + 0.001, 4)])
def test_the_threshold_of_a_curve(share: float, needed: int) -> None:
    curve = Saturation("host_to_device", "a->b", {Method.KERNEL: {1: 10.0, 4: 100 * share, 8: 100.0}})
    assert curve.saturating == {Method.KERNEL: needed}


def test_the_constants_are_those_of_the_rule_and_of_the_curve() -> None:
    document = measured()
    rule = next(path.rule for path in map_of(document).paths if path.path == "numa0->gpu0")
    assert rule is not None
    text = wirespeed.render(document, "vllm")
    assert text.startswith("SIMULATED") and text.count("vLLM's offloading connector on NVIDIA H200") == 1
    assert f"THRESHOLD_BYTES = {rule.block_below} " in text and "# vLLM: 28672 " in text
    assert f"MIN_N = {rule.blocks_from} " in text and "NUM_SMS = 8 " in text and "# vLLM: 12 " in text
    assert f"at worst {rule.loss:.0%} slower" in text and f"constants {rule.usual_loss:.0%}" in text
    assert "GPU to CPU: vLLM always takes the batch call, which takes up to" in text
    assert "thread blocks that saturate the link: 8 by kernel, 2 by kernel_bulk" in text
    assert max(map(len, text.splitlines())) <= 120


def test_a_kernel_that_never_saturates_the_link_keeps_the_constant_of_vllm() -> None:
    text = wirespeed.render(measured(with_caps(0.5e9, 13e9)), "vllm")
    assert "NUM_SMS = 12 " in text and "slower than others with all of them" in text


def test_a_run_without_lists_says_what_to_measure() -> None:
    document = wirespeed.run(["host_to_device_memcpy_ce"], machine=MACHINE, samples=2, copies=1)
    assert "measure with `wirespeed blocks --format vllm`" in wirespeed.render(document, "vllm")


def test_the_command_measures_the_curves_too(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--sizes", "4KiB,1MiB", "--blocks", "16,256", "--no-save"]
    assert main(["blocks", "--format", "vllm", "--machine", MACHINE, *sizes]) == 0
    assert "NUM_SMS = 8" in capsys.readouterr().out
    assert main(["blocks", "--format", "vllm", "--machine", "simulated:cpu-2-sockets", "--no-save"]) == 2
    assert "--format vllm requires a GPU" in capsys.readouterr().err


def test_a_server_loads_the_curves() -> None:
    curves = json.loads(wirespeed.render(measured(), "blocks-json"))["thread_blocks"]
    assert [curve["path"] for curve in curves] == ["numa0->gpu0", "gpu0->numa0"]
    assert curves[0]["saturating"] == {"kernel": 8, "kernel_bulk": 2}
    assert curves[0]["rates"]["kernel"]["1"] == pytest.approx(8e9, rel=0.02)


def test_gpus_have_as_many_thread_blocks_as_multiprocessors() -> None:
    machine = parse("hgx-h200-2")
    small = replace(machine, gpus=tuple(replace(gpu, multiprocessors=6) for gpu in machine.gpus))
    document = wirespeed.run([NAME], machine=small, samples=2, copies=1)
    assert document.testcases[0].tables[0].columns.labels == ("1", "2", "3", "4", "6")
