"""``--for CONSUMER``: exit codes and one line for the programs that run a check and act on its answer. With
this option, standard output has only the line; everything else goes to standard error.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ExitCode, UsageError
from ..terminal import PLAIN, flat

if TYPE_CHECKING:
    from ..results.output import Output

#: Name of the option, whose default no file or variable may set: it must be known before they are read.
OPTION = "--for"
#: How the line names an exit code.
_WORDS = {
    ExitCode.PASS: "PASS", ExitCode.FAIL: "FAIL", ExitCode.USAGE: "ERROR", ExitCode.WARN: "WARN",
    ExitCode.NOT_JUDGED: "NOT JUDGED", ExitCode.RUN: "ERROR", ExitCode.INTERRUPTED: "INTERRUPTED",
}  # fmt: skip
#: End of a reason that was shortened.
_CUT = "..."
#: Minimum length of a line that has the remedy, in bytes.
_WITH_REMEDY = 4096


@dataclass(frozen=True)
class Consumer:
    """A program, or a kind of program, that acts on an exit code and shows a line.

    Attributes:
        codes: Exit code of the command -> exit code that the consumer understands.
        other: What it gets for all other exit codes.
        most_bytes: Maximum length of the line, without the line end, in bytes.
        words: Its words for exit codes.
        other_word: Its word for all others; empty for that of wirespeed.
        ignored: What is printed on standard error if the result is not good and the consumer gets 0.
        log: File that gets the line too, if it exists and can be written.
        mark: Beginning of the line, by which scripts that act on it know an answer of wirespeed.
        with_figures: Whether the line ends with performance data, as plugins of Nagios print it.
    """

    codes: Mapping[ExitCode, int]
    other: int
    most_bytes: int
    words: Mapping[ExitCode, str] = field(default_factory=dict)
    other_word: str = ""
    ignored: str = ""
    log: Path | None = None
    mark: str = ""
    with_figures: bool = False

    def code(self, code: int) -> int:
        """The exit code for the consumer; what is no exit code of ours is an error of the run."""
        return self.codes.get(_known(code), self.other)

    def line(self, answer: Answer) -> str:
        """The line, in ASCII: host, verdict, reason and, if there is room, the remedy and figures."""
        code = _known(answer)
        word = self.words.get(code) or self.other_word or _WORDS[code]
        subject = _plain(answer.subject or platform.node() or "unknown host")
        if len(subject) >= self.most_bytes // 4:
            subject = subject[: self.most_bytes // 4 - len(_CUT)] + _CUT
        start = f"{self.mark} {word}: {subject}: " if self.mark else f"{subject} {word}: "
        text = answer.reason
        if answer.remedy and self.most_bytes >= _WITH_REMEDY:
            text += f"; remedy: {answer.remedy}"
        text, end = _plain(text), ""
        if self.with_figures:
            start, text = (part.replace("|", "/") for part in (start, text))  # it separates the figures
            end = f" | {' '.join(answer.figures)}" if answer.figures else ""
        room = self.most_bytes - len(start) - len(end)
        return start + (text if len(text) <= room else text[: room - len(_CUT)] + _CUT) + end

    def tell(self, answer: Answer) -> None:
        """Print the line on standard output, and write it to the log."""
        line = self.line(answer)
        try:
            print(line, flush=True)
        except OSError:  # the reader has closed it, or it is full: the exit code says the same
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if self.log is not None and self.log.exists():
            with suppress(OSError):
                self.log.write_text(f"{line}\n")
        if self.ignored and answer and not self.code(answer):
            with suppress(OSError):
                print(f"{line}\nwirespeed: {self.ignored}", file=sys.stderr, flush=True)


class Answer(int):
    """An exit code with the reason for it.

    Attributes:
        code: The exit code.
        reason: The reason, in one sentence.
        subject: The host or runs that it is about; empty for this host.
        remedy: What to do; empty if there is nothing to do.
        figures: Key figures as performance data of a plugin of Nagios: ``gpu_gpu=276GB/s;;249:;0;300``.
    """

    reason: str
    subject: str
    remedy: str
    figures: Sequence[str]

    def __new__(
        cls, code: int, reason: str, subject: str = "", remedy: str = "", figures: Sequence[str] = ()
    ) -> Answer:
        answer = super().__new__(cls, code)
        answer.reason, answer.subject, answer.remedy, answer.figures = reason, subject, remedy, figures
        return answer


class InvalidUsage(SystemExit):
    """The end of a command whose arguments were refused; the message is printed already."""

    def __init__(self, message: str) -> None:
        super().__init__(int(ExitCode.USAGE))
        self.message = message


#: Consumers that take a machine out of service for any exit code but 0.
_HARDWARE = Consumer(
    codes={ExitCode.FAIL: 1}, other=0, most_bytes=512, mark="WIRESPEED",
    ignored="exit code 0: only a failure of the hardware takes a machine out of service",
)  # fmt: skip
CONSUMERS: Mapping[str, Consumer] = {
    "nagios": Consumer(
        codes={ExitCode.PASS: 0, ExitCode.WARN: 1, ExitCode.FAIL: 2}, other=3, most_bytes=4096,
        words={ExitCode.PASS: "OK", ExitCode.WARN: "WARNING", ExitCode.FAIL: "CRITICAL"},
        other_word="UNKNOWN", with_figures=True,
    ),
    "npd": Consumer(
        codes={ExitCode.PASS: 0, ExitCode.WARN: 0, ExitCode.FAIL: 1}, other=2, most_bytes=512,
        mark="WIRESPEED",
    ),
    "slurm": _HARDWARE,
    "nhc": _HARDWARE,
    "aicr": Consumer(  # 2 is skipped there: an invalid option or a failed run must not read as that
        codes={ExitCode.PASS: 0, ExitCode.WARN: 0, ExitCode.NOT_JUDGED: 2}, other=1, most_bytes=4096,
        log=Path("/dev/termination-log"),
    ),
    "gpud": _HARDWARE,
}  # fmt: skip


def requested(arguments: Sequence[str]) -> Consumer | None:
    """The consumer of a command line; None without one, or if the command will refuse it."""
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    own.add_argument(OPTION, dest="name", default="")
    try:
        known, _ = own.parse_known_args([*arguments])
    except argparse.ArgumentError:  # without a value
        return None
    return CONSUMERS.get(known.name)


def translated(code: int, arguments: Sequence[str]) -> int:
    """An exit code for the consumer of a command line."""
    consumer = requested(arguments)
    return consumer.code(code) if consumer else code


def answer(consumer: Consumer, command: Callable[[], int]) -> int:
    """Run a command for a consumer: print the line, and return the exit code that it understands.

    Args:
        consumer: The consumer.
        command: Returns the exit code of the command: an ``Answer`` if there is something to say.
    """
    with _only_errors():
        try:
            code = command()
        except InvalidUsage as end:
            code = Answer(ExitCode.USAGE, end.message)
        except Exception as error:  # a defect of wirespeed must not read as one of the machine
            with suppress(OSError):
                traceback.print_exc()
            code = Answer(ExitCode.RUN, f"internal error: {type(error).__name__}: {error}")
    if isinstance(code, Answer):
        consumer.tell(code)
    return consumer.code(code)


@contextmanager
def _only_errors() -> Iterator[None]:
    """Send to standard error what this process and its libraries, such as NCCL, print on standard output."""
    with ExitStack() as undo:
        undo.enter_context(redirect_stdout(sys.stderr))
        with suppress(OSError):  # closed by the caller
            kept = os.dup(1)
            undo.callback(os.close, kept)
            undo.callback(os.dup2, kept, 1)
            os.dup2(2, 1)
        yield


def refuse_mixed(consumer: str | None, output: Output | None) -> None:
    """Refuse a Document on standard output, which has the line.

    Raises:
        UsageError: If both are requested.
    """
    from ..results.output import STDOUT

    if consumer and output and output.path == STDOUT:
        raise UsageError(f"{OPTION} prints its line on standard output: give -o a file")


def _known(code: int) -> ExitCode:
    """A code that is none of ours counts as an error of the run."""
    return ExitCode(code) if code in ExitCode._value2member_map_ else ExitCode.RUN


def _plain(text: str) -> str:
    """A text as one line of ASCII."""
    return " ".join(flat(text).encode("ascii", PLAIN).decode().split())
