"""``wirespeed baseline``: values of good machines, for check."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import ExitCode
from ..results.opening import open_run
from ..terminal import one_line
from ..units import many
from .parser import Parser
from .run_files import named_files, texts_aside

#: The first word of the former spelling, ``baseline make FILE``; ``./make`` is a file of this name.
_FORMER = "make"
_WITH_VALUE = ("-o", "--output")


def main(name: str, argv: Sequence[str]) -> int:
    options = parser(name).parse_args(_present(argv))
    from ..results import baseline
    from ..results.output import BASELINE, Output, check_replaceable

    check_replaceable(options.output, BASELINE, options.force)
    files = named_files(options.runs)
    combined = baseline.make([open_run(path) for path in files], files)
    output = Output(options.output, replace=True)
    output.write(baseline.encode(combined))
    with texts_aside(output):
        for model, entries in combined.models.items():
            mark = "SIMULATED: " if combined.simulated else ""
            runs = max((entry.runs for entry in entries), default=0)
            print(f"{mark}{one_line(model)}: {many(len(entries), 'value')} of {many(runs, 'run')}")
    return ExitCode.PASS


def _present(argv: Sequence[str]) -> list[str]:
    """The arguments without the first word of the former spelling."""
    before = ["", *argv]
    first = next((i for i, word in enumerate(argv) if word[:1] != "-" and before[i] not in _WITH_VALUE), None)
    return [word for i, word in enumerate(argv) if i != first or word != _FORMER]


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        "Create a baseline for `wirespeed check --baseline` from saved runs of good machines.",
        examples={
            "baseline good/ -o baseline.json": "from a folder of runs",
            "baseline a.json b.json -o baseline.json": "from two runs",
            "check --baseline baseline.json": "judge by it",
        },
        often="-o --force",
    )
    arguments.add("runs FILE+", "saved runs of good machines, and folders of them")
    arguments.add("-o --output FILE", "file of the baseline", Path, required=True)
    arguments.add_force("is not a baseline")
    return arguments
