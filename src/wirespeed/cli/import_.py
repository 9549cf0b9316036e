"""``wirespeed import``: logs of other tools as a Document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .common import (
    add_output,
    add_report,
    check_format,
    machine_names,
    measured_code,
    print_report,
    texts_aside,
    typed,
)
from .parser import Parser

if TYPE_CHECKING:
    from ..results.output import Output


def main(name: str, argv: Sequence[str]) -> int:
    from ..importers import load_log
    from ..judging.judged import Judged
    from ..results.store import encode

    options = parser(name).parse_args(argv)
    check_format(options.format)
    output: Output | None = options.output
    if output:
        output.check(options.force)
    document = load_log(options.files, options.machine, options.nics)
    if output:
        output.write(encode(document))
    judged = Judged(document)
    with texts_aside(output):
        print_report(judged, options)
    return measured_code(judged)


def parser(name: str) -> Parser:
    from ..importers import UNDERSTOOD

    arguments = Parser(
        name,
        "Convert logs of other tools to a saved run, for check, doctor, compare, report and baseline.\n"
        f"Understood: {', '.join(UNDERSTOOD)}.\n"
        "Exit codes: 0 values were imported, 1 the logs say that the run failed or a value of theirs fails,\n"
        "2 invalid usage, 4 the logs have no values.",
    )
    arguments.add_argument(
        "files", nargs="+", metavar="LOG", help="files of one machine; - is standard input"
    )
    arguments.add_argument(
        "--machine",
        metavar="NAME-N|FILE|simulated:NAME",
        help="machine of the logs: N GPUs such as hgx-h100-8, a machine file, or a simulated machine "
        "(default: derived from the names and the number of GPUs in the logs)",
    ).completer = machine_names  # type: ignore[attr-defined]
    arguments.add_argument(
        "--nics",
        type=typed(_nics),
        metavar="NUMBERxRATE",
        help="NICs of each host, such as 8x400G, for collectives and RDMA between hosts "
        "(default: as the log says)",
    )
    add_output(arguments, "save the run")
    add_report(arguments)
    return arguments


def _nics(text: str) -> str:
    """The number and rate of NICs if they are valid."""
    from ..units import parse_nics

    parse_nics(text)
    return text
