"""Times of single iterations: from nccl-tests' JSON into reports and comparisons."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest

import wirespeed
from wirespeed.cli.main import main
from wirespeed.reports.style import Style

_SIZES = {1024: 12.0, 2**28: 1500.0}


def rows_of(base: float, slow: float) -> list[list[float]]:
    """The times of 20 iterations in 4 processes, in µs."""
    rows = [[round(base * (1 + 0.001 * ((7 * i + 3 * j) % 5)), 6) for i in range(20)] for j in range(4)]
    for row in rows:
        row[0] *= 2
    rows[1] = [time * slow for time in rows[1]]
    rows[2][7] *= 3
    for row in rows[:2]:
        row[11] *= 2
    return rows


def log(slow: float = 1.0, skip: int = 0) -> dict[str, Any]:
    """What nccl-tests writes with ``-I 1 -J``."""
    results = []
    for size, base in _SIZES.items():
        entry: dict[str, Any] = {
            "size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "    -1",
        }  # fmt: skip
        for place in ("out_of_place", "in_place"):
            rows = rows_of(base, slow)
            times = [max(column) for column in zip(*rows, strict=True)]
            mean = sum(times) / len(times)
            rate = size / mean / 1e3
            entry[place] = {"time": mean, "alg_bw": rate, "bus_bw": 1.5 * rate, "nwrong": 0.0}
            entry[f"{place}_per_iter"] = {
                "skipped_iterations": skip, "times_us": times, "per_process_max_times_us": rows
            }  # fmt: skip
        results.append({**entry, "actual_iterations": 20, "experiment_name": ""})
    devices = [
        {"rank": i, "group": 0, "pid": 100 + i, "hostname": f"node{i // 2}", "device": i % 2,
         "device_hex": f"0000:0{i % 2 + 1}:00", "device_info": "NVIDIA H100 80GB HBM3"}
        for i in range(4)
    ]  # fmt: skip
    config = {
        "nthreads": 1, "ngpus": 1, "minimum_bytes": 1024, "maximum_bytes": 2**28, "step_factor": 2**18,
        "warmup_iters": 1, "iterations": 20, "aggregated_iterations": 1, "validation": 1, "graph": 0,
        "blocking_collectives": "false", "per_iter_timing": "true", "per_iter_skip": skip,
        "parallel_init": "false", "devices": devices,
    }  # fmt: skip
    return {
        "version": 3, "start_time": "2026-11-20 10:00:00", "args": ["all_reduce_perf"], "env": [],
        "nccl_version": 22809, "config": config, "results": results,
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 100.0, "okay": "unchecked"}, "errors": [""],
        "end_time": "2026-11-20 10:00:09",
    }  # fmt: skip


def written(folder: Path, name: str, content: dict[str, Any]) -> str:
    file = folder / name
    file.write_text(json.dumps(content))
    return str(file)


def test_times_of_iterations_and_processes_survive(tmp_path: Path) -> None:
    content = log(1.2, skip=1)
    document = wirespeed.load_log(written(tmp_path, "log.json", content))
    wirespeed.save(document, tmp_path / "run.json")
    again = json.loads(wirespeed.render(wirespeed.load(tmp_path / "run.json"), "nccl-tests-json"))
    for result, entry in zip(again["results"], content["results"], strict=True):
        for place in ("out_of_place_per_iter", "in_place_per_iter"):
            assert result[place]["times_us"] == pytest.approx(entry[place]["times_us"])
            for row, times in zip(
                result[place]["per_process_max_times_us"],
                entry[place]["per_process_max_times_us"],
                strict=True,
            ):
                assert row == pytest.approx(times)
            assert result[place]["skipped_iterations"] == 1
    assert again["config"]["per_iter_timing"] == "true"
    assert " i_p99 " in wirespeed.render(document, "nccl-tests")
    time, late = document.testcases[0].tables[0], document.testcases[0].tables[3]
    assert time.cells[0].statistics is not None and time.cells[0].statistics.n == 19
    assert late.key == "late-out-of-place"
    delays = {cell.row: cell.value or 0.0 for cell in late.cells if cell.column == 0}
    assert delays[1] < delays[0]  # who needs longest comes first


def test_the_questions_of_the_script_are_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Callable[[str, str], None]
) -> None:
    """Those which ``tools/analyze_perf_json.py`` of nccl-tests answers."""
    assert main(["show", written(tmp_path, "log.json", log(1.2)), "--format", "iterations"]) == 0
    text = capsys.readouterr().out
    golden("iterations/imported.txt", text)
    rows = rows_of(12.0, 1.2)
    times = [max(column) for column in zip(*rows, strict=True)]
    means, mean, others = [fmean(row) for row in rows], fmean(times), fmean(times[1:])
    lines = [line.split() for line in text.splitlines()]
    assert lines[3][2:5] == [f"{mean:.1f}", f"{min(times):.1f}", f"{max(times):.1f}"]
    assert lines[3][6:] == [f"{100 * pstdev(times) / mean:.1f}", f"{max(times) / mean:.2f}"]
    assert lines[7][2:5] == [f"{times[0]:.1f}", f"{others:.1f}", f"{times[0] / others:.2f}"]
    fastest, slowest = means.index(min(means)), means.index(max(means))
    assert lines[11][2:6] == [
        f"{min(means):.1f}", f"[{fastest}]", f"{max(means):.1f}", f"[{slowest}]"
    ]  # fmt: skip
    spikes = [i for i in range(20) if times[i] > 1.5 * mean]
    found = [
        line for line in text.partition("in place")[0].splitlines() if line.startswith("  1 KiB, iteration")
    ]
    assert [int(line.split()[3].rstrip(":")) for line in found] == spikes


def test_two_logs_are_compared_by_their_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [written(tmp_path, f"{i}.json", log(slow)) for i, slow in enumerate((1.0, 1.2))]
    assert main(["compare", *files, "-v"]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "time out-of-place process 1 256 MiB: 1.50 → 1.80 ms, +20.0%" in text
    assert "process 0" not in text and "late-" not in text
    assert main(["compare", files[0], files[0]]) == 0


def test_times_that_contradict_each_other_are_named(tmp_path: Path) -> None:
    content = log()
    report = content["results"][0]["in_place_per_iter"]
    report["times_us"][3] += 1
    file = written(tmp_path, "log.json", content)
    warnings = wirespeed.load_log(file).warnings
    assert any(
        "of 1 result the times of iterations are not those of the slowest process" in w for w in warnings
    )
    text = wirespeed.render(wirespeed.load_log(file), "iterations")
    assert "each time is that of the slowest process: no, at 1 size" in text


def broken(content: dict[str, Any], kind: str) -> None:
    for entry in content["results"]:
        for place in ("out_of_place_per_iter", "in_place_per_iter"):
            report = entry[place]
            if kind == "ragged":
                report["per_process_max_times_us"][1].pop()
            elif kind == "words":
                report["times_us"][0] = "fast"
            elif kind == "negative":
                report["times_us"][0] = -1
            elif kind == "nan":
                report["per_process_max_times_us"][0][0] = "nan"
            elif kind == "none":
                entry[place] = None
            elif kind == "skip":
                content["config"]["per_iter_skip"] = 50


@pytest.mark.parametrize("kind", ["ragged", "words", "negative", "nan", "none", "skip"])
def test_broken_times_do_not_break_reports(tmp_path: Path, kind: str) -> None:
    content = log()
    broken(content, kind)
    document = wirespeed.load_log(written(tmp_path, "log.json", content))
    for form in ("iterations", "nccl-tests", "nccl-tests-json", "table"):
        assert wirespeed.render(document, form, Style(verbose=True))


def test_a_run_without_times_of_iterations_says_so(tmp_path: Path) -> None:
    content = log()
    broken(content, "none")
    text = wirespeed.render(wirespeed.load_log(written(tmp_path, "log.json", content)), "iterations")
    assert "\nno times of single iterations, which -I 1 of" in text and "  all_reduce\n" in text
