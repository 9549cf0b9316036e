"""Logs of other tools as Documents: modules that read them, and one that places the values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from ...document import SCHEMA, Document, ImportedLog
from ...errors import NotARun, UsageError
from ...hardware.facts import Fact
from ...hardware.topology import Machine
from ...results.store import STDIN, content
from ...terminal import neutral
from ...units import many, parse_nics
from ...version import __version__
from . import advised_options, commands, scan
from .gpu_copies import BANDWIDTH_TEST, P2P_SAMPLE, SIMPLE_P2P
from .gpu_sets import aligned, other_models
from .host_facts import NVIDIA_SMI
from .log import KEPT_LINES, FoundLog, Tool
from .memory import MLC, STREAM
from .messages import IMB, OSU, PERFTEST
from .nccl_tests import NCCL_TESTS, note_unconnected
from .nvbandwidth import NVBANDWIDTH
from .prefixes import unmarked, without_prefixes

#: What is understood, in words, and how it is read.
UNDERSTOOD = {
    "nvbandwidth and sailbandwidth (text, JSON)": NVBANDWIDTH,
    "nccl-tests (text, JSON)": NCCL_TESTS,
    "p2pBandwidthLatencyTest": P2P_SAMPLE,
    "STREAM and BabelStream": STREAM,
    "OSU micro-benchmarks": OSU,
    "Intel MLC": MLC,
    "bandwidthTest": BANDWIDTH_TEST,
    "simpleP2P": SIMPLE_P2P,
    "nvidia-smi topo -m and nvlink -s (readings)": NVIDIA_SMI,
    "perftest (ib_write_bw, ib_read_lat, ...)": PERFTEST,
    "Intel MPI Benchmarks": IMB,
}
#: What errors say about it.
_THESE_ARE = f"logs of these tools are: {', '.join(UNDERSTOOD)}"
#: Characters that browsers and chats put in place of a space, or between characters.
_SPACES = {0xA0: " ", 0x2007: " ", 0x202F: " ", 0x200B: None, 0x2060: None}
#: Words of logs of AMD's GPUs.
_OTHER_VENDOR = re.compile(r"\b(RCCL|ROCm|AMD (Instinct|Radeon)|Radeon|gfx\d{3,4})\b", re.IGNORECASE)
#: A command that goes on in the next line.
_CONTINUED = re.compile(r"[ \t]\\[ \t]*\r?\n")
_COLOR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
#: Suffixes of files in which logs are looked for in a folder, and how much of each is read, in bytes.
_OF_LOGS, _HEAD = ("", ".log", ".out", ".txt"), 2**16
#: Number of lines at which JSON is looked for.
_MOST_OBJECTS = 64
#: How JSON begins, unlike labels such as ``[1,0]<stdout>:``, and how the JSON of the tools does.
_JSON = re.compile(rb'\s*(\{|\[\s*[\[{"])')
_OF_TOOL = re.compile(r'\{\s*"(nvbandwidth|sailbandwidth|version)"\s*:')
#: Lines that the tools print, before which a launcher may have put a prefix.
_KNOWN = (
    *(tool.start for tool in UNDERSTOOD.values()),
    re.compile(r'"((nv|sail)bandwidth|nccl_version)"\s*:'),
)


def load_log(
    source: str | Path | Sequence[str | Path], machine: str | Machine | None = None, nics: str | None = None
) -> Document:
    """Convert logs of other tools to a Document, which ``judge`` and all reports accept.

    Args:
        source: Files of one machine; ``-`` is standard input. The tool is recognised; a file may contain the
            output of several.
        machine: The machine of the logs: such as ``hgx-h100-8``, ``simulated:NAME``, a machine file, or a
            Machine. None: derived from the names and the number of GPUs in the logs, and data sheets.
        nics: Number and rate of the NICs of each host, such as ``8x400G``, for collectives between hosts.
            None: as the lines of NCCL in the logs say.

    Returns:
        The values, with limits as if wirespeed had measured them on that machine, and wider ranges. The field
        ``imported`` says where they come from.

    Raises:
        UsageError: If a file cannot be read, contains nothing that is understood, or does not fit the
            machine; if ``nics`` is no rate.

    Examples:
        >>> import wirespeed
        >>> log = "tests/data/published/nvbandwidth-a100-readme.txt"
        >>> document = wirespeed.load_log(log, "dgx-a100-40g-8")
        >>> wirespeed.judge(document).verdict.value
        'pass'
    """
    files = [source] if isinstance(source, (str, Path)) else list(source)
    if not files:
        raise UsageError("no file to import")
    logs: list[FoundLog] = []
    for file in map(str, files):
        if not (found := _understood(file, content(file))):
            raise UsageError(f"{_name(file)} contains no output that is understood; {_THESE_ARE}")
        logs += found
    return _document(files, logs, machine, nics)


def of_content(file: str, data: bytes, machine: str | None, error: NotARun) -> Document:
    """Convert the content of a file that is no saved run, if it is the log of another tool.

    Args:
        file: The file.
        data: Its content.
        machine: The machine of the log, as for ``load_log``.
        error: Why it is no saved run.

    Raises:
        UsageError: If it is no log either.
    """
    if not data.strip():
        raise error
    if logs := _understood(file, data):
        return _document([file], logs, machine)
    if _JSON.match(data):
        raise error
    raise NotARun(f"{file} is neither a saved run nor a log that is understood; {_THESE_ARE}") from error


def is_log(path: Path) -> bool:
    """Whether a file in a folder is the log of a known tool, by its name and its first lines."""
    if path.suffix not in _OF_LOGS or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            content = _text(str(path), file.read(_HEAD))
    except (OSError, UsageError):  # binary, or empty
        return False
    try:
        return bool(_sections(content))  # also if it has no values
    except UsageError:  # broken, as reading it says
        return True


def _document(
    files: Sequence[str | Path],
    logs: Sequence[FoundLog],
    machine: str | Machine | None = None,
    nics: str | None = None,
) -> Document:
    """The Document of logs."""
    given = None if nics is None else parse_nics(nics)
    aligned(logs)
    target, unknown, cases, strange = advised_options.placed(logs, machine, given)
    judged_with = advised_options.options(logs, machine, nics, target, cases)
    by_tool: dict[tuple[str, ...], list[FoundLog]] = {}
    for log in logs:
        by_tool.setdefault((log.tool, log.version, log.file), []).append(log)
    warnings = [*unknown, *map(_warning, by_tool.values())]
    warnings.append(f"machine {target.name}: {'; '.join(target.notes)}")
    warnings += [
        f"{log.file}: {scan.text(note)}" for log in logs for note in (*log.failures[:1], *log.warnings)
    ]
    if strange:
        warnings.append(f"{many(strange, 'value')} not comparable with testcases of wirespeed, kept unjudged")
    return Document(
        schema=SCHEMA,
        version=__version__,
        command=" ".join(["wirespeed import", *map(str, files)]),
        host=target.host,
        simulated=target.simulated,
        machine=target,
        options={name: value for log in logs for name, value in log.options.items()},
        started="",
        testcases=tuple(cases),
        facts=_together(fact for log in logs for fact in log.facts),
        warnings=tuple(dict.fromkeys(warnings)),
        ranks=next((tuple(log.ranks) for log in logs if log.ranks), ()),
        imported=tuple(
            ImportedLog(
                log.tool, log.version, log.file, log.lines, len(log.unknown),
                (*log.warnings, *filter(None, [other_models(log, target)])), judged_with,
            )
            for log in logs
        ),
    )  # fmt: skip


def _together(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """The facts of all runs, each once; lists, such as settings, have the items of all runs."""
    found: dict[object, Fact] = {}
    for fact in facts:
        if isinstance(fact.value, tuple):
            place = (fact.host, fact.device, fact.name)
            before = found[place].value if place in found else ()
            assert isinstance(before, tuple)
            found[place] = replace(fact, value=tuple(dict.fromkeys((*before, *fact.value))))
        else:
            found[fact] = fact
    return tuple(found.values())


def _warning(logs: Sequence[FoundLog]) -> str:
    """The note that runs of one tool in a file were imported, with the lines that are not understood."""
    first = logs[0]
    note = (
        f"imported from {f'{first.tool} {first.version}'.strip()} ({first.file}), not measured by wirespeed"
    )
    note += "".join(f"; {more}" for more in dict.fromkeys(more for log in logs for more in log.notes))
    if unknown := [line for log in logs for line in log.unknown]:
        kept = "; ".join(repr(scan.text(line)) for line in dict.fromkeys(unknown[:KEPT_LINES]))
        note += f"; {many(len(unknown), 'unknown line')}: {kept}"
    return note


def _understood(file: str, data: bytes) -> list[FoundLog]:
    """The logs in the content of a file; empty if it is the log of no known tool.

    Raises:
        UsageError: If it is broken, or a log without values.
    """
    name = _name(file)
    content = _text(file, data)
    try:
        found = _sections(content)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error
    logs = [log for log in found if not log.is_empty]
    if found and not logs:
        raise UsageError(f"{name} is a log of {found[0].tool} without values")
    for log in logs:
        log.file, log.of_other_vendor = name, bool(_OTHER_VENDOR.search(content))
    return logs


def _name(file: str) -> str:
    return "standard input" if file == STDIN else scan.text(Path(file).name)


def _text(file: str, data: bytes) -> str:
    if not data.strip():
        raise UsageError(f"{file} is empty")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):  # as PowerShell writes it
        return data.decode("utf-16", "replace")
    if b"\0" in data:
        raise UsageError(f"{file} is a binary file, not a log")
    return data.decode("utf-8-sig", "replace").translate(_SPACES)


def _sections(content: str) -> list[FoundLog]:
    """Split a text into the output of different tools and jobs, and read each."""
    lines = [unmarked(_COLOR.sub("", line), _KNOWN) for line in _CONTINUED.sub(" ", content).splitlines()]
    found: list[FoundLog] = []
    for job in without_prefixes(lines, _KNOWN):
        cut = scan.without_cut_line(job.lines) if job.lines[-1:] and not content.endswith("\n") else ""
        logs = list(_of_job(job.lines))
        for log in logs:
            log.notes += job.notes
        if cut and logs:
            logs[-1].doubt("its last line is cut", cut)
        found += logs
    note_unconnected(found)
    return found


def _of_job(lines: Sequence[str]) -> Iterator[FoundLog]:
    """Read the output of different tools, one after the other."""
    current: Tool | None = None
    pending: list[str] = []
    before: list[tuple[str, bool]] = []  # what failed before the first line of a tool, and whether just then
    shell, said = commands.Commands(), list[str]()  # the commands so far
    last: FoundLog | None = None  # of JSON, to which the lines before and after it belong
    prose = scan.prose(lines)
    at = tried = 0
    while at < len(lines):
        line = lines[at]
        tried += line.startswith("{")
        if line.startswith("{") and tried <= _MOST_OBJECTS and (parsed := _json(lines, at)):
            log, end = parsed
            if current:
                yield from _begun_after(before, current.read(pending))
            else:
                before += _failed(pending)
            current, pending, last, shell.another = None, [], log, False
            log.lines = end - at
            yield from _begun_after(before, [log])
            at = end
            continue
        begun = next((tool for tool in UNDERSTOOD.values() if tool.start.match(line.lstrip())), None)
        if begun and begun is not current:
            if current:
                yield from _begun_after(before, current.read(pending))
                pending = said.copy() if begun.commands else []
            else:
                before += _failed(pending)
                pending = [line for line in pending if not scan.says_failure(line)]
            current = begun
        if shell.line(line.strip()):
            said.append(line)
        shell.another = shell.another and not begun
        of_another = shell.another and not scan.LOST_GPU.search(line)
        is_other = at in prose or (of_another and (current or last))
        if not (is_other and scan.says_failure(line)):
            pending.append(line)
        at += 1
    if current:
        yield from _begun_after(before, current.read(pending))
    elif last:
        last.failures += [scan.reason_of(line) for line in pending if scan.says_failure(line)]


#: Number of lines before the first one of a tool in which a failure may be its own: MPI and srun print theirs
#: out of order.
_NEAR = 20


def _failed(lines: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield what failed before a tool began, and whether it is near: else it is of what ran before."""
    first = len(lines) - _NEAR
    return ((line, i >= first) for i, line in enumerate(lines) if scan.says_failure(line))


def _begun_after(before: list[tuple[str, bool]], logs: Iterable[FoundLog]) -> Iterator[FoundLog]:
    """Yield logs; what failed before the first one failed it if it has no values, or a process ended near."""
    for log in logs:
        has_values = bool(log.tables or log.collectives)
        for line, near in before:
            if (near or not has_values) and scan.says_failure(line, outside=has_values):
                log.failures.append(scan.reason_of(line))
            else:
                log.unknown.append(line)
        before.clear()
        yield log


def _json(lines: Sequence[str], at: int) -> tuple[FoundLog, int] | None:
    """Read a JSON object that begins at a line; return the log and the index of the next line.

    Raises:
        UsageError: If it begins like the output of a tool and is broken.
    """
    remaining = "\n".join(lines[at:])
    try:
        content, end = json.JSONDecoder().raw_decode(remaining)
        content = neutral(content)
    except (RecursionError, ValueError) as error:
        if _OF_TOOL.match(remaining):
            line = at + getattr(error, "lineno", 1)
            raise UsageError(f"the JSON is broken or incomplete at line {line}") from error
        return None
    for tool in UNDERSTOOD.values():
        if tool.of_json and (log := tool.of_json(content)) is not None:
            return log, at + remaining.count("\n", 0, end) + 1
    return None
