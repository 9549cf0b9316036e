"""From text to the parsed form: tokens with positions, and a recursive descent."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...collectives.operations import OPERATIONS
from ...errors import UsageError
from ...hardware.devices import kinds
from ...model import FILE_ENGINES, Engine, Role
from ...units import parse_size
from .syntax import (
    Devices,
    LanguageError,
    Line,
    RunSetting,
    Source,
    Span,
    Statement,
    Words,
    nearest,
)

#: Functions of devices.
FUNCTIONS = ("near", "pageable")
#: Kinds of devices, and words for all of a kind, which need no quoting in a shell.
KINDS = (*(kind.name for kind in kinds()), "rank")
ALL = {f"{kind}s": kind for kind in KINDS}
#: Engines that execute transfers of a line: messages are chosen for the whole run, cuBLAS by Python, and
#: storage has testcases.
_NO_WORDS = (Engine.NCCL, Engine.MPI, Engine.CUBLAS, *FILE_ENGINES)
ENGINES = {str(engine): engine for engine in Engine if engine not in _NO_WORDS}
ARROWS = {"->": False, "to": False, "<-": True, "from": True}
#: Words that begin or join, so that they are no names of devices.
_RESERVED = ("load", "latency", "by", "and", "to", "from")
#: Largest number of devices that a range may contain, and largest number of transfers in a line.
_MOST_NUMBERS = 4096
_MOST_COUNT = 2**31 - 1

_TOKEN = re.compile(
    r"(?P<skip>[ \t\r]+|\#[^\n\ud800-\udfff]*)|(?P<end>\n)|(?P<arrow>->|<-)|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<number>[0-9]+(?:\.[0-9]+)?[A-Za-zµ%]*(?:/s)?)|(?P<sign>[;,()\[\]=.*-])",
    re.ASCII,
)
_NAMED = re.compile(f"({'|'.join(KINDS)})([0-9]*)", re.ASCII)

#: Words for host memory that users of other tools try.
_CALLED_OTHERWISE = {"host", "cpu", "cpus", "dram", "mem", "memory", "node", "socket"}


@dataclass(frozen=True)
class _Token:
    """A part of the text: its kind, its text and its place."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def span(self) -> Span:
        return self.start, self.end


def _tokens(source: Source) -> list[_Token]:
    """Split a text; the kind of a sign is the sign itself, and a line end is a semicolon."""
    tokens, at = [], 0
    while at < len(source.text):
        match = _TOKEN.match(source.text, at)
        if match is None:
            raise source.error(f"unexpected character {source.text[at]!r}", at)
        text = ";" if match.lastgroup == "end" else match[0]
        if match.lastgroup != "skip":
            kind = text if match.lastgroup in ("sign", "end") else str(match.lastgroup)
            tokens.append(_Token(kind, text, at))
        at = match.end()
    return [*tokens, _Token("end of text", "", len(source.text))]


def parse(text: str) -> Line:
    """The transfers of a line, which start together.

    Raises:
        LanguageError: If it is invalid; with line, column and reason.
    """
    return _LineParser(Source(text)).line()


class _LineParser:
    """A recursive descent over the tokens of one text."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tokens = _tokens(source)
        self.at = 0
        self.settings: list[RunSetting] = []

    @property
    def token(self) -> _Token:
        """The next token."""
        return self.tokens[self.at]

    def take(self) -> _Token:
        """The next token; the parser goes to the one behind it."""
        token = self.token
        if token.kind != "end of text":
            self.at += 1
        return token

    def accept(self, *texts: str) -> _Token | None:
        """Take the next token if it is one of these texts."""
        return self.take() if self.token.text in texts and self.token.text else None

    def expect(self, kind: str, wanted: str) -> _Token:
        """Take the next token, or fail with what was wanted."""
        if self.token.kind != kind:
            raise self.wrong(f"expected {wanted}, not {self._next()}")
        return self.take()

    def wrong(self, message: str, span: Span | None = None) -> LanguageError:
        """An error at a place, or at the next token."""
        return self.source.error(message, *(span or (self.token.start, max(self.token.end, 0))))

    def _next(self) -> str:
        return repr(self.token.text) if self.token.text else "the end of the text"

    def line(self) -> Line:
        """Parse statements up to the end of the text."""
        statements: list[Statement] = []
        while True:
            while self.accept(";"):
                pass
            if self.token.kind == "end of text":
                break
            statements.append(self.statement())
            if self.token.kind != "end of text" and not self.accept(";", "and"):
                raise self.wrong(f"expected ';' before the next transfer, not {self._next()}")
        if not statements:
            raise self.wrong("there is no transfer; write e.g. gpu0 -> gpu1")
        return Line(self.source, tuple(statements), tuple(self.settings))

    def statement(self) -> Statement:
        """Parse a transfer, or several with the same words."""
        start = self.token.start
        role = Role.LOAD if self.accept("load") else Role.MEASURED
        latency = self.accept("latency")
        left = self.devices()
        arrow = self.take()
        if arrow.text not in ARROWS:
            self.at -= arrow.kind != "end of text"
            ways = "-> (the source pushes) or <- (the destination pulls)"
            raise self.wrong(f"expected {ways}, not {self._next()}{self._meant(start)}")
        pulls = ARROWS[arrow.text]
        right = self.devices()
        executors = self.devices() if self.accept("by") else ()
        words, places = self.words()
        if latency:
            if role is Role.LOAD:
                raise self.wrong("a latency cannot be a load; omit load", latency.span)
            if not pulls:
                raise self.wrong("loads pull: write latency gpu0 <- gpu1 for loads of gpu0", arrow.span)
        sources, destinations = (right, left) if pulls else (left, right)
        return Statement(
            sources, destinations, pulls, executors, role, latency is not None, Words(**words), places,
            (start, self._end()),
        )  # fmt: skip

    def _meant(self, start: int) -> str:
        """The transfer that two names without an arrow may mean, or one whose arrow the shell took."""
        first = self.source.text[start : self._end()]
        if _NAMED.fullmatch(self.token.text.lower()):
            return f"; write '{first} -> {self.token.text}'"
        return f"; write '{first} -> gpu1'" if self.token.kind == "end of text" else ""

    def _end(self) -> int:
        return self.tokens[self.at - 1].end if self.at else 0

    def devices(self) -> tuple[Devices, ...]:
        devices = [self.device()]
        while self.accept(","):
            devices.append(self.device())
        return tuple(devices)

    def device(self) -> Devices:
        start, wrappers, closing = self.token.start, list[str](), 0
        while self.token.text in FUNCTIONS:
            wrappers.append(self.take().text)
            closing += self.accept("(") is not None
        devices = self.named()
        for _ in range(closing):
            self.expect(")", "')'")
        return Devices(devices.kind, devices.indices, tuple(wrappers), devices.owned, (start, self._end()))

    def named(self) -> Devices:
        """Parse the name of one device or of several."""
        token = self.take()
        if token.text in ALL:
            kind, indices = ALL[token.text], None
        else:
            match = _NAMED.fullmatch(token.text.lower())
            if match is None:
                raise self._unknown(token)
            kind = match[1]
            indices = self._range(int(match[2]), token) if match[2] else self._several(token)
        owned = self.named() if kind == "rank" and self.accept(".") else None
        if owned and (owned.kind == "rank" or owned.indices is None or len(owned.indices) > 1):
            raise self.wrong("expected one device of the rank, such as gpu0", owned.span)
        return Devices(kind, indices, (), owned, (token.start, self._end()))

    def _unknown(self, token: _Token) -> LanguageError:
        if token.kind == "end of text" or token.kind != "word" or token.text in _RESERVED:
            shown = repr(token.text) if token.text else "the end of the text"
            return self.wrong(f"expected a memory such as gpu0, numa0 or near(gpu0), not {shown}", token.span)
        if token.text in OPERATIONS:
            hint = f"`wirespeed run -t {token.text}` measures it"
            raise self.wrong(f"a collective is no transfer: {hint}", token.span)
        if token.text.rstrip("0123456789") in _CALLED_OTHERWISE:
            hint = "host memory is numa0, or near(gpu0) for that next to gpu0; all of it is numas"
            return self.wrong(f"there is no memory {token.text!r}; {hint}", token.span)
        names = (*FUNCTIONS, *ALL, *(f"{kind}0" for kind in KINDS))
        return self.wrong(f"there is no memory {token.text!r}; {nearest(token.text, names)}", token.span)

    def _number(self) -> int:
        token = self.expect("number", "a number")
        if not token.text.isdecimal() or len(token.text) > 6:
            raise self.wrong(f"{token.text!r} is not the number of a device", token.span)
        return int(token.text)

    def _range(self, first: int, token: _Token) -> tuple[int, ...]:
        """The numbers of ``N`` or ``N-N``, of which the first was read."""
        if first >= 10**6:
            raise self.wrong(f"{token.text!r} is not the name of a device", token.span)
        dash = self.accept("-")
        if dash and self.token.kind == "end of text":
            raise self.wrong(f"put the transfer in quotes, as in '{token.text} -> gpu1': > is for the shell")
        last = self._number() if dash else first
        if not first <= last < first + _MOST_NUMBERS:
            raise self.wrong(f"the range {first}-{last} is empty or too large", (token.start, self._end()))
        return tuple(range(first, last + 1))

    def _several(self, token: _Token) -> tuple[int, ...] | None:
        """The numbers behind a kind: None for a star, else those in brackets."""
        if self.accept("*"):
            return None
        if not self.accept("["):
            raise self.wrong(
                f"{token.text} has no number; write {token.text}0, {token.text}[0-3] or {token.text}s"
            )
        numbers: list[int] = []
        while True:
            begin = self.token
            numbers += self._range(self._number(), begin)
            if not self.accept(","):
                break
        self.expect("]", "']'")
        if len(set(numbers)) < len(numbers):
            raise self.wrong("a number is given twice", (token.start, self._end()))
        return tuple(numbers)

    def words(self) -> tuple[dict[str, Any], dict[str, Span]]:
        """Parse engine, size and the other words of a statement."""
        values: dict[str, Any] = {}
        places: dict[str, Span] = {}
        while self.token.kind not in (";", "end of text") and self.token.text != "and":
            token = self.token
            name, value = self.word()
            span = (token.start, self._end())
            if name in ("copies", "samples"):
                self.settings.append(RunSetting(name, value, span))
                continue
            if name in values:
                raise self.wrong(f"the {name} is given twice", span)
            values[name], places[name] = value, span
        return values, places

    def word(self) -> tuple[str, Any]:
        """The field and the value of one word."""
        token = self.take()
        if token.kind == "number":
            return "size", self._converted(parse_size, token.text, token.span)
        if token.text in ENGINES:
            return "engine", ENGINES[token.text]
        if token.text in _KEYS:
            if not self.accept("="):
                raise self.wrong(f"expected '=' and a value after {token.text}")
            return token.text, self.count()
        valid = (*ENGINES, *(f"{key}=" for key in _KEYS))
        shown = repr(token.text) if token.text else "the end of the text"
        if token.kind == "word":
            raise self.wrong(f"unknown word {shown}; {nearest(token.text, valid)}", token.span)
        raise self.wrong(f"expected an engine, a size or a word such as blocks=8, not {shown}", token.span)

    def _converted(self, convert: Callable[[str], Any], text: str, span: Span) -> Any:
        try:
            return convert(text)
        except UsageError as error:
            raise self.wrong(str(error), span) from None

    def count(self) -> int:
        """Parse a number of at least 1."""
        token = self.expect("number", "a number")
        if not token.text.isdecimal() or len(token.text) > 10 or not 1 <= int(token.text) <= _MOST_COUNT:
            raise self.wrong(f"{token.text!r} is not a number of at least 1", token.span)
        return int(token.text)


#: Words with a number.
_KEYS = ("blocks", "threads", "copies", "samples")
