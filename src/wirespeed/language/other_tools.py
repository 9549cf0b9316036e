"""Files of other tools, translated to the language: CSV files of nvloom, configurations of TransferBench.

Columns of nvloom: NVIDIA/nvloom, README, "CSV testcase". A GPU is named by its rank. An engine has the name
that it has in nvloom's testcases (``getCopyType`` in ``cli/testcases.cpp``): ``tma`` since 1.4.

Definitions of TransferBench: ROCm/TransferBench, docs/reference/transfer-definition-syntax.rst.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .syntax import LanguageError, Source
from .toml_file import Program, program_of

_COLUMNS = (
    "measurement id", "bandwidth or latency", "source", "destination", "iterations", "source memory",
    "destination memory", "direction", "engine", "size",
)  # fmt: skip
_SIZE = re.compile(r"([0-9]{1,15})([kmgt]?)", re.ASCII)
#: Engine of nvloom -> its word in the language.
_ENGINES = {"ce": "ce", "sm": "sm", "tma": "sm_bulk"}
#: How an error at a part of the text is made.
_Wrong = Callable[[str, int], LanguageError]


def of_nvloom(text: str, name: str = "", device: str = "gpu") -> Program:
    """The transfers of a CSV file of nvloom; each measurement ID is a testcase.

    Args:
        text: The text.
        name: Name of the file, for errors.
        device: What a number stands for: ``gpu``, or ``rank`` in a job of one process for each GPU.

    Raises:
        UsageError: If it is invalid, or has something without an equivalent.
    """
    source = Source(text, name)
    transfers: dict[int, list[str]] = {}
    for number, line in enumerate(re.finditer(r"[^\n]+", text)):
        if number and line[0].strip():  # the first line is the heading
            key, transfer = _row(source, line, device)
            transfers.setdefault(key, []).append(transfer)
    return program_of(source, [(f"measurement_{key}", transfers[key]) for key in sorted(transfers)])


def _row(source: Source, line: re.Match[str], device: str) -> tuple[int, str]:
    cells, starts, at = [], [], line.start()
    for part in line[0].split(","):
        cells.append(part.strip().lower())
        starts.append(at + len(part) - len(part.lstrip()))
        at += len(part) + 1

    def wrong(message: str, column: int) -> LanguageError:
        start = min(starts[column], line.end() - 1)
        return source.error(message, start, start + max(1, len(cells[column])))

    if len(cells) < len(_COLUMNS):
        missing = _COLUMNS[len(cells)]
        raise wrong(f"the row ends before the column {missing!r}", len(cells) - 1)
    key, ends = _whole(cells, 0, wrong), [_whole(cells, column, wrong) for column in (2, 3)]
    latency = cells[1] == "latency"
    if cells[1] not in ("bandwidth", "latency"):
        raise wrong(f"{cells[1]!r} is neither bandwidth nor latency", 1)
    for column in (5,) if latency else (5, 6):
        if cells[column] != "device":
            raise wrong(f"memory of the kind {cells[column]!r} has no equivalent; only device has", column)
    copies = "" if cells[4] in ("default", "ignored") else f" copies={_whole(cells, 4, wrong) or 1}"
    origin, target = (f"{device}{number}" for number in ends)
    if latency:
        return key, f"latency {target} <- {origin}{_sized(cells, wrong, latency)}{copies}"
    if cells[7] not in ("write", "read"):
        raise wrong(f"{cells[7]!r} is neither write nor read", 7)
    if cells[8] not in _ENGINES:
        *others, last = _ENGINES
        raise wrong(f"the engine {cells[8]!r} has no equivalent; {', '.join(others)} and {last} have", 8)
    arrow = f"{origin} -> {target}" if cells[7] == "write" else f"{target} <- {origin}"
    return key, f"{arrow} {_ENGINES[cells[8]]}{_sized(cells, wrong, latency)}{copies}"


def _whole(cells: list[str], column: int, wrong: _Wrong) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", cells[column], re.ASCII):
        raise wrong(f"the {_COLUMNS[column]} {cells[column]!r} is not a whole number", column)
    return int(cells[column])


def _sized(cells: list[str], wrong: _Wrong, latency: bool) -> str:
    """The word for the size; empty for the default."""
    text = cells[9]
    if text == "default" or (latency and text == "ignored"):
        return ""
    match = _SIZE.fullmatch(text)
    if match is None or not int(match[1]):
        raise wrong(f"{text!r} is not a size; nvloom's sizes are bytes, or have a suffix k, m, g or t", 9)
    return f" {int(match[1]) * 1024 ** ' kmgt'.index(match[2] or ' ')}B"


#: Letter of a memory -> its name in the language; ``{}`` is the number of the device.
_MEMORIES = {"C": "numa{}", "P": "near(gpu{})", "H": "pageable(numa{})", "G": "gpu{}"}
#: Letters without an equivalent, and why.
_NO_MEMORY = {
    "B": "coherent host memory", "D": "non-coherent host memory", "K": "uncached host memory",
    "F": "fine-grained device memory", "U": "uncached or unpinned memory", "M": "managed memory",
}  # fmt: skip
#: Letter of an executor -> device and engine.
_EXECUTORS = {"C": ("numa{}", "cpu"), "G": ("gpu{}", "sm"), "D": ("gpu{}", "ce"), "T": ("gpu{}", "sm_bulk")}
_NO_EXECUTOR = {
    "B": "batched DMA", "I": "a NIC", "L": "asynchronous loads and stores", "N": "the nearest NIC",
}  # fmt: skip
_WORD = re.compile(r"->|((?:(?!->)[^\s()])+)")
_PLACE = re.compile(r"([A-Za-z])(\*|[0-9]+|\[[0-9,.]+\])?(.*)", re.ASCII)
_BYTES = re.compile(r"([0-9]+)([KMG]?)", re.IGNORECASE | re.ASCII)
#: Largest number of transfers in a line.
_MOST = 1024


@dataclass(frozen=True)
class _Word:
    """A word of the file with its place."""

    source: Source
    text: str
    start: int

    def wrong(self, message: str) -> LanguageError:
        """An error at the word."""
        return self.source.error(message, self.start, self.start + len(self.text))


def of_transferbench(text: str, name: str = "") -> Program:
    """The transfers of a configuration file of TransferBench; each of its lines is a testcase.

    Args:
        text: The text.
        name: Name of the file, for errors.

    Raises:
        UsageError: If it is invalid, or has something without an equivalent.
    """
    source = Source(text, name)
    tests = [
        (f"line_{number}", _test(source, line))
        for number, line in enumerate(re.finditer(r"[^\n]*(?:\n|$)", text), 1)
        if line[0].strip() and not line[0].lstrip().startswith("#")
    ]
    return program_of(source, tests)


def _test(source: Source, line: re.Match[str]) -> list[str]:
    at = line.start()
    words = [_Word(source, word[0], at + word.start()) for word in _WORD.finditer(line[0]) if word[1]]
    if not words:
        raise source.error("there is no transfer", at)
    count = _number(words[0], -_MOST, _MOST)
    if not count:
        raise words[0].wrong(f"the number of transfers is from 1 to {_MOST}, or negative")
    rest = iter(words[1:])
    shared = None if count < 0 else _next(rest, words[0], "the number of sub-executors")
    transfers = []
    for _ in range(abs(count)):
        origin = _next(rest, words[0], "a source")
        executor = _next(rest, words[0], "an executor")
        target = _next(rest, words[0], "a destination")
        sub_executors = shared or _next(rest, words[0], "the number of sub-executors")
        size = "" if shared else _bytes(_next(rest, words[0], "the number of bytes"))
        transfers.append(_transfer(origin, executor, target, sub_executors, size))
    if extra := next(rest, None):
        raise extra.wrong(f"the line has more than {abs(count)} transfers")
    return transfers


def _next(words: Iterator[_Word], first: _Word, expected: str) -> _Word:
    word = next(words, None)
    if word is None:
        raise first.wrong(f"the line ends where {expected} is expected")
    return word


def _number(word: _Word, least: int, most: int) -> int:
    if not re.fullmatch(r"-?[0-9]{1,9}", word.text, re.ASCII) or not least <= int(word.text) <= most:
        raise word.wrong(f"{word.text!r} is not a whole number from {least} to {most}")
    return int(word.text)


def _bytes(word: _Word) -> str:
    """A size; empty for 0, which stands for that of the command line."""
    match = _BYTES.fullmatch(word.text)
    if match is None or len(match[1]) > 15:
        raise word.wrong(f"{word.text!r} is not a number of bytes, such as 1M")
    size = int(match[1]) * 1024 ** " KMG".index(match[2].upper() or " ")
    if size % 4:
        raise word.wrong("the number of bytes must be a multiple of 4")
    return f"{size}B" if size else ""


def _transfer(origin: _Word, executor: _Word, target: _Word, sub_executors: _Word, size: str) -> str:
    wild = [word for word in (origin, executor, target) if "*" in word.text or "[" in word.text]
    if len(wild) > 1:
        raise wild[1].wrong(
            "several wildcards in one transfer have no equivalent: TransferBench does not document what they "
            "expand to; write the transfers, or a line of wirespeed"
        )
    device, engine = _executor(executor)
    of_cpus = engine == "cpu"
    start = _memory(origin, of_cpus)
    targets = [_memory(word, of_cpus) for word in _several(target)]
    if len(targets) > 1 and (engine != "sm" or "void" in targets):
        raise target.wrong("several destinations need the executor G, and are memories")
    if len(targets) > 1 and len(wild) > 0:
        raise wild[0].wrong("several destinations have no wildcards here; write the transfers")
    ends = [start, ", ".join(targets)]
    if ends == ["void", "void"]:
        raise target.wrong("a transfer needs a source or a destination")
    if "void" in ends and engine != "sm" and not of_cpus:
        raise executor.wrong(f"{executor.text} only copies; reads and writes of one memory need G or C")
    count = _number(sub_executors, 0, 2**20)
    if count == 0:
        raise sub_executors.wrong(
            "the search for the best number of sub-executors has no equivalent; measure an axis, such as "
            "blocks = [1, 2, 4, 8] in a file of wirespeed"
        )
    shape = {"cpu": f" threads={count}", "ce": ""}.get(engine, f" blocks={count}")
    arrow = f"{ends[0]} -> {ends[1]} by {device}" if device != ends[0] else f"{ends[0]} -> {ends[1]}"
    if device == ends[1] and "void" not in ends:
        arrow = f"{ends[1]} <- {ends[0]}"
    arrow += " broadcast" * (len(targets) > 1)
    return f"{arrow} {engine} {size}{shape}".replace("  ", " ").strip()


def _several(word: _Word) -> list[_Word]:
    """The memories of a destination such as ``G1G2``."""
    parts = list(re.finditer(r"[A-Za-z][0-9]+", word.text, re.ASCII))
    if len(parts) < 2 or "".join(part[0] for part in parts) != word.text or re.match(r"R[0-9]", word.text):
        return [word]
    return [_Word(word.source, part[0], word.start + part.start()) for part in parts]


def _split(word: _Word) -> tuple[str, str, str]:
    """Letter, numbers in the language and the rest of a memory or executor."""
    if re.match(r"R[0-9*\[]", word.text):
        raise word.wrong(
            "ranks have no equivalent: a rank of TransferBench has all GPUs of its host, a rank of wirespeed "
            "one; write e.g. rank0 -> rank1"
        )
    match = _PLACE.fullmatch(word.text)
    if match is None:
        raise word.wrong(f"{word.text!r} is not a letter and a number, such as G0")
    numbers = match[2] or ""
    if numbers.startswith("[") and not re.fullmatch(r"\[[0-9]{1,6}(?:(?:,|\.\.)[0-9]{1,6})*\]", numbers):
        raise word.wrong(f"{numbers!r} is not a list of numbers, such as [0,2] or [0..3]")
    return match[1], numbers.replace("..", "-"), match[3]


def _executor(word: _Word) -> tuple[str, str]:
    letter, numbers, suffix = _split(word)
    if letter in _NO_EXECUTOR:
        raise word.wrong(f"the executor {letter} ({_NO_EXECUTOR[letter]}) has no equivalent")
    if letter not in _EXECUTORS:
        raise word.wrong(f"there is no executor {letter!r}; choose from {', '.join(_EXECUTORS)}")
    if suffix:
        raise word.wrong(f"{suffix!r}: a chosen engine or part of a device has no equivalent")
    if not numbers:
        raise word.wrong(f"the executor {letter} needs a number")
    device, engine = _EXECUTORS[letter]
    return device.format(numbers), engine


def _memory(word: _Word, of_cpus: bool) -> str:
    letter, numbers, suffix = _split(word)
    if suffix:
        reason = "a sum of several sources has" if suffix[0].isalpha() else f"{suffix!r} has"
        raise word.wrong(f"{reason} no equivalent; write one transfer for each memory")
    if letter == "N":
        return "void"
    if letter in _NO_MEMORY:
        raise word.wrong(f"the memory {letter} ({_NO_MEMORY[letter]}) has no equivalent")
    if letter not in _MEMORIES:
        raise word.wrong(f"there is no memory {letter!r}; choose from {', '.join((*_MEMORIES, 'N'))}")
    if not numbers:
        raise word.wrong(f"the memory {letter} needs a number")
    if of_cpus and letter == "G":
        raise word.wrong("CPUs cannot access the memory of a GPU here; use the executor G or D")
    if of_cpus and letter == "H":
        letter = "C"  # CPUs use the same memory, pinned or not
    return _MEMORIES[letter].format(numbers)
