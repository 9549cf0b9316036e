"""Screens, help texts, pages and documentation use plain technical English."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "wirespeed"
#: A phrase that no reader may meet, as a pattern -> what to write.
WORDS = {
    r"(?<!, )\bso (many|much|long|small)\b(?! that)": "the number, amount or time itself",
    r"\b(is|are|was|were) told\b|\btold apart\b": "reported, distinguished",
    r"(?<!\bcannot )\b(tells?|telling)\b(?! which)": "shows, reports, distinguishes",
    r"\blet go\b|\bheld back\b": "released, limited",
    r"\bnothing tells\b|\bacts on nothing\b|\bmatters to nothing\b": "what it means",
    r"\bless than is normal\b|% of normal\b": "below the expected range",
    r"\bnodes to use\b": "usable",
    r"\bof them of pairs\b": "pairwise",
    r"\bgood node is suspected\b": "chance of flagging a healthy node",
    r"\bbuffer used before\b|\bsize of a buffer\b": "reused buffer, buffer size",
    r"\bchance does not explain\b|\bbeyond chance\b": "significant",
    r"\bclocks are held\b": "throttled",
    r"\bnoticed\b": "found",
    r"[Cc]hoose a (heading|value)": "click",
    r"[0-9] %(?! ?[a-z(}])": "95%, without a space",
}


def visible_texts(path: Path) -> Iterator[str]:
    """The texts of a module that are not docstrings: what it may show."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    hidden = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body and isinstance(node.body[0], ast.Expr)
    }  # fmt: skip
    hidden |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value
            and id(node) not in hidden
        ):
            yield node.value


def prose(text: str) -> str:
    """A page of the documentation without code, whose texts are those of programs."""
    text = re.sub(r"(?ms)^```.*?^```", "", text)
    text = re.sub(r"(?m)^    .*$", "", text)
    return re.sub(r"`[^`\n]*`", "", text)


def pages() -> list[Path]:
    docs = [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/reference/*.md")]
    return [*sorted(docs), ROOT / "README.md", ROOT / "SECURITY.md"]


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.stem)
def test_documentation(path: Path) -> None:
    assert found(prose(path.read_text(encoding="utf-8"))) == []


def test_newest_changes() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = text[text.index("## [") :]
    end = newest.find("\n## [", 1)
    assert found(prose(newest if end < 0 else newest[:end])) == []


def test_screens() -> None:
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        wrong += [
            f"{path.relative_to(SOURCE)}: {text}" for value in visible_texts(path) for text in found(value)
        ]
    assert wrong == []


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.html")), ids=lambda path: path.stem)
def test_pages(path: Path) -> None:
    assert found(path.read_text(encoding="utf-8")) == []


def found(text: str) -> list[str]:
    """The phrases of a text that are in the table, with what to write."""
    return [
        f"{text[max(0, match.start() - 40) : match.end() + 20]!r}: write {better}"
        for phrase, better in WORDS.items()
        for match in re.finditer(phrase, text)
    ]
