"""The functions for people at a prompt, on simulated machines with GPUs and without."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wirespeed
from wirespeed.errors import MachineError, UsageError
from wirespeed.features.bandwidth import _number
from wirespeed.run_errors import MeasurementFailed

H200, A100, CPU = "simulated:hgx-h200-2", "simulated:dgx-a100-8", "simulated:cpu-2-sockets"
NO_PEERS, NOTHING = "simulated:pcie-2-no-p2p", wirespeed.Machine("nothing")
SIZES = ("4KiB", 2**20, "1GiB")

#: Every function with a result, on GPUs and on host memory.
CALLS: dict[str, Callable[[], Any]] = {
    "theoretical": lambda: wirespeed.theoretical_memory_bandwidth(machine=H200),
    "memory gpu": lambda: wirespeed.memory_bandwidth(machine=H200),
    "memory numa": lambda: wirespeed.memory_bandwidth(device="numa1", machine=CPU),
    "scaling gpu": lambda: wirespeed.memory_bandwidth_scaling(machine=H200, samples=2, copies=1),
    "scaling numa": lambda: wirespeed.memory_bandwidth_scaling(SIZES, device="numa0", machine=CPU),
    "saxpy gpu": lambda: wirespeed.memory_bandwidth_saxpy(machine=H200),
    "saxpy numa": lambda: wirespeed.memory_bandwidth_saxpy(2**20, "float64", machine=CPU),
    "saxpy scaling": lambda: wirespeed.memory_bandwidth_saxpy_scaling(machine=H200, samples=2),
    "host2device": lambda: wirespeed.host2device_bandwidth("64MiB", device="gpu1", machine=H200),
    "p2p": lambda: wirespeed.p2p_bandwidth(machine=H200),
    "p2p numa": lambda: wirespeed.p2p_bandwidth("numa1", "numa0", "64MiB", machine=CPU),
    "p2p all": lambda: wirespeed.p2p_bandwidth_all(machine=H200),
    "p2p both": lambda: wirespeed.p2p_bandwidth_bidirectional(machine=H200),
    "p2p both all": lambda: wirespeed.p2p_bandwidth_bidirectional_all(machine=CPU),
}


def one_node() -> wirespeed.Machine:
    return dataclasses.replace(wirespeed.machine(H200), gpus=())


def unknown() -> wirespeed.Machine:
    """A machine of which nothing says how fast its links are."""
    machine = wirespeed.machine(H200)
    return dataclasses.replace(
        machine, links=tuple(dataclasses.replace(link, capacity=None) for link in machine.links)
    )


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return {name: call() for name, call in CALLS.items()}


def test_every_form_of_every_result(results, golden, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = ""
    for name, result in results.items():
        text += f"# {name}\n{result!r}\n{result}\n\n"
        if result.samples:
            result.plot()
            text += capsys.readouterr().out + "\n"
    assert max(map(len, text.splitlines())) <= 110
    assert text.count("SIMULATED") >= len(results)
    golden("bandwidth/results.txt", text)


def test_all_drawings_have_one_unit_in_python_and_on_the_command_line(results, capsys):
    for name, result in results.items():
        if name == "theoretical":
            continue
        result.plot()
        drawn = capsys.readouterr().out
        assert "GB/s" in drawn and "GiB/s" not in drawn, name
    scaling = results["scaling gpu"]
    scaling.plot()
    assert f"Peak: {scaling.fastest.gb_per_s:.0f} GB/s" in capsys.readouterr().out


def test_units_and_statistics(results):
    one = results["memory gpu"]
    assert one.gb_per_s * 1e9 == pytest.approx(one.gib_per_s * 2**30) == one.value
    assert one.min <= one.avg <= one.max and one.std_dev >= 0 and len(one.samples) == one.statistics.n
    assert one.bytes == 512 * 2**20 and one.limit == pytest.approx(4814e9)
    assert one.value < results["theoretical"].value
    assert one.document.testcases[0].tables[0].values() == [one.value]
    with pytest.raises(AttributeError):
        one.value = 1.0


def test_counted_bytes(results):
    """Two arrays in a copy, three in a saxpy, one between memories, both directions in a bidirectional."""
    assert (
        results["memory numa"].bytes * 2
        == results["memory numa"].document.testcases[0].tables[0].cells[0].bytes
    )
    assert results["saxpy gpu"].bytes == 10 * 2**20 * 4
    assert results["saxpy numa"].bytes == 2**20 * 8
    assert results["p2p"].bytes == results["p2p both"].bytes == 40_000_000
    both, one = results["p2p both"], results["p2p"]
    assert both.value > 1.8 * one.value
    assert "3 arrays" in str(results["saxpy gpu"])


def test_numpy_s_types_and_numbers_are_taken():
    one = wirespeed.memory_bandwidth_saxpy(np.int64(2**20), np.float64, machine=H200, samples=1)
    assert one.bytes == 2**23 and one.detail == "SAXPY, float64"
    assert wirespeed.memory_bandwidth(np.int64(2**20), machine=H200, samples=1).bytes == 2**20
    scaling = wirespeed.memory_bandwidth_scaling(2 ** np.arange(10, 13), machine=H200, samples=1)
    assert scaling.sizes == (1024, 2048, 4096)


def test_scalings(results):
    scaling = results["scaling gpu"]
    assert scaling.sizes == tuple(2**i for i in range(31)) and len(scaling) == 31
    assert scaling.fastest.value == max(scaling.samples) and scaling.peak_size in scaling.sizes
    assert results["scaling numa"].sizes == (4096, 2**20, 2**30)
    assert results["saxpy scaling"].sizes[0] == 10 * 2**20
    assert results["saxpy scaling"].sizes[-1] == 300 * 2**20


def test_matrices(results):
    matrix = results["p2p all"]
    assert matrix[0, 0] is None and matrix["gpu0", "gpu1"].device == "gpu0 -> gpu1"
    assert matrix.values[0][0] is None and matrix.values[0][1] == matrix[0, 1].value
    assert matrix.slowest.value == matrix.min <= matrix.avg <= matrix.max == matrix.fastest.value
    eight = wirespeed.p2p_bandwidth_all(machine=A100, samples=1, copies=1)
    assert sum(1 for _ in eight) == 56
    some = wirespeed.p2p_bandwidth_all(devices=["gpu7", "gpu2"], machine=A100, samples=1)
    assert some.labels == ("gpu2", "gpu7") and some[1, 0].device == "gpu7 -> gpu2"


def test_only_what_is_asked_for_is_measured():
    document = wirespeed.p2p_bandwidth("gpu5", "gpu3", machine=A100, engine="sm").document
    table = document.testcases[0].tables[0]
    assert document.testcases[0].name == "device_to_device_memcpy_write_sm"
    assert (table.rows.labels, table.columns.labels, len(table.cells)) == (("gpu5",), ("gpu3",), 1)


def test_the_source_executes_and_pays_its_own_link():
    """A slow link out of gpu0 is seen from gpu0 and not into it."""
    machine = f"{A100}+speed@gpu0->nvswitch=0.5"
    out = wirespeed.p2p_bandwidth("gpu0", "gpu1", "512MiB", machine=machine)
    back = wirespeed.p2p_bandwidth("gpu1", "gpu0", "512MiB", machine=machine)
    assert out.value < 0.6 * back.value


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: wirespeed.memory_bandwidth(device="gpu9", machine=H200), MachineError, "gpu0, gpu1, numa0"),
        (lambda: wirespeed.memory_bandwidth("lots", machine=H200), UsageError, "not a size"),
        (lambda: wirespeed.memory_bandwidth_saxpy(0, machine=H200), UsageError, "length"),
        (lambda: wirespeed.memory_bandwidth_saxpy(1.5, machine=H200), UsageError, "whole number"),
        (lambda: wirespeed.memory_bandwidth(-1, machine=H200), UsageError, "whole number"),
        (
            lambda: wirespeed.memory_bandwidth_saxpy(dtype="int8", machine=H200),
            UsageError,
            "float16, float32, float64",
        ),
        (lambda: wirespeed.host2device_bandwidth(machine=CPU), UsageError, "requires a GPU"),
        (lambda: wirespeed.p2p_bandwidth("gpu0", "numa0", machine=H200), UsageError, "not of one kind"),
        (lambda: wirespeed.p2p_bandwidth("gpu0", "gpu0", machine=H200), UsageError, "both gpu0"),
        (lambda: wirespeed.p2p_bandwidth(src=0, dst=0, machine=H200), UsageError, "both gpu0"),
        (lambda: wirespeed.p2p_bandwidth_all(devices=[0], machine=H200), UsageError, "gpu0 alone is given"),
        (lambda: wirespeed.p2p_bandwidth("1GiB", machine=H200), MachineError, "pass size=.1GiB."),
        (lambda: wirespeed.p2p_bandwidth(40_000_000, machine=H200), MachineError, "size=40000000"),
        (lambda: wirespeed.p2p_bandwidth(engine="warp", machine=H200), UsageError, "ce or sm"),
        (lambda: wirespeed.p2p_bandwidth(machine=NO_PEERS), MeasurementFailed, "peer access"),
        (lambda: wirespeed.memory_bandwidth(machine=f"{H200}+corrupt"), MeasurementFailed, "wrong data"),
        (lambda: wirespeed.p2p_bandwidth(machine=one_node()), UsageError, "two GPUs or two NUMA nodes"),
        (lambda: wirespeed.memory_bandwidth(machine=NOTHING), MachineError, "no GPU and no NUMA node"),
        (
            lambda: wirespeed.theoretical_memory_bandwidth("numa0", machine=unknown()),
            UsageError,
            "are unknown",
        ),
    ],
)
def test_what_cannot_be_is_said_in_one_line(call, error, match):
    with pytest.raises(error, match=match) as caught:
        call()
    assert "\n" not in str(caught.value)
    if error is MeasurementFailed:
        assert caught.value.document.testcases


def test_colour_is_only_added(results, monkeypatch, capsys):
    results["p2p all"].plot()
    plain = capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    results["p2p all"].plot()
    colored = capsys.readouterr().out
    assert "\x1b[" in colored and "\x1b[" not in plain
    monkeypatch.setenv("NO_COLOR", "1")
    results["p2p all"].plot()
    assert capsys.readouterr().out == plain
    assert "388" in re.sub(r"\x1b\[[0-9;]*m", "", colored)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: wirespeed.memory_bandwidth_scaling([], machine=H200), "sizes is empty"),
        (lambda: wirespeed.memory_bandwidth_saxpy_scaling([], machine=H200), "sizes is empty"),
        (lambda: wirespeed.run(["4"], sizes=[], machine=H200), "sizes is empty"),
        (lambda: wirespeed.p2p_bandwidth_all(devices=[], machine=H200), "devices is empty"),
    ],
)
def test_nothing_to_measure_is_said(call: Callable[[], Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        call()


def test_one_name_and_one_text_are_not_taken_letter_by_letter() -> None:
    one = wirespeed.run("device_local_copy", machine=H200, prefixes="device_saxpy")
    assert [r.name for r in one.testcases] == ["device_local_copy", "device_saxpy"]
    assert [r.index for r in wirespeed.run([4], machine=H200).testcases] == [4]
    scaling = wirespeed.memory_bandwidth_scaling("4KiB:1GiB:x4", machine=H200)
    assert scaling.sizes == tuple(4096 * 4**i for i in range(10))
    swept = wirespeed.run(["4"], machine=H200, sizes=["1MiB", 2**21])
    assert swept.testcases[0].tables[0].columns.values == (2.0**20, 2.0**21)
    matrix = wirespeed.p2p_bandwidth_all(devices="gpu0,gpu1", machine=H200)
    assert matrix[np.int64(0), 1] == matrix["gpu0", "gpu1"]
    assert str(matrix[0, 1]).startswith("Bandwidth (GB/s):")
    with pytest.raises(KeyError, match="unknown device gpu7; choose from gpu0, gpu1"):
        matrix["gpu0", "gpu7"]
    assert repr(one) == f"<Document of simulated hgx-h200-2, {one.started}: 2 measured>"


def test_keywords_of_gpuinspector():
    copy = wirespeed.p2p_bandwidth(src=0, dst=1, memsize=40_000_000, nbench=5, machine=H200)
    assert (copy.device, copy.bytes, len(copy.samples)) == ("gpu0 -> gpu1", 40_000_000, 5)
    both = wirespeed.p2p_bandwidth(0, 1, alternate=True, machine=H200)
    assert both["gpu0", "gpu1"] and both["gpu1", "gpu0"]


def test_statistics_of_host_and_device_are_those_of_all_samples(capsys: pytest.CaptureFixture[str]) -> None:
    result = wirespeed.host2device_bandwidth(machine=H200)
    result.show(stats=True)
    pageable, pinned = capsys.readouterr().out.split("\n\n")
    for text, row in ((pageable, "pageable"), (pinned, "pinned")):
        samples = [sample for i in (0, 1) if (way := result[row, i]) for sample in way.samples]
        assert re.findall(r"(max|min|avg|std_dev): ([\d.]+)", text) == [
            ("max", f"{max(samples) / 1e9:.2f}"), ("min", f"{min(samples) / 1e9:.2f}"),
            ("avg", f"{np.mean(samples) / 1e9:.2f}"), ("std_dev", f"{np.std(samples, ddof=1) / 1e9:.2f}"),
        ]  # fmt: skip
        assert re.search(r"^numa\d -> gpu0: [\d.]+ · gpu0 -> numa\d: [\d.]+$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("rate", "like", "ours", "julia"),
    [
        (1448.4 * 2**30, 0.0, "1555.21", "1448.4"),
        (173.5 * 2**30, 0.0, "186.29", "173.5"),
        (2**30, 0.0, "1.07", "1.0"),
        (0.999e9, 0.0, "0.999", "0.93"),
        (1e6, 0.0, "0.00100", "0.000931"),
        (0.9999e6, 0.0, "0.00100", "0.000931"),
        (0.0, 0.0, "0.00", "0.0"),
        (0.5e9, 300e9, "0.50", "0.47"),
    ],
)
def test_decimals(rate: float, like: float, ours: str, julia: str) -> None:
    """Two, and three digits below 1; GPUInspector.jl rounds to two and prints no zeros at the end."""
    assert _number(rate, "GB/s", like) == ours and _number(rate, "GiB/s", like) == julia


def test_a_bandwidth_is_a_number_and_has_one_unit() -> None:
    one = wirespeed.memory_bandwidth(machine=H200)
    assert float(one) == one.value
    for text in (repr(one), str(one), one._repr_html_()):
        assert "GB/s" in text and "GiB/s" not in text
    assert f"{one.value / 1e9:.2f} GB/s" in repr(one)
    with pytest.raises(UsageError, match="there is no unit 'MB/s'; choose one of GB/s, GiB/s"):
        one.show(unit="MB/s")  # type: ignore[arg-type]


def test_verbose_prints_and_stats_decides_how_much(capsys: pytest.CaptureFixture[str]):
    wirespeed.memory_bandwidth_saxpy(dtype="float16", nbench=3, verbose=True, stats=True, machine=H200)
    assert {"max:", "min:", "avg:", "std_dev:"} <= set(capsys.readouterr().out.split())
    for stats in ({}, {"stats": False}):
        wirespeed.memory_bandwidth_saxpy(dtype="float16", nbench=3, verbose=True, machine=H200, **stats)
        assert "min:" not in (text := capsys.readouterr().out) and "max:" in text


def test_texts_are_those_of_gpuinspector(capsys: pytest.CaptureFixture[str]):
    """``docs/src/examples/data_bandwidth.md`` of pc2/GPUInspector.jl, above our line of size and device."""
    number = r"\d+\.\d+"
    head = rf"Memory Bandwidth \(UNIT\):\n └ max: {number}\n"
    both = rf"Host <-> Device Bandwidth \(UNIT\):\n └ max: {number}\n\n"
    both += rf"Host \(pinned\) <-> Device Bandwidth \(UNIT\):\n └ max: {number}\n"
    pair = rf"(?:├ (?:max|min|avg): {number}\n ){{3}}└ std_dev: {number}\n"
    for call, text in (
        (wirespeed.memory_bandwidth, head),
        (wirespeed.memory_bandwidth_saxpy, head),
        (wirespeed.theoretical_memory_bandwidth, f"Theoretical Maximal {head}"),
        (wirespeed.host2device_bandwidth, both),
        (wirespeed.p2p_bandwidth, rf"Memsize: 38\.147 MiB\n\nBandwidth \(UNIT\):\n {pair}"),
        (wirespeed.p2p_bandwidth_bidirectional, rf"Memsize: 38\.147 MiB\n\nBandwidth \(UNIT\):\n {pair}"),
    ):
        result, end = call(machine=H200), ".+SIMULATED: no hardware was measured"
        assert re.fullmatch(text.replace("UNIT", "GB/s") + end, str(result))
        call(machine=H200, verbose=True)
        printed = capsys.readouterr().out
        assert re.fullmatch(text.replace("UNIT", "GiB/s") + end + "\n", printed)
        result.show(unit="GiB/s")
        assert capsys.readouterr().out == printed
    for size, shown in ((64, "64 bytes"), (2**30, "1.000 GiB"), (100_000, "97.656 KiB")):
        assert f"Memsize: {shown}\n" in str(wirespeed.p2p_bandwidth(size=size, machine=H200))


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"memsize": 8, "size": 8}, "memsize is another name of size"),
        ({"dtype": "float32"}, "copies move bytes"),
        ({"hist": True}, r"plot\(\) draws the histogram"),
        ({"dev1": 0}, "the devices are src and dst"),
    ],
)
def test_keywords_without_counterpart_say_what_to_use(given: dict[str, object], line: str):
    with pytest.raises(UsageError, match=line):
        wirespeed.p2p_bandwidth(machine=H200, **given)


@pytest.mark.parametrize(
    ("function", "name", "says"),
    [
        ("theoretical_memory_bandwidth", "nbench", ": it measures nothing"),
        ("memory_bandwidth_saxpy", "memsize", ": size is the length of a vector"),
        ("p2p_bandwidth_all", "src", ": several devices are named by devices"),
    ],
)
def test_keywords_that_a_function_lacks_say_what_to_use(function: str, name: str, says: str):
    with pytest.raises(UsageError) as raised:
        getattr(wirespeed, function)(machine=H200, **{name: 1})
    assert str(raised.value) == f"{function} has no keyword {name}{says}"


@pytest.mark.parametrize(
    ("function", "name", "near"),
    [
        ("memory_bandwidth", "foo", ""),
        ("p2p_bandwidth", "sampels", "samples"),
        ("p2p_bandwidth", "testcases", ""),
        ("host2device_bandwidth", "stat", "stats"),
        ("theoretical_memory_bandwidth", "size", ""),
        ("memory_bandwidth_scaling", "size", "sizes"),
        ("memory_bandwidth", "mem_size", "memsize"),
    ],
)
def test_unknown_keywords_get_one_line(function: str, name: str, near: str):
    with pytest.raises(TypeError) as raised:
        getattr(wirespeed, function)(machine=H200, **{name: 1})
    hint = f"; did you mean {near!r}?" if near else ""
    assert str(raised.value) == f"{function}() got an unexpected keyword argument {name!r}{hint}"
