"""How a run ends early: the exceptions that hold its Document, and the signals, which are Ctrl-C, the end of
a job by its scheduler, and a terminal that closes.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from .errors import WirespeedError

if TYPE_CHECKING:
    from .document import Document

T = TypeVar("T")


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
#: Longest time between two looks of a wait in the main thread, and the time after a signal from which its
#: exception counts as lost if nothing caught it, in s.
LOOK_S, _LOST_S = 0.5, 0.2


class _Signalled:
    """The last signal that was to end the run, until something catches its exception.

    Signals belong to the process, so there is one. The exception of a handler vanishes where Python or a
    library ignores it: in a destructor, a callback of ctypes, an import, the close of a generator.
    """

    def __init__(self) -> None:
        self._at: float | None = None

    def came(self) -> None:
        """Say that a signal came; its handler then raises KeyboardInterrupt."""
        self._at = time.monotonic()

    def heard(self) -> None:
        """Say that the exception arrived."""
        self._at = None

    def look(self) -> None:
        """Raise the exception again if it was lost; every wait of the main thread calls it.

        Raises:
            KeyboardInterrupt: If a signal came, and nothing has caught its exception.
        """
        at = self._at
        is_main = threading.current_thread() is threading.main_thread()
        if at is not None and is_main and time.monotonic() - at > _LOST_S:
            self._at = None
            raise KeyboardInterrupt


SIGNALLED = _Signalled()


def waited(ready: Callable[[float], T], seconds: float) -> T:
    """Wait for something, and look for lost signals meanwhile.

    Args:
        ready: Waits for at most the given time in s; returns something true if there is something.
        seconds: Maximum time, in s.

    Raises:
        KeyboardInterrupt: If the exception of a signal was lost.
    """
    until = time.monotonic() + seconds
    while True:
        SIGNALLED.look()
        left = until - time.monotonic()
        found = ready(max(0.0, min(left, LOOK_S)))
        if found or left <= LOOK_S:
            return found


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
