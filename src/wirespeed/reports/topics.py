"""The documentation, which is part of the package: pages and sections by topic, for terminals and pages."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup


#: The page whose sections are topics, too: the causes.
_CAUSES = "causes"
#: The page of terms, each a paragraph that begins with the term.
_GLOSSARY = "glossary"
_TERM = re.compile(r"\*\*([^*]+)\*\* ((?:.+\n?)+)")
_PAGES = Path(str(files(__package__.partition(".")[0]))) / "docs"
_HEADING = re.compile(r"(#{1,6}) +(.+)")
IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]*)(#[^)\s]*)?\)")


@dataclass(frozen=True)
class Topic:
    """A page, or a section of it.

    Attributes:
        file: The page.
        anchor: Anchor of the section; empty for the whole page.
        title: The heading.
        text: What follows the heading, as Markdown.
    """

    file: Path
    anchor: str
    title: str
    text: str

    @property
    def name(self) -> str:
        """What ``wirespeed help`` shows it by."""
        return f"{self.file.stem}#{self.anchor}" if self.anchor else self.file.stem

    @property
    def link(self) -> str:
        """The address of the page, with the name of this host: a terminal may be on another one."""
        anchor = f"#{self.anchor}" if self.anchor else ""
        return f"file://{platform.node()}{self.file.resolve().as_uri().removeprefix('file://')}{anchor}"


def _files() -> dict[str, Path]:
    """The pages by their names, and those of the folder of reference tables."""
    return {path.stem: path for folder in (_PAGES, _PAGES / "reference") for path in folder.glob("*.md")}


def topics() -> list[str]:
    """The names of all pages."""
    return sorted(_files())


def causes() -> list[str]:
    """The names of the causes that have a section."""
    return [heading for level, heading, _ in _sections(_read(_CAUSES)) if level == 3 and " " not in heading]


def topic(name: str) -> Topic | None:
    """The page with this name, ``PAGE#ANCHOR``, or the section of a cause; None if there is none."""
    page, _, anchor = name.removeprefix("docs/").removeprefix("reference/").partition("#")
    page = page.removesuffix(".md")
    if page not in topics():
        if anchor or page not in causes():
            return None
        page, anchor = _CAUSES, page
    for _, heading, text in _sections(_read(page)):
        if not anchor or _slug(heading) == anchor:
            return Topic(_files()[page], anchor, heading, text)
    return None


def search(word: str) -> list[Topic]:
    """What the documentation says about a word, the best first: a term of the glossary, sections.

    Sections whose headings have the word come before those whose texts have it, the most often first.
    """
    at = re.compile(rf"(?<!\w){re.escape(word)}", re.IGNORECASE)
    terms = [
        Topic(_PAGES / f"{_GLOSSARY}.md", _slug(heading), entry[1].rstrip("."), f"{entry[1]} {entry[2]}")
        for level, heading, text in _sections(_read(_GLOSSARY)) if level > 1
        for entry in _TERM.finditer(text)
        if word.lower() in re.split(r", | ", entry[1].rstrip(".").lower())
    ]  # fmt: skip
    titled: list[Topic] = []
    mentioned: list[tuple[int, Topic]] = []
    for page in topics():
        for level, heading, text in _sections(_read(page)):
            found = Topic(_files()[page], _slug(heading) if level > 1 else "", heading, text)
            own = re.split(r"^#", text, maxsplit=1, flags=re.MULTILINE)[0]
            if at.search(heading):
                titled.append(found)
            elif page != _GLOSSARY and (count := len(at.findall(own))):
                mentioned.append((count, found))
    titled.sort(key=lambda found: not found.title.lower().startswith(word.lower()))
    mentioned.sort(key=lambda pair: -pair[0])
    return [*terms, *titled, *(found for _, found in mentioned)]


def markup(shown: Topic) -> Markup:
    """A topic as markup for a page, without its heading; references become plain text."""
    from markdown_it import MarkdownIt
    from markupsafe import Markup

    plain = LINK.sub(r"\1", IMAGE.sub("", shown.text))
    return Markup(MarkdownIt("commonmark", {"html": False}).enable("table").render(plain))


def _read(page: str) -> str:
    """A page; nothing of one that an installation lacks: what only explains an answer never costs it."""
    try:
        return _files()[page].read_text("utf-8", "replace")
    except (KeyError, OSError):
        return ""


def _sections(text: str) -> Iterator[tuple[int, str, str]]:
    """Level, heading and text of each section, with the sections below it."""
    lines, headings, is_code = text.splitlines(), [], False
    for i, line in enumerate(lines):
        is_code ^= line.startswith("```")
        if not is_code and (match := _HEADING.fullmatch(line)):
            headings.append((i, len(match[1]), match[2]))
    for k, (i, level, heading) in enumerate(headings):
        end = next((j for j, other, _ in headings[k + 1 :] if other <= level), len(lines))
        yield level, heading, "\n".join(lines[i + 1 : end]).strip("\n").rstrip()


def _slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
