"""What options can be added to: a parser and its groups. Options that several commands have stand here."""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from glob import escape, glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..errors import UsageError
from .consumers import CONSUMERS, OPTION

if TYPE_CHECKING:
    from ..results.output import Output

T = TypeVar("T")


def testcase_names(**_: object) -> list[str]:
    """The names of all testcases, for completion."""
    from ..testcases.table import TABLE

    return [case.name for case in TABLE]


def machine_names(prefix: str = "", **_: object) -> list[str]:
    """The simulated machines, and files that begin like a word, for completion."""
    from ..backends.simulated.machines import MACHINES

    paths = glob(f"{escape(prefix or '')}*")  # noqa: PTH207 - also of absolute paths
    files = [file + "/" * Path(file).is_dir() for file in paths]
    return [f"simulated:{name}" for name in MACHINES] + [
        file for file in files if file.endswith(("json", "/"))
    ]


def typed(parse: Callable[[str], T]) -> Callable[[str], T]:
    """A parser whose UsageErrors argparse reports."""

    @wraps(parse)  # argparse names it in errors
    def convert(text: str) -> T:
        try:
            return parse(text)
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return convert


def among(allowed: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """The parser of a comma-separated list of these words."""

    def parse(text: str) -> tuple[str, ...]:
        parts = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
        if unknown := [part for part in parts if part not in allowed]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {', '.join(allowed)}")
        return parts

    return parse


def history_file(text: str) -> Path | Literal[False]:
    """The file of a history; False for none."""
    return False if text in ("", "none") else Path(text)


def output_path(text: str) -> Output:
    """The file of the Document; in a folder it gets a generated name. ``-`` is standard output.

    Raises:
        UsageError: If its name is that of another format.
    """
    from ..reports import format_of_suffix
    from ..results.output import Output

    path = Path(text)
    if (form := format_of_suffix(path.suffix)) not in ("", "json"):
        run = path.with_suffix(".json")
        raise UsageError(
            f"-o saves the run as JSON, and {text} is the name of {form}: write -o {run}, then "
            f"`wirespeed report {run} -o {text}`"
        )
    if not text.endswith("/") and not path.is_dir():
        return Output(path)
    name = f"wirespeed-{platform.node() or 'host'}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    return Output.numbered(path / name)


class TakesOptions(argparse._ActionsContainer):
    """An object that options can be added to."""

    def add_argument_group(self, *args: Any, **settings: Any) -> OptionGroup:
        """Add a group of options."""
        group = OptionGroup(self, *args, **settings)
        self._action_groups.append(group)
        return group

    def add_mutually_exclusive_group(self, **settings: Any) -> Alternatives:
        """Add options of which one can be given."""
        group = Alternatives(self, **settings)
        self._mutually_exclusive_groups.append(group)
        return group

    def add(
        self, spelled: str, help: str, parse: Callable[[str], object] | None = None,
        *, completer: Callable[..., list[str]] | None = None, by_project: bool = False, former: str = "",
        **settings: Any,
    ) -> None:  # fmt: skip
        """Add an option or an argument.

        Args:
            spelled: The names, and the word for a value: ``-o --output FILE``. ``FILE+`` takes several,
                ``FILE*`` any number. An option without such a word and without choices is a flag.
            help: What it does.
            parse: Converts the text of a value; its UsageErrors are those of the option.
            completer: Returns the words that complete a value.
            by_project: Whether the file of a project may set it (see `Settable`).
            former: Former names of the option, separated by spaces, which work and are not shown.
            settings: Further settings of ``add_argument``.
        """
        *names, last = spelled.split()
        if names and not last.startswith("-"):
            settings["metavar"] = last.rstrip("+*")
            if last[-1] in "+*":
                settings |= {"nargs": last[-1]}
                if names[0].startswith("-"):
                    settings |= {"action": "extend", "default": []}
        else:
            names.append(last)
            if last.startswith("-") and parse is None and "choices" not in settings:
                settings.setdefault("action", "store_true")
        if parse is not None:
            settings["type"] = typed(parse)
        action = self.add_argument(*names, help=help, **settings)
        vars(action).update(completer=completer, by_project=by_project)
        self._option_string_actions.update(dict.fromkeys(former.split(), action))

    def add_options(self, group: str | None = None, names: Collection[str] = ()) -> None:
        """Add the options of a run of one group, and those with these names."""
        from ..options import JOB, RunOptions, declared

        for field, about in declared(RunOptions):
            if about.group != group and field.name not in names:
                continue
            flag = about.flag or field.name.replace("_", "-")
            help, initial = about.help.replace("%", "%%"), field.default
            if about.parse is None:
                flag, help = (f"no-{flag}", f"do not {help}") if initial else (flag, help)
                action = "store_false" if initial else "store_true"
                added = self.add_argument(f"--{flag}", action=action, dest=field.name, help=help)
                vars(added).update(by_project=about.by_project)
                continue
            default = about.default.replace("%", "%%") or ("" if initial is None else "%(default)s")
            later = about.group == JOB  # only one rank reports errors of job options
            choices = None if later else about.choices or None
            added = self.add_argument(
                f"--{flag}", dest=field.name, default=initial, choices=choices, metavar=about.metavar,
                type=str if later or choices else typed(about.parse),
                help=f"{help} (default: {default})" if default else help,
            )  # fmt: skip
            vars(added).update(by_project=about.by_project)
            self._option_string_actions.update({f"--{name}": added for name in about.former})

    def add_measuring(self) -> None:
        """Add the options of measuring: what, when to stop, and how."""
        from ..options import GPU, HOW, STOP, WHAT

        subject = self.add_argument_group(WHAT)
        subject.add(
            "-t --testcase NAME+",
            "testcases by name or index, as `wirespeed list` shows them (default: all)",
            completer=testcase_names, by_project=True,
        )  # fmt: skip
        subject.add(
            "-p --prefix PREFIX+",
            "testcases whose names start with PREFIX",
            completer=testcase_names,
            by_project=True,
        )
        subject.add_machine()
        subject.add_options(WHAT)
        for group in (STOP, HOW, GPU):
            self.add_argument_group(group).add_options(group)

    def add_machine(self, default: str | None = None) -> None:
        """Add ``--machine``."""
        self.add(
            "--machine FILE|simulated:NAME",
            "machine file or simulated machine, such as simulated:dgx-a100-8 (default: this machine)",
            default=default, completer=machine_names,
        )  # fmt: skip

    def add_dry_run(self) -> None:
        """Add ``--dry-run``."""
        self.add(
            "--dry-run",
            "show what would be measured, in which order and how long it takes, and measure nothing",
        )  # fmt: skip

    def add_job(self) -> None:
        """Add the options of jobs of several processes."""
        from ..options import JOB

        self.add(
            "--processes N",
            "start N processes on this host, one per GPU; only without a launcher (default: 1)", int,
            default=1, by_project=True,
        )  # fmt: skip
        self.add_options(JOB)

    def add_judging(self) -> None:
        """Add the options of judgement."""
        from ..thresholds.changes import TOLERANCE
        from ..units import parse_fraction

        self.add("--overrides FILE.toml", "file of accepted deviations, with reasons")
        self.add(
            "--baseline FILE",
            "judge by values of good machines of this model; from `wirespeed baseline`",
        )
        self.add(
            "--tolerance PERCENT", "fail values that are below the baseline by more than this (default: 5%%)",
            parse_fraction, default=TOLERANCE,
        )  # fmt: skip
        self.add_expect()
        self.add("--ignore-busy", "also judge devices that another process used")

    def add_expect(self) -> None:
        """Add ``--expect``."""
        from ..results.inventory import parse_inventory

        self.add(
            "--expect KEY=VALUE,...",
            "fail unless each host has this: gpus, nvlinks (active, of each GPU), memory (95%% of it), "
            "nics, gpu-memory, gpu-model, numa, cpus; such as gpus=8,nvlinks=18,memory=1TiB (repeatable)",
            parse_inventory, action="append", default=[],
        )  # fmt: skip

    def add_simulated(self, *, needed: bool = True) -> None:
        """Add ``--allow-simulated``; commands whose exit code passes no machine only accept it."""
        help = "let a simulated machine pass" if needed else argparse.SUPPRESS
        self.add("--allow-simulated", help)

    def add_output(self, help: str = "also save the run") -> None:
        """Add ``-o``."""
        self.add(
            "-o --output FILE.json", f"{help}; a folder for a generated name, - for standard output",
            output_path,
        )  # fmt: skip
        self.add_force("exists")

    def add_output_as(self, suffixes: str) -> None:
        """Add ``-o`` and ``--force`` of a command whose report is written in the format of the suffix."""
        self.add("-o --output FILE", f"write this file, in the format of its suffix: {suffixes}", Path)
        self.add_force("is not a report of wirespeed")

    def add_saving(self) -> None:
        """Add ``-o``, ``--force``, ``-q`` and ``--no-save`` of a command that saves its run by default."""
        self.add_output("file of the saved run (default: wirespeed-HOST-TIME.json in the current folder)")
        self.add_quiet()
        self.add("--no-save", "do not save the run")

    def add_force(self, kind: str) -> None:
        """Add ``--force``."""
        self.add("--force", f"replace the file even if it {kind}")

    def add_history(self) -> None:
        """Add ``--history``."""
        self.add(
            "--history FILE|none",
            "file of the history (default: wirespeed/history.sqlite in the user's data folder)", history_file,
        )  # fmt: skip

    def add_remembering(self) -> None:
        """Add the options of commands whose runs are added to the history."""
        self.add_history()
        self.add("--no-history", "do not add the run to the history")

    def add_quiet(self) -> None:
        """Add ``-q``."""
        self.add("-q --quiet", "print no report")

    def add_format(
        self, names: Collection[str], default: str, *, is_open: bool = False, former: str = ""
    ) -> None:
        """Add ``--format``, and ``--json`` if it is one of the names.

        Args:
            names: The formats.
            default: The default.
            is_open: Whether there are others, such as those of other packages.
            former: As in ``add``.
        """
        self.add(
            "--format FORMAT", f"{', '.join(names)} (default: {default})", default=default, by_project=True,
            choices=None if is_open else tuple(names), former=former,
        )  # fmt: skip
        if "json" in names:
            self.add(
                "--json", "the same as --format json", action="store_const", const="json", dest="format",
                default=argparse.SUPPRESS, by_project=True,
            )  # fmt: skip

    def add_report(self) -> None:
        """Add ``--format`` and ``-v``."""
        from ..reports import FORMATS

        self.add_format([row.name for row in FORMATS], "table", is_open=True)
        self.add_all_cells()
        self.add_verbose()

    def add_all_cells(self) -> None:
        """Add ``--all-values``."""
        self.add(
            "--all-values", "export every value (only with --format prometheus)", by_project=True,
            dest="all_cells", former="--all-cells",
        )  # fmt: skip

    def add_verbose(self) -> None:
        """Add ``-v``."""
        self.add("-v --verbose", "show all samples, values and full names", by_project=True)

    def add_consumer(self) -> None:
        """Add ``--for``."""
        self.add(
            f"{OPTION} CONSUMER",
            f"print only a line, and exit as a program expects: {', '.join(CONSUMERS)} "
            "(wirespeed help operate)", dest="consumer", choices=tuple(CONSUMERS),
        )  # fmt: skip


class OptionGroup(TakesOptions, argparse._ArgumentGroup):
    """A group of options with a title."""


class Alternatives(TakesOptions, argparse._MutuallyExclusiveGroup):
    """Options of which one can be given."""
