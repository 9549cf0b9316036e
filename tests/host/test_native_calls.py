"""The C functions that make calls of other libraries, and that read and write files: order, results, and what
is refused before it reaches C.
"""

from __future__ import annotations

import ctypes
import errno
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wirespeed.backends.call_tables import COPY, COPY_LIST, WAIT_UNTIL, Failure, Functions
from wirespeed.backends.test_data import words
from wirespeed.errors import BackendError
from wirespeed.features.storage import calls, prepared
from wirespeed.features.storage.calls import AT, COLUMNS, END, ERROR, FIRST_WRONG, LAST, SHORT, START, WRONG

needs_ring = pytest.mark.skipif(bool(prepared.refused()), reason=prepared.refused())
BLOCK, KEY = 4096, 2**64 - 5


class Library:
    """Functions that note their arguments; ``fails`` returns a negative number."""

    def __init__(self) -> None:
        kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * 12)
        self.seen: list[tuple[int, ...]] = []
        self.notes = kind(lambda *given: self.seen.append(given) or 0)  # type: ignore[func-returns-value]
        self.fails = kind(lambda *given: -7)


def error(failure: Failure) -> BackendError:
    return BackendError(f"{failure.name}: {failure.status}")


def test_laps_make_the_calls_of_three_tables_in_order() -> None:
    library = Library()
    functions = Functions(error, library)
    before, calls, after = ([("notes", (i, *range(-11, 0)))] for i in range(3))
    begin = time.monotonic_ns()
    times = functions.walk([functions.table(each) for each in (before, calls, after)], count=2, rounds=3)
    assert [given[0] for given in library.seen] == [0, 1, 1, 1, 2, 1, 1, 1, 2]
    assert {given[1:] for given in library.seen} == {tuple(range(-11, 0))}
    flat = [begin, *times.ravel().tolist(), time.monotonic_ns()]
    assert flat == sorted(flat) and times.min() > 0


@pytest.mark.parametrize("place", range(3))
def test_all_ends_at_the_call_that_failed(place: int) -> None:
    library = Library()
    functions = Functions(error, library)
    tables = [[("notes", (i,)), ("notes", (i,))] for i in range(3)]
    tables[place][1] = ("fails", ())
    with pytest.raises(BackendError, match=f"^fails: {-7 & 0x7FFFFFFF}$"):
        functions.walk([functions.table(each) for each in tables], count=4)
    assert [given[0] for given in library.seen] == [0, 0, 1, 1, 2][: 2 * place + 1]


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table[:, :-1].copy(),
        lambda table: table[::2],
        lambda table: np.asfortranarray(table),
        lambda table: table[0],
        lambda table: table.astype(np.int32),
        lambda table: table * 0,
    ],
)
def test_what_is_no_table_of_calls_is_refused(change: Any) -> None:
    functions, memory = Functions(error), np.zeros(2)
    good = functions.rows(COPY, 4, memory.ctypes.data, memory.ctypes.data + 8, 8)
    functions.walk([good, good[:0], good])
    with pytest.raises(ValueError, match="not a table of calls"):
        functions.walk([good, change(good), good])


def test_tables_copy_blocks_and_wait() -> None:
    functions = Functions(error)
    origin, to, all_of_it = np.arange(30, dtype=np.uint8), *np.zeros((2, 30), np.uint8)
    places = [int(array.ctypes.data) + np.array([20, 0, 10]) for array in (to, origin)]
    due = np.array([time.monotonic_ns() + 10**7])
    functions.bind([
        (COPY_LIST, (places[0].ctypes.data, places[1].ctypes.data, 7, 3)),
        (COPY, (all_of_it.ctypes.data, to.ctypes.data, 30)),
        (WAIT_UNTIL, (due.ctypes.data,)),
    ])()  # fmt: skip
    assert time.monotonic_ns() >= due[0]
    assert all_of_it.tolist() == [i * (i % 10 < 7) for i in range(30)]


def test_a_table_knows_the_functions_of_two_libraries() -> None:
    first, second = Functions(error, Library()), Functions(error, Library())
    second.table([("fails", ())])
    both = first.joined(second)
    with pytest.raises(BackendError, match="fails"):
        both.walk([second.table([("fails", ())]), first.table([]), first.table([])])
    with pytest.raises(AttributeError, match="absent"):
        both.address("absent")


def together(descriptor: int, count: int, **changes: Any) -> calls.Blocks:
    given: dict[str, Any] = {
        "writes": False, "descriptor": descriptor, "block": BLOCK, "origin": BLOCK,
        "order": np.array([2, 0, 1]), "first": 2, "count": count, "drawn": np.zeros(1, np.int64), "key": KEY,
    }  # fmt: skip
    return calls.Blocks(**given | changes)


def rows(count: int) -> tuple[list[Any], Any]:
    """Buffers, and results without a last block."""
    results = np.zeros((count, COLUMNS), np.int64)
    results[:, LAST] = -1
    return list(prepared.memory(count, BLOCK)), results


@pytest.fixture
def file(tmp_path: Path) -> Any:
    """A file of four blocks with their contents."""
    path = tmp_path / "file"
    path.write_bytes(words(KEY, 0, 4 * BLOCK // 8).tobytes())
    descriptor = os.open(path, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


def test_blocks_are_moved_in_order_and_compared(file: int) -> None:
    buffers, results = rows(1)
    os.pwrite(file, b"wrong", 4 * BLOCK - 8)  # the end of the last block
    blocks = together(file, 4)
    (move,) = calls.next_movers(blocks, buffers, results)
    found = []
    while move():
        found.append(int(results[0, LAST]))
    assert found == [2 * BLOCK, 3 * BLOCK, BLOCK, 2 * BLOCK]
    assert results[0, [ERROR, WRONG, FIRST_WRONG]].tolist() == [0, 1, 3 * BLOCK]
    assert calls.draw(blocks) == -1
    assert buffers[0].tolist() == words(KEY, 2 * BLOCK // 8, BLOCK // 8).tolist()


def test_ends_of_blocks_are_written(file: int) -> None:
    buffers, results = rows(1)
    buffers[0][:] = 9
    (move,) = calls.movers(together(file, 1, writes=True), buffers, results)
    move()
    assert 0 < results[0, START] < results[0, END]
    whole = np.frombuffer(os.pread(file, 4 * BLOCK, 0), np.uint64)
    expected = words(KEY, 0, 4 * BLOCK // 8)
    expected[2 * BLOCK // 8 + 1 : 3 * BLOCK // 8 - 1] = 9
    assert whole.tolist() == expected.tolist()


@pytest.mark.parametrize("way", ["calls", pytest.param("ring", marks=needs_ring)])
def test_errors_of_calls_are_noted(file: int, way: str) -> None:
    ring = prepared.Ring(1) if way == "ring" else None

    def result(descriptor: int) -> list[int]:
        buffers, results = rows(1)
        blocks = together(descriptor, 4)
        if ring:
            calls.ring_mover(blocks, ring.queues, buffers, results)()
        else:
            calls.movers(blocks, buffers, results)[0]()
        return [int(number) for number in results[0, [ERROR, AT, LAST]]]

    os.truncate(file, 3 * BLOCK + 100)
    assert result(file) == [SHORT, 3 * BLOCK, 2 * BLOCK]
    assert result(-1) == [errno.EBADF, 2 * BLOCK, -1]
    if ring:
        ring.close()


@needs_ring
@pytest.mark.parametrize("depth", [1, 3])
def test_a_ring_moves_every_block_once(file: int, depth: int) -> None:
    ring = prepared.Ring(depth)
    for writes in (True, False):
        buffers, results = rows(depth)
        for buffer in buffers:
            buffer[:] = 9
        drawn = np.zeros(1, np.int64)
        blocks = together(file, 300, writes=writes, drawn=drawn)
        calls.ring_mover(blocks, ring.queues, buffers, results)()
        assert results[:, [ERROR, WRONG]].tolist() == [[0, 0]] * depth
        assert drawn[0] == 301 and 0 < results[0, START] < results[0, END]
    whole = np.frombuffer(os.pread(file, 4 * BLOCK, 0), np.uint64)[BLOCK // 8 :].reshape(3, -1)
    assert (whole[:, 1:-1] == 9).all() and whole[:, 0].tolist() == words(KEY, 512, 1536)[::512].tolist()
    ring.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"block": 4100}, {"block": 0}, {"block": -8}, {"block": 2**31}, {"origin": -8}, {"first": -1},
        {"count": -1}, {"order": np.zeros(0, np.int64)}, {"order": np.zeros(3, np.int32)},
        {"order": np.zeros((2, 2), np.int64)}, {"order": np.zeros(6, np.int64)[::2]},
        {"drawn": np.zeros(2, np.int64)}, {"drawn": np.zeros(1)},
    ],
)  # fmt: skip
def test_wrong_blocks_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        together(0, **{"count": 1} | changes)


def test_wrong_buffers_and_results_are_refused() -> None:
    blocks = together(0, 1)
    buffers, results = rows(2)
    for wrong in (results[:1], results[:, :-1], results.astype(np.int32), np.asfortranarray(results)):
        with pytest.raises(ValueError):
            calls.movers(blocks, buffers, wrong)
    for short in (buffers[1][:-1], buffers[1].view(np.uint8), np.zeros(2 * BLOCK // 8, np.uint64)[::2]):
        with pytest.raises(ValueError):
            calls.next_movers(blocks, [buffers[0], short], results)
    for mask in (0, -1):
        with pytest.raises(ValueError, match="2 calls at a time"):
            calls.ring_mover(blocks, calls.Queues(submission_mask=mask), buffers, results)
