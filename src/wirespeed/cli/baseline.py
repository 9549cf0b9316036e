"""``wirespeed baseline make``: a baseline from runs of good machines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import ExitCode
from ..terminal import one_line
from .common import add_force, named_files, open_run, texts_aside
from .parser import Parser


def main(name: str, argv: Sequence[str]) -> int:
    options = parser(name).parse_args(argv)
    from ..results import baseline
    from ..results.output import BASELINE, Output, check_replaceable
    from ..units import many

    check_replaceable(options.output, BASELINE, options.force)
    combined = baseline.make([open_run(path) for path in named_files(options.runs)])
    output = Output(options.output, replace=True)
    output.write(baseline.encode(combined))
    with texts_aside(output):
        for model, entries in combined.models.items():
            mark = "SIMULATED: " if combined.simulated else ""
            runs = max((entry.runs for entry in entries), default=0)
            print(f"{mark}{one_line(model)}: {many(len(entries), 'value')} of {many(runs, 'run')}")
    return ExitCode.PASS


def parser(name: str) -> Parser:
    arguments = Parser(
        name, "Create a baseline for `wirespeed check --baseline` from saved runs of good machines."
    )
    arguments.add_argument("action", choices=("make",), help="make: create a baseline")
    arguments.add_argument(
        "runs", nargs="+", metavar="FILE", help="saved runs of good machines, and folders of them"
    )
    arguments.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="file of the baseline"
    )
    add_force(arguments, "is not a baseline")
    return arguments
