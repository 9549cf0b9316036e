"""The exceptions that hold the Document of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import WirespeedError

if TYPE_CHECKING:
    from .document import Document


class MeasurementFailed(WirespeedError):
    """The requested measurement has no value; the message says why.

    Attributes:
        message: The reason.
        document: The results.
    """

    def __init__(self, message: str, document: Document) -> None:
        super().__init__(message)
        self.document = document


class RunInterrupted(KeyboardInterrupt):
    """The user interrupted a run.

    Attributes:
        document: The results so far.
        is_shown: Whether a screen has said so.
    """

    def __init__(self, document: Document) -> None:
        super().__init__("interrupted")
        self.document = document
        self.is_shown = False
