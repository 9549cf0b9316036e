"""Output files: only our own files are replaced, whole, and never through a name that others can predict."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import wirespeed
from tests.conftest import with_long
from tests.users import OTHER, needs_root
from wirespeed.cli.main import main
from wirespeed.errors import StorageError, UsageError
from wirespeed.results import store
from wirespeed.results.output import Output

_RUN = ["run", "-t", "0", "--samples", "2", "--copies", "1", "--machine", "simulated:hgx-h200-2"]
_DOCUMENT = wirespeed.run(["0"], machine="simulated:hgx-h200-2", samples=2, copies=1)


@pytest.fixture
def run_json(tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    wirespeed.save(_DOCUMENT, path)
    return path


def error(capsys: Any) -> str:
    text: str = capsys.readouterr().err
    assert text.count("\n") == 1 and text.startswith("wirespeed: error: ")
    return text


@pytest.mark.parametrize(
    "content", ["notes", "{}", '{"wirespeed_baseline": 1}', "[1]", "\xff", '{"a": [' * 9999]
)
def test_a_run_replaces_no_other_file(content: str, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "notes"
    path.write_text(content)
    assert main([*_RUN, "-o", str(path)]) == 2
    assert (
        "exists; choose another name, or --force to replace it" in error(capsys)
        and path.read_text() == content
    )
    with pytest.raises(UsageError, match="exists; choose another name"):
        wirespeed.run(["0"], machine="simulated:hgx-h200-2", output=path)
    assert main([*_RUN, "-o", str(path), "--force"]) == 0
    assert wirespeed.load(path).good


@pytest.mark.parametrize(
    "command",
    [
        ["check", "--allow-simulated", "-t", "0", "--machine", "simulated:hgx-h200-2", "-o"],
        ["nvbandwidth", "-t", "0", "--machine", "simulated:hgx-h200-2", "-o"],
        ["all_reduce_perf", "--machine", "simulated:hgx-h200-2", "-b", "8", "-e", "8", "--output"],
    ],
    ids=lambda command: command[0],
)  # fmt: skip
def test_other_commands_neither(command: list[str], tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "notes"
    path.write_text("notes")
    assert main([*command, str(path)]) == (1 if command[0] == "nvbandwidth" else 2)
    assert (
        "exists; choose another name, or --force to replace it" in capsys.readouterr().err
        and path.read_text() == "notes"
    )
    main([*command, str(path), "--force"])
    assert wirespeed.load(path)


def test_a_run_replaces_empty_files_and_no_saved_run(run_json: Path, tmp_path: Path, capsys: Any) -> None:
    empty, before = tmp_path / "empty", run_json.read_bytes()
    empty.touch()
    assert main([*_RUN, "-o", str(empty)]) == 0
    assert wirespeed.load(empty).good
    capsys.readouterr()
    assert main([*_RUN, "-o", str(run_json)]) == 2
    assert "--force" in error(capsys) and run_json.read_bytes() == before
    assert main([*_RUN, "-o", str(run_json), "--force"]) == 0
    assert run_json.read_bytes() != before


def saved_by(*commands: Sequence[str], folder: Path) -> list[Path]:
    """Run commands at the same time, and return the files that they left."""
    jobs = [
        subprocess.Popen(
            [sys.executable, "-m", "wirespeed", *command], cwd=folder, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
        )
        for command in commands
    ]  # fmt: skip
    told = [job.communicate(timeout=120)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [0] * len(jobs), told
    files = sorted(folder.iterdir())
    assert sorted(line.split()[2] for text in told for line in text.splitlines() if "saved to" in line) == [
        f"{file}" if "/" in told[0].split()[2] else file.name for file in files
    ]
    return files


def test_runs_that_start_at_the_same_time_keep_their_results(tmp_path: Path, monkeypatch: Any) -> None:
    for number, words in enumerate(([], ["-o", "{}/"], ["-o", "{}"])):
        (folder := tmp_path / str(number)).mkdir()
        check = ["check", "--allow-simulated", *_RUN[1:]]
        commands = [[*one, *(word.format(folder) for word in words)] for one in (_RUN, _RUN, check)]
        files = saved_by(*commands, folder=folder)
        assert len(files) == 3 and all(wirespeed.load(file).good for file in files)


def test_a_name_that_another_run_takes_during_the_check_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look for a free name and the check of the file, another process may create it."""
    (first := tmp_path / "run.json").write_text("another run")
    monkeypatch.setattr("wirespeed.results.output.os.path.lexists", lambda path: False)
    output = Output.numbered(first)
    output.check()
    output.write(b"this run")
    assert first.read_text() == "another run"
    assert output.path.name == "run-2.json" and output.path.read_bytes() == b"this run"


def test_one_name_is_taken_by_one_of_many(tmp_path: Path) -> None:
    """Outputs that found the same name free, in many threads: each gets its own."""
    outputs = [Output.numbered(tmp_path / "run.json") for _ in range(16)]
    for one in outputs:
        one.check()
    assert {one.path.name for one in outputs} == {"run.json"}
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda i: outputs[i].write(b"%d" % i), range(16)))
    assert {one.path.read_bytes(): one.path.name for one in outputs} == {
        b"%d" % i: outputs[i].path.name for i in range(16)
    }
    names = {f"run-{n}.json" for n in range(2, 17)} | {"run.json"}
    assert {one.name for one in tmp_path.iterdir()} == names
    outputs[3].write(b"again")
    assert len([*tmp_path.iterdir()]) == 16 and outputs[3].path.read_bytes() == b"again"


def test_a_name_that_another_process_takes_meanwhile_stays_its(tmp_path: Path, monkeypatch: Any) -> None:
    (rescue := tmp_path / "tmp").mkdir()
    monkeypatch.setattr(store.tempfile, "gettempdir", lambda: str(rescue))
    path = tmp_path / "d.json"
    saver = store.Saver(Output(path))
    path.write_text("theirs")
    with pytest.raises(StorageError, match="was created by another process; the results were saved to"):
        saver.run_ended(_DOCUMENT)
    assert path.read_text() == "theirs" and wirespeed.load(*rescue.iterdir()) == _DOCUMENT


_JOB = ["all_reduce_perf", "--machine", "simulated:hgx-h200-2", "-b", "8", "-e", "8", "-J", "a.json"]


@pytest.mark.parametrize(
    "command",
    [
        [*_JOB, "--output", "none/d.json"],
        [*_RUN, "-t", "nosuch", "-o", "d.json"],
        ["check", *_RUN[1:], "-o", "d.json"],
        ["import", "/dev/null", "-o", "d.json"],
        ["report", "/dev/null", "-o", "d.html"],
        ["report", "/dev/null"],
        ["baseline", "make", "/dev/null", "-o", "b.json"],
        ["transfer", "gpu0->gpu9", "--machine", "simulated:hgx-h200-2", "-o", "d.json"],
        ["doctor", "--machine", "nosuch", "-o", "d.json"],
    ],
    ids=lambda command: " ".join(command[:1] + command[-2:]),
)
def test_what_ends_early_leaves_no_file(command: list[str], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with suppress(SystemExit):
        assert main(command) > 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", with_long([signal.SIGKILL, signal.SIGTERM], signal.SIGTERM))
@pytest.mark.parametrize(
    "command",
    [
        [*_JOB, "-N", "0"],
        ["run", "-t", "0", "--machine", "simulated:hgx-h200-2+hang", "-o", "d.json"],
        ["run", "-t", "0", "--machine", "simulated:hgx-h200-2+hang"],
    ],
    ids=["-J", "-o", "default"],
)
def test_what_is_killed_leaves_no_empty_file(command: list[str], number: int, tmp_path: Path) -> None:
    """A process that says that it measures, and never ends by itself."""
    (tmp_path / "sitecustomize.py").write_text(_SAYS_WHEN_IT_MEASURES)
    job = subprocess.Popen(
        [sys.executable, "-m", "wirespeed", *command], cwd=tmp_path, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert job.stdout
    with job.stdout:
        assert any("measuring" in line for line in job.stdout)
        job.send_signal(number)
        printed = job.stdout.read()
    job.wait(60)
    for file in tmp_path.glob("*.json*"):
        assert json.loads(file.read_bytes())
    if "-J" in command:
        assert (tmp_path / "a.json").exists()
        assert ("Test failure" in printed) == (number == signal.SIGTERM)


_SAYS_WHEN_IT_MEASURES = """
from wirespeed.driver.session import Session
run = Session.run
def say(self):
    print("measuring", flush=True)
    return run(self)
Session.run = say
"""


def test_a_file_that_is_not_ours_lends_no_permissions(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        Output(path := tmp_path / "d.json").write(b"1")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    Output(path, replace=True).write(b"2")
    assert path.stat().st_mode & 0o777 == 0o640 and path.read_bytes() == b"2"


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("call", ["link", "replace"])
def test_a_writing_that_a_signal_interrupts_is_repeated(
    call: str, names: bool, tmp_path: Path, monkeypatch: Any
) -> None:
    """The file has its content from the beginning, and is ours although nobody heard that it was written."""
    path = tmp_path / "d.json"
    output = Output.numbered(path) if names else Output(path)
    if call == "replace":
        output.write(b"0")
    owner, original = (os, os.link) if call == "link" else (Path, Path.replace)

    def interrupted(*arguments: Any) -> None:
        original(*arguments)
        assert path.read_bytes() == b"1"
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(owner, call, interrupted)
        output.write(b"1")
    output.write(b"2")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("d.json", b"2")]
    assert output.path == path


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: Any) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    for content in (b"1", b"2"):
        (output := Output.numbered(tmp_path / "d.json")).write(content)
        output.write(content * 2)
    assert sorted((file.name, file.read_bytes()) for file in tmp_path.iterdir()) == [
        ("d-2.json", b"22"), ("d.json", b"11"),
    ]  # fmt: skip


@needs_root
@pytest.mark.parametrize("target", ["{}/theirs", "theirs", "../{name}/theirs"])
def test_folders_of_other_users_links_are_not_written_through(
    target: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    (theirs := tmp_path / "theirs" / "runs").mkdir(parents=True)
    (link := tmp_path / "results").symlink_to(target.format(tmp_path, name=tmp_path.name))
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    (tmp_path / "mine").symlink_to("results/../results")
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path / "results", Path("results/runs"), Path("mine/runs"), Path("mine/runs/../runs")):
        for name in (f"{folder}/d.json", f"{folder}/"):
            assert main([*_RUN, "-o", name]) == 5
            assert f"{link} is a link, and it belongs to another user ({OTHER})" in error(capsys)
        assert main(["doctor", "--record", f"{folder}/new"]) == 2
        assert f"{link} is a link, and it belongs to another user ({OTHER})" in error(capsys)
    assert not list(theirs.iterdir())
    os.chown(link, 0, 0, follow_symlinks=False)
    assert main([*_RUN, "-o", "mine/runs/d.json"]) == 0 and wirespeed.load(theirs / "d.json").good


@needs_root
def test_files_of_other_users_are_not_written_through(tmp_path: Path) -> None:
    (victim := tmp_path / "victim").touch()
    (link := tmp_path / "d.json").symlink_to(tmp_path / "new")
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    for replace in (False, True):
        with pytest.raises(StorageError, match="it is a link, and it belongs to another user"):
            Output(link, replace=replace).write(b"1")
    assert not (tmp_path / "new").exists()
    link.unlink()
    link.symlink_to(victim)
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    (chosen := Output.numbered(link)).check()
    chosen.write(b"1")
    assert victim.read_bytes() == b"" and chosen.path.name == "d-2.json"
    (open_to_all := tmp_path / "all").touch()
    open_to_all.chmod(0o666)
    os.chown(open_to_all, OTHER, OTHER)
    Output(open_to_all).write(b"1")
    status = open_to_all.stat()
    assert (status.st_uid, status.st_mode & 0o777) == (0, 0o644)


def test_a_baseline_replaces_only_baselines(run_json: Path, tmp_path: Path, capsys: Any) -> None:
    before, path = run_json.read_bytes(), tmp_path / "baseline.json"
    assert main(["baseline", "make", str(run_json), "-o", str(run_json)]) == 2
    assert "exists and is not a baseline" in error(capsys) and run_json.read_bytes() == before
    for _ in range(2):
        assert main(["baseline", "make", str(run_json), "-o", str(path)]) == 0
    assert main(["baseline", "make", str(run_json), "-o", str(run_json), "--force"]) == 0
    assert run_json.read_bytes() == path.read_bytes()


def test_a_report_replaces_no_saved_run(run_json: Path, capsys: Any) -> None:
    before = run_json.read_bytes()
    assert main(["report", str(run_json), "-o", str(run_json), "--format", "csv"]) == 2
    assert "is a saved run" in error(capsys) and run_json.read_bytes() == before


def test_the_copy_of_a_run_on_a_full_disk_follows_no_link(tmp_path: Path, monkeypatch: Any) -> None:
    shared, victim, path = tmp_path / "tmp", tmp_path / "victim", tmp_path / "d.json"
    shared.mkdir()
    victim.write_text("precious")
    (shared / "d.json").symlink_to(victim)
    monkeypatch.setattr(store.tempfile, "gettempdir", lambda: str(shared))
    saver = store.Saver(Output(path))

    def full(*_: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(Output, "write", full)
    with pytest.raises(StorageError, match="the disk is full; the results were saved to") as caught:
        saver.run_ended(_DOCUMENT)
    copy = Path(str(caught.value).rpartition(" ")[2])
    assert wirespeed.load(copy) == _DOCUMENT and copy.stat().st_mode & 0o777 == 0o600
    assert victim.read_text() == "precious"


def test_the_first_reason_counts_if_there_is_no_room_for_a_copy(tmp_path: Path, monkeypatch: Any) -> None:
    saver = store.Saver(Output(tmp_path / "d.json"))

    def full(*_: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(Output, "write", full)
    monkeypatch.setattr(store.tempfile, "gettempdir", lambda: str(tmp_path / "none"))
    with pytest.raises(StorageError, match=r"^the disk is full$"):
        saver.run_ended(_DOCUMENT)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "-"])
def test_standard_output_by_any_name(name: str, tmp_path: Path) -> None:
    out = tmp_path / "o"
    with out.open("w") as file:
        file.write("before\n")
        file.flush()
        command = [sys.executable, "-m", "wirespeed", *_RUN, "-o", name]
        subprocess.run(command, stdout=file, stderr=subprocess.DEVNULL, check=True)
    assert list(tmp_path.iterdir()) == [out]
    before, _, document = out.read_bytes().partition(b"\n")
    assert before == b"before" and store.decode(document, "o").good


def test_another_open_file(tmp_path: Path) -> None:
    out = tmp_path / "o"
    with out.open("w") as file:
        Output(Path(f"/dev/fd/{file.fileno()}")).write(b"all")
        Output(Path(f"/dev/fd/{file.fileno()}")).write(b" of it")
    assert out.read_text() == "all of it" and list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("command", ["run", "report", "baseline"])
def test_links_that_lead_nowhere(command: str, run_json: Path, tmp_path: Path, capsys: Any) -> None:
    loop = tmp_path / ("loop.json" if command == "run" else "loop.csv")
    loop.symlink_to(loop)
    arguments = {
        "run": [*_RUN, "-o"], "report": ["report", str(run_json), "-o"],
        "baseline": ["baseline", "make", str(run_json), "-o"],
    }[command]  # fmt: skip
    assert main([*arguments, str(loop)]) == 5
    assert "Too many levels of symbolic links" in error(capsys) and os.path.lexists(loop)


def test_what_a_killed_process_left_goes_with_the_next_run(tmp_path: Path) -> None:
    """Only regular files of this user with such a name that no living process locks."""
    out = tmp_path / "o.json"
    names = [f".o.json.{i:032x}" for i in range(5)] + [
        ".o.json.short",
        f".p.json.{1:032x}",
        f"o.json.{1:032x}",
    ]
    for name in names:
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (1, 1))
    killed, locked, young, link, pipe = (tmp_path / name for name in names[:5])
    for path in (link, pipe):
        path.unlink()
    link.symlink_to("elsewhere")
    os.mkfifo(pipe)
    os.utime(young)
    with locked.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        Output(out).check()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {*names} - {killed.name}
    os.utime(young, (time.time() - 6, time.time() - 6))
    Output(out).check()
    assert {path.name for path in tmp_path.iterdir()} == left - {young.name, locked.name}


def test_a_process_that_is_killed_while_it_writes_is_cleaned_up_after(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from wirespeed.files import new_file; from pathlib import Path\n"
        "with new_file(b'x', Path(sys.argv[1]), '.o.json.'): os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    (left,) = tmp_path.iterdir()
    os.utime(left, (1, 1))
    Output(tmp_path / "o.json").check()
    assert list(tmp_path.iterdir()) == []
