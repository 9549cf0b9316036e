"""The tree of exceptions. Each message says what was tried, on what, and what to do.

::

    WirespeedError
    ├── UsageError                  wrong option or argument (exit code 2)
    │   ├── UnknownTestcase
    │   ├── MachineError            a machine that is not known, or a broken machine file
    │   ├── DocumentError           not a Document, or of a newer schema
    │   └── MissingPackage          an optional package is not installed
    ├── StorageError                the Document cannot be written
    ├── BackendError                the hardware or a library refused
    │   ├── OutOfMemory
    │   └── BackendLost             nothing more can be measured in this run
    ├── Unreachable                 not possible here, as was found when it was prepared
    ├── VerificationError           the data at the destination is wrong
    ├── MeasurementTimeout          a stage took longer than it may
    └── MeasurementFailed           what was asked for has no value
    KeyboardInterrupt
    └── RunInterrupted              Ctrl-C, with what was measured until then
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .results.document import Document


class WirespeedError(Exception):
    """Anything that wirespeed reports to its user in one line."""


class UsageError(WirespeedError):
    """The caller asked for something that cannot be."""


class UnknownTestcase(UsageError):
    """No testcase has this name, index or prefix."""


class MachineError(UsageError):
    """A machine that is not known, or a file that does not describe one."""


class DocumentError(UsageError):
    """A file that is not a Document of a schema that this version reads."""


class MissingPackage(UsageError):
    """What was asked for needs a package that is not installed; the message says how to install it."""

    def __init__(self, what: str, package: str) -> None:
        super().__init__(f"{what} needs {package}, which is not installed: pip install {package}")


class StorageError(WirespeedError):
    """The Document cannot be written where it was asked for."""


class BackendError(WirespeedError):
    """A call to the hardware or to a library failed; the testcase fails, the run goes on."""


class Unreachable(WirespeedError):
    """A Measurement that is not possible here, as was found when it was prepared; its cells are waived."""


class OutOfMemory(BackendError):
    """Memory cannot be allocated; there may be enough for smaller buffers, or once unused ones are freed."""


class BackendLost(BackendError):
    """The hardware is gone for this process; the run ends with what was measured."""


class VerificationError(WirespeedError):
    """Wrong data at a destination.

    Parameters
    ----------
    transfer
        Which one, as text.
    offset
        Byte offset of the first wrong 8-byte word.
    wrong
        Number of wrong words.
    words
        Number of words compared.
    way
        The source and the destination of the transfer, as ``Transfer.way`` has them.
    """

    def __init__(self, transfer: str, offset: int, wrong: int, words: int, way: str = "") -> None:
        super().__init__(
            f"wrong data in {transfer}: {wrong} of {words} words differ, the first at byte offset {offset}"
        )
        self.offset = offset
        self.wrong = wrong
        self.words = words
        self.way = way


class MeasurementTimeout(WirespeedError):
    """A stage took longer than the time-out.

    ``stage`` names what was being done, and on what.
    """

    def __init__(self, stage: str, seconds: float) -> None:
        super().__init__(f"timed out after {seconds:g} s while {stage}")
        self.stage = stage


class MeasurementFailed(WirespeedError):
    """What was asked for has no value: it is not possible here, or it went wrong; the message says why.

    ``document`` holds what was measured.
    """

    def __init__(self, message: str, document: Document) -> None:
        super().__init__(message)
        self.document = document


class RunInterrupted(KeyboardInterrupt):
    """The user interrupted a run; ``document`` holds what was measured until then."""

    def __init__(self, document: Document) -> None:
        super().__init__("interrupted")
        self.document = document
