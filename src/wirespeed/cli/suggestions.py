"""What users mean who write the options of other programs, or the right word at a wrong place."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from .commands import COMMANDS

#: Options that only programs of nccl-tests have; ``-b`` is also one of nvbandwidth.
_OF_NCCL_TESTS = frozenset({"-e", "-g", "--minbytes", "--maxbytes", "--ngpus", "--nthreads", "--stepfactor"})
#: Options of nvbandwidth that `run` does not have -> the same here (``{}`` is their value).
_OF_NVBANDWIDTH = {
    "-b": "--size {}MiB", "--bufferSize": "--size {}MiB", "-i": "--samples {}",
    "--testSamples": "--samples {}",
    "-j": "--format nvbandwidth-json", "--json": "--format nvbandwidth-json", "-m": "",
    "--useMean": "", "-s": "--no-verify", "--skipVerification": "--no-verify", "-d": "--no-affinity",
    "--disableAffinity": "--no-affinity", "--loopCount": "--copies {}", "--testcasePrefixes": "--prefix {}",
}  # fmt: skip
#: A short option with a number behind it.
_ATTACHED = re.compile(r"(-[a-z])([0-9]+)", re.ASCII)
#: A GPU as other programs and people write it.
_GPU = re.compile(r"(?:gpu|cuda:?)([0-9]+)", re.IGNORECASE)


def of_other_program(command: str, arguments: Sequence[str]) -> str:
    """The command line that is meant if options are those of nvbandwidth or nccl-tests; empty if none is."""
    line = shlex.join(arguments)
    arguments = [part for word in arguments for part in _apart(word)]
    names = [argument.partition("=")[0] for argument in arguments]
    sizes = [value for name, value in zip(names, [*arguments, ""][1:], strict=True) if name == "-b"]
    if not _OF_NCCL_TESTS.isdisjoint(names) or any(not size.isdecimal() for size in sizes):
        return f"options of nccl-tests need the name of its program: wirespeed all_reduce_perf {line}"
    foreign = [name for name in dict.fromkeys(names) if name in _OF_NVBANDWIDTH]
    if not {"-l", "--list"}.isdisjoint(names):
        return "to list the testcases: wirespeed list, or as nvbandwidth does: wirespeed nvbandwidth -l"
    if not foreign:
        return ""
    other = f"; or of nccl-tests: wirespeed all_reduce_perf {line}" if foreign == ["-b"] else ""
    return (
        f"{', '.join(foreign)}: options of nvbandwidth need its name: wirespeed nvbandwidth {line}; "
        f"or in options of wirespeed: wirespeed {command} {_translated(arguments)}{other}"
    )


def _apart(word: str) -> list[str]:
    """An option with its number apart from it: ``-b 64`` for ``-b64``."""
    found = _ATTACHED.fullmatch(word)
    return [found[1], found[2]] if found and found[1] in _OF_NVBANDWIDTH else [word]


def _translated(arguments: Sequence[str]) -> str:
    """A command line of nvbandwidth in options of `run`."""
    words, left = [], list(arguments)
    while left:
        name, sign, value = left.pop(0).partition("=")
        ours = _OF_NVBANDWIDTH.get(name)
        if ours is None:
            words.append(shlex.quote(f"{name}{sign}{value}"))
        elif "{}" not in ours:
            words.append(ours)
        else:
            value = value if sign or not left else left.pop(0)
            words.append(ours.format(shlex.quote(value)))
    return " ".join(filter(None, words))


def meant_by(words: Sequence[str]) -> str:
    """`` (did you mean -t NAME?)``: the options that are meant by words that are none; empty if unknown."""
    options = [option for word in words if not word.startswith("-") and (option := _option(word))]
    return f" (did you mean {' '.join(dict.fromkeys(options))}?)" if options else ""


def _option(word: str) -> str:
    """What is meant by a word at a wrong place; empty if unknown."""
    from ..backends.simulated.machines import MACHINES
    from ..testcases import TABLE

    names = [case.name for case in TABLE]
    if word in names or word in {str(case.index) for case in TABLE if case.index is not None}:
        return f"-t {word}"
    if gpu := _GPU.fullmatch(word):
        return f"--devices {gpu[1]}"
    if word.startswith("simulated:") or word.partition("+")[0] in MACHINES:
        return f"--machine simulated:{word.removeprefix('simulated:')}"
    if Path(word).exists():
        return f"-f {word}" if word.endswith(".toml") else f"wirespeed check {word}"
    if word in COMMANDS:
        return f"wirespeed {word}"
    if near := get_close_matches(word, names, 1, 0.8):
        return f"-t {near[0]}"
    return f"-p {word}" if any(name.startswith(word) for name in names) else ""
