"""``wirespeed sailbandwidth`` as its callers use it: text and JSON of 2.2.1, byte by byte where known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import wirespeed
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.errors import VerificationError, WrongWord, WrongWords
from wirespeed.features.nvbandwidth import dialects as sailbandwidth
from wirespeed.features.nvbandwidth.dumps import listed
from wirespeed.reports import SIMULATED, Style

TWO = ["--machine", "simulated:hgx-h200-2"]
RANKS = ["--machine", f"simulated:{Path(__file__).parents[2] / 'machines/four-ranks.json'}"]
READ = "device_to_device_bidirectional_memcpy_read_ce"
WRITE = "device_to_device_bidirectional_memcpy_write_ce"
#: Values of the sample, in GB/s, by testcase and key of the table; then the capacity of the link.
VALUES = {
    ("host_to_device_memcpy_ce", ""): {(0, 0): 44.741237, (0, 1): 45.085309},
    ("device_to_device_memcpy_read_ce", ""): {(0, 1): 48.2013, (1, 0): 47.8954},
    (READ, "read1"): {(0, 1): 46.2371, (1, 0): 43.6805},
    (READ, "read2"): {(0, 1): 44.8113, (1, 0): 43.7064},
    (READ, "total"): {(0, 1): 91.0484, (1, 0): 87.3869},
}
LINK = 56.0
TEXT = """\
sailbandwidth Version: v2.2.1
HGGC Runtime Version: 12080
HGGC Driver Version: 12080
Driver Version: 1.5.2

node7
Device 0: PPU-ZW810E (00000000:08:00)
Device 1: PPU-ZW810E (00000000:0a:00)

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> PPU(column) bandwidth (GB/s)
           0         1
 0     44.74     45.09

SUM host_to_device_memcpy_ce 89.83

Running device_to_device_memcpy_read_ce.
memcpy CE PPU(row) -> PPU(column) bandwidth (GB/s)
           0         1
 0       N/A     48.20
 1     47.90       N/A

SUM device_to_device_memcpy_read_ce 96.10

memcpy CE PPU(row) -> PPU(column) bandwidth utilization ratio matrix (%)
           0         1
 0       N/A     86.07
 1     85.53       N/A

SUM device_to_device_memcpy_read_ce 171.60

Running device_to_device_bidirectional_memcpy_read_ce.
memcpy CE PPU(row) <-> PPU(column) Read1 bandwidth (GB/s)
           0         1
 0       N/A     46.24
 1     43.68       N/A

SUM device_to_device_bidirectional_memcpy_read_ce_read1 89.92

memcpy CE PPU(row) <-> PPU(column) Read2 bandwidth (GB/s)
           0         1
 0       N/A     44.81
 1     43.71       N/A

SUM device_to_device_bidirectional_memcpy_read_ce_read2 88.52

memcpy CE PPU(row) <-> PPU(column) Total bandwidth (GB/s)
           0         1
 0       N/A     91.05
 1     87.39       N/A

SUM device_to_device_bidirectional_memcpy_read_ce_total 178.44

memcpy CE PPU(row) <-> PPU(column) Total bandwidth utilization ratio matrix (%)
           0         1
 0       N/A     81.29
 1     78.02       N/A

SUM device_to_device_bidirectional_memcpy_read_ce_total 159.32

NOTE: The reported results may not reflect the full capabilities of the platform.
Performance can vary with software drivers, hardware clocks, and system topology.

"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """Run the command; return standard output and standard error."""

    def call(*arguments: str, code: int = 0) -> tuple[str, str]:
        assert main(["sailbandwidth", *arguments]) == code
        return capsys.readouterr()

    return call


@pytest.fixture
def sample() -> Document:
    """The run of the sample: two devices with one link."""
    names = list(dict.fromkeys(name for name, _ in VALUES))
    document = wirespeed.run(names, machine=TWO[1], samples=1, copies=1)
    gpus = tuple(
        changed(gpu, model="PPU-ZW810E", bus_id=f"00000000:{bus}:00")
        for gpu, bus in zip(document.machine.gpus, ("08", "0a"), strict=True)
    )
    machine = changed(
        document.machine, gpus=gpus, host="node7", simulated=False, cuda=12080, driver="1.5.2", notes=()
    )

    def filled(name: str, table: Any) -> Any:
        values = VALUES[name, table.key]
        link = LINK * (2 if table.key == "total" else 1)
        return replace(table, cells=tuple(
            replace(cell, value=1e9 * values[cell.row, cell.column], limit=1e9 * link) for cell in table.cells
        ))  # fmt: skip

    results = tuple(
        replace(result, warnings=(), tables=tuple(filled(result.name, table) for table in result.tables))
        for result in document.testcases
    )
    return replace(
        document, host="node7", simulated=False, machine=machine, warnings=(), testcases=results,
        options=document.options | {"size": 512 * 2**20},
    )  # fmt: skip


def shown(document: Document, form: str = "nvbandwidth", **style: Any) -> str:
    return wirespeed.render(document, form, Style(dialect="sailbandwidth-2.2.1", **style))


def test_the_text_of_the_sample(sample: Document) -> None:
    assert shown(sample, utilization=True) == TEXT


def test_the_json_of_the_sample(sample: Document) -> None:
    text = shown(sample, "nvbandwidth-json", utilization=True)
    assert text.startswith(
        '{\n\t"sailbandwidth" : \n\t{\n\t\t"HGGC Driver Version" : "1.5.2",\n'
        '\t\t"HGGC Runtime Version" : 12080,\n\t\t"PPU Device list" : \n\t\t[\n'
        '\t\t\t"0: PPU-ZW810E (00000000:08:00): (node7)",\n\t\t\t"1: PPU-ZW810E (00000000:0a:00): (node7)"\n'
        '\t\t],\n\t\t"testcases" : \n\t\t[\n\t\t\t{\n'
    )
    assert '\t\t\t\t"sum" : 89.826546000000008\n' in text
    assert text.endswith('\t\t],\n\t\t"version" : "v2.2.1"\n\t}\n}\n\n')
    entries = json.loads(text)["sailbandwidth"]["testcases"]
    assert [entry["status"] for entry in entries] == ["Passed"] * 3
    assert entries[2].keys() == {"bandwidth_description", "bandwidth_matrix", "name", "status", "sum"}
    assert entries[2]["bandwidth_matrix"] == [
        ["N/A", "46.2371"], ["43.6805", "N/A"], ["N/A", "44.8113"], ["43.7064", "N/A"],
        ["N/A", "91.0484"], ["87.3869", "N/A"],
    ]  # fmt: skip


@pytest.mark.parametrize("form", ["nvbandwidth", "nvbandwidth-json"])
@pytest.mark.parametrize("dialect", ["sailbandwidth-2.2.1", "sailbandwidth-2.1"])
def test_what_is_printed_is_imported(form: str, dialect: Any, tmp_path: Path) -> None:
    names = ["device_to_device_memcpy_read_ce", READ, WRITE, f"multinode_{WRITE}"]
    document = wirespeed.run(names, machine=TWO[1], samples=2, copies=1)
    style = Style(dialect=dialect, utilization=True, verbose=True)
    log = tmp_path / "log"
    log.write_text(wirespeed.render(document, form, style))
    imported = wirespeed.load_log(log)
    assert not imported.imported[0].unknown and not any("add up" in text for text in imported.warnings)
    for result in document.testcases[:3]:
        again = next(r for r in imported.testcases if r.name == result.name)
        for table in result.tables:
            other = next(t for t in again.tables if t.key == table.key)
            values = {(c.row, c.column): c.value for c in other.cells if c.value}
            expected = {(c.row, c.column): pytest.approx(c.value, abs=5.1e6) for c in table.cells if c.value}
            assert values == expected


def test_the_rows_of_all_tables_are_one_matrix(run: Callable[..., tuple[str, str]]) -> None:
    content = json.loads(run("-j", "-v", "-b", "8", "-t", "7", "0", "nosuch", "-i", "2", *TWO)[0])
    body = content["sailbandwidth"]
    both, host, missing = body["testcases"]
    assert len(both["bandwidth_matrix"]) == 6 and len(host["bandwidth_matrix"]) == 1
    assert both["min"] <= both["average"] <= both["max"] <= both["sum"]
    assert missing == {"name": "nosuch", "status": "ERROR"}
    assert body["warning"][0].startswith("NOTE: You have chosen") and "git_version" not in body


def test_lines_of_samples_are_those_of_the_first_copy(run: Callable[..., tuple[str, str]]) -> None:
    text = run("-v", "-t", "4", "7", "33", "-i", "1", *TWO)[0]
    lines = re.findall(r"^\tSample 0: (.*): [\d.]+ GB/s$", text, re.M)
    assert lines == [
        "DeviceVm 1 -> DeviceVm 0", "DeviceVm 0 -> DeviceVm 1", "Device 1 -> Device 0", "Device 0 -> Device 1"
    ]  # fmt: skip
    assert re.search(r"^SUM \w+ [\d.]+\nMIN \w+ [\d.]+\nMAX \w+ [\d.]+\nAVG ", text, re.M)
    assert "\tSample 0: Device 1" in run("-v", "--disableVm", "-t", "4", "-i", "1", *TWO)[0]


def test_perf_lines_replace_all_sums(run: Callable[..., tuple[str, str]]) -> None:
    text = run("--perfFormatter", "--displayUR", "-t", "4", "32", "-i", "1", *TWO)[0]
    assert "SUM " not in text and text.count("&&&& PERF device_to_device_memcpy_read_ce ") == 2
    assert re.search(r"^&&&& PERF host_device_latency_sm [\d.]+ -ns$", text, re.M)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-b", "0"], "bufferSize, testSamples and loopCount must be greater than 0"),
        (["-i", "-2"], "bufferSize, testSamples and loopCount must be greater than 0"),
        (["--loopCount", "0"], "bufferSize, testSamples and loopCount must be greater than 0"),
        (["--nBlocks", "0"], "nBlocks must be -1 (auto) or greater than 0"),
        (["--nThreads=-7"], "nThreads must be -1 (auto) or greater than 0"),
        (
            ["-t", "0", "-p", "x"],
            "You cannot specify both testcase and testcasePrefixes options at the same time",
        ),
        (["-p", "nosuch"], "Specified list of testcase prefixes did not match any testcases"),
        (["-p", "multinode"], "Specified list of testcase prefixes did not match any testcases"),
    ],
)
def test_errors_in_its_words(arguments: list[str], says: str, run: Callable[..., tuple[str, str]]) -> None:
    out, err = run(*arguments, *TWO, code=1)
    assert out.startswith("sailbandwidth Version: v2.2.1\n") and err == f"{says}\n"
    out, err = run(*arguments, "-j", *TWO, code=1)
    assert json.loads(out)["sailbandwidth"]["error"] == says and not err


def test_options_of_ppus_are_ignored_with_a_note(run: Callable[..., tuple[str, str]]) -> None:
    given = ["--linkId", "0", "--useSingleLinkForIcnRead", "-t", "0", "-i", "1", *TWO]
    note = "NOTE: there is no PPU; ignoring the following command(s): --useSingleLinkForIcnRead --linkId 0."
    assert f"(00000000:02:00)\n\n{note}\n\nRunning host" in run(*given)[0]
    assert json.loads(run("-j", *given)[0])["sailbandwidth"]["warning"] == [note]


def test_testcases_of_several_processes(run: Callable[..., tuple[str, str]]) -> None:
    listed = run("-l", "--processes", "2")[0]
    numbers = re.findall(r"^(\d+), (\w+):$", listed, re.M)
    assert len(numbers) == 45 and numbers[44] == ("44", "multinode_device_to_device_all_from_one_read_sm")
    assert (
        "Testcase multinode_bisect_write_ce not found!"
        in run("-t", "multinode_bisect_write_ce", *TWO, code=1)[0]
    )
    text = run("-t", "38", "43", "-i", "1", *RANKS)[0]
    assert "memcpy SM All PPUs -> PPU(column) total bandwidth (GB/s)" in text
    assert "PPU(row) <-> PPU(column) Write1 bandwidth" in text
    for version in ("2.2.1", "2.1"):
        text = run("--compat", version, "-t", "38", "-i", "1", *RANKS)[0]
        bus = r"[0-9a-f]{8}:[0-9a-f]{2}:[0-9a-f]{2}"
        lines = re.findall(rf"^Process (\d) \(node\d\d\): device (\d): \S.* \({bus}\)$", text, re.M)
        assert lines == [("0", "0"), ("1", "1"), ("2", "0"), ("3", "1")]
        assert "device gpu" not in text and "\nDevice 0" not in text


def test_the_receiver_executes_reads_except_in_the_guide(run: Callable[..., tuple[str, str]]) -> None:
    for index, version, word in (("29", "2.2.1", "pull"), ("29", "2.1", "push"), ("31", "2.1", "push")):
        listed = run("-l", "--compat", version)[0]
        description = listed.split(f"\n{index}, ")[1].split("\n")[1]
        assert word in description


def test_wrong_data_that_is_asked_for(
    run: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAILBW_VERIFY", "1,0")
    err = run("-t", "4", "-i", "1", *TWO, code=1)[1]
    assert re.search(
        r"^Data verification FAILED\n  testcase         : device_to_device_memcpy_read_ce\n"
        r"  transport        : Device 1 -> Device 0\n"
        r"  src              : host=\S+  rank=1  BDF=[0-9A-F:]+\.0\n"
        r"  dst              : host=\S+  rank=0  BDF=[0-9A-F:]+\.0\n  found            : wrong data in .*\n"
        r"  first bad offset : \d+ \(word\) / \d+ \(byte\)\n  total values     : 67108864 \(512\.00 MiB\)\n"
        r"  bad values       : 1 \(0\.0000%\)\n  flipped bits     : ever=0x[0-9a-f]{16} always=0x\w{16}\n"
        r"  source content   : OK=1 BAD=0\n  transfer         : OK=0 BAD=1 NOT-WRITTEN=0\n"
        r"  note             : values corrupted by SAILBW_VERIFY \(simulated fault\)\n",
        err, re.M,
    )  # fmt: skip
    monkeypatch.setenv("SAILBW_VERIFY", "5,0")
    assert "FAILED" not in run("-t", "4", "-i", "1", *TWO)[1]


@pytest.mark.parametrize(
    ("link", "testcase", "machine", "transport", "source"),
    [
        ("0,1", "0", TWO, "Host -> Device 1", r"rank=0  BDF=n/a"),
        ("1,0", "1", TWO, "Device 1 -> Host", r"rank=1  BDF=[0-9A-F:]+\.0"),
        ("3,2", "36", RANKS, "Multinode node 3 -> Multinode node 2", r"rank=3  BDF=\S+"),
    ],
)
def test_wrong_data_of_hosts_and_ranks(
    link: str, testcase: str, machine: list[str], transport: str, source: str,
    run: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("SAILBW_VERIFY", link)
    err = run("-t", testcase, "-i", "1", *machine, code=1)[1]
    assert f"  transport        : {transport}\n" in err and err.count("Data verification FAILED") == 1
    assert re.search(rf"^  src              : host=\S+  {source}$", err, re.M)


@pytest.mark.parametrize("form", ["nvbandwidth", "nvbandwidth-json"])
@pytest.mark.parametrize("dialect", ["sailbandwidth-2.2.1", "sailbandwidth-2.1"])
def test_what_is_printed_of_several_processes_is_imported(form: str, dialect: Any, tmp_path: Path) -> None:
    names = [f"multinode_{WRITE}", f"multinode_{READ}", "multinode_device_to_device_memcpy_write_ce"]
    document = wirespeed.run(names, machine=RANKS[1], samples=2, copies=1)
    for result in document.testcases:  # distinct values in both directions
        for table in result.tables:
            assert any(cell.value for cell in table.cells)
    log = tmp_path / "log"
    log.write_text(wirespeed.render(document, form, Style(dialect=dialect)))
    imported = wirespeed.load_log(log)
    for result in document.testcases:
        again = next(r for r in imported.testcases if r.name == result.name)
        for table in result.tables:
            other = next(t for t in again.tables if t.key == table.key)
            values = {(c.row, c.column): c.value for c in other.cells if c.value}
            expected = {(c.row, c.column): pytest.approx(c.value, abs=5.1e6) for c in table.cells if c.value}
            assert values == expected, (result.name, table.key)


def test_without_limits_a_warning_stands_in_place_of_ratios(run: Callable[..., tuple[str, str]]) -> None:
    document = wirespeed.run(["device_to_device_memcpy_read_ce"], machine=TWO[1], samples=2, copies=1)
    (result,) = document.testcases
    (table,) = result.tables
    cells = tuple(replace(cell, limit=None) for cell in table.cells)
    unknown = replace(document, testcases=(replace(result, tables=(replace(table, cells=cells),)),))
    style = Style(dialect="sailbandwidth-2.2.1", utilization=True)
    text = wirespeed.render(unknown, "nvbandwidth", style)
    assert text.count("Warning: Unable to display Bandwidth Utilization Ratio Matrix.\n") == 1
    assert "ratio matrix (%)" not in text
    assert "Unable to display" not in wirespeed.render(document, "nvbandwidth", style)


def test_local_copies_fill_the_diagonal_of_latencies_too(run: Callable[..., tuple[str, str]]) -> None:
    for given, empty in ((["--testLocalCopy"], 0), ([], 2)):
        text = run("-t", "33", "-i", "1", *given, *TWO)[0]
        assert "latency" in text.lower() and text.count("N/A") == empty


def dumped(folder: Path) -> tuple[str, list[str]]:
    """Name and lines of the only file in a folder."""
    (file,) = folder.iterdir()
    return file.name, file.read_text().splitlines()


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    ("link", "testcase", "machine", "name", "compared"),
    [
        ("1,0", "4", TWO, r"ppu0_off\d+", True),
        ("1,0", "1", TWO, r"ppu0_off\d+", True),  # host memory
        ("0,1", "0", TWO, r"ppu1_off\d+", True),
        ("3,2", "36", RANKS, r"ppu2_rank2_off\d+", False),  # each process sees only one end
    ],
)
def test_files_of_wrong_values(
    link: str, testcase: str, machine: list[str], name: str, compared: bool, form: str,
    run: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    """``SAILBW_DUMP_PATH`` and the labels of ``verify_utils.cpp`` of sailbandwidth 2.2.1."""
    monkeypatch.setenv("SAILBW_VERIFY", link)
    monkeypatch.setenv("SAILBW_DUMP_PATH", str(tmp_path))
    err = run("-t", testcase, "-i", "1", *machine, *(["-j"] if form == "json" else []), code=1)[1]
    file, lines = dumped(tmp_path)
    assert re.fullmatch(rf"sailbw_dump_{name}_\d{{8}}_\d{{6}}\.txt", file)
    assert lines[:2] == ["# sailbandwidth data-verification mismatch dump", f"# {SIMULATED}"]
    labels = [line[2:].split(" : ")[0].split(": ")[0].strip() for line in lines if ": " in line]
    stats = ["first bad offset", "total values", "bad values", "flipped bits"]
    stats += ["source content", "transfer"] if compared else []
    assert labels[1:][: 5 + len(stats)] == ["testcase", "transport", "src", "dst", *stats, "shown below"]
    offset, expected, actual, bits, *rest = lines[-1].split()
    assert int(expected, 16) ^ int(actual, 16) == int(bits, 16) and f"_off{offset}_" in file
    assert rest == ([expected, "OK", "BAD"] if compared else [])
    if form == "text":
        report = dict(re.findall(r"^  (\S.*?) *: (.+)$", err, re.M))
        assert [*report][4:5] == ["found"] and [*report][-1] == "dumped file"
        assert report["dumped file"] == str(tmp_path / file)
        assert report["first bad offset"] == f"{offset} (word) / {8 * int(offset)} (byte)"
        assert report.get("source content") == ("OK=1 BAD=0" if compared else None)


def test_files_of_wrong_values_replace_nothing(
    run: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SAILBW_VERIFY", "1,0")
    monkeypatch.chdir(tmp_path)
    given = ["-t", "4", "-i", "1", *TWO]
    assert "dumped file" not in run(*given, code=1)[1] and not [*tmp_path.iterdir()]
    (tmp_path / "dumps").mkdir()
    monkeypatch.setenv("SAILBW_DUMP_PATH", "dumps")
    monkeypatch.setattr("time.strftime", lambda form: "20261125_120000")
    for files in (1, 2):
        assert f"dumped file      : {tmp_path}/dumps/sailbw_dump_ppu0_" in run(*given, code=1)[1]
        assert len([*(tmp_path / "dumps").iterdir()]) == files
    monkeypatch.setenv("SAILBW_DUMP_PATH", f"{tmp_path}/none")
    err = run(*given, code=1)[1]
    assert err.count(f"WARNING: data-verification dump: cannot create a file in {tmp_path}/none") == 1
    for text, most in (
        ("7", 7),
        ("ALL", 4096),
        ("all", 4096),
        ("0", 100),
        ("x", 100),
        ("", 100),
        ("-3", 100),
    ):
        monkeypatch.setenv("SAILBW_DUMP_SIZE", text)
        assert listed() == most


def test_a_list_of_wrong_values_that_is_cut_says_so() -> None:
    words = tuple(WrongWord(i, i + 1, 0, 0 if i else 1, 0 if i == 2 else 9) for i in range(3))
    found = WrongWords(words, ever=3, always=0, source_wrong=2, unwritten=1, copied=1)
    error = VerificationError("gpu0->gpu1", 0, 3, 8, "gpu0->gpu1", found)
    text = sailbandwidth.dump(wirespeed.run(["0"], machine=TWO[1], samples=1, copies=1), "t", error, 2)
    assert "shown below      : 2 of 3 bad values (set SAILBW_DUMP_SIZE=ALL to list more)\n" in text
    assert "# source content   : OK=1 BAD=2\n# transfer         : OK=1 BAD=1 NOT-WRITTEN=1\n" in text
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    assert [row[5:] for row in rows] == [["OK", "BAD"], ["BAD", "OK"]]
