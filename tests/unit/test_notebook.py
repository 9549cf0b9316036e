"""The notebook of the documentation: its cells run, and its outputs are those that they have.

The cells are plain Python, so they run in this process. A Jupyter kernel would bring 33 packages and seconds
of start-up, to test only that Jupyter works.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"
#: Form of an object for a notebook -> the method that returns it.
FORMS = {"text/html": "_repr_html_", "image/png": "_repr_png_"}
#: Maximum size of an output, and of the notebook, in characters.
LARGEST, LARGEST_NOTEBOOK = 50_000, 300_000
Output = dict[str, Any]


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def shown(value: object) -> dict[str, Any]:
    """The forms in which a notebook keeps a value."""
    forms: dict[str, Any] = {"text/plain": lines(repr(value))}
    for form, method in FORMS.items():
        if found := getattr(value, method, lambda: None)():
            forms[form] = base64.b64encode(found).decode() if isinstance(found, bytes) else lines(found)
    return forms


def executed(source: str, names: dict[str, Any], count: int) -> list[Output]:
    """Run a cell, and return its outputs as Jupyter writes them."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {count}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {count}", "eval"), names)
    outputs: list[Output] = []
    if text := printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines(text)})
    if value is not None:
        about = {"execution_count": count, "metadata": {}, "output_type": "execute_result"}
        outputs.append({"data": shown(value), **about})
    return outputs


def text_of(outputs: list[Output]) -> list[tuple[str, ...]]:
    """The texts of outputs without dates, and which forms they have."""
    texts = ["".join(one.get("text") or one["data"]["text/plain"]) for one in outputs]
    undated = [re.sub(r"\d{4}-\d\d-\d\dT[\d:]+Z", "DATE", text) for text in texts]
    return [(text, *one.get("data", ())) for text, one in zip(undated, outputs, strict=True)]


@pytest.fixture
def notebook() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(NOTEBOOK.read_text())
    return found


@pytest.mark.long
def test_every_cell_runs_and_has_its_output(notebook: dict[str, Any], request: pytest.FixtureRequest) -> None:
    pytest.importorskip("pandas")
    names: dict[str, Any] = {}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    update = request.config.getoption("--update-golden")
    for count, cell in enumerate(cells, 1):
        outputs = executed("".join(cell["source"]), names, count)
        kept = cell["outputs"]
        varies = bool(kept) and "varies" in cell["metadata"].get("tags", ())
        if not varies and text_of(outputs) != text_of(kept):
            assert update, f"differs from the notebook, run `pytest --update-golden` and read it: {outputs}"
            cell |= {"outputs": outputs, "execution_count": count}
    if update:
        NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    assert len(cells) >= 10


def test_its_outputs_are_small_and_have_no_paths(notebook: dict[str, Any]) -> None:
    text = NOTEBOOK.read_text()
    assert len(text) < LARGEST_NOTEBOOK
    for cell in notebook["cells"]:
        outputs = cell.get("outputs", [])
        assert bool(outputs) == (cell["cell_type"] == "code"), cell["id"]
        assert all(len(json.dumps(one)) < LARGEST for one in outputs), cell["id"]
    assert not re.search("/home/|/root/|/tmp/|site-packages", text)
