"""What distinguishes the outputs of four versions of nvbandwidth, and of its relative sailbandwidth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from ...document import Document, TestcaseResult
from ...errors import MOST_LISTED, VerificationError, WrongWord
from ...hardware.devices import is_host, number_of
from ...hardware.topology import Machine
from ...reports.style import DialectName
from ...units import MIB
from ...version import __version__

#: nvbandwidth's closing note, after 0.4.
NOTICE = (
    "NOTE: The reported results may not reflect the full capabilities of the platform.\n"
    "Performance can vary with software drivers, hardware clocks, and system topology.\n\n"
)
#: Path of wrong data -> labels and values of what was found of it.
Found = Mapping[str, Mapping[str, str]]
NOTHING_FOUND: Found = {}
_SMALLER = (
    "NOTE: You have chosen a buffer size that is smaller than the default buffer size. It is suggested to "
    "use the default buffer size (64MB) to achieve maximal peak bandwidth."
)


@dataclass(frozen=True)
class Dialect:
    """What distinguishes the output of a version of a program.

    Attributes:
        program, version: Name and version at the start of the text.
        json_version: Version in the JSON.
        testcases: Version of nvbandwidth whose list of testcases it has.
        exact: Whether samples, ranges and the parts of bidirectional testcases have nvbandwidth's form, and
            unknown testcases do not change the exit code.
        is_new: Whether it is 0.10 or later: it prints coefficients of variation of the samples, CUDA versions
            are ``13.2 (13020)``, and no empty line follows each testcase in the list.
        default_mebibytes: Default size of a buffer.
        smaller: The note on smaller buffers.
        opening, closing: Notes before the versions of libraries, and at the end.
        names: What the lines of devices have: the model only; the PCI bus ID too, and a line with the host
            before them; the PCI function too, and lines of the NVLink fabric of processes.
        waived: Line of a testcase that cannot be measured, with ``{name}`` and ``{reason}``.
        parts: Suffix of the name of a bidirectional testcase between GPUs -> the only table that it has;
            empty if it has all of them.
        titles: Name of a testcase -> title of its table, where it differs.
        after_usage: What follows the arguments before the help, if they are invalid.
        padded: Whether the numbers of rows are padded to one width.
        both: What the program says if testcases and prefixes are given.
        words: Words of titles -> what this program says for them.
        is_hggc: Whether it is sailbandwidth since 2.2: HGGC in place of CUDA, whose version numbers it has,
            no git line, reports on wrong data, and its own JSON. Tables of ratios have sums, only the total
            of a bidirectional testcase has one, and none has a diagonal. Only the first copy of a value has
            lines of samples, and latencies have none.
        refuses_on_output: Whether standard output, not standard error, has why the program refuses to run.
    """

    program: str
    version: str
    json_version: str
    testcases: str
    exact: bool = True
    is_new: bool = False
    default_mebibytes: int = 512
    smaller: str = _SMALLER
    opening: str = ""
    closing: str = NOTICE
    names: Literal["model", "host and bus", "bus and function"] = "host and bus"
    waived: str = "Waived: {name}: {reason}\n"
    parts: Mapping[str, str] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    after_usage: str = ":"
    padded: bool = True
    both: str = "You cannot specify both testcase and testcasePrefix options at the same time"
    words: Mapping[str, str] = field(default_factory=dict)
    is_hggc: bool = False
    refuses_on_output: bool = False

    def start(self) -> str:
        """The lines at the start of an output."""
        built = (
            "" if self.program == "sailbandwidth" else f"Built from Git version: wirespeed {__version__}\n\n"
        )
        return f"{self.program} Version: {self.version}\n{built}"

    def versions(self, machine: Machine) -> list[str]:
        """The lines with the versions of libraries and driver."""
        cuda, of_driver = str(machine.cuda), ""
        if self.is_new:
            cuda, of_driver = f"{machine.cuda // 1000}.{machine.cuda % 1000 // 10} ({cuda})", " (API)"
        name = "HGGC" if self.is_hggc else "CUDA"
        return [
            f"{name} Runtime Version: {cuda}",
            f"{name} Driver Version{of_driver}: {cuda}",
            f"Driver Version: {machine.driver or 'none'}",
        ]

    def wrong_data(
        self, document: Document, result: TestcaseResult, note: str = "", found: Found = NOTHING_FOUND
    ) -> str:
        """A report on wrong data for each path, besides the output of a testcase; ``note`` may explain it."""
        if not self.is_hggc:
            return ""
        reports = []
        for way, reason in dict.fromkeys(
            (cell.corrupted, cell.reason) for table in result.tables for cell in table.cells if cell.corrupted
        ):
            lines = {
                **_identity(document, result.name, way),
                "found": reason,
                **found.get(way, {}),
                "note": note,
            }
            lines["dumped file"] = lines.pop("dumped file", "")  # the last line
            reports.append(f"Data verification FAILED\n{_labelled(lines, '  ')}")
        return "".join(reports)


_OPENING = (
    "NOTE: This tool reports current measured bandwidth on your system.\n"
    "Additional system-specific tuning may be required to achieve maximal peak bandwidth.\n\n"
)
#: The note on smaller buffers of 0.4.
_FEWER = _SMALLER.replace(" It is", " \nIt is") + "\n"
_LATER_SMALLER = _SMALLER.replace("64MB", "512MB")
_PAIR = "device_to_device_bidirectional_memcpy_"


def _titles() -> dict[str, str]:
    """The titles of 0.4 that later versions have changed."""
    titles = {
        "device_to_device_memcpy_read_sm": "memcpy CE GPU(row) -> GPU(column) bandwidth",
        f"{_PAIR}read_sm": "memcpy SM GPU(row) -> GPU(column) bandwidth",
        f"{_PAIR}write_sm": "memcpy SM GPU(row) <- GPU(column) bandwidth",
        "all_to_host_bidirectional_memcpy_ce": "memcpy CE CPU(row) <- GPU(column) bandwidth",
        "host_to_all_bidirectional_memcpy_ce": "memcpy CE CPU(row) <- GPU(column) bandwidth",
        "all_to_host_bidirectional_memcpy_sm": "memcpy SM CPU(row) <- GPU(column) bandwidth",
        "host_to_all_bidirectional_memcpy_sm": "memcpy SM CPU(row) -> GPU(column) bandwidth",
    }
    for engine, all_gpus in (("ce", "All Gpus"), ("sm", "All GPUs")):
        copies = f"memcpy {engine.upper()}"
        titles[f"all_to_one_write_{engine}"] = f"{copies} All Gpus -> GPU(column) total bandwidth"
        titles[f"all_to_one_read_{engine}"] = f"{copies} {all_gpus} <- GPU(column) total bandwidth"
        titles[f"one_to_all_write_{engine}"] = f"{copies} GPU(column) -> All GPUs total bandwidth"
        titles[f"one_to_all_read_{engine}"] = f"{copies} GPU(column) <- All GPUs total bandwidth"
    return titles


#: What 0.10 and 0.11 have in common.
_new = partial(Dialect, "nvbandwidth", is_new=True, smaller=_LATER_SMALLER)

#: Values of ``Style.dialect``.
VERSIONS: dict[DialectName, Dialect] = {
    "0.4": Dialect(
        "nvbandwidth", "v0.4", "v0.4", "0.4", default_mebibytes=64, opening=_OPENING, closing="",
        names="model", smaller=_FEWER, waived="Waiving {name}.\n\n", padded=False, after_usage="",
        titles=_titles(), refuses_on_output=True,
        parts={f"{_PAIR}{way}_{by}": part for way in ("read", "write")
               for by, part in (("ce", "first"), ("sm", "total"))},
    ),
    "0.8": Dialect("nvbandwidth", "v0.8", "v0.8", "0.8"),
    "0.10": _new("v0.10.0", "v0.10.0", "0.10"),
    "0.11": _new("v0.11.0", "v0.11.0", "0.11", names="bus and function"),
}  # fmt: skip
#: Notes on SAILBW_VERIFY: what explains wrong data, and why there is none.
SIMULATED = "values corrupted by SAILBW_VERIFY (simulated fault)"
NOT_SIMULATED = "NOTE: SAILBW_VERIFY has an effect only on simulated machines; ignoring it."
#: What the columns of the file of wrong values mean; the first line also without those of the source.
_LEGEND = (
    "offset in words of 8 bytes; xor: the bits that differ",
    "source OK, transfer BAD: the source is intact; the link or the destination is at fault",
    "source OK, transfer NOT-WR: the destination still has what it had before the copy",
    "source BAD, transfer OK: the source was wrong and was copied as it is",
    "source BAD, transfer BAD: both ends are wrong, in different ways",
)
#: Width of the labels of a report on wrong data.
_LABEL = 17
_BOTH = "You cannot specify both testcase and testcasePrefixes options at the same time"
#: Versions of sailbandwidth; 2.1 is the form of its guide.
OF_SAILBANDWIDTH: dict[DialectName, Dialect] = {
    "sailbandwidth-2.2.1": Dialect(
        "sailbandwidth", "v2.2.1", "v2.2.1", "sailbandwidth-2.2.1",
        smaller=_LATER_SMALLER, both=_BOTH, words={"GPU(": "PPU(", "All Gpus": "All PPUs"}, is_hggc=True,
    ),
    "sailbandwidth-2.1": Dialect("sailbandwidth", "v2.1.0", "v0.8", "0.8", exact=False, both=_BOTH),
}  # fmt: skip
#: The dialects of both programs.
DIALECTS: dict[DialectName, Dialect] = {**VERSIONS, **OF_SAILBANDWIDTH}


def _labelled(lines: Mapping[str, str], prefix: str) -> str:
    """Lines of a label and a value; those without a value are left out."""
    return "".join(f"{prefix}{label:<{_LABEL}}: {value}\n" for label, value in lines.items() if value)


def _identity(document: Document, testcase: str, way: str) -> dict[str, str]:
    """The names and values that identify the copy of wrong data."""
    source, _, destination = way.partition("->")
    return {
        "testcase": testcase,
        "transport": f"{called(*_parts(source))} -> {called(*_parts(destination))}",
        "src": _place(document, source),
        "dst": _place(document, destination),
    }


def details(error: VerificationError) -> dict[str, str]:
    """What is known of wrong values, in words of 8 bytes; of the source only within one process."""
    found = error.found
    assert found is not None
    size, share = error.words * 8 / MIB, error.wrong / error.words
    lines = {
        "first bad offset": f"{error.offset // 8} (word) / {error.offset} (byte)",
        "total values": f"{error.words} ({size:.2f} MiB)",
        "bad values": f"{error.wrong} ({100 * share:.4f}%)",
        "flipped bits": f"ever={_hex(found.ever)} always={_hex(found.always)}",
    }
    if _of_one_process(error):
        bad = error.wrong - found.copied - found.unwritten
        lines |= {
            "source content": f"OK={error.wrong - found.source_wrong} BAD={found.source_wrong}",
            "transfer": f"OK={found.copied} BAD={bad} NOT-WRITTEN={found.unwritten}",
        }
    return lines


def dump_name(error: VerificationError) -> str:
    """How the name of the file of wrong values begins: number of the destination, and first offset."""
    rank, device = _parts(error.way.partition("->")[2])
    number = rank or (0 if is_host(device) else number_of(device))
    return f"sailbw_dump_ppu{number}{f'_rank{rank}' if rank else ''}_off{error.offset // 8}"


def dump(document: Document, testcase: str, error: VerificationError, most: int) -> str:
    """The file of at most ``most`` wrong values of a copy."""
    found, compared = error.found, _of_one_process(error)
    assert found is not None
    words = found.listed[:most]
    shown = f"{len(words)} of {error.wrong} bad values"
    more = " (set SAILBW_DUMP_SIZE=ALL to list more)" if len(words) < min(error.wrong, MOST_LISTED) else ""
    head = {**_identity(document, testcase, error.way), **details(error), "shown below": f"{shown}{more}"}
    names = ["offset", "expected", "actual", "xor"]
    names += ["src_content", "source", "transfer"] if compared else []
    widths = (20, 20, 20, 20, 20, 8, 10)
    lines = ["  ".join(name.rjust(width) for name, width in zip(names, widths, strict=False))]
    for word in words:
        cells = [str(word.index), *map(_hex, (word.expected, word.actual, word.expected ^ word.actual))]
        if compared:
            cells += [_hex(word.source), "OK" if word.source == word.expected else "BAD", _transfer_of(word)]
        lines.append("  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=False)))
    legend = _LEGEND if compared else _LEGEND[:1]
    simulated = "# SIMULATED: no hardware was measured\n" if document.simulated else ""
    return "".join(
        ["# sailbandwidth data-verification mismatch dump\n", simulated, _labelled(head, "# "), "#\n",
         *(f"# {line}\n" for line in legend), f"#{lines[0][1:]}\n", *(f"{line}\n" for line in lines[1:])]
    )  # fmt: skip


def _transfer_of(word: WrongWord) -> str:
    """Whether a transfer left a word as it was before, or as it is at the source."""
    return "NOT-WR" if word.actual == word.before else "OK" if word.actual == word.source else "BAD"


def _of_one_process(error: VerificationError) -> bool:
    """Whether one process can read the source and the destination."""
    return "/" not in error.way


def _hex(value: int) -> str:
    return f"0x{value:016x}"


def _parts(end: str) -> tuple[str, str]:
    """Rank, which may be empty, and device of one end of a path: ``1/gpu0``; the first of several ends."""
    rank, _, device = end.partition("+")[0].rpartition("/")
    return rank, device


def called(rank: int | str | None, device: str) -> str:
    """The programs' name of an end of a path."""
    if rank not in (None, ""):
        return f"Multinode node {rank}"
    return "Host" if is_host(device) else f"Device {number_of(device)}"


def _place(document: Document, end: str) -> str:
    """Host, number and PCI address of an end of a path; host memory has the number 0 and no address."""
    (rank, device), machine = _parts(end), document.machine
    owner = next((known for known in machine.ranks if str(known.index) == rank), None)
    bus = owner.bus_id if owner else ""
    bus = bus or next((gpu.bus_id for gpu in machine.gpus if gpu.name == device), "")
    number = rank or (0 if is_host(device) else number_of(device))
    host = owner.host if owner else document.hostname
    return f"host={host}  rank={number}  BDF={f'{bus.upper()}.0' if bus else 'n/a'}"
