"""What distinguishes the outputs of nvbandwidth's versions, and of its relatives.

What distinguishes the outputs of nvbandwidth's versions since 0.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from ..document import Document, TestcaseResult
from ..hardware.topology import Machine
from ..version import __version__
from .style import DialectName

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


_OPENING = (
    "NOTE: This tool reports current measured bandwidth on your system.\n"
    "Additional system-specific tuning may be required to achieve maximal peak bandwidth.\n\n"
)
#: The note on smaller buffers of 0.4.
_FEWER = (
    "NOTE: You have chosen a buffer size that is smaller than the default buffer size. \n"
    "It is suggested to use the default buffer size (64MB) to achieve maximal peak bandwidth.\n"
)
_LATER_SMALLER = (
    "NOTE: You have chosen a buffer size that is smaller than the default buffer size. It is suggested to "
    "use the default buffer size (512MB) to achieve maximal peak bandwidth."
)
_PAIR = "device_to_device_bidirectional_memcpy_"


def _titles() -> dict[str, str]:
    """The titles of 0.4 that differ from those of later versions."""
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


#: What 0.4 and 0.5 have in common, and 0.10 and 0.11.
_old = partial(
    Dialect, "nvbandwidth", default_mebibytes=64, opening=_OPENING, closing="", names="model",
    refuses_on_output=True,
    parts={f"{_PAIR}{way}_{by}": part for way in ("read", "write")
           for by, part in (("ce", "first"), ("sm", "total"))},
)  # fmt: skip
_new = partial(
    Dialect, "nvbandwidth", variation="samples", cuda_names=True, listed_apart=False, smaller=_LATER_SMALLER
)

#: Values of ``Style.dialect``.
VERSIONS: dict[DialectName, Dialect] = {
    "0.4": _old(
        "v0.4", "v0.4", "0.4", smaller=_FEWER, waived="Waiving {name}.\n\n", padded=False, after_usage="",
        titles=_titles(),
    ),
    "0.5": _old("v0.5", "v0.5", "0.5"),
    "0.6": Dialect(
        "nvbandwidth", "v0.6", "v0.6", "0.6", default_mebibytes=64, names="bus", refuses_on_output=True
    ),
    "0.7": Dialect("nvbandwidth", "v0.7", "v0.7", "0.7", names="bus"),
    "0.8": Dialect("nvbandwidth", "v0.8", "v0.8", "0.8"),
    "0.9": Dialect(
        "nvbandwidth", "v0.9", "v0.9", "0.9", variation="cells", starts=("run",), listed_apart=False,
        note_first=True, smaller=_LATER_SMALLER,
    ),
    "0.10": _new("v0.10.0", "v0.10.0", "0.10"),
    "0.11": _new("v0.11.0", "v0.11.0", "0.11", names="bus and function"),
}  # fmt: skip
