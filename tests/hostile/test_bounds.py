"""Files and settings that ask for immense work: refused in one line, or limited."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import wirespeed
from wirespeed import files
from wirespeed.cli.main import main
from wirespeed.errors import DocumentError, UsageError
from wirespeed.hardware import topology
from wirespeed.judging import gates
from wirespeed.results import baseline, output, overrides, store
from wirespeed.terminal import columns

_DOCUMENT = store.encode(wirespeed.run(["0"], machine="simulated:hgx-h200-2", samples=2, copies=1))


def refused(plain: Any) -> str:
    with pytest.raises(DocumentError) as caught:
        store.decode(json.dumps(plain).encode(), "d.json")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300
    return str(caught.value)


@pytest.fixture
def plain() -> Any:
    return json.loads(_DOCUMENT)


@pytest.mark.parametrize("label", ["", "0"])
@pytest.mark.parametrize("size", [6_000, 60_000])
def test_tables_with_more_cells_than_a_report_can_show(plain: Any, size: int, label: str) -> None:
    table = plain["testcases"][0]["tables"][0]
    table["rows"]["labels"] = table["columns"]["labels"] = [label] * size
    assert "too many rows and columns" in refused(plain)


def test_many_tables_that_are_too_large_together(plain: Any) -> None:
    table = plain["testcases"][0]["tables"][0]
    table["rows"]["labels"] = table["columns"]["labels"] = [""] * 1000
    plain["testcases"][0]["tables"] = [table] * 40
    assert "too many rows and columns" in refused(plain)


def test_labels_that_are_repeated_in_every_cell(plain: Any) -> None:
    table = plain["testcases"][0]["tables"][0]
    table["rows"]["labels"], table["columns"]["labels"] = ["x" * 100_000], ["y"] * 20_000
    assert "too long labels" in refused(plain)


def test_the_table_of_a_thousand_ranks_opens(plain: Any) -> None:
    table = plain["testcases"][0]["tables"][0]
    table["rows"]["labels"] = table["columns"]["labels"] = [f"{i}/gpu0" for i in range(1000)]
    assert store.decode(json.dumps(plain).encode(), "d.json")


@pytest.mark.parametrize("where", ["reason", "cells", "options", "warnings"])
def test_much_text(plain: Any, where: str) -> None:
    text, result = "x" * 1000, plain["testcases"][0]
    if where == "reason":
        result["reason"] = text * 20_000
    elif where == "cells":
        result["tables"][0]["cells"][0]["means"] = [text] * 20_000
    elif where == "options":
        plain["options"] |= {f"{text}{i}": "" for i in range(20_000)}
    else:
        plain["warnings"] = [text] * 20_000
    assert "too much text" in refused(plain)


def test_machines_of_which_a_report_shows_all_pairs(plain: Any) -> None:
    plain["machine"]["gpus"] = [dict(plain["machine"]["gpus"][0], index=i) for i in range(1025)]
    assert "1025 GPUs" in refused(plain)


def test_a_file_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST_MIB", 2)
    for load in (wirespeed.load, topology.load, baseline.load):
        with pytest.raises(UsageError, match="/dev/zero: it is larger than 2 MiB"):
            load("/dev/zero")
    for written in (overrides.load, gates.load):
        with pytest.raises(UsageError, match="it is larger than 4 MiB"):
            written("/dev/zero")


@pytest.mark.parametrize(
    "text",
    [b"x = " + b"[" * 3000 + b"]" * 3000, b"x = " + b"9" * 5000, b"x = 0x" + b"9" * 5000, b"[" * 3000, None],
    ids=["nested", "number", "hexadecimal", "json", "sparse"],
)
def test_files_that_no_parser_should_read(text: bytes | None, tmp_path: Path) -> None:
    with (path := tmp_path / "file").open("wb") as file:
        file.write(text or b"")
        if text is None:
            file.truncate(3 * 2**30)
    for load in (
        wirespeed.load, topology.load, baseline.load, overrides.load, gates.load,
    ):  # fmt: skip
        with pytest.raises(UsageError, match=str(path)) as caught:
            load(str(path))
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_the_width_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for width, shown in {"999999999": 1000, "1": 40, "120": 120}.items():
        monkeypatch.setenv("COLUMNS", width)
        assert columns() == shown


@pytest.fixture
def run_json(tmp_path: Path) -> str:
    path = tmp_path / "run.json"
    path.write_bytes(_DOCUMENT)
    return str(path)


def test_an_endless_device_is_not_read_to_write_to_it(run_json: str, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(files, "LARGEST_MIB", 1)
    assert main(["report", run_json, "--format", "csv", "-o", "/dev/full"]) == 5
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("command", ["report", "baseline make"])
def test_a_pipe_that_nobody_reads(command: str, run_json: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(output, "_PIPE_READER_S", 0.1)
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    start = time.monotonic()
    assert main([*command.split(), run_json, "-o", str(pipe)]) == 5
    assert time.monotonic() - start < 5 and pipe.is_fifo()


def test_a_pipe_whose_reader_comes_later(run_json: str, tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe.csv", list[str]()
    os.mkfifo(pipe)
    reader = threading.Timer(0.2, lambda: got.append(pipe.read_text()))
    reader.start()
    assert main(["report", run_json, "-o", str(pipe)]) == 0
    reader.join()
    assert got[0].startswith("testcase,")


DATA = Path(__file__).parents[1] / "data" / "hostile"


@pytest.mark.parametrize("levels", [90, 490, 700, 960, 5000])
@pytest.mark.parametrize("command", ["check", "report", "doctor", "import"])
def test_nested_json_is_refused_in_one_line(
    command: str, levels: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = tmp_path / "deep.json"
    deep.write_text('{"a": ' * levels + "1" + "}" * levels)
    more = ["-o", str(tmp_path / "x.json")] if command == "import" else []
    assert main([command, str(deep), *more]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    (run := tmp_path / "nvb.json").write_text('{"nvbandwidth": ' + "[" * levels + "]" * levels + "}")
    assert main([command, str(run), *more]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_machine_files_of_an_attack(capsys: pytest.CaptureFixture[str]) -> None:
    """One is nested deeply, one has no two GPUs that reach each other although it names peers."""
    assert main(["check", str(DATA / "deep-900.json")]) == 2
    assert main(["compare", str(DATA / "deep-900.json"), str(DATA / "deep-900.json")]) == 2
    assert "internal error" not in capsys.readouterr().err
    machine = str(DATA / "machine-list-stopiteration.json")
    assert main(["list", "--machine", machine]) == 0
    assert "no peer access" in capsys.readouterr().out


def test_a_fault_that_is_meant_is_named_by_its_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["machine", "--machine", "simulated:hgx-h200-2+eror@gpu0"]) == 2
    assert "(did you mean 'error'?)" in capsys.readouterr().err
