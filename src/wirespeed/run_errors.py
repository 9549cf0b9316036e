"""How a run ends early: the exceptions that hold its Document, and the signals.

These are Ctrl-C, the end of a job by its scheduler, a terminal that closes.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
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


#: The signals that end a run with what was measured.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Time after a signal in which further signals are ignored, in s: launchers send several.
GRACE_S = 2.0


class Undisturbed:
    """Postpone signals while results are saved or shown, which must be complete.

    A further signal, more than ``GRACE_S`` after the first one, interrupts nevertheless. Nothing is raised at
    the end. Only the main thread handles signals: elsewhere nothing changes.

    Attributes:
        signals: The signal that came, if one did.
    """

    def __enter__(self) -> Undisturbed:
        self.signals: list[int] = []
        self._since = 0.0
        self._handlers: dict[int, Callable[[int, FrameType | None], object]] = {}
        if threading.current_thread() is threading.main_thread():
            for number in ENDING:
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, self._postpone)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _postpone(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self.signals:
            self.signals.append(number)
            self._since = now
        elif now - self._since > GRACE_S:
            self._handlers[number](number, frame)
