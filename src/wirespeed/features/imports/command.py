"""``wirespeed import``: logs of other tools as a saved run."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...cli import measuring, option_values, run_files
from ...cli.option_groups import machine_names
from ...cli.parser import Parser
from ...judging.judged import Judged
from ...units import parse_nics

if TYPE_CHECKING:
    from ...results.output import Output


def main(name: str, argv: Sequence[str]) -> int:
    from ...results.store import encode
    from . import load_log

    options = parser(name).parse_args(argv)
    option_values.check_format(options.format)
    output: Output | None = options.output
    if output:
        output.check(options.force)
    document = load_log(options.files, options.machine, options.nics)
    if output:
        output.write(encode(document))
    judged = Judged(document)
    with run_files.texts_aside(output):
        option_values.print_report(judged, options)
    return measuring.measured_code(judged)


def parser(name: str) -> Parser:
    from . import UNDERSTOOD

    names = ", ".join(UNDERSTOOD)
    understood = textwrap.fill(f"Understood: {names}.", 98, break_on_hyphens=False)
    arguments = Parser(
        name,
        "Convert logs of other tools to a saved run, for check, compare, report and baseline,\n"
        "which also read logs directly.\n"
        f"{understood}",
        examples={
            "import nccl.log -o run.json": "save a log as a run",
            "import nccl.log --machine hgx-h100-8": "say which machine",
            "check nccl.log": "judge a log directly",
        },
        often="--machine --nics -o --format -v",
    )
    arguments.add("files FILE+", "files of one machine; - is standard input")
    arguments.add(
        "--machine NAME-N|FILE|simulated:NAME",
        "machine of the logs: N GPUs such as hgx-h100-8, a machine file, or a simulated machine "
        "(default: derived from the names and the number of GPUs in the logs)", completer=machine_names,
    )  # fmt: skip
    arguments.add(
        "--nics NxRATE", "the N NICs of each host, such as 8x400G, for collectives, RDMA and messages "
        "between hosts (default: as the log says)", _nics,
    )  # fmt: skip
    arguments.add_output("save the run")
    arguments.add_quiet()
    arguments.add_report()
    return arguments


def _nics(text: str) -> str:
    """The number and rate of NICs if they are valid."""
    parse_nics(text)
    return text
