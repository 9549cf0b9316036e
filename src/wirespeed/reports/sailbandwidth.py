"""What distinguishes the output of sailbandwidth from that of nvbandwidth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..document import Document, TestcaseResult
from ..errors import VerificationError
from ..faults import MOST_LISTED, WrongWord
from ..hardware.devices import is_host, number_of
from ..hardware.topology import Machine
from ..units import MIB
from .dialects import NOTHING_FOUND, Dialect, Found
from .style import DialectName

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


@dataclass(frozen=True)
class HggcDialect(Dialect):
    """sailbandwidth since 2.2: no git line, and HGGC in place of CUDA, whose version numbers it has."""

    def start(self, output: str = "run") -> str:
        """The lines at the start of an output; none if it does not begin with the version."""
        return f"{self.program} Version: {self.version}\n" if output in self.starts else ""

    def versions(self, machine: Machine) -> list[str]:
        """The lines with the versions of libraries and driver."""
        return [
            f"HGGC Runtime Version: {machine.cuda}",
            f"HGGC Driver Version: {machine.cuda}",
            f"Driver Version: {machine.driver or 'none'}",
        ]

    def wrong_data(
        self, document: Document, result: TestcaseResult, note: str = "", found: Found = NOTHING_FOUND
    ) -> str:
        """The reports on wrong data of a testcase, one for each path; empty if there is none."""
        reports = []
        for way, reason in dict.fromkeys(
            (cell.corrupted, cell.reason) for table in result.tables for cell in table.cells if cell.corrupted
        ):
            details = found.get(way, {})
            lines = {**_identity(document, result.name, way), "found": reason, **details, "note": note}
            if file := details.get("dumped file"):  # the last line
                del lines["dumped file"]
                lines["dumped file"] = file
            reports.append(f"Data verification FAILED\n{_labelled(lines, '  ')}")
        return "".join(reports)


_SMALLER = (
    "NOTE: You have chosen a buffer size that is smaller than the default buffer size. It is suggested to "
    "use the default buffer size (512MB) to achieve maximal peak bandwidth."
)
_BOTH = "You cannot specify both testcase and testcasePrefixes options at the same time"
#: Versions of sailbandwidth; 2.1 is the form of its guide.
DIALECTS: dict[DialectName, Dialect] = {
    "sailbandwidth-2.2.1": HggcDialect(
        "sailbandwidth", "v2.2.1", "v2.2.1", "sailbandwidth-2.2.1",
        smaller=_SMALLER, both=_BOTH, waived="Waived: {name}: {reason}\n",
        words={"GPU(": "PPU(", "All Gpus": "All PPUs"},
        whole_ratios=True, first_samples=True, json_root="sailbandwidth",
    ),
    "sailbandwidth-2.1": Dialect("sailbandwidth", "v2.1.0", "v0.8", "0.8", exact=False, both=_BOTH),
}  # fmt: skip


def _labelled(lines: Mapping[str, str], prefix: str) -> str:
    """Lines of a label and a value; those without a value are left out."""
    return "".join(f"{prefix}{label:<{_LABEL}}: {value}\n" for label, value in lines.items() if value)


def _identity(document: Document, testcase: str, way: str) -> dict[str, str]:
    """What identifies the copy of wrong data."""
    source, _, destination = way.partition("->")
    return {
        "testcase": testcase,
        "transport": f"{_called(source)} -> {_called(destination)}",
        "src": _place(document, source),
        "dst": _place(document, destination),
    }


def details(error: VerificationError) -> dict[str, str]:
    """What is known of wrong values, in words of 8 bytes; that of the source only within one process."""
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
    if word.actual == word.before:
        return "NOT-WR"
    return "OK" if word.actual == word.source else "BAD"


def _of_one_process(error: VerificationError) -> bool:
    """Whether one process can read the source and the destination."""
    return "/" not in error.way


def _hex(value: int) -> str:
    return f"0x{value:016x}"


def _parts(end: str) -> tuple[str, str]:
    """Rank, which may be empty, and device of one end of a path: ``1/gpu0``; the first of several ends."""
    rank, _, device = end.partition("+")[0].rpartition("/")
    return rank, device


def _called(end: str) -> str:
    rank, device = _parts(end)
    if rank:
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
