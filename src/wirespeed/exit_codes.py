"""Exit codes of all commands but those with the names of other programs, which keep theirs."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit code of a command; ``docs/operate.md`` says what to do with each."""

    PASS = 0  #: as fast as expected; for commands that only measure or convert: done
    FAIL = 1  #: the machine failed: a value, the data, an expectation, or a device that should be there
    USAGE = 2  #: invalid option, argument or file
    WARN = 3  #: warnings only
    NOT_JUDGED = 4  #: nothing was judged or measured: limits unknown, devices busy, ended by a time limit
    RUN = 5  #: the run failed, not the machine: a library, the job, the output
    INTERRUPTED = 130  #: Ctrl-C


#: What each code means, for ``--help``, the manual page and ``docs/formats.md``.
MEANINGS = {
    ExitCode.PASS: "pass; of commands that only measure or convert: done",
    ExitCode.FAIL: "the machine failed: a value, the data, an expectation or a published threshold",
    ExitCode.USAGE: "invalid option, argument or file",
    ExitCode.WARN: "only warnings (commands that judge)",
    ExitCode.NOT_JUDGED: "nothing was judged or measured: limits unknown, devices in use, interrupted",
    ExitCode.RUN: "the run failed, not the machine: a library, the job, the output",
    ExitCode.INTERRUPTED: "interrupted (Ctrl-C)",
}
#: The same as the end of a help.
EXIT_CODES = "exit codes:\n" + "\n".join(f"  {code:<5}{text}" for code, text in MEANINGS.items())
