"""``wirespeed``: find the command, call it, and return an exit code."""

from __future__ import annotations

import errno
import gc
import io
import math
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..errors import EXIT_CODES, ExitCode, NotIdle, UsageError, WirespeedError
from ..run_errors import ENDING, GRACE_S, SIGNALLED, RunInterrupted
from ..terminal import PLAIN, columns, error_line, shows_unicode
from ..version import __version__
from .commands import COMMANDS, SHOWN, called_as, functions, module_of, overview, programs
from .consumers import Answer, answer, requested, translated
from .parser import Parser, complete_command, meant_by, of_other_program, words_to_complete

if TYPE_CHECKING:
    from types import FrameType, TracebackType

#: Errors of writing; without the name of a file, to standard output: files are written by `results.store`.
_OF_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
#: Time until a signal whose exception was ignored is sent again, in s.
_RESEND_S = 0.01
#: Options in place of a command; all others are those of `run`.
_ABOUT = ("--version", "--help", "-h")
#: Prefixes of arguments with which commands that measure do not measure this machine.
_ELSEWHERE = (
    "--machine", "--from", "--no-measure", "--root", "--record", "--help", "-h", "--list", "-l", "--dry-run",
)  # fmt: skip
#: What precedes a command line without a command.
_DEFAULT = ("run", "--tier", "quick")


def entry() -> NoReturn:
    """Run the command line as a process.

    It ends immediately if only memory and devices remain to be released, which the operating system does
    faster than the interpreter and the libraries: 0.1 s with two GPUs. MPI must be finalised.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123
        elif isinstance(stream, io.TextIOWrapper):
            plain = stream.isatty() and not shows_unicode()
            stream.reconfigure(encoding="ascii" if plain else None, errors=PLAIN)
    # What a run allocates lives until its end: looking at it again and again took a quarter of the time to
    # judge a run of 72 GPUs.
    gc.set_threshold(100_000, 20, 50)
    # numpy's linear algebra would start a thread for each CPU, and interrupt this process if it cannot.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ["PYTHONSAFEPATH"] = "1"  # processes that this one starts import nothing from this folder
    if "COLUMNS" in os.environ:
        os.environ["COLUMNS"] = str(columns())  # for libraries too, which pad lines to any width
    arguments = _arguments()
    ending = _Ending(translated(ExitCode.INTERRUPTED, arguments))
    sys.unraisablehook = ending.ignored
    sys.excepthook = _crashed
    for number in ENDING:
        # Shells ignore SIGINT in the background, nohup ignores SIGHUP.
        if number is signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, ending)
    code = main(arguments)
    if "mpi4py" in sys.modules:
        from ..worlds.mpi import finalize

        finalize()
        sys.exit(code)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = code or translated(ExitCode.RUN, arguments)
    os._exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = _arguments() if argv is None else list(argv)
    consumer = requested(arguments)
    if consumer is None:
        return _run(arguments)
    return answer(consumer, lambda: _run(arguments))


def _arguments() -> list[str]:
    """The arguments of this process; a link with the name of a command is that command."""
    return sys.argv if _peer(sys.argv[0]) else sys.argv[1:]


def _run(arguments: list[str]) -> int:
    """Run a command; say on standard error why it failed."""
    broken = ExitCode.FAIL if arguments and _peer(arguments[0]) else ExitCode.RUN
    try:
        code = _dispatch(arguments)
        SIGNALLED.look()
        return code
    except UsageError as error:
        return _ended(ExitCode.USAGE, str(error))
    except NotIdle as error:
        return _ended(ExitCode.NOT_JUDGED, str(error))
    except WirespeedError as error:
        return _ended(broken, str(error))
    except RunInterrupted as interrupted:
        from ..document import Status
        from ..units import many

        results = interrupted.document.testcases
        said = interrupted.is_shown and sys.stdout.isatty()
        begun = many(sum(result.status is not Status.WAIVED for result in results), "testcase")
        return _ended(ExitCode.INTERRUPTED, f"interrupted; {begun} begun", said=said)
    except KeyboardInterrupt:
        return _ended(ExitCode.INTERRUPTED, "interrupted")
    except OSError as error:
        reason = "" if isinstance(error, BrokenPipeError) else _failed(error)  # the reader closed our output
        with suppress(OSError):  # no error at the end: what is left in the buffer cannot be written
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _ended(broken, reason)
    except ImportError as error:
        return _ended(broken, error_line(f"cannot import {error.name or 'a library'}: {error}"))
    except MemoryError:
        return _ended(broken, "not enough memory")


def _ended(code: int, reason: str, *, said: bool = False) -> Answer:
    """Print why a command ended early, unless a screen has said so; return its exit code with the reason."""
    if reason and not said:
        kind = "" if code == ExitCode.INTERRUPTED else "error: "
        print(f"wirespeed: {kind}{reason}", file=sys.stderr)
    return Answer(code, reason or "standard output was closed")


def _failed(error: OSError) -> str:
    """What failed, and why: a file, standard output, or what the message of a library names."""
    subject = error.filename or ("standard output" if error.errno in _OF_OUTPUT else "")
    why = error.strerror or str(error)
    return error_line(f"{subject}: {why}" if subject else why)


def _crashed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> NoReturn:
    """Print an error of wirespeed itself, and end with the code of a run that failed: Python's means FAIL."""
    sys.__excepthook__(kind, error, trace)
    sys.stderr.flush()
    os._exit(ExitCode.RUN)


class _Ending:
    """Handle Ctrl-C, the end of a job or of a terminal: save the results and cancel the measurement.

    This takes a moment, in which further signals (launchers send several) must not interrupt. A signal after
    that ends the process.

    Attributes:
        code: Exit code of the process if it ends then.
    """

    def __init__(self, code: int) -> None:
        self._code = code
        self._since = math.inf

    def __call__(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        now = time.monotonic()
        if now < self._since:
            self._since = now
            SIGNALLED.came()
            raise KeyboardInterrupt
        if now - self._since > GRACE_S:
            os._exit(self._code)

    def ignored(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Send the signal again if Python says that it ignored its exception; of others, a wait looks."""
        if unraisable.exc_type is KeyboardInterrupt:
            self._since = math.inf
            SIGNALLED.heard()
            signal.signal(signal.SIGALRM, self)  # a thread could not be started before the signal comes
            signal.setitimer(signal.ITIMER_REAL, _RESEND_S)
        else:
            sys.__unraisablehook__(unraisable)


def _peer(called: str) -> str | None:
    """The program of others that a first word stands for: its name, a path that ends in it; else None."""
    return called_as(Path(called).name)


def _dispatch(arguments: list[str]) -> int:
    """Run a command; programs of nccl-tests print the name by which they were called."""
    called = arguments[0] if arguments else ""
    if command := _peer(called):
        arguments = [command, *arguments[1:]]
    if "_ARGCOMPLETE" in os.environ:
        arguments, word = words_to_complete()
        if not arguments and not word.startswith("-"):
            complete_command([*SHOWN, *programs()])
        # The number of the word that begins the command line of the parser.
        os.environ["_ARGCOMPLETE"] = "2" if arguments and module_of(arguments[0]) else "1"
    if arguments[:1] == ["--version"]:
        print(f"wirespeed {__version__}")
        return ExitCode.PASS
    if arguments[:1] and arguments[0] in _ABOUT:
        top_parser().parse_args(arguments)
        return ExitCode.PASS
    if arguments[:1] == ["help"] and len(arguments) == 2 and module_of(arguments[1]):
        from ..reports.topics import topics

        if arguments[1] not in topics():  # a page says more, and names the options
            arguments = [arguments[1], "--help"]
    if not arguments or arguments[0].startswith("-"):  # no command: options of `run`, quick tier
        given, arguments = arguments, [*_DEFAULT, *arguments]
    else:
        given = arguments[1:]
    name = arguments[0]
    row = COMMANDS.get(name)
    if row and row.mistaken and (meant := of_other_program(name, given)):
        raise UsageError(meant)
    if module_of(name) is None:
        near = get_close_matches(name, [*SHOWN, *programs()], 1)
        close = "".join(f" (did you mean {command!r}?)" for command in near) or meant_by([name])
        raise UsageError(f"unknown command {name!r}{close}; `wirespeed --help` lists all commands")
    if row and row.measures and not any(a.startswith(_ELSEWHERE) for a in arguments):
        from ..backends import warm_up

        warm_up()  # in the background, while this process imports modules
    own = called if name not in COMMANDS and _peer(called) == name else name
    return functions(name).main(own, arguments[1:])


def top_parser() -> Parser:
    """The parser of the options in place of a command."""
    top = Parser(
        "",
        "Measure how fast data moves along every path of this machine, and judge it.\n"
        "Without a command, wirespeed quickly measures everything that the machine\n"
        "supports. It then has the options of run, such as -o node17.json.\n\n"
        f"{overview()}",
        EXIT_CODES,
        usage="wirespeed [-h] [--version] [COMMAND] [OPTION ...]",
        examples={
            "": "measure everything quickly",
            "check --explain": "what is slow, why, and what to do",
            "report run.json -o run.html": "a page of a saved run",
        },
    )
    top.add_argument("--version", action="version", version=f"wirespeed {__version__}")
    return top
