"""What distinguishes the outputs of nvbandwidth's versions, and of its relatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..document import Document, TestcaseResult
from ..topology import Machine
from ..version import __version__

#: nvbandwidth's closing note, since 0.6.
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
        variation: Whether it prints coefficients of variation, and of what: of the values of a table, or of
            the samples.
        cuda_names: Whether CUDA versions are ``13.2 (13020)``.
        starts: What begins with the version of the program: outputs of ``run``, ``list``, ``help`` and
            ``usage``.
        listed_apart: Whether an empty line follows each testcase in the list.
        note_first: Whether the note on small buffers precedes even the version.
        default_mebibytes: Default size of a buffer.
        smaller: The note on smaller buffers.
        opening, closing: Notes before the versions of libraries, and at the end.
        names: What the lines of devices have: the model only; the PCI bus ID too; a line with the host before
            them; the PCI function too, and lines of the NVLink fabric of processes.
        waived: Line of a testcase that cannot be measured, with ``{name}`` and ``{reason}``.
        parts: Suffix of the name of a bidirectional testcase between GPUs -> the only table that it has;
            empty if it has all of them.
        titles: Name of a testcase -> title of its table, where it differs.
        after_usage: What follows the arguments before the help, if they are invalid.
        padded: Whether the numbers of rows are padded to one width.
        both: What the program says if testcases and prefixes are given.
        words: Words of titles -> what this program says for them.
        whole_ratios: Whether tables of ratios have sums, only the total of a bidirectional testcase has one,
            and none has a diagonal.
        first_samples: Whether only the first copy of a value has lines of samples, and latencies have none.
        json_root: Key of the only member of the JSON.
        refuses_on_output: Whether standard output, not standard error, has why the program refuses to run.
    """

    program: str
    version: str
    json_version: str
    testcases: str
    exact: bool = True
    variation: Literal["", "cells", "samples"] = ""
    cuda_names: bool = False
    starts: tuple[str, ...] = ("run", "list", "help", "usage")
    listed_apart: bool = True
    note_first: bool = False
    default_mebibytes: int = 512
    smaller: str = _SMALLER
    opening: str = ""
    closing: str = NOTICE
    names: Literal["model", "bus", "host and bus", "bus and function"] = "host and bus"
    waived: str = "Waived: {name}: {reason}\n\n"
    parts: Mapping[str, str] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    after_usage: str = ":"
    padded: bool = True
    both: str = "You cannot specify both testcase and testcasePrefix options at the same time"
    words: Mapping[str, str] = field(default_factory=dict)
    whole_ratios: bool = False
    first_samples: bool = False
    json_root: Literal["nvbandwidth", "sailbandwidth"] = "nvbandwidth"
    refuses_on_output: bool = False

    def start(self, output: str = "run") -> str:
        """The lines at the start of an output; none if it does not begin with the version."""
        if output not in self.starts:
            return ""
        name = f"{self.program} Version: {self.version}\n"
        return f"{name}Built from Git version: wirespeed {__version__}\n\n"

    def versions(self, machine: Machine) -> list[str]:
        """The lines with the versions of libraries and driver."""
        cuda, of_driver = str(machine.cuda), ""
        if self.cuda_names:
            cuda, of_driver = f"{machine.cuda // 1000}.{machine.cuda % 1000 // 10} ({cuda})", " (API)"
        return [
            f"CUDA Runtime Version: {cuda}",
            f"CUDA Driver Version{of_driver}: {cuda}",
            f"Driver Version: {machine.driver or 'none'}",
        ]

    def wrong_data(
        self, document: Document, result: TestcaseResult, note: str = "", found: Found = NOTHING_FOUND
    ) -> str:
        """The reports on wrong data of a testcase, in addition to its output; ``note`` may explain it."""
        return ""
