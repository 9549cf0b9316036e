"""Exit codes of commands, and the tree of exceptions (see `WirespeedError`). A message says what failed, with
the value, and what to do. Commands with the names of other programs have the exit codes of those programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum

from .terminal import error_line


class ExitCode(IntEnum):
    """Exit code of a command; ``docs/operate.md`` says what to do with each."""

    PASS = 0  #: as fast as expected; for commands that only measure or convert: done
    FAIL = 1  #: the machine failed: a value, the data, an expectation, or a device that should be there
    USAGE = 2  #: invalid option, argument or file
    WARN = 3  #: warnings only
    NOT_JUDGED = 4  #: nothing was judged or measured: limits unknown, devices busy, ended by a time limit
    RUN = 5  #: the run failed, not the machine: a library, the job, the output
    INTERRUPTED = 130  #: Ctrl-C


#: The exit codes of commands that judge several runs, the worst first.
WORST_FIRST = (ExitCode.FAIL, ExitCode.RUN, ExitCode.WARN, ExitCode.NOT_JUDGED, ExitCode.PASS)
#: What each code means, for ``--help``, the manual page and ``docs/formats.md``.
MEANINGS = {
    ExitCode.PASS: "pass; for commands that only measure or convert: done",
    ExitCode.FAIL: "the machine failed: a value, the data, an expectation or a published threshold",
    ExitCode.USAGE: "invalid option, argument or file",
    ExitCode.WARN: "only warnings (commands that judge)",
    ExitCode.NOT_JUDGED: "nothing was judged or measured: limits unknown, devices in use, interrupted",
    ExitCode.RUN: "the run failed, not the machine: a library, the job, the output",
    ExitCode.INTERRUPTED: "interrupted (Ctrl-C)",
}
#: The same as the end of a help.
EXIT_CODES = "exit codes:\n" + "\n".join(f"  {code:<5}{text}" for code, text in MEANINGS.items())


class WirespeedError(Exception):
    """Base of all errors that wirespeed reports to its user in one line.

    ::

        WirespeedError
        ├── UsageError                  invalid option or argument (exit code 2)
        │   ├── UnknownTestcase
        │   ├── MachineError            unknown machine or invalid machine file
        │   ├── DocumentError           not a Document, or another schema
        │   └── MissingPackage          an optional package is not installed
        ├── StorageError                the Document cannot be written
        ├── BackendError                the hardware or a library refused
        │   ├── OutOfMemory
        │   └── BackendLost             nothing more can be measured in this run
        ├── Unreachable                 not possible here, as its preparation has shown
        ├── VerificationError           the data at the destination is wrong
        ├── MeasurementTimeout          a stage exceeded the time-out
        │   └── NotIdle                 other processes still use the machine
        └── MeasurementFailed           the requested measurement has no value (`wirespeed.run_errors`)
        KeyboardInterrupt
        └── RunInterrupted              Ctrl-C; holds the results until then (`wirespeed.run_errors`)
    """

    def __str__(self) -> str:
        """The message in one line of limited length, whatever names and contents of files it has."""
        return error_line(super().__str__())


class UsageError(WirespeedError):
    """Invalid option or argument."""


class UnknownTestcase(UsageError):
    """No testcase has this name, index or prefix."""


class MachineError(UsageError):
    """Unknown machine, or a file that does not describe a machine."""


class DocumentError(UsageError):
    """Not a Document, or a Document with a schema that this version cannot read."""


class NotARun(DocumentError):
    """Not a Document, but possibly the log of another tool."""


class MissingPackage(UsageError):
    """A feature needs a package that is not installed; the message says how to install it.

    Attributes:
        what: The feature.
        package: Name of the package.
    """

    def __init__(self, feature: str, package: str) -> None:
        super().__init__(f"{feature} needs {package}, which is not installed: pip install {package}")


class StorageError(WirespeedError):
    """The Document cannot be written to the requested file."""


class BackendError(WirespeedError):
    """A call to the hardware or a library failed. The testcase fails; the run continues."""


class Unreachable(WirespeedError):
    """A Measurement is not possible here, as its preparation has shown; its cells are waived."""


class OutOfMemory(BackendError):
    """Memory cannot be allocated; there may be enough for smaller buffers, or once unused ones are freed."""


class BackendLost(BackendError):
    """The device can no longer be used by this process. The run ends and keeps its results."""


#: Largest number of wrong words that are listed.
MOST_LISTED = 4096


@dataclass(frozen=True)
class WrongWord:
    """One wrong word.

    Attributes:
        index: Position in the buffer, in words of 8 bytes.
        expected, actual: What it should be, and what it is.
        source: What the source contains there.
        before: What the destination contained before the copy.
    """

    index: int
    expected: int
    actual: int
    source: int
    before: int


@dataclass(frozen=True)
class WrongWords:
    """The wrong words of a destination whose source could be read, too.

    Attributes:
        listed: The first of them.
        ever, always: Bits that are wrong in at least one of all, and in each of them.
        source_wrong: How many are wrong at the source.
        unwritten: How many still are what the destination contained before.
        copied: How many others are what the source contains.
    """

    listed: tuple[WrongWord, ...]
    ever: int
    always: int
    source_wrong: int
    unwritten: int
    copied: int

    def blame(self, wrong: int) -> str:
        """What the comparison with the source says of all ``wrong`` words."""
        if self.unwritten == wrong:
            return "they were never written"
        if not self.source_wrong:
            return "the source is intact"
        if self.copied == wrong:
            return "the source has the same wrong words"
        return f"{self.source_wrong} of them are wrong at the source, too"


class VerificationError(WirespeedError):
    """Wrong data at a destination.

    Attributes:
        transfer: The transfer, as text.
        offset: Byte offset of the first wrong 8-byte word.
        wrong: Number of wrong words.
        words: Number of compared words.
        way: Source and destination of the transfer, like ``Transfer.way``.
        found: The wrong words, compared with the source; None if it cannot be read here.
    """

    def __init__(
        self, transfer: str, offset: int, wrong: int, words: int, way: str = "",
        found: WrongWords | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            f"wrong data in {transfer}: {wrong} of {words} words differ, the first at byte offset {offset}"
            f"{f'; {found.blame(wrong)}' if found else ''}"
        )
        self.found = found
        self.offset = offset
        self.wrong = wrong
        self.words = words
        self.way = way


class MeasurementTimeout(WirespeedError):
    """A stage exceeded the time-out.

    Attributes:
        stage: The activity and its object, to be read after "while".
        seconds: The time-out in s.
    """

    def __init__(self, stage: str, seconds: float) -> None:
        super().__init__(f"timed out after {seconds:g} s while {stage}")
        self.stage = stage


class NotIdle(MeasurementTimeout):
    """Other processes still use the machine after the time to wait."""


@contextmanager
def starting_threads(purpose: str = "") -> Iterator[None]:
    """Report in one line that the system refuses another thread.

    Args:
        purpose: What the thread is for.

    Raises:
        BackendError: If it does.
    """
    try:
        yield
    except RuntimeError as error:
        raise BackendError(
            f"could not start a thread{purpose and f' for {purpose}'}: {error}; "
            "allow this process more threads (ulimit -u, pids.max of its control group)"
        ) from error
