"""Commands in a log: the program of a table, its settings of NCCL, and where other programs begin. Prose
names programs, too, such as the one that will run next, so that only commands and titles count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ...backends.nccl.debug import matters
from . import scan

#: What a shell prints before a command: ``user@host:~$``, ``[user@host ~]#``, ``bash-5.1$``, ``$``, ``+``.
_PROMPT = re.compile(
    r"(\([\w.-]+\)\s*)?(\[?[\w.-]+@[\w.-]+[^$#%]{0,200}?\]?[$#%]|[\w.:~/@-]*\$|\++) +(?=\S)|"
    r"\[[^\]]{1,80}\][$#] *(?=\S)"
)
#: Marks of a post and labels before a command.
_LABEL = re.compile(
    r"[\s`*>#]*(\d{1,2}[.)]\s+)?((cmd|command|executing|running|run)( line)?\s*:\s*)?[`*]*", re.I
)
#: What begins a command without a prompt, behind its settings.
_SETTING = r"(?:[A-Za-z_]\w*=(?:\"[^\"]*\"|'[^']*'|[^\s\"'])*\s+)"
_LAUNCHER = (
    r"(?:sudo|env|time|nohup|timeout|mpirun|mpiexec(?:\.\w+)?|prterun|prun|orterun|srun|numactl|taskset|docker|"
    r"podman|nerdctl|singularity|apptainer|enroot|kubectl|torchrun)"
)
_OPTIONS = r"(?:\s*$|\s+[-|>&2;].*|\s*[;|&`].*)"
_BARE = re.compile(
    rf"{_SETTING}*(?:{_LAUNCHER}\s+(?:\d\w*\s+)?)+(?:--?\w|\S*/\w|\S+_perf\b|run\b|exec\b|[A-Z_]\w*=).*|"
    rf"{_SETTING}*(?:(?:\.|\.\.|~)/\S*|\S*_perf(?:\.exe)?){_OPTIONS}|{_SETTING}+(?:\S.*_perf\b.*|\\)|"
    r"(?:export|setenv|unset|declare -x)\s+[A-Z_]\w*.*"
)
#: A line that has only the name of a program, as a title.
_TITLE = re.compile(
    r"[\W_]*(?:(?:running|run|testing|test|benchmark|results?|output)(?: of| for| from)?\b)?\W*"
    r"(?:[\w.-]*/)*([a-z_]+)_perf\b\W*$", re.I
)  # fmt: skip
_PROGRAM = re.compile(r"(?<![\w$}{])([a-z][a-z_]*?)_perf(?:_mpi|\.exe)?(?![\w.])")
#: Settings of NCCL in a command, a list of ``srun --export``, and two words of ``mpiexec -genv``.
_ASSIGNED = re.compile(
    r"(?<!\w)(NCCL_\w{1,60})=(?:\"([^\"]*)\"|'([^']*)'|((?:[^\s,;`'\"]|,(?![A-Z_]\w*=))*))"
)
_TWO_WORDS = re.compile(r"(?:-g?env|setenv)\s+(NCCL_\w{1,60})\s+([^\s=;`]+)")
_LASTING = re.compile(
    r"\b(?:export|setenv|declare -x)\s|\b(?:docker|podman|nerdctl|enroot)\s+(?:run|start)\b"
)
#: Commands that run no program.
_OF_SHELL = re.compile(r"(?:export|setenv|unset|declare|cd|source|module|set|\.)\s[^;&|]*$")
_UNSET = re.compile(r"\bunset\s+((?:\w+\s*)+)")
#: Programs whose output is understood: a command with one of them does not end that output.
_UNDERSTOOD = re.compile(
    r"_perf\b|(nv|sail)bandwidth|p2pBandwidthLatencyTest|bandwidthTest|stream|\bosu_|\bmlc\b|"
    r"\bib_(write|read|send|atomic)_|IMB-|nvidia-smi", re.I
)  # fmt: skip
#: What binds a program to CPUs or memory, with its options.
_BINDING = re.compile(r"\b(?:numactl|taskset)(?:\s+-[a-zA-Z-]++[=\s]?[\d,:x-]*+(?=\s))+")
#: Maximum number of lines and characters of a command, and of characters of a title.
_MOST_LINES, _LONGEST, _LONGEST_TITLE = 40, 8000, 120
#: Maximum number of settings of a run.
_MOST_SETTINGS = 100


def command_of(line: str) -> str:
    """The command of a line, without its prompt; empty if it has none."""
    line = line[:_LONGEST].replace("**", "")
    if match := _PROMPT.match(line):
        return line[match.end() :].strip()
    bare = line[_LABEL.match(line).end() :].strip()  # type: ignore[union-attr]  # matches nothing, too
    return bare if _BARE.fullmatch(bare) else ""


def binding(lines: Sequence[str]) -> tuple[str, ...]:
    """How the last command in some lines binds CPUs and memory; nothing if it does not."""
    commands = [command for line in lines if (command := command_of(line.strip()))]
    bound = _BINDING.search(commands[-1]) if commands else None
    return (scan.text(" ".join(bound[0].split())),) if bound else ()


class Commands:
    """The commands of a log, in the order of its lines.

    Attributes:
        program: Operation of nccl-tests that the last command or title names; empty if it names several.
        command: The last command that runs a program of nccl-tests.
        number: Number of such commands so far.
        another: Whether the last command runs a program whose output is not understood.
    """

    def __init__(self) -> None:
        self.program = self.command = ""
        self.number, self.another = 0, False
        self._own: dict[str, str] = {}
        self._lasting: dict[str, str] = {}
        self._begun: list[str] = []

    @property
    def settings(self) -> dict[str, str]:
        """The settings of NCCL with which the program runs: name -> value."""
        return self._lasting | self._own

    def line(self, line: str) -> bool:
        """Read a line; return whether it is a command, a part of one, or a title."""
        if self._begun:
            self._begun.append(line)
        elif command := command_of(line):
            self._begun = [command]
        elif len(line) <= _LONGEST_TITLE and (match := _TITLE.fullmatch(line)):
            self.program, self.command, self._own = match[1], "", {}
            return True
        else:
            return False
        size = sum(map(len, self._begun))
        if not line.endswith("\\") or len(self._begun) >= _MOST_LINES or size > _LONGEST:
            command, self._begun = " ".join(part.rstrip("\\ ") for part in self._begun), []
            self.note(command[:_LONGEST])
        return True

    def note(self, command: str) -> None:
        """Note the program of a command, and its settings; the settings of a shell or a container last."""
        found = {name: "".join(values) for name, *values in _ASSIGNED.findall(command)}
        found |= dict(_TWO_WORDS.findall(command))
        settings = {
            name: scan.text(value) for name, value in list(found.items())[:_MOST_SETTINGS] if matters(name)
        }
        if not _OF_SHELL.match(command):
            self.another = not _UNDERSTOOD.search(command)
        programs = dict.fromkeys(_PROGRAM.findall(command))
        for match in _UNSET.finditer(command):
            for name in match[1].split():
                self._lasting.pop(name, None)
        if programs:
            self.program = next(iter(programs)) if len(programs) == 1 else ""
            self.command, self.number, self._own = command, self.number + 1, settings
        elif _LASTING.search(command):
            self._lasting |= settings


def texts(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Settings as readings have them: ``NAME=value``."""
    return tuple(f"{name}={value}" for name, value in sorted(settings.items()))
