"""``wirespeed machine``: the discovered machine, for people or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..errors import ExitCode
from ..terminal import escaped
from .common import add_machine, style
from .parser import Parser


def main(name: str, argv: Sequence[str]) -> int:
    from ..backends import describe

    options = parser(name).parse_args(argv)
    machine = describe(options.machine)
    if options.format == "json":
        sys.stdout.write(escaped(machine.to_json().decode()))
        return ExitCode.PASS
    from ..screens.machine import render

    sys.stdout.write(render(machine, style(options)))
    return ExitCode.PASS


def parser(name: str) -> Parser:
    arguments = Parser(name, "Show the CPUs, GPUs and links of a machine.")
    add_machine(arguments)
    arguments.add_argument(
        "--format",
        choices=("tree", "json"),
        default="tree",
        help="tree, or JSON that --machine accepts (default: tree)",
    )
    return arguments
