"""``wirespeed nvbandwidth`` as its callers use it: versions, formats, pairs, and what parsers look for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import wirespeed
from wirespeed.backends.simulated import parse
from wirespeed.cli.main import main
from wirespeed.errors import MachineError
from wirespeed.reports import Style
from wirespeed.testcases import find
from wirespeed.testcases.subset import named_pair, only_pairs, random_pairs

Run = Callable[..., str]
TWO = ["--machine", "simulated:hgx-h200-2"]
EIGHT = ["--machine", "simulated:dgx-a100-8"]
RANKS = ["--machine", f"simulated:{Path(__file__).parents[1] / 'machines/four-ranks.json'}"]
#: One testcase of each form, one that is waived, one whose number differs, and what does not exist.
FORMS = ["0", "4", "6", "7", "12", "33", "device_local_copy", "34", "nosuch", "99", "-i", "3"]
WRITE = "device_to_device_bidirectional_memcpy_write_ce"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command; return its standard output."""

    def call(*arguments: str, code: int = 0, program: str = "nvbandwidth") -> str:
        assert main([program, *arguments]) == code
        return capsys.readouterr().out

    return call


def cells(text: str) -> list[str]:
    """The cells of the rows of all tables."""
    return [
        cell for line in re.findall(r"^ *\d+((?: +(?:N/A|\d+\.\d\d))+)$", text, re.M) for cell in line.split()
    ]


@pytest.mark.parametrize("machine", [TWO, EIGHT], ids=["hgx-h200-2", "dgx-a100-8"])
@pytest.mark.parametrize("version", ["0.8", "0.10"])
def test_text_of_both_versions(
    run: Run, golden: Callable[[str, str], None], version: str, machine: list[str]
) -> None:
    text = run("-v", "-t", *FORMS, *machine, "--compat", version)
    golden(f"nvbandwidth/{machine[1].partition(':')[2]}-{version}.txt", text)


@pytest.mark.parametrize("version", ["0.8", "0.10"])
def test_json_of_both_versions(run: Run, golden: Callable[[str, str], None], version: str) -> None:
    text = run("-svj", "-t", *FORMS, *TWO, "--compat", version)
    golden(f"nvbandwidth/hgx-h200-2-{version}.json", re.sub(r"(\d\.\d{6})\d+", r"\1", text))


def test_sailbandwidth_prints_what_it_printed(run: Run, golden: Callable[[str, str], None]) -> None:
    given = ["-v", "-t", "0", "7", "33", "34", "nosuch", "-i", "2", *TWO]
    golden("nvbandwidth/sailbandwidth.txt", run(*given, code=1, program="sailbandwidth"))


def test_the_version_alone(run: Run) -> None:
    assert run("--version").startswith("nvbandwidth Version: v0.10.0\nBuilt from Git version: wirespeed ")
    assert run("--version", "--compat", "0.8").startswith("nvbandwidth Version: v0.8\n")


def test_short_options_written_together(run: Run) -> None:
    expected = run("-s", "-v", "-j", "-t", "0", "-i1", *TWO)
    for together in (
        ["-svj"],
        ["-sj", "-v"],
        ["-jsv"],
        ["-vs", "true", "-F", "json"],
        ["-strue", "-vj"],
        ["-s=true", "-vj"],
    ):
        assert run(*together, "-t", "0", "-i1", *TWO) == expected
    assert run("-svjt0", "-i1", *TWO) == expected


def test_perf_lines_replace_sums(run: Run) -> None:
    text = run("-F", "perf", "-t", "0", "6", "32", "-i", "1", *TWO)
    key = "device_to_device_bidirectional_memcpy_read_ce_total"
    assert "SUM " not in text and re.search(rf"^&&&& PERF {key} \d+\.\d\d \+GB/s$", text, re.M)
    assert re.search(r"^&&&& PERF host_device_latency_sm \d+\.\d\d -ns$", text, re.M)
    assert text == run("--perfFormatter", "-t", "0", "6", "32", "-i", "1", *TWO)
    assert json.loads(run("-j", "--perfFormatter", "-t", "0", "-i", "1", *TWO))


def test_indices_as_c_reads_numbers_and_the_numbers_of_the_version(run: Run) -> None:
    for number, version in (("38", "0.10"), ("+038", "0.10"), ("34", "0.8")):
        text = run("-t", number, "-i", "1", *TWO, "--compat", version)
        assert "Running device_local_copy.\n" in text
    assert "ERROR: Testcase 4x not found!" in run("-t", "4x", *TWO)
    assert "Running all_to_host_sum_ce.\n" in run("-t", "all_to_host_sum_ce", *TWO)


def test_one_pair_and_no_other(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    one, other, *_ = (gpu.uuid for gpu in parse("dgx-a100-8").gpus)
    for name in ("4", "7", "33"):
        text = run("-t", name, "-i", "1", "--pair", other, one, *EIGHT)
        tables = 3 if name == "7" else 1
        assert len(cells(text)) == 64 * tables and cells(text).count("N/A") == 62 * tables
        row = next(line.split() for line in text.splitlines() if line.startswith(" 0 "))
        assert row[2] != "N/A" and row[1] == row[3] == "N/A"
    assert "N/A" not in run("-t", "0", "-i", "1", "--pair", other, one, *EIGHT)
    for pair, says in {
        ("GPU-7", one): "no GPU has the UUID 'GPU-7'; UUIDs of this machine: GPU-00000000-0000",
        (one, one): "a pair has two different GPUs",
        ("GPU-", one): "several GPUs have the UUID 'GPU-'",
        ("", one): "no GPU has the UUID ''",
    }.items():
        assert main(["nvbandwidth", "-t", "4", "--pair", *pair, *EIGHT]) == 1
        found = capsys.readouterr()
        assert not found.out and says in found.err


def test_one_pair_of_ranks() -> None:
    machine = parse("nvl72")
    names = [machine.ranks[i].uuid for i in (3, 70)]
    plan = only_pairs(find("44"), lambda m: named_pair(m, names), "not chosen").plan(machine)
    at = [(m.places[0].row, m.places[0].column) for m in plan.measurements]
    assert at == [(3, 70), (70, 3)] and len(plan.waived) == 72 * 71 - 2
    assert len(plan.tables[0].columns.labels) == 72
    unknown = replace(machine, ranks=tuple(replace(rank, uuid="") for rank in machine.ranks))
    with pytest.raises(MachineError, match="UUIDs of this machine: unknown"):
        named_pair(unknown, names)


def test_random_pairs_first_cover_all_ranks() -> None:
    machine = parse("nvl72")
    for count in (0, 5, 36, 72, 80, 72 * 71):
        pairs = random_pairs(machine, count, 0)
        assert len(set(pairs)) == count and all(row != column for row, column in pairs)
    assert set(chain(*random_pairs(machine, 72, 0))) == {str(rank) for rank in range(72)}
    three = replace(machine, ranks=machine.ranks[:3])
    assert set(chain(*random_pairs(three, 2, 0))) == {"0", "1", "2"}
    assert set(random_pairs(machine, 5, 0)) == set(random_pairs(machine, 5, 0))
    assert set(random_pairs(machine, 5, 0)) != set(random_pairs(machine, 5, 1))


def test_a_number_of_pairs_in_one_direction(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    for name, tables in (("read_ce", 1), ("write_sm", 1)):
        for count in (1, 3, 12):
            text = run("-t", f"multinode_device_to_device_memcpy_{name}", "-P", str(count), "-i", "1", *RANKS)
            assert len(cells(text)) == 16 * tables and 16 - cells(text).count("N/A") == count
    both = run("-t", "multinode_device_to_device_bidirectional_memcpy_read_ce", "-P3", "-i", "1", *RANKS)
    assert len(cells(both)) == 48 and 48 - cells(both).count("N/A") == 9
    assert main(["nvbandwidth", "-t", "4", "-P", "1", "-i", "1", *TWO]) == 0
    found = capsys.readouterr()
    assert "--targetNumPairs is ignored" in found.err and cells(found.out).count("N/A") == 2


def test_huge_pages_that_are_switched_off(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "Running host_to_device" in run("-H", "-t", "0", "-i", "1", *TWO)
    path = tmp_path / "m.json"
    path.write_bytes(replace(parse("hgx-h200-2"), transparent_huge_pages="never").to_json())
    assert main(["nvbandwidth", "-H", "-t", "0", "--machine", f"simulated:{path}"]) == 1
    assert "huge pages are required, but switched off on hgx-h200-2; enable them" in capsys.readouterr().err


def test_the_first_write_is_that_of_the_column_except_between_processes() -> None:
    document = wirespeed.run([WRITE, f"multinode_{WRITE}"], machine=RANKS[1], samples=1, copies=1)
    for dialect, switched in (("0.8", True), ("0.10", True), ("sailbandwidth-2.1", False)):
        text = wirespeed.render(document, "nvbandwidth", Style(dialect=dialect))
        for result, first in zip(document.testcases, (1 if switched else 0, 0), strict=True):
            shown = cells(text.split(f"Running {result.name}.")[1])
            measured = [cell and cell.value for row in result.tables[first].grid() for cell in row]
            assert shown[: len(measured)] == [f"{value / 1e9:.2f}" if value else "N/A" for value in measured]


def test_entries_that_consumers_look_up(run: Run) -> None:
    entries: dict[str, dict[str, Any]] = {
        entry["name"]: entry
        for entry in json.loads(run("-j", "-t", "7", "-i", "1", *TWO))["nvbandwidth"]["testcases"]
    }
    whole, parts = entries[WRITE], [entries[f"{WRITE}_{part}"] for part in ("write1", "write2", "total")]
    assert whole["bandwidth_matrix"] == [row for part in parts for row in part["bandwidth_matrix"]]
    assert (whole["sum"], whole["bandwidth_description"]) == (
        parts[2]["sum"],
        parts[2]["bandwidth_description"],
    )


def test_the_processes_of_a_job(run: Run) -> None:
    text = run("-t", "multinode_bisect_write_ce", "-i", "1", *RANKS)
    assert "\nDevice 0" not in text
    assert re.search(r"^Process 3 \(node\d+\): device \d: \S.* SIMULATED \([0-9a-f:]+\)$", text, re.M)
    document = wirespeed.run(["multinode_bisect_write_ce"], machine="simulated:nvl72", samples=1, copies=1)
    text = wirespeed.render(document, "nvbandwidth")
    assert "\nProcess  9 (node02): device 1: NVIDIA GB200 SIMULATED (00000000:02:00)\n" in text
    from msgspec.structs import replace as changed

    joined = changed(document, libraries={"mpi": "Open MPI v5.0.11"})
    start = "Built from Git version: wirespeed [^\n]+\n\nMPI version: Open MPI v5.0.11\nCUDA Runtime"
    assert re.search(start, wirespeed.render(joined, "nvbandwidth"))
