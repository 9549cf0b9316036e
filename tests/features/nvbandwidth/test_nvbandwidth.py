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
from wirespeed.features.nvbandwidth.command import Printer
from wirespeed.hardware.facts import FABRIC_READY, Fact, Known
from wirespeed.reports import Style
from wirespeed.testcases.selections import named_pair, only_pairs, random_pairs
from wirespeed.testcases.table import find

Run = Callable[..., str]
TWO = ["--machine", "simulated:hgx-h200-2"]
EIGHT = ["--machine", "simulated:dgx-a100-8"]
RANKS = ["--machine", f"simulated:{Path(__file__).parents[2] / 'machines/four-ranks.json'}"]
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
@pytest.mark.parametrize("version", ["0.4", "0.8", "0.10", "0.11"])
def test_text_of_all_versions(
    run: Run, golden: Callable[[str, str], None], version: str, machine: list[str]
) -> None:
    text = run("-v", "-t", *FORMS, *machine, "--compat", version)
    golden(f"nvbandwidth/{machine[1].partition(':')[2]}-{version}.txt", text)


@pytest.mark.parametrize("way", ["read", "write"])
def test_both_directions_between_gpus_in_old_versions(run: Run, way: str) -> None:
    """SM copies have the sum of both in 0.4 (``SUM_BW`` in its ``memcpy.h``), CE copies the first."""
    for version, one in (("0.4", 480), ("0.8", 0)):
        name = f"device_to_device_bidirectional_memcpy_{way}"
        for engine in ("sm", "ce"):
            text = run("-t", f"{name}_{engine}", *TWO, "--compat", version)
            assert re.findall(rf"^SUM {name}_{engine}(\S*) ", text, re.M) == (
                [""] if one else [f"_{way}1", f"_{way}2", "_total"]
            )
            values = [float(cell) for cell in cells(text) if cell != "N/A"]
            assert not one or all((value > one) == (engine == "sm") for value in values)


@pytest.mark.parametrize("version", ["0.8", "0.10"])
def test_json_of_versions(run: Run, golden: Callable[[str, str], None], version: str) -> None:
    text = run("-svj", "-t", *FORMS, *TWO, "--compat", version)
    golden(f"nvbandwidth/hgx-h200-2-{version}.json", re.sub(r"(\d\.\d{6})\d+", r"\1", text))


def test_sailbandwidth_prints_what_it_printed(run: Run, golden: Callable[[str, str], None]) -> None:
    given = ["-v", "-t", "0", "7", "33", "34", "nosuch", "-i", "2", *TWO]
    golden("nvbandwidth/sailbandwidth.txt", run("--compat", "2.1", *given, code=1, program="sailbandwidth"))


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
    for number, version in (("38", "0.11"), ("38", "0.10"), ("+038", "0.10"), ("34", "0.8")):
        text = run("-t", number, "-i", "1", *TWO, "--compat", version)
        assert "Running device_local_copy.\n" in text
    assert "ERROR: Testcase 4x not found!" in run("-t", "4x", *TWO, code=1)
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


def test_how_many_pairs_there_can_be(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    name = "multinode_device_to_device_memcpy_read_ce"
    none = run("-t", name, "-P", "0", *RANKS)
    assert cells(none) == ["N/A"] * 16 and f"\nSUM {name} 0.00\n" in none and "Waived" not in none
    for count, says in {
        13: "ERROR: targetNumPairs (13) exceeds maximum possible pairs (12) for worldSize 4. "
        "Use -1 for all pairs or specify a value <= 12.",
        -2: "ERROR: Invalid targetNumPairs value: -2. "
        "Must be -1 (all pairs), 0 (no pairs), or a positive number.",
    }.items():
        assert main(["nvbandwidth", "-t", name, f"-P{count}", *RANKS]) == 1
        assert capsys.readouterr().err == f"{says}\n"
        answer = json.loads(run("-j", "-t", name, f"-P{count}", *RANKS, code=1))
        assert answer["nvbandwidth"]["error"] == says


def test_huge_pages_that_are_switched_off(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    note = (
        "NOTE: Huge pages were requested, but Transparent Huge Pages (THP) are not enabled on this system. "
        "The option will be ignored. Enable THP with 'echo madvise > "
        "/sys/kernel/mm/transparent_hugepage/enabled' if you wish to use this feature."
    )
    assert "Huge" not in run("-H", "-t", "0", "-i", "1", *TWO)
    path = tmp_path / "m.json"
    path.write_bytes(replace(parse("hgx-h200-2"), transparent_huge_pages="never").to_json())
    without = ["-t", "0", "-i", "1", "--machine", f"simulated:{path}"]
    text = run("-H", *without)
    assert f"\n\n{note}\nCUDA Runtime" in text and "\nRunning host_to_device_memcpy_ce.\n" in text
    assert json.loads(run("-H", "-j", *without))["nvbandwidth"]["warning"] == note
    assert main(["nvbandwidth", "--huge-pages", *without]) == 1
    assert "huge pages are required, but switched off on hgx-h200-2; enable them" in capsys.readouterr().err


def test_json_is_that_of_jsoncpp(run: Run) -> None:
    text = run("-j", "-t", "4", "-i", "1", *TWO, "--compat", "0.8")
    recorded = (
        '{\n\t"nvbandwidth" : \n\t{\n\t\t"CUDA Runtime Version" : 13000,\n'
        '\t\t"Driver Version" : "580.159",\n\t\t"GPU Device list" : \n\t\t[\n'
        '\t\t\t"0: NVIDIA H200 SIMULATED (00000000:01:00): (hgx-h200-2)",\n'
        '\t\t\t"1: NVIDIA H200 SIMULATED (00000000:02:00): (hgx-h200-2)"\n\t\t],\n'
        f'\t\t"git_version" : "wirespeed {wirespeed.__version__}",\n\t\t"simulated" : true,\n'
        '\t\t"testcases" : \n\t\t[\n\t\t\t{\n'
        '\t\t\t\t"bandwidth_description" : "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",\n'
        '\t\t\t\t"bandwidth_matrix" : \n\t\t\t\t[\n'
        '\t\t\t\t\t[\n\t\t\t\t\t\t"N/A",\n\t\t\t\t\t\t"X"\n\t\t\t\t\t],\n'
        '\t\t\t\t\t[\n\t\t\t\t\t\t"X",\n\t\t\t\t\t\t"N/A"\n\t\t\t\t\t]\n\t\t\t\t],\n'
        '\t\t\t\t"name" : "device_to_device_memcpy_read_ce",\n\t\t\t\t"status" : "Passed",\n'
        '\t\t\t\t"sum" : X\n\t\t\t}\n\t\t],\n\t\t"version" : "v0.8"\n\t}\n}\n\n'
    )
    assert re.sub(r"(\t\"|: )\d+\.\d{3,}", r"\1X", text) == recorded


@pytest.mark.parametrize(("version", "on_output"), [("0.4", True), ("0.8", False)])
def test_refusals_on_standard_output_in_0_4(
    run: Run, capsys: pytest.CaptureFixture[str], version: str, on_output: bool
) -> None:
    """``Output::recordError`` writes to ``std::cerr`` since 0.7."""
    assert main(["nvbandwidth", "-p", "nosuch", "--compat", version, *TWO]) == 1
    out, err = capsys.readouterr()
    says = "Specified list of testcase prefixes did not match any testcases\n"
    assert out.endswith(says) == on_output and (not err if on_output else err == says)


def test_only_gpus_count(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    host = ["--machine", "simulated:cpu-2-sockets"]
    assert (
        run("-t", "44", *host, code=1) == ""
        and "no GPU was found" in json.loads(run("-j", *host, code=1))["nvbandwidth"]["error"]
    )
    assert run("-t", "44", *TWO, code=1).endswith(
        "\n\nERROR: Testcase index 44 out of bound!\nNOTE: SIMULATED: no hardware was measured.\n"
        "NOTE: The reported results may not reflect the full capabilities of the platform.\n"
        "Performance can vary with software drivers, hardware clocks, and system topology.\n\n"
    )
    capsys.readouterr()
    assert main(["nvbandwidth", "-p", "multinode", *TWO]) == 1
    assert capsys.readouterr().err == "Specified list of testcase prefixes did not match any testcases\n"
    alone = run("-t", "multinode_bisect_write_ce", *TWO, code=1)
    assert "Waived: multinode_bisect_write_ce: requires at least two processes" in alone
    assert "Waived: device_to_device_latency_counted: gpu0 has no Compute Fabric Transport" in run(
        "-t", "device_to_device_latency_counted", *TWO, "--compat", "0.11"
    )


def test_lists(run: Run) -> None:
    assert run("-l", "--compat", "0.8").startswith(
        f"nvbandwidth Version: v0.8\nBuilt from Git version: wirespeed {wirespeed.__version__}\n\n"
        "Index, Name:\n\tDescription\n=======================\n0, host_to_device_memcpy_ce:\n\thost to GPU; "
        "the GPU executes\n\n1, "
    )
    first = "0, host_to_device_memcpy_ce:\n\t\thost to GPU; the GPU executes\n1, "
    assert f"\n\nIndex, Name:\n\tDescription\n{first}" in run("-l")
    several = re.findall(r"^(\S+), (multinode\w+):$", run("-l", "--processes", "2"), re.M)
    assert several[0] == ("44", "multinode_device_to_device_memcpy_read_ce") and len(several) == 13
    assert several[-1] == ("56", "multinode_bisect_write_ce")
    old = re.findall(r"^(\S+), (multinode\w+):$", run("-l", "--processes", "2", "--compat", "0.8"), re.M)
    assert [number for number, _ in old] == [str(i) for i in range(35, 48)]
    newest = re.findall(r"^(\S+), (\w+):$", run("-l", "--processes", "2", "--compat", "0.11"), re.M)
    assert ("-", "device_to_device_latency_counted") in newest and (
        "-",
        "multinode_multicast_reduce",
    ) in newest


def test_variables_select_version_and_machine(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WIRESPEED_COMPAT", "0.4")
    monkeypatch.setenv("WIRESPEED_MACHINE", TWO[1])
    text = run("-t", "4", "-i", "1")
    assert text.startswith("nvbandwidth Version: v0.4\n") and "NVIDIA H200 SIMULATED\n" in text
    assert run("--version", "--compat", "0.8").startswith("nvbandwidth Version: v0.8\n")
    monkeypatch.setenv("WIRESPEED_COMPAT", "0.3")
    assert main(["nvbandwidth", "--version"]) == 2
    assert "WIRESPEED_COMPAT=0.3: choose one of 0.4, 0.8, 0.10, 0.11" in capsys.readouterr().err
    monkeypatch.setenv("WIRESPEED_COMPAT", "2.1")  # of the other program
    assert run("--version").startswith("nvbandwidth Version: v0.10.0\n")


def test_warnings_do_not_stand_between_tables(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    document = wirespeed.run(
        ["device_local_copy", "host_to_device_memcpy_ce"], machine=TWO[1], samples=1, copies=1
    )
    from msgspec.structs import replace as changed

    warned = changed(document, testcases=tuple(changed(r, warnings=("too hot",)) for r in document.testcases))
    text = wirespeed.render(warned, "nvbandwidth")
    before, _, after = text.partition("\nRunning ")
    assert "NOTE: device_local_copy: too hot\n" in before and "too hot" not in after
    Printer(Style()).testcase_ended(warned, warned.testcases[0])
    shown = capsys.readouterr()
    assert shown.err == "WARNING: device_local_copy: too hot\n" and "too hot" not in shown.out


def test_where_processes_are_in_the_fabric() -> None:
    document = wirespeed.run(["multinode_bisect_write_ce"], machine=RANKS[1], samples=1, copies=1)
    from msgspec.structs import replace as changed

    hosts = dict.fromkeys(rank.host for rank in document.machine.ranks)
    first, other = [*hosts][:2]
    device = document.machine.ranks[-1].device
    cluster = "00010203-0405-0607-0809-0a0b0c0d0e0f"
    placed = changed(
        document,
        facts=(
            Fact(Known.FABRIC_CLUSTER, cluster, device="gpu0"), Fact(Known.FABRIC_CLIQUE, 7, device="gpu0"),
            Fact(Known.FABRIC, FABRIC_READY, device="gpu0"),
            Fact(Known.FABRIC_HEALTH, ("unhealthy route",), device=device, host=other),
        ),
    )  # fmt: skip
    text = wirespeed.render(placed, "nvbandwidth", Style(dialect="0.11"))
    assert f"\nProcess 0 ({first}): fabric cluster {cluster}, clique 7\n" in text
    assert f"\nWARNING: Process 3 ({other}): NVLink fabric: unhealthy route\n\nRunning" in text
    assert re.search(
        r"^Process 0 \(\S+\): device 0: \S.* \([0-9a-f]{8}:[0-9a-f]{2}:[0-9a-f]{2}\.0\)$", text, re.M
    )
    assert "fabric" not in wirespeed.render(placed, "nvbandwidth", Style(dialect="0.10"))


def test_the_labels_of_a_bisection(run: Run) -> None:
    document = wirespeed.run(["multinode_bisect_write_ce"], machine="simulated:nvl72", samples=1, copies=1)
    rows = re.findall(r"^ *\d+-> *\d+(?= )", wirespeed.render(document, "nvbandwidth"), re.M)
    assert (rows[0], rows[36], rows[10], rows[46]) == (" 0->36", "36-> 0", "10->46", "46->10")


def test_the_first_write_is_that_of_the_column_except_between_processes() -> None:
    document = wirespeed.run([WRITE, f"multinode_{WRITE}"], machine=RANKS[1], samples=1, copies=1)
    for dialect, switched in (("0.8", True), ("0.10", True), ("sailbandwidth-2.1", True)):
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


def test_waived_testcases_and_the_note_on_simulation_stand_where_the_versions_have_room(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Since 0.8, no empty line follows ``Waived:``; 0.4 ends with its last table."""
    later = "another\nRunning device"
    waived = {"0.4": ".\n\nRunning device", "0.8": later, "0.10": later}
    for version, after in waived.items():
        arguments = ["--compat", version, "-t", "0", "14", "1", "--machine", "simulated:pcie-2-no-p2p"]
        assert main(["nvbandwidth", *arguments]) == 0
        text = capsys.readouterr().out
        assert after in text and text.count("NOTE: SIMULATED: no hardware was measured.") == 1
        at_start = text.index("NOTE: SIMULATED") < text.index("Runtime Version")
        assert at_start == (version == "0.4") and text.endswith("_ce 52.27\n\n") == at_start


@pytest.mark.parametrize("program", ["nvbandwidth", "sailbandwidth"])
def test_processes_of_a_simulated_machine_are_refused_once(
    program: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wirespeed.worlds.launchers.spawn", None)
    assert main([program, "-t", "0", "--machine", "simulated:ppu-8", "--processes", "8"]) == 1
    captured = capsys.readouterr()
    assert (captured.out + captured.err).count("omit --processes and the launcher (simulated:nvl72 has") == 1
