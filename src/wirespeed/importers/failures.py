"""Lines of a log that say that a run failed, whoever wrote them: the tool, MPI, Slurm or a shell."""

from __future__ import annotations

import re

from ..document import Status

#: What says that a run failed. Anything else that a tool reports is an unknown line.
_FAILURE = re.compile(
    r"fail|error|fatal|abort|assert|\bkilled\b|terminate|segmentation|segfault|core dumped|bus error|"
    r"received signal|on signal|timed out|test timeout|time ?limit|timeout: |cancell?ed|corrupt|mismatch|"
    r"invalid|exception|traceback|"
    r"out[ -]of[ -]memory|oom.kill|non-?zero|exit(ed)? (with )?(code|status)[ :=]*[1-9]|"
    r"not (enough|have enough) |ended early|interrupted|does not validate",
    re.IGNORECASE,
)
#: Lines with such words that say something else: warnings, settings, commands, counts of zero, and notices of
#: Open MPI, which go on: what really ends a run is said again, by the tool or the launcher.
_HARMLESS = re.compile(
    r"^\W*(warn(ing)?|note|info|debug|trace|hint)\b|^\S+: (warning|note|info)\b|"
    r"NCCL (INFO|WARN|TRACE|DEBUG)\b|"
    r"\bUCX\s+(WARN|INFO|DIAG|DEBUG|TRACE)\b|"
    r"^(export\s+)?[A-Z]\w*=|^[+$] |^(mpirun|mpiexec|prterun|srun|prun)[.\w]*\s+-|"
    r"\S+@\S+[$#] |"
    r"more process(es)? ha(s|ve) sent help message|to see all help / error messages|PMIX ERROR: |"
    r"\b(0|no|zero|without)\s+(\w+\s+)?(errors?|fail\w*|mismatch\w*|corrupt\w*)|"
    r"(errors?|failed|failures?|mismatches)\s*[:=]\s*0\b",
    re.IGNORECASE,
)
_WRONG_DATA = re.compile(r"validat|corrupt|mismatch|wrong|out of bounds|invalid value", re.IGNORECASE)


def status_of(reason: str) -> Status:
    """The status of a run that failed for this reason: wrong data, or another error."""
    return Status.FAILED if _WRONG_DATA.search(reason) else Status.ERROR


def says_failure(line: str) -> bool:
    """Whether a line of a log says that the run failed: in words of the tool, of MPI or of a shell."""
    return bool(_FAILURE.search(line)) and not _HARMLESS.search(line)
