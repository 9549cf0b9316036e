"""The history is a file that a user names: devices, pipes, links and files of others stay as they are."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import wirespeed
from tests.users import OTHER, needs_root
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.errors import StorageError
from wirespeed.features.history.history_file import History, add
from wirespeed.files import read
from wirespeed.results.store import files_in, save


@pytest.fixture(scope="module")
def document() -> Document:
    return wirespeed.run(["device_local_copy"], machine="simulated:hgx-h200-2")


def state(path: Path) -> tuple[int, int, int, int]:
    found = path.lstat()
    return found.st_mode, found.st_uid, found.st_gid, found.st_ino


def _device(path: Path) -> None:
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))  # as /dev/null
    path.chmod(0o666)


def _link_to_device(path: Path) -> None:
    _device(path.with_name("null"))
    path.symlink_to("null")


def _foreign(path: Path) -> None:
    path.touch()
    os.chown(path, OTHER, OTHER)


def _foreign_link(path: Path) -> None:
    path.symlink_to(path.with_name("new.sqlite"))
    os.chown(path, OTHER, OTHER, follow_symlinks=False)


def _open_to_others(path: Path) -> None:
    path.touch()
    path.chmod(0o666)


def _foreign_journal(path: Path) -> None:
    path.touch()
    _foreign(path.with_name(f"{path.name}-journal"))


@needs_root
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_device, "it is not a regular file"),
        (_link_to_device, "it is not a regular file"),
        (os.mkfifo, "it is not a regular file"),
        (Path.mkdir, "it is not a regular file"),
        (_foreign, "it belongs to another user"),
        (_foreign_link, "is a link, and it belongs to another user"),
        (_open_to_others, "other users can write it"),
        (_foreign_journal, "h.sqlite-journal: it belongs to another user"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("by", ["option", "variable", "command"])
def test_what_is_no_history_of_this_user_stays_as_it_is(
    make: Callable[[Path], None], why: str, by: str, tmp_path: Path, document: Document,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    file = tmp_path / "h.sqlite"
    make(file)
    before = {path: state(path) for path in tmp_path.iterdir()}
    with pytest.raises(StorageError, match=why):
        add(file, document, "pass")
    save(document, tmp_path / "run.json")
    before[tmp_path / "run.json"] = state(tmp_path / "run.json")
    if by == "variable":
        monkeypatch.setenv("WIRESPEED_HISTORY", str(file))
    named = [] if by == "variable" else ["--history", str(file)]
    if by == "command":
        assert main(["history", *named]) == 5
        text = capsys.readouterr().err
        assert text.count("\n") == 1
    else:
        code = main(["check", str(tmp_path / "run.json"), "--allow-simulated", "--since", "9d", *named])
        text = capsys.readouterr().out
        assert code == 0
    assert why in " ".join(text.split())
    assert {path: state(path) for path in tmp_path.iterdir()} == before


@needs_root
def test_nothing_is_created_through_a_link_of_another_user(tmp_path: Path, document: Document) -> None:
    (private := tmp_path / "private").mkdir(mode=0o700)
    (link := tmp_path / "h.sqlite").symlink_to(private / "h.sqlite")
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(StorageError, match="is a link, and it belongs to another user"):
        add(link, document, "pass")
    assert list(private.iterdir()) == []


def test_a_new_history_is_private_and_an_old_one_keeps_its_mode(tmp_path: Path, document: Document) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    old.touch()
    old.chmod(0o640 if os.getgid() == 0 else 0o600)
    kept = state(old)
    for file in (new, old):
        add(file, document, "pass")
    assert stat.S_IMODE(new.stat().st_mode) == 0o600 and state(old) == kept


@pytest.mark.parametrize("none", ["none", ""])
@pytest.mark.parametrize("by", ["option", "variable"])
def test_no_history_is_none(
    none: str, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    if by == "variable":
        monkeypatch.setenv("WIRESPEED_HISTORY", none)
    named = ["--history", none] if by == "option" else []
    few = ["--size", "1MiB", "--samples", "2", "--copies", "1"]
    assert main(["run", "-t", "host_stream_copy", *few, "--no-save", "-q", *named]) == 0
    assert not (tmp_path / "data").exists() and not (tmp_path / "none").exists()
    assert capsys.readouterr().err == ""


def test_other_databases_are_not_renamed(tmp_path: Path, document: Document) -> None:
    import sqlite3

    file = tmp_path / "photos.db"
    base = sqlite3.connect(file)
    base.executescript("CREATE TABLE photo (id INTEGER); PRAGMA user_version = 1;")
    base.close()
    content = file.read_bytes()
    with pytest.raises(StorageError, match="is a database, but no history"):
        add(file, document, "pass")
    (text := tmp_path / "thesis.txt").write_text("precious " * 1000)
    with pytest.raises(StorageError, match="not a database"):
        add(text, document, "pass")
    assert {path.name for path in tmp_path.iterdir()} == {"photos.db", "thesis.txt"}
    assert file.read_bytes() == content and text.read_text() == "precious " * 1000
    with pytest.raises(StorageError):
        History(text)


def test_special_files_of_a_folder_are_not_opened(
    tmp_path: Path, document: Document, capsys: pytest.CaptureFixture[str]
) -> None:
    save(document, tmp_path / "run.json")
    for name in ("pipe.json", "pipe.log", "pipe"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "link.json").symlink_to("pipe")
    (tmp_path / "folder.json").mkdir()
    files, left_out = files_in([str(tmp_path)])
    assert files == [str(tmp_path / "run.json")] and "4 other files" in left_out[0]
    done = subprocess.run(
        [sys.executable, "-m", "wirespeed", "check", str(tmp_path), "--allow-simulated"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_named_pipe_is_read_if_something_writes_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], document: Document
) -> None:
    pipe, run = tmp_path / "pipe", tmp_path / "run.json"
    os.mkfifo(pipe)
    save(document, run)
    writer = threading.Thread(target=lambda: pipe.write_bytes(run.read_bytes()))
    writer.start()
    assert read(pipe) == run.read_bytes()
    writer.join()
    monkeypatch.setattr("wirespeed.files.WRITER_S", 0.2)
    assert main(["check", str(pipe), "--allow-simulated"]) == 2
    assert "no process wrote to this pipe within 0 s" in capsys.readouterr().err


def test_names_are_installed_beside_special_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "nvbandwidth")
    assert main(["install-names", str(tmp_path)]) == 5
    assert "not made by this command" in capsys.readouterr().err
    folder = tmp_path / "names"
    old = os.umask(0o077)
    try:
        assert main(["install-names", str(folder)]) == 0
    finally:
        os.umask(old)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o700}
