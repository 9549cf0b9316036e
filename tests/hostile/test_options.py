"""Options, variables and values that nobody means: one clear line instead of a traceback or silence."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import wirespeed
from wirespeed.cli import main as cli
from wirespeed.cli.main import main
from wirespeed.errors import DocumentError, UsageError
from wirespeed.results import baseline, store
from wirespeed.results.overrides import load as load_overrides
from wirespeed.worlds import base, launchers

_MACHINE = "simulated:hgx-h200-2"
_DOCUMENT = wirespeed.run(["0"], machine=_MACHINE, samples=2, copies=1)


def failed(arguments: list[str], capsys: Any) -> tuple[int, str]:
    """The exit code and the error, which is one line."""
    try:
        code = main(arguments)
    except SystemExit as error:
        code = int(error.code or 0)
    text: str = capsys.readouterr().err
    assert text.count("\n") == 1 and "error: " in text, text
    return code, text


_OPTIONS = """
run --samples, run --copies, run --precision, run --time-budget, run --timeout, run --seed, run --blocks,
run --kernel-blocks, run --kernel-threads, run --size, run --sizes, run --tier, run --devices,
run --transport, run --sample-peers,
run --processes, run --machine, run --format, run --testcase, run --prefix, run --output, run -o, run -t,
run -p, check --overrides, check --gates, check --baseline, check --from, check --tolerance,
check --wait-idle,
show d.json --format, show d.json --baseline, compare a.json b.json --least, report d.json -o,
report d.json -o x --format, list --tier, baseline d.json -o, overalloc --extra,
overalloc --means, overalloc --rounds, all_reduce_perf --minbytes, all_reduce_perf -b,
all_reduce_perf --datatype
"""


def test_two_dashes_are_no_value(capsys: Any) -> None:
    for option in " ".join(_OPTIONS.split()).split(", "):
        given = f"{option}=--" if option.rpartition(" ")[2].startswith("--") else f"{option}--"
        code, text = failed(given.split(), capsys)
        assert code == 2 and "expected a value, not --" in text, option


def test_arguments_are_shown_without_control_characters(capsys: Any) -> None:
    code, text = failed(["run", "\u202egpu0\x1b[31m"], capsys)
    assert code == 2 and "\u202e" not in text and "\x1b" not in text


def test_nvbandwidth_prints_its_usage_too(capsys: Any) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["nvbandwidth", "--testSamples=--"])
    assert caught.value.code == 1 and "expected a value, not --" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--copies", "--samples", "--seed", "--kernel-blocks"])
@pytest.mark.parametrize("value", [2**63, 10**30])
def test_numbers_that_no_document_can_contain(option: str, value: int, capsys: Any) -> None:
    code, text = failed(["run", "-t", "0", "--machine", _MACHINE, option, str(value)], capsys)
    assert code == 2 and ("is out of range" in text or "must be 0 or more" in text)


def test_counts_that_overflow(capsys: Any) -> None:
    assert failed(["run", "--copies", str(2**62)], capsys) == (
        2, "wirespeed: error: samples and copies must be from 1 to 2**40\n",
    )  # fmt: skip
    assert "from 1 to 1024" in failed(["run", "--processes", "99999999"], capsys)[1]


_RANK = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"MASTER_ADDR": "a..b"}, r"MASTER_ADDR='a\.\.b' is not the name"),
        ({"MASTER_ADDR": "a" * 64}, "is not the name"),
        ({"WORLD_SIZE": "999999999"}, "WORLD_SIZE is 999999999; it must be from 1 to 1000000"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE is 0; it must be from 1"),
        ({"WORLD_SIZE": "9" * 5000}, "must be whole numbers"),
    ],
)
def test_variables_of_a_rank(change: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        launchers.by_environment(_RANK | change, 0.1)
    assert launchers.promised({"SLURM_NTASKS": "9" * 5000, "PMI_SIZE": "9" * 5000}) == ("", 1)


def test_processes_that_cannot_be_started(monkeypatch: Any) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(launchers.socket, "socketpair", none)
    with pytest.raises(base.WorldError, match="cannot start 4 processes: Too many open files"):
        launchers.spawn(4, [], 1.0)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError("libx.so.1: cannot open shared object file"), "libx.so.1: cannot open shared object file"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
        (OSError(errno.EACCES, "Permission denied", "/x"), "/x: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), "standard output: No space left on device"),
        (ImportError("libz.so: cannot open", name="_z"), "cannot import _z: libz.so: cannot open"),
        (MemoryError(), "not enough memory"),
    ],
    ids=str,
)
def test_the_error_names_what_failed(error: Exception, says: str, capfd: Any, monkeypatch: Any) -> None:
    def fail(*_: object) -> int:
        raise error

    with monkeypatch.context() as patch:  # capfd needs dup2 when it ends
        patch.setattr(cli, "_dispatch", fail)
        patch.setattr(os, "dup2", lambda *_: None)
        assert main(["list"]) == 5
    assert capfd.readouterr().err == f"wirespeed: error: {says}\n"


def test_few_open_files() -> None:
    command = f"ulimit -n 8; exec {sys.executable} -m wirespeed run -t 0 --processes 4 --machine {_MACHINE}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode in (2, 5) and "Traceback" not in done.stderr and "the output" not in done.stderr


@pytest.mark.parametrize("text", ["x = " + "[" * 500 + "]" * 500, "x = " + "9" * 5000, "x = 1\n" * 2, "\xff"])
def test_overrides_that_cannot_be_parsed(text: str, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "o.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match="is not a valid overrides file") as caught:
        load_overrides(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("values", [(1.0, -1.0), (0.0,), (1e308, 1e308), (-1e-9,)])
def test_values_that_cannot_be_measured(values: tuple[float, ...]) -> None:
    plain = json.loads(store.encode(_DOCUMENT))
    cells = plain["testcases"][0]["tables"][0]["cells"]
    for cell, value in zip(cells, values, strict=False):
        cell["value"] = value
    if values == (0.0,):
        made = baseline.make([store.decode(json.dumps(plain).encode(), "d.json")])
        assert sum(len(entries) for entries in made.models.values()) == len(cells) - 1
        return
    with pytest.raises(DocumentError, match=r"Expected `float` [<>]= .* - at `\$\.testcases"):
        store.decode(json.dumps(plain).encode(), "d.json")


@pytest.mark.parametrize("values", [[-1.0, 1.0], [1e300, 1.0]])
def test_axes_that_cannot_be_drawn(values: list[float]) -> None:
    plain = json.loads(store.encode(_DOCUMENT))
    plain["testcases"][0]["tables"][0]["columns"]["values"] = values
    with pytest.raises(DocumentError, match="an axis with invalid values"):
        store.decode(json.dumps(plain).encode(), "d.json")


@pytest.mark.parametrize(
    ("field", "value"), [("median", 0), ("median", -1), ("median", 1e308), ("spread", -1)]
)
def test_baselines_that_nothing_can_be_compared_with(field: str, value: float, tmp_path: Path) -> None:
    plain = json.loads(baseline.encode(baseline.make([_DOCUMENT])))
    next(iter(plain["models"].values()))[0][field] = value
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps(plain))
    with pytest.raises(DocumentError, match=rf"is not a baseline: Expected `float` .*{field}"):
        baseline.load(path)


def test_the_baseline_of_tiny_values_can_be_loaded(tmp_path: Path) -> None:
    plain = json.loads(store.encode(_DOCUMENT))
    for cell in plain["testcases"][0]["tables"][0]["cells"]:
        cell["value"], cell["statistics"]["low"], cell["statistics"]["high"] = 1e-18, 2.0, 1.0
    made = baseline.make([store.decode(json.dumps(plain).encode(), "d.json")])
    (tmp_path / "baseline.json").write_bytes(baseline.encode(made))
    assert baseline.load(tmp_path / "baseline.json") == made


def test_machines_of_documents_are_checked(capsys: Any) -> None:
    plain = json.loads(store.encode(_DOCUMENT))
    plain["machine"]["links"][0]["capacity"] = -1e308
    with pytest.raises(DocumentError, match=re.escape("has capacity -1e+308")):
        store.decode(json.dumps(plain).encode(), "d.json")


@pytest.mark.parametrize("name", ["\0", "\ud800"])
def test_what_cannot_be_a_file_name_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", name]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "not a file name" in line


@pytest.mark.parametrize("refused", ["measure", "cpu"])
def test_a_system_that_refuses_threads(
    refused: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with ``ulimit -u`` or the limit of a container: one line, with what to do."""
    original = threading.Thread.start

    def start(self: threading.Thread) -> None:
        if self.name.startswith(refused):
            raise RuntimeError("can't start new thread")
        original(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    code = main(["run", "-t", "host_stream_copy", "--tier", "quick", "--size", "1MiB", "--no-save"])
    out, err = capsys.readouterr()
    text = " ".join((err if refused == "measure" else out).split())
    assert code == (5 if refused == "measure" else 1)
    assert "could not start a thread" in text and "allow this process more threads (ulimit -u" in text
    assert "Traceback" not in out + err and err.count("\n") == (refused == "measure")
