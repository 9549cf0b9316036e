"""Files of measurements, in TOML."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ...errors import UsageError
from ...hardware.topology import Machine
from ...measurement import Expectation, Unit
from ...results import baseline
from ...results.baseline import TOLERANCE
from ...statistics import grouped
from ...tables import LARGEST
from ...terminal import neutral, unknown_name
from ...testcases.table import Layout, Testcase
from ...units import parse_duration, parse_rate, parse_sizes
from .parser import parse, parse_devices
from .program import (
    COUNTS,
    LINE,
    REDUCTIONS,
    Definition,
    ExpectedCell,
    ExpectText,
    MeasurementText,
    TestcaseText,
    WantedValues,
)
from .syntax import Line, RunSetting, Source, contents, nearest, section


class _TransferFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    measurement: tuple[MeasurementText, ...] = ()
    testcase: tuple[TestcaseText, ...] = ()


@dataclass(frozen=True)
class Program:
    """The testcases of a file or a line, and the settings of the run that it contains.

    Attributes:
        testcases: The testcases.
        text: The text as a file, for the Document.
        lines: The parsed lines.
    """

    testcases: tuple[Testcase, ...]
    text: str
    lines: tuple[Line, ...]

    def settings(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of the run that the lines contain: option -> value.

        Args:
            options: Options of the run.

        Raises:
            LanguageError: If two lines, or a line and an option, contain different values.
        """
        settings: dict[str, RunSetting] = {}
        for line in self.lines:
            for setting in line.settings:
                values = (settings.setdefault(setting.name, setting).value, options.get(setting.name))
                if other := [value for value in values if value not in (None, setting.value)]:
                    raise line.source.error(
                        f"this applies to the whole run, which already has {setting.name} {other[0]}",
                        *setting.span,
                    )
        return {name: setting.value for name, setting in settings.items()}


def of_line(text: str) -> Program:
    """The testcase of one line of transfers.

    Raises:
        LanguageError: If it is invalid.
    """
    line = parse(text)
    file = "\n".join(section("measurement", name=LINE, transfers=text)) + "\n"
    case = TestcaseText(LINE, counts=COUNTS).testcase((Definition(MeasurementText(LINE), line),))
    return Program((case,), file, (line,))


def load(path: str | Path) -> Program:
    """Load the testcases of a TOML file.

    Raises:
        UsageError: If the file cannot be read or is invalid; with line and column where they are known.
    """
    return loads(contents(path), str(path))


def loads(text: str, name: str = "", *, judged: bool = True) -> Program:
    """The testcases of a text in TOML.

    Args:
        text: The text.
        name: Name of its file, for errors, and to find the baselines that it names.
        judged: Whether to read the baselines of ``like``; without it, no other file is read.

    Raises:
        UsageError: If it is invalid.
    """
    where = name or "the text"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Source(text, name).error("the character is not a Unicode character", error.start) from error
    try:
        content = neutral(tomllib.loads(text), but="transfers")
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{where} is not valid TOML: {error}") from error
    except ValueError as error:  # very long numbers
        raise UsageError(f"{where} is not valid: {error}") from error
    if wrong := unknown_name(content, _TransferFile):
        raise UsageError(f"{where}{_section(text, f'$.{wrong.place}')} is not valid: {wrong}")
    try:
        parsed = msgspec.convert(content, _TransferFile)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}{_section(text, str(error))} is not valid: {error}") from error
    reader = _FileReader(text, name, judged)
    named = [(entry.name, reader.definition(i, entry)) for i, entry in enumerate(parsed.measurement)]
    if not named:
        raise UsageError(f"{where} has no measurement; add [[measurement]] with a name and transfers")
    about = {section.name: section for section in parsed.testcase}
    if unknown := about.keys() - {name for name, _ in named}:
        raise UsageError(f"{where}: no measurement has the name of the testcase {min(unknown)!r}")
    cases = []
    for key, definitions in grouped(named).items():
        section = about.get(key) or TestcaseText(key, counts=COUNTS)
        for layout in section.table:
            if why := _invalid(layout):
                raise UsageError(f"{where}: the table {layout.key!r} of {key!r} {why}")
        cases.append(section.testcase(definitions))
    return Program(tuple(cases), text, tuple(reader.lines))


def _invalid(layout: Layout) -> str:
    """Why a table cannot be filled; empty if it can."""
    for axis in (layout.rows, layout.columns):
        if axis.values and len(axis.values) != len(axis.labels):
            return f"has {len(axis.labels)} labels, but {len(axis.values)} values"
        if not all(0 <= value <= LARGEST for value in axis.values):
            return f"has a value that is not from 0 to {LARGEST:g}"
    if layout.engine is not None and set(re.findall(r"[{}]", layout.title.replace("{engine}", ""))):
        return "has a title with braces other than {engine}"
    return ""


def _section(text: str, error: str) -> str:
    """The line of the section that an error of msgspec names: ``, line 7``."""
    if match := re.search(r"\$\.(measurement|testcase)\[(\d+)\]", error):
        headings = list(re.finditer(rf"^\s*\[\[\s*{match[1]}\s*\]\]", text, re.MULTILINE))
        if int(match[2]) < len(headings):
            start = headings[int(match[2])].start()
            line = text.count("\n", 0, start) + 1 + (text[start : start + 1] == "\n")
            return f", line {line}"
    return ""


class _FileReader:
    """Reads the measurements of one file."""

    def __init__(self, text: str, name: str, judged: bool) -> None:
        self.text, self.name, self.judged = text, name, judged
        self.lines: list[Line] = []
        self._at, self._row = 0, 1

    def source(self, text: str) -> Source:
        """A string of the file with its place, found from where the last one was."""
        at = self.text.find(text, self._at)
        if at < 0:
            self._at, self._row = 0, 1
            at = self.text.find(text)
        if at < 0:  # written with escapes
            return Source(text, self.name)
        self._row += self.text.count("\n", self._at, at)
        self._at = at
        return Source(text, self.name, self._row, at - self.text.rfind("\n", 0, at))

    def definition(self, number: int, measurement: MeasurementText) -> Definition:
        """A measurement in its parsed form, with its line kept for ``Program.lines``."""
        where = f"{self.name + ': ' if self.name else ''}measurement {number + 1} ({measurement.name})"
        texts = (measurement.transfers,) if isinstance(measurement.transfers, str) else measurement.transfers
        if bool(texts) == bool(measurement.waived):
            raise UsageError(f"{where}: give transfers, or waived with the reason why there are none")
        if measurement.waived and not measurement.values:
            raise UsageError(f"{where}: waived needs values, those that cannot be measured")
        line = self._line(texts) if texts else None
        reduce = (measurement.reduce,) if isinstance(measurement.reduce, str) else measurement.reduce
        for word in filter(None, reduce):
            if word not in REDUCTIONS:
                raise UsageError(f"{where}: unknown reduce {word!r}; {nearest(word, REDUCTIONS)}")
        axes = [name for name in ("sizes", "blocks", "threads") if getattr(measurement, name)]
        if len(axes) > 1:
            raise UsageError(f"{where}: give {axes[0]} or {axes[1]}; a table has one axis")
        if measurement.values and (axes or measurement.each or reduce or measurement.label):
            raise UsageError(
                f"{where}: values exclude label, reduce and axes, which make the values themselves"
            )
        sizes = measurement.sizes if isinstance(measurement.sizes, str) else ",".join(measurement.sizes)
        axis = self.source(measurement.each) if measurement.each else None
        try:
            expected = self._expected(measurement.expect) if measurement.expect else None
            over = tuple(sorted(set(parse_sizes(sizes)))) if sizes else ()
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from error
        return Definition(
            measurement, line, tuple(filter(None, reduce)), over, parse_devices(axis) if axis else (), axis,
            expected,
        )  # fmt: skip

    def _line(self, texts: tuple[str, ...]) -> Line:
        """Parse the transfers of a measurement; several strings are one line."""
        parts = [parse(self.source(text)) for text in texts]
        self.lines += parts
        statements = tuple(statement for part in parts for statement in part.statements)
        return Line(parts[0].source, statements)

    def _expected(self, expect: ExpectText) -> WantedValues | None:
        """An expectation with its numbers; None for ``like`` if baselines are not read."""
        if expect == ExpectText():
            raise UsageError("expect is empty; give of_limit, least, most or like")
        if expect.like and expect != ExpectText(like=expect.like):
            raise UsageError("like excludes of_limit, least and most")
        if expect.like:
            return WantedValues(like=self._like(expect.like)) if self.judged else None
        least = parse_rate(expect.least) if expect.least else None
        return WantedValues(expect.of_limit, least, parse_duration(expect.most) if expect.most else None)

    def _like(self, name: str) -> ExpectedCell:
        """What a cell should be by a baseline: limits from its median and spread."""
        of_good = baseline.load(Path(self.name).parent / name if self.name else Path(name))

        def like(machine: Machine, *cell: str) -> Expectation:
            for key, entry in of_good.entries(machine).items():
                if (key.testcase, key.table, key.row, key.column) == cell:
                    allowed = max(TOLERANCE, baseline.DEVIATIONS * entry.spread)
                    if entry.unit is Unit.TIME:
                        return Expectation(most=entry.median * (1 + allowed), origin=name)
                    return Expectation(least=entry.median * max(1 - allowed, 0), origin=name)
            testcase, _, row, column = cell
            raise UsageError(
                f"{name} has no value of {testcase} {row} {column}; make it from a run of this file"
            )

        return like
