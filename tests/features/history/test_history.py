"""The history of a machine: what changed, since when, and a file that survives what happens to files."""

from __future__ import annotations

import json
import multiprocessing
import resource
import sqlite3
import zlib
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import numpy as np
import pytest

import wirespeed
from benchmarks.history import told, year
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.errors import StorageError
from wirespeed.features.history.change_points import courses, threshold
from wirespeed.features.history.events import MachineHistory, judged
from wirespeed.features.history.history_file import History, Past, add
from wirespeed.features.history.location import DamagedHistory, unpacked
from wirespeed.features.history.page import history_page
from wirespeed.features.history.text import FORMATS, sparkline
from wirespeed.reports.style import Style
from wirespeed.results.store import save
from wirespeed.thresholds.changes import FEWEST_RUNS

NOISE = 0.01


def series(*levels: tuple[int, float], noise: float = NOISE, seed: int = 3) -> np.ndarray:
    """A series of one cell: numbers of runs and their levels."""
    runs = np.concatenate([np.full(count, level) for count, level in levels])
    return (runs * np.exp(np.random.default_rng(seed).normal(0, noise, len(runs))))[:, None]


def test_a_drop_is_found_where_it_is() -> None:
    (course,) = courses(series((60, 100.0), (40, 95.0)))
    assert [abs(level.start - 60) <= 2 for level in course.levels[1:]] == [True]
    assert course.levels[1].value / course.levels[0].value == pytest.approx(0.95, abs=0.01)


def test_a_dip_has_a_beginning_and_an_end() -> None:
    (course,) = courses(series((700, 100.0), (12, 90.0), (700, 100.0)))
    assert [abs(level.start - at) <= 1 for level, at in zip(course.levels[1:], (700, 712), strict=True)]


@pytest.mark.parametrize("runs", [FEWEST_RUNS, 20, 200])
def test_noise_is_no_change(runs: int) -> None:
    logs = np.random.default_rng(11).normal(0, NOISE, (runs, 1000))
    found = courses(np.exp(logs))
    assert sum(len(course.levels) > 1 or course.slope != 0 for course in found) <= 5


def test_single_disturbed_runs_are_no_change() -> None:
    values = series((100, 100.0))
    values[[10, 40, 41, 77]] *= 0.6
    assert len(courses(values)[0].levels) == 1


def test_a_slow_drift_is_no_row_of_steps() -> None:
    (course,) = courses(series((200, 100.0)) * np.linspace(1, 0.96, 200)[:, None])
    assert len(course.levels) == 1 and course.slope == pytest.approx(-0.04, abs=0.01)


def test_equal_values_and_few_runs_are_no_change() -> None:
    assert len(courses(np.full((50, 2), 7.0))[0].levels) == 1
    assert len(courses(series((3, 100.0), (3, 50.0)))[0].levels) == 1


@pytest.fixture(scope="module")
def told_year(tmp_path_factory: pytest.TempPathFactory) -> MachineHistory:
    file = tmp_path_factory.mktemp("year") / "history.sqlite"
    with closing(History(file)) as store:
        for document in year(60, np.random.default_rng(2)):
            store.add(document)
    with closing(History(file)) as store:
        return judged(store.past(store.machines()[0]))


def test_a_year_is_told(told_year: MachineHistory) -> None:
    assert told(told_year) == []
    link = next(event for event in told_year.events if "gpu3" in str(event.culprits))
    assert link.lasts and link.ratio == pytest.approx(0.84, abs=0.01) and len(link.cells) == 56
    slow = next(event for event in told_year.events if event.is_worse and not event.lasts)
    assert slow.ratio == pytest.approx(0.96, abs=0.01) and not slow.culprits
    assert [kind.name for kind in slow.kinds] == ["host_gpu"]


def test_its_page_and_its_json_say_the_same(told_year: MachineHistory) -> None:
    text = history_page(told_year)
    assert text.count('class="axis"') >= 4 * len(told_year.kinds) and "speed, % of the highest" in text
    assert text.count("<polyline") >= len(told_year.kinds) and "gpu3-nvswitch" in text
    assert "580.159 → 590.44" in text and "http" not in text.partition("<main")[2]
    data = json.loads(FORMATS["json"](told_year, Style(80)))
    assert len(data["changes"]) == len(told_year.events) and data["runs"] == 60
    assert {kind["kind"] for kind in data["kinds"]} == {"host_gpu", "gpu_gpu", "gpu_memory"}


def nights(*faults: str) -> Past:
    """The runs of a machine, one each night, with the faults of each."""
    prefixes = ["host_to_device_memcpy_ce", "device_to_device_memcpy_write"]
    with closing(History(None)) as store:
        for i, fault in enumerate(faults):
            run = wirespeed.run(prefixes=prefixes, machine=f"simulated:dgx-a100-8{fault}", seed=i, samples=3)
            store.add(msgspec.structs.replace(run, started=f"2026-11-{i + 1:02}T04:30:00Z"))
        return store.past(store.machines()[0])


HALF = "+speed@gpu3=0.5"


def test_few_runs_are_not_judged() -> None:
    few = judged(nights(*[""] * (FEWEST_RUNS - 1)))
    assert not any(kind.is_judged for kind in few.kinds) and not few.events
    text = FORMATS["text"](few, Style(120))
    assert "steady" not in text and "not judged (7 of 8 runs)" in text
    assert "not judged: 7 runs, 8 are needed to detect a change" in text
    assert "NOT JUDGED" in history_page(few) and "STEADY" not in history_page(few)
    assert {kind["judged"] for kind in json.loads(FORMATS["json"](few, Style(80)))["kinds"]} == {False}


def test_enough_runs_without_a_change_are_steady() -> None:
    enough = judged(nights(*[""] * FEWEST_RUNS))
    text = FORMATS["text"](enough, Style(120))
    assert all(kind.is_judged for kind in enough.kinds) and not enough.events
    assert text.count("steady") == 2 and "not judged" not in text and "STEADY" in history_page(enough)


@pytest.mark.parametrize("faults", [("",) * 3 + (HALF,) * 3, ("",) * 3 + (HALF,), ("",) * 9 + (HALF,)])
def test_a_fall_of_the_newest_run_is_named_with_its_device(faults: tuple[str, ...]) -> None:
    found = judged(nights(*faults))
    (event,) = found.events
    assert event.is_newest and event.lasts and event.run == len(faults) - 1
    assert event.culprits == ("gpu3",) and event.ratio == pytest.approx(0.5, abs=0.01)
    text, page = FORMATS["text"](found, Style(200)), history_page(found)
    assert "in the newest run, 2026-11" in text and "gpu3 (" in text and "steady" not in text
    assert "CHANGED" in page and "gpu3 (" in page and ", in the newest run" in page
    data = json.loads(FORMATS["json"](found, Style(80)))
    assert data["changes"][0]["newest"] and {kind["failing"] for kind in data["kinds"]} != {0}


@pytest.mark.parametrize(("factor", "is_named"), [(0.94, True), (0.96, False)])
def test_the_newest_run_falls_by_more_than_the_tolerance_of_check(factor: float, is_named: bool) -> None:
    past = nights(*[""] * 6)
    values = past.values[0] * np.exp(np.random.default_rng(1).normal(0, 1e-3, past.values.shape))
    values[-1, :3] = past.values[0, :3] * factor
    assert bool(judged(replace(past, values=values)).events) is is_named


def test_the_newest_run_is_compared_with_the_level_before_it() -> None:
    """A machine that became slower long ago did not fall in its newest run."""
    found = judged(nights(*[""] * 6, *[HALF] * 4))
    assert [(event.is_newest, event.run) for event in found.events] == [(False, 6)]


def test_the_rate_beside_a_change_is_that_which_changed() -> None:
    found = judged(nights(*[""] * 9, HALF))
    shown = {kind.kind.name: (found.value(kind), kind.last) for kind in found.kinds}
    assert all(changed == pytest.approx(last / 2, rel=0.05) for changed, last in shown.values())
    line = next(s for s in FORMATS["text"](found, Style(200)).splitlines() if s.startswith("host"))
    assert f"{shown['host_gpu'][0] / 1e9:.1f} GB/s" in line and "−50" in line


def test_charts_have_axes_and_times() -> None:
    page = history_page(judged(nights(*[""] * 8, HALF)))
    assert (
        ">100%</text>" in page and ">2026-11-01 04:30</text>" in page and ">2026-11-09 04:30</text>" in page
    )
    assert "Times are in UTC" in page


def test_a_sparkline_shows_drops_not_noise() -> None:
    assert sparkline([1.0, 1.0, 0.5, 0.5], 4) == "██▁▁"
    assert sparkline([1.0, 0.999], 2) == "██"
    assert sparkline([1.0, float("nan"), 1.0], 3) == "█ █"


@pytest.fixture
def document() -> Document:
    return wirespeed.run(["device_local_copy", "host_to_device_memcpy_ce"], machine="simulated:hgx-h200-2")


def test_a_gpu_that_moves_keeps_the_history_of_its_memory(document: Document) -> None:
    first = msgspec.structs.replace(document, started="2026-11-01T00:00:00+00:00")
    elsewhere = replace(document.machine, host="other")
    moved = msgspec.structs.replace(document, machine=elsewhere, started="2026-11-02T00:00:00+00:00")
    history = History(None)
    for run in (first, moved):
        history.add(run)
    assert len(history.machines()) == 2
    past = history.past(history.machines()[0])
    counts = {cell.testcase: int((~np.isnan(past.values[:, i])).sum()) for i, cell in enumerate(past.cells)}
    assert counts == {"device_local_copy": 2, "host_to_device_memcpy_ce": 1}
    history.close()


def test_values_that_fail_in_the_latest_run_are_counted() -> None:
    slow = wirespeed.run(["host_to_device_memcpy_ce"], machine="simulated:hgx-h200-2+speed@gpu1=0.5")
    bad = {one.key: one.verdict.value for one in wirespeed.judge(slow).judgements if one.verdict.is_bad}
    with closing(History(None)) as history:
        history.add(slow, "fail", bad)
        found = judged(history.past(history.machines()[0]))
    assert [kind.failing for kind in found.kinds] == [1]
    assert "below expectations: 1 value" in FORMATS["text"](found, Style(120))
    assert "below expectations: 1 value" in history_page(found)


def test_a_run_is_added_once(document: Document) -> None:
    history = History(None)
    assert [history.add(document) for _ in range(2)] == [True, False]
    assert len(history.past(history.machines()[0]).runs) == 1
    history.close()


def _write(file: Path, document: Document, worker: int) -> None:
    for i in range(8):
        add(
            file, msgspec.structs.replace(document, started=f"2026-11-25T10:{worker:02}:{i:02}+00:00"), "pass"
        )


def test_processes_write_at_once_without_loss(tmp_path: Path, document: Document) -> None:
    file = tmp_path / "history.sqlite"
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_write, args=(file, document, i)) for i in range(5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        worker.close()
    with closing(History(file)) as history:
        assert len(history.past(history.machines()[0]).runs) == 40


def _damaged(file: Path) -> None:
    file.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 20)


def _newer(file: Path) -> None:
    with closing(sqlite3.connect(file)) as base:
        base.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_damaged, r"is damaged: .* kept as"),
        (lambda file: file.write_text("not a history, but long enough " * 50), "not a database; it is kept"),
        (_newer, "newer version of wirespeed"),
        (Path.mkdir, "it is not a regular file; give --history FILE"),
    ],
)  # fmt: skip
def test_a_bad_file_is_named(tmp_path: Path, make: object, why: str, document: Document) -> None:
    file = tmp_path / "history.sqlite"
    make(file)  # type: ignore[operator]
    with pytest.raises(StorageError, match=why) as caught:
        add(file, document, "")
    assert str(file) in str(caught.value) and "\n" not in str(caught.value)


def test_a_run_that_cannot_be_read_is_named(tmp_path: Path, document: Document) -> None:
    """Such as one with devices of a package that is gone."""
    file = tmp_path / "history.sqlite"
    add(file, document, "")
    with closing(sqlite3.connect(file)) as base, base:
        base.execute("UPDATE machine SET latest = ?", (zlib.compress(b'{"wirespeed": 2}'),))
    with closing(History(file)) as history, pytest.raises(StorageError, match="is damaged: the latest run"):
        history.past(history.machines()[0])


def _on_a_full_disk(file: Path, document: Document) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384))
    try:
        add(file, document, "")
    except StorageError as error:
        file.with_suffix(".txt").write_text(str(error))


def test_a_full_disk_is_named(tmp_path: Path, document: Document) -> None:
    file = tmp_path / "history.sqlite"
    process = multiprocessing.get_context("fork").Process(target=_on_a_full_disk, args=(file, document))
    process.start()
    process.join()
    process.close()
    assert str(file) in file.with_suffix(".txt").read_text()


RUN = ("run", "-q", "--size", "1MiB")


def run(*arguments: str) -> int:
    return main(["run", "-t", "host_stream_copy", "--size", "16MiB", "--time-budget", "20ms", *arguments])


def test_runs_of_this_machine_add_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["history"]) == 2 and "there is no history" in capsys.readouterr().err
    for i in range(4):
        assert run("-o", f"{i}.json") == 0
    assert run("--no-history", "-o", "no.json") == 0
    assert run("--machine", "simulated:cpu-2-sockets", "-o", "s.json") == 0
    capsys.readouterr()
    assert main(["history"]) == 0
    shown = capsys.readouterr().out
    needed = "are needed to detect a change"
    assert "4 runs" in shown and (needed in shown or "no value counts" in shown)  # if it is busy
    assert main(["history", "0.json", "1.json", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == 2
    assert main(["history", "-o", "page.html"]) == 0 and "4 runs" in Path("page.html").read_text()


def test_a_history_that_cannot_be_written_costs_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("--history", str(tmp_path / "none/history.sqlite"), "-o", "a.json") == 0
    said = capsys.readouterr().err
    assert "this run is not in the history" in said and Path("a.json").exists()


def _day(ago: float) -> str:
    return (datetime.now(UTC) - timedelta(days=ago)).isoformat(timespec="seconds")


def test_check_judges_by_the_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    healthy = wirespeed.run(["host_to_device_memcpy_ce"], machine="simulated:hgx-h200-2")
    file = tmp_path / "h.sqlite"
    for i in range(1, 6):
        add(file, msgspec.structs.replace(healthy, started=_day(i)), "pass")
    slow = wirespeed.run(["host_to_device_memcpy_ce"], machine="simulated:hgx-h200-2+speed@gpu1=0.9")
    save(slow, "slow.json")
    arguments = ["check", "--from", "slow.json", "--allow-simulated", "--history", str(file)]
    assert main([*arguments, "--since", "30d"]) == 1
    assert main([*arguments, "--since", "30d", "--baseline", "x.json"]) == 2
    assert "give one" in capsys.readouterr().err


@pytest.mark.parametrize(
    "past", ["none", "missing", "empty", "two runs", "damaged", "future", "other machine"]
)
def test_without_a_past_the_other_criteria_judge(
    past: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lack of one criterion never replaces the verdict of the others, and is named."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "history.sqlite"
    healthy = wirespeed.run(["host_to_device_memcpy_ce"], machine="simulated:hgx-h200-2")
    runs = {"two runs": (1, 2), "future": (-365 * 70, -1e4, -9e3, -8e3)}.get(past, ())
    if past == "empty":
        file.touch()
    elif past == "damaged":
        _damaged(file)
    elif past == "other machine":
        for i in range(4):
            other = replace(healthy.machine, host="another")
            add(
                file, msgspec.structs.replace(healthy, host="another", machine=other, started=_day(i)), "pass"
            )
    for ago in runs:
        add(file, msgspec.structs.replace(healthy, started=_day(ago)), "pass")
    save(
        wirespeed.run(["host_to_device_memcpy_ce"], machine="simulated:hgx-h200-2+speed@gpu1=0.4"), "bad.json"
    )
    save(healthy, "good.json")
    named = ["--since", "30d", "--history", past if past == "none" else str(file)]
    for run, code in (("bad.json", 1), ("good.json", 0)):
        assert main(["check", run, "--allow-simulated", *named]) == code
        assert "not judged by the history: " in " ".join(capsys.readouterr().out.split())
    assert main(["check", "bad.json", "--allow-simulated", *named, "--format", "json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["runs"]
    assert found["lacking"][0].startswith("not judged by the history: ")
    assert main(["check", "bad.json", "--allow-simulated", *named, "--for", "slurm"]) == 1
    assert file.exists() is (past not in ("none", "missing"))


def test_a_wrong_clock_does_not_hide_later_runs(tmp_path: Path, document: Document) -> None:
    """Runs of 2099 are neither the latest nor in the past of others."""
    file = tmp_path / "history.sqlite"
    for ago in (4, 3, -365 * 70, 2, 1):
        add(file, msgspec.structs.replace(document, started=_day(ago), command=str(ago)), "pass")
    with closing(History(file)) as history:
        past = history.past(history.machines()[0])
    assert len(past.runs) == 4 and past.latest.command == "1"


def test_an_older_run_is_not_the_latest(tmp_path: Path, document: Document) -> None:
    file = tmp_path / "history.sqlite"
    for ago in (2, 1, 3):
        add(file, msgspec.structs.replace(document, started=_day(ago), command=str(ago)), "pass")
    with closing(History(file)) as history:
        assert history.past(history.machines()[0]).latest.command == "1"


def test_values_of_busy_devices_are_no_history(tmp_path: Path, document: Document) -> None:
    busy = tuple(msgspec.structs.replace(result, busy={"gpu0": "used"}) for result in document.testcases)
    file = tmp_path / "history.sqlite"
    add(file, msgspec.structs.replace(document, started=_day(2)), "pass")
    add(file, msgspec.structs.replace(document, testcases=busy, started=_day(1)), "busy")
    with closing(History(file)) as history:
        past = history.past(history.machines()[0])
    of_gpu0 = [
        i for i, cell in enumerate(past.cells) if "gpu0" in (past.key(cell).row, past.key(cell).column)
    ]
    assert of_gpu0 and np.isnan(past.values[1, of_gpu0]).all() and not np.isnan(past.values[0]).any()


def test_a_history_without_values_is_two_paragraphs(tmp_path: Path, document: Document) -> None:
    devices = [device.name for device in document.machine.devices]
    busy = dict.fromkeys(devices, "used")
    results = tuple(msgspec.structs.replace(result, busy=busy) for result in document.testcases)
    file = tmp_path / "history.sqlite"
    add(file, msgspec.structs.replace(document, testcases=results, started=_day(1)), "busy")
    with closing(History(file)) as history:
        shown = FORMATS["text"](judged(history.past(history.machines()[0])), Style())
    head, empty, said = shown.rstrip().split("\n", 2)
    assert "1 run" in head and not empty and said.startswith("no value counts: in all runs")


#: What one UPDATE makes of a healthy history.
DAMAGES = {
    "cells of another shape": "UPDATE layout SET cells = '[[1, 2]]'",
    "cells that are no list": "UPDATE layout SET cells = '7'",
    "texts that are numbers": """UPDATE setting SET texts = '{"driver": 1}'""",
    "texts with Infinity": """UPDATE setting SET texts = '{"driver": Infinity}'""",
    "no time": "UPDATE run SET started = NULL",
    "no ISO 8601": "UPDATE run SET started = 'yesterday'",
    "a verdict on a cell that is not there": """UPDATE run SET verdicts = '{"fail": [99999]}'""",
    "verdicts that are no lists": """UPDATE run SET verdicts = '[1]'""",
    "deep verdicts": "UPDATE run SET verdicts = '" + "[" * 5000 + "]" * 5000 + "'",
    "fewer numbers": "UPDATE run SET numbers = x'00'",
    "numbers of zero": "UPDATE run SET numbers = zeroblob(length(numbers))",
    "numbers that are nan": "UPDATE run SET numbers = replace(hex(numbers), '00', 'ff')",
    "a layout that is not there": "UPDATE run SET layout = 77",
    "a setting that is not there": "UPDATE run SET setting = 77",
    "no latest run": "UPDATE machine SET latest = NULL",
    "a text as the latest run": "UPDATE machine SET latest = 'run'",
    "an identity that is no list": "UPDATE machine SET identity = '7'",
    "an identity without a name": "UPDATE machine SET identity = '[]'",
    "an endless view": "ALTER TABLE run RENAME TO old; CREATE VIEW run AS WITH RECURSIVE n(i) AS "
    "(SELECT 1 UNION ALL SELECT i FROM n) SELECT i AS machine FROM n",
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON run BEGIN DELETE FROM run; END",
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_history_is_named_and_kept_aside(
    damage: str, tmp_path: Path, document: Document, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line; the run begins a new history."""
    file = tmp_path / "history.sqlite"
    for ago in (3, 2):
        add(file, msgspec.structs.replace(document, started=_day(ago)), "pass")
    with closing(sqlite3.connect(file)) as base:
        base.executescript(DAMAGES[damage])
    assert main(["history", "--history", str(file), "--host", document.hostname]) in (2, 5)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "Traceback" not in said
    said = r"is damaged: \S+ \S+ .*; it is kept as .*, and a new one begins"
    with pytest.raises(DamagedHistory, match=said):
        add(file, msgspec.structs.replace(document, started=_day(1)), "pass")
    with closing(History(file)) as history:
        assert len(history.past(history.machines()[0]).runs) == 1
    assert len(list(tmp_path.glob("history.sqlite.damaged-*"))) == 1


def test_a_latest_run_is_unpacked_up_to_a_limit(tmp_path: Path, document: Document) -> None:
    file = tmp_path / "history.sqlite"
    add(file, document, "pass")
    bomb = zlib.compress(b" " * (2**26 + 1), 9)
    with closing(sqlite3.connect(file)) as base, base:
        base.execute("UPDATE machine SET latest = ?", (bomb,))
    with closing(History(file)) as history, pytest.raises(DamagedHistory, match="more than 64 MiB"):
        history.past(history.machines()[0])
    assert unpacked(zlib.compress(b" " * 2**26)) == b" " * 2**26


def test_too_many_values_are_not_looked_at(
    tmp_path: Path, document: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "history.sqlite"
    add(file, document, "pass")
    with closing(History(file)) as history:
        size = len(history.past(history.machines()[0]).cells)
        monkeypatch.setattr("wirespeed.features.history.history_file._MOST_VALUES", size)
        history.past(history.machines()[0])
        monkeypatch.setattr("wirespeed.features.history.history_file._MOST_VALUES", size - 1)
        with pytest.raises(DamagedHistory, match="too many"):
            history.past(history.machines()[0])


def _judged_values(document: Document, values: np.ndarray) -> MachineHistory:
    """A history of copies from the host to as many GPUs as values have columns, a row for each run."""
    with closing(History(None)) as history:
        history.add(document)
        past = history.past(history.machines()[0])
    cells = [cell for cell in past.cells if cell.testcase == "host_to_device_memcpy_ce"]
    runs, columns = values.shape
    wide = tuple(cells[0]._replace(column=f"other{i}") for i in range(columns))
    return judged(replace(past, runs=past.runs * runs, cells=wide, values=values, halves=values * np.nan))


@pytest.mark.parametrize(("step", "counts"), [(0.987, False), (0.986, True)])
def test_a_weak_change_of_one_of_many_values_does_not_count(
    document: Document, step: float, counts: bool
) -> None:
    """With 100 values, chance makes one of them change as much as the weaker one does."""
    values = np.full((60, 100), 100.0)
    values[:, :1] = series((30, 100.0), (30, 100.0 * step))
    (course,) = courses(values[:, :1])
    assert threshold(60) < course.levels[1].strength
    assert (threshold(60, 100) < course.levels[1].strength) is counts
    assert len(_judged_values(document, values).events) == counts


@pytest.mark.parametrize(("returned", "is_back"), [(2, False), (3, True)])
def test_a_change_is_over_once_most_of_its_values_are_back(
    document: Document, returned: int, is_back: bool
) -> None:
    """Of four."""
    values = np.full((60, 4), 100.0)
    values[20:] = 80.0
    values[40:, :returned] = 100.0
    (slow,) = (event for event in _judged_values(document, values).events if event.is_worse)
    assert len(slow.cells) == 4 and slow.lasts is not is_back
