"""How to show a run: width, colour and detail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Versions of nvbandwidth, and of its relative sailbandwidth.
DialectName = Literal["0.4", "0.8", "0.10", "0.11", "sailbandwidth-2.1", "sailbandwidth-2.2.1"]
SIMULATED = "SIMULATED: no hardware was measured"


@dataclass(frozen=True)
class Style:
    """How to show a report.

    Attributes:
        width: Columns of the terminal.
        color: Whether to add colour escape sequences.
        verbose: Whether to show every sample and every cell.
        utilization: Whether to add tables of measured value over limit, if the format has them.
        checked: Whether the report is that of ``wirespeed check``: formats that it offers add likely causes
            and thresholds, and JSON has what was found in place of the Document.
        dialect: Version of nvbandwidth or sailbandwidth whose output nvbandwidth's formats have.
        perf: Whether nvbandwidth's text has lines ``&&&& PERF`` in place of sums.
        notes: Notes before the versions in nvbandwidth's text; in its JSON, ``warning``.
        ignored: Notes behind the devices in nvbandwidth's text; in its JSON, ``warning``.
        empty_tables: Whether nvbandwidth's text has tables of testcases between processes none of whose
            values was wanted.
        all_cells: Whether Prometheus gets every value, in addition to those of each device and kind of path.
        settings: Settings of the environment and of files that changed what was measured or judged.
    """

    width: int = 80
    color: bool = False
    verbose: bool = False
    utilization: bool = False
    checked: bool = False
    dialect: DialectName = "0.10"
    perf: bool = False
    notes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    empty_tables: bool = False
    all_cells: bool = False
    settings: tuple[str, ...] = ()
