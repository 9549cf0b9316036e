"""What distinguishes the output of sailbandwidth from that of nvbandwidth."""

from __future__ import annotations

from dataclasses import dataclass

from ..devices import is_host, number_of
from ..document import Document, TestcaseResult
from ..topology import Machine
from .dialects import Dialect
from .style import DialectName

#: Notes on SAILBW_VERIFY: what explains wrong data, and why there is none.
SIMULATED = "values corrupted by SAILBW_VERIFY (simulated fault)"
NOT_SIMULATED = "NOTE: SAILBW_VERIFY has an effect only on simulated machines; ignoring it."
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

    def wrong_data(self, document: Document, result: TestcaseResult, note: str = "") -> str:
        """The reports on wrong data of a testcase, one for each path; empty if there is none."""
        reports = []
        for way, reason in dict.fromkeys(
            (cell.corrupted, cell.reason) for table in result.tables for cell in table.cells if cell.corrupted
        ):
            source, _, destination = way.partition("->")
            lines = {
                "testcase": result.name,
                "transport": f"{_called(source)} -> {_called(destination)}",
                "src": _place(document, source),
                "dst": _place(document, destination),
                "found": reason,
                "note": note,
            }
            shown = [f"  {label:<{_LABEL}}: {value}\n" for label, value in lines.items() if value]
            reports.append("".join(["Data verification FAILED\n", *shown]))
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
