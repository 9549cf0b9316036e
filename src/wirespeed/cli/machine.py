"""``wirespeed machine``: the CPUs, GPUs and links of a machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..backends import describe
from ..errors import ExitCode
from ..terminal import escaped
from .option_values import style
from .parser import Parser


def main(name: str, argv: Sequence[str]) -> int:

    options = parser(name).parse_args(argv)
    machine = describe(options.machine)
    if options.format == "json":
        sys.stdout.write(escaped(machine.to_json().decode()))
        return ExitCode.PASS
    from ..screens.machine import render_machine

    sys.stdout.write(render_machine(machine, style(options)))
    return ExitCode.PASS


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        "Show the CPUs, GPUs and links of a machine.",
        examples={
            "machine": "this machine as a tree",
            "machine --json": "a file for --machine",
            "machine --machine simulated:dgx-a100-8": "another machine",
        },
        often="--machine --format",
    )
    arguments.add_machine()
    arguments.add_format(("tree", "json"), "tree")
    return arguments
