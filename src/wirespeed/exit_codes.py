"""Exit codes of all commands but those with the names of other programs."""

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
