from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import wirespeed
from tests.conftest import own_time
from wirespeed.document import Document
from wirespeed.errors import DocumentError, StorageError
from wirespeed.results import store
from wirespeed.results.output import Output
from wirespeed.testcases.table import find

SHIPPED = Path(store.__file__).with_name("document.schema.json")


@pytest.fixture
def document() -> Document:
    return wirespeed.run(["0"], machine="simulated:hgx-h200-2")


def test_the_shipped_schema_is_that_of_the_types() -> None:
    assert SHIPPED.read_bytes() == store.schema(), "run `python -m wirespeed.results.store > ...schema.json`"


def test_saving_replaces_a_file_whole(document: Document, tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    path.write_text("old")
    path.chmod(0o600)
    wirespeed.save(document, path)
    assert wirespeed.load(path) == document
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_save_leaves_the_old_file(
    document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "d.json"
    wirespeed.save(document, path)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="the disk is full; free 8 MiB"):
        wirespeed.save(document, path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_a_draft_gives_way_to_the_last_document(
    document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "d.json"
    clock = iter([0.0, 1.0, 10.9, 11.1, 11.2])  # a save takes 1 s, and the next may begin 10 s later
    monkeypatch.setattr(store, "time", own_time(monotonic=lambda: next(clock)))
    draft = store.Draft(Output(path))
    for command in ("first", "too early", "second"):
        draft.save(lambda command=command: replace(document, command=command))  # type: ignore[misc]
        assert wirespeed.load(path).command == command.replace("too early", "first")
    draft.last(document)
    monkeypatch.undo()
    draft.save(lambda: replace(document, command="a thread that is late"))
    assert wirespeed.load(path) == document


def test_a_draft_catches_up_with_what_came_too_early(
    document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next measurement may hang: what was measured before it must be in the file of a killed process."""
    saver = store.Saver(Output(path := tmp_path / "d.json"))
    now = [0.0]
    monkeypatch.setattr(store, "time", own_time(monotonic=lambda: now[0]))
    case = find(document.testcases[0].name)
    saver.measured(case, (), lambda: replace(document, command="first"))
    saver._draft._next = 10.0
    saver.measured(case, (), lambda: replace(document, command="second"))
    for now[0], command in ((9.9, "first"), (10.1, "second")):
        saver.measuring(case, 0, "waiting")
        assert wirespeed.load(path).command == command
    path.unlink()
    now[0] = 100.0
    saver.measuring(case, 0, "waiting")
    assert not path.exists()  # nothing new


def test_the_end_of_a_testcase_waits_a_tenth_of_a_second(
    document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if saving takes long: a process that is killed then has lost no testcase."""
    saver = store.Saver(Output(path := tmp_path / "d.json"))
    now = [0.0]
    monkeypatch.setattr(store, "time", own_time(monotonic=lambda: now[0]))
    result = document.testcases[0]
    saver.testcase_ended(replace(document, command="first"), result)
    saver._draft._next = 10.0
    now[0] = 0.09
    saver.testcase_ended(replace(document, command="second"), result)
    for now[0], command in ((0.09, "first"), (0.11, "second")):
        saver.measuring(find(result.name), 0, "waiting")
        assert wirespeed.load(path).command == command
    saver._draft._next = 10.0
    saver.measured(find(result.name), (), lambda: replace(document, command="no end"))
    now[0] = 9.0
    saver.measuring(find(result.name), 0, "waiting")
    assert wirespeed.load(path).command == "second"


def test_a_draft_that_cannot_be_saved_is_told_of_at_the_end(document: Document, tmp_path: Path) -> None:
    draft = store.Draft(Output(tmp_path / "gone" / "d.json"))
    draft.save(lambda: document)
    with pytest.raises(StorageError, match="the folder does not exist"):
        draft.last(document)


def test_a_link_stays_and_its_file_is_replaced(document: Document, tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    link.symlink_to(real)
    Output(link).check()
    wirespeed.save(document, link)
    assert link.is_symlink() and wirespeed.load(real) == document


def test_a_pipe_gets_the_last_document_and_stays(document: Document, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    Output(pipe).check()
    draft = store.Draft(Output(pipe))
    draft.save(lambda: document)
    draft.last(document)
    text = b"".join(iter(lambda: os.read(reader, 65536), b""))
    os.close(reader)
    assert store.decode(text, "pipe") == document
    assert pipe.is_fifo() and list(tmp_path.iterdir()) == [pipe]


def test_what_is_neither_a_file_nor_a_stream_is_left_alone(document: Document, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="it is not a regular file"):
        wirespeed.save(document, tmp_path)


def test_what_cannot_be_written_is_found_out_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path, says in {
        tmp_path / "none" / "d.json": "the folder does not exist",
        tmp_path / "file" / "d.json": "not a folder",
        tmp_path: "it is not a regular file",
        Path("/proc/d.json"): "cannot write /proc/d.json",
    }.items():
        with pytest.raises(StorageError, match=says):
            wirespeed.run(["0"], machine="simulated:hgx-h200-2+hang", output=path)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_full_disk_is_found_out_before_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StorageError, match="cannot write"):
        Output(tmp_path / "d.json").check()


def test_a_file_system_that_cannot_reserve_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no")

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    Output(tmp_path / "d.json").check()
    assert not list(tmp_path.iterdir())


def test_a_disk_that_fills_up_while_measuring_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rescue = tmp_path / "rescue"
    rescue.mkdir()
    monkeypatch.setattr(store.tempfile, "gettempdir", lambda: str(rescue))
    path = tmp_path / "d.json"

    def full(*_: object) -> None:
        raise StorageError("cannot write: the disk is full")

    monkeypatch.setattr(Output, "write", full)
    with pytest.raises(StorageError, match=re.escape(f"the results were saved to {rescue}/d-")):
        wirespeed.run(["0"], machine="simulated:hgx-h200-2", output=path)
    (copy,) = rescue.iterdir()
    assert wirespeed.load(copy).good


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not a saved run of wirespeed"),
        ("{}", "is not a saved run of wirespeed"),
        ("\x00\xff", "is not a saved run of wirespeed"),
        ('{"wirespeed_schema": 99}', "has schema 99, this version reads 2; use a newer wirespeed"),
        ('{"wirespeed_schema": 1}', r"d\.json: schema 1 is not supported: measure again"),
        ('{"wirespeed_schema": 2}', "is a broken saved run of wirespeed"),
        ("[" * 100_000, "is not a saved run of wirespeed"),
    ],
)
def test_what_is_no_document_is_one_clear_line(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    path.write_text(text)
    with pytest.raises(DocumentError, match=says) as caught:
        wirespeed.load(path)
    assert "\n" not in str(caught.value)


def test_limits_that_are_none_are_refused(document: Document) -> None:
    for field in ("limit", "peak"):
        data = json.loads(store.encode(document))
        data["testcases"][0]["tables"][0]["cells"][0][field] = -1.0
        with pytest.raises(DocumentError, match=r"Expected `float` >= 1e-18"):
            store.decode(json.dumps(data).encode(), "d.json")


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(DocumentError, match=r"cannot read none\.json: No such file"):
        wirespeed.load("none.json")


@given(st.data())
def test_a_damaged_document_is_read_or_refused(data: st.DataObject) -> None:
    text = store.encode(_DOCUMENT)
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 40)))
    damaged = text[:start] + data.draw(st.binary(max_size=20)) + text[stop:]
    try:
        store.decode(damaged, "damaged")
    except DocumentError as error:
        assert "\n" not in str(error)


_DOCUMENT = wirespeed.run(["0"], machine="simulated:hgx-h200-2")
