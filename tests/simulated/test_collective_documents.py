"""What the Document of a run of collectives holds, and what the forms of nccl-tests make of changed ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wirespeed
from tests.reports.test_hostile import STRINGS, hostile
from wirespeed.cli.main import main
from wirespeed.document import CollectiveInfo, Document
from wirespeed.errors import DocumentError
from wirespeed.results import store

FORMATS = ("nccl-tests", "nccl-tests-json")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A Document with wrong data, times of iterations, time stamps and two types, as JSON has it."""
    path = tmp_path_factory.mktemp("documents") / "d.json"
    code = main([
        "all_reduce_perf", "--machine", "simulated:hgx-h200-2+corrupt", "-g", "2", "-b", "1K", "-e", "1M",
        "-f", "1024", "-n", "3", "-I", "1", "-S", "1", "-o", "all", "--output", str(path),
    ])  # fmt: skip
    assert code == 7
    found: dict[str, Any] = json.loads(path.read_text())
    found |= {"device_memory": {"Initialization": 3 * 2**30}, "libraries": {"nccl": "2.28.9"}}
    return found


def changed(plain: Any, **more: Any) -> Any:
    return json.loads(json.dumps(plain)) | more


def document(plain: Any) -> Document:
    return store.decode(json.dumps(plain).encode(), "d.json")


def shown(plain: Any) -> list[str]:
    """Both forms, or the one line that is there in place of one."""
    texts = []
    for name in FORMATS:
        try:
            texts.append(wirespeed.render(document(plain), name))
        except DocumentError as error:
            texts.append(str(error))
            assert "\n" not in texts[-1] and "--format table" in texts[-1]
    return texts


def test_a_document_has_fields_for_all_that_the_forms_show(plain: Any) -> None:
    found = document(plain)
    first = found.testcases[0]
    assert first.collective == CollectiveInfo("all_reduce", "float", 2, "sum", -1)
    assert [cell.wrong for cell in first.tables[0].cells] == [1, 1, 1, 1]
    assert {cell.wrong for table in first.tables[1:] for cell in table.cells} == {None}
    ranks = [(r.rank, r.group, r.device, r.bus_id, r.model) for r in found.ranks]
    assert ranks == [(i, 0, i, f"00000000:0{i + 1}:00", "NVIDIA H200") for i in range(2)]
    assert "GPU memory usage     : Initialization 3.00 GB | Total  3.00 GB" in shown(plain)[0]


def test_elements_that_were_not_verified_are_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--machine", "simulated:hgx-h200-2", "-g", "2", "-b", "1K", "-e", "1K", "--format", "json"]
    for name, more, wrong in (("all_reduce", [], [0, 0]), ("alltoall", [], [0, None]),
                              ("all_reduce", ["-c", "0"], [None, None])):  # fmt: skip
        assert main([f"{name}_perf", *arguments, *more]) == 0
        found = json.loads(capsys.readouterr().out)
        assert [cell.get("wrong") for cell in found["testcases"][0]["tables"][0]["cells"]] == wrong


def test_no_sentence_is_read(plain: Any) -> None:
    other = changed(plain)
    for result in other["testcases"]:
        for cell in (cell for table in result["tables"] for cell in table["cells"]):
            cell["reason"] = "it is said in other words"
    assert shown(other) == shown(plain)
    other["ranks"][0] |= {"model": "] Group x", "host": "a b", "bus_id": "["}
    text, found = shown(other)
    assert "[[] ] Group x" in text and json.loads(found)["config"]["devices"][0]["device_info"] == "] Group x"


def test_a_line_cannot_be_forged(plain: Any) -> None:
    other = changed(plain)
    forged = "x\n        2048           512     float     sum      -1"
    other["options"]["transport"] = other["ranks"][0]["model"] = other["testcases"][0]["reason"] = forged
    assert "\n        2048" not in shown(other)[0]


@pytest.mark.parametrize("kind", STRINGS)
def test_hostile_words_are_shown_or_refused(plain: Any, kind: str) -> None:
    whole = hostile(changed(plain), STRINGS[kind])
    whole["machine"]["links"] = plain["machine"]["links"]  # others end nowhere: the run is refused
    shown(whole)
    whole["options"] = plain["options"]
    shown(whole)
    for mine, result in zip(whole["testcases"], plain["testcases"], strict=True):
        mine["collective"] = result["collective"]
        for table, original in zip(mine["tables"], result["tables"], strict=True):
            table["key"] = original["key"]
    assert "Collective test starting: all_reduce_perf" in shown(whole)[0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d["options"].pop("ranks"), "missing required field `ranks`"),
        (lambda d: d["options"].update(skip="three"), "Expected `int`, got `str`"),
        (lambda d: d["options"].update(skip=3), "has no times of iterations"),
        (lambda d: d["testcases"][0]["collective"].update(operation="all_rduce"), "'all_rduce' of 'float'"),
        (lambda d: d["testcases"][0]["collective"].update(ranks=0), "over 0 ranks"),
        (lambda d: d["testcases"][0]["collective"].update(ranks=2**62), "which is not a collective"),
        (lambda d: d["testcases"][0]["tables"].pop(2), "has no tables of time, algorithm and bus bandwidth"),
    ],
)  # fmt: skip
def test_what_cannot_be_shown_is_one_clear_line(plain: Any, change: Any, says: str) -> None:
    other = changed(plain)
    change(other)
    assert all(says in text for text in shown(other))


def test_the_command_says_so_in_one_line(
    plain: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, path = changed(plain), tmp_path / "d.json"
    del other["options"]["ranks"]
    path.write_text(json.dumps(other))
    for name in FORMATS:
        assert main(["show", str(path), "--format", name]) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and len(captured.err.splitlines()) == 1


_WORD = st.text(max_size=9)
_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), _WORD,
    st.lists(_WORD, max_size=3), st.dictionaries(_WORD, st.integers(), max_size=2),
)  # fmt: skip


@given(data=st.data())
def test_a_changed_document_is_shown_or_refused(plain: Any, data: st.DataObject) -> None:
    other = changed(plain)
    del other["testcases"][1:]
    at: Any = {name: other[name] for name in ("options", "testcases", "ranks", "device_memory", "libraries")}
    while True:  # a way from the top to some value
        keys = sorted(at) if isinstance(at, dict) else range(len(at))
        key = data.draw(st.sampled_from(list(keys)))
        if not isinstance(at[key], (dict, list)) or not at[key] or data.draw(st.integers(0, 9)) == 0:
            break
        at = at[key]
    at[key] = data.draw(_VALUES)
    for name in FORMATS:
        try:
            wirespeed.render(document(other), name)
        except DocumentError as error:
            assert "\n" not in str(error)
