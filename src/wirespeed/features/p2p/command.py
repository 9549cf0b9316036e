"""``wirespeed p2p``: what may explain broken peer access, with the remedy."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ...cli import option_values, run_files
from ...cli.consumers import Answer, refuse_mixed
from ...cli.parser import Parser
from ...errors import UsageError
from ...judging.verdict import Verdict
from .api import p2p


def main(name: str, argv: Sequence[str]) -> int:
    options = parser(name).parse_args(argv)
    from ...peer_access import ALL, SHORT, PeerMechanism
    from . import screen
    from .causes import find_peers

    refuse_mixed(options.consumer, options.output)
    if options.source:
        from ...results.store import load

        if options.machine or options.output or options.short or options.nccl or options.devices:
            raise UsageError(f"a saved run is shown as it is: give only {options.source}")
        document = load(options.source)
    else:
        mechanisms: tuple[PeerMechanism, ...] = SHORT if options.short else ALL
        mechanisms += (PeerMechanism.NCCL,) if options.nccl else ()
        document = p2p(
            options.machine, mechanisms=mechanisms, devices=options.devices, output=options.output,
            force=options.force, seed=options.seed, command=" ".join(["wirespeed", name, *argv]),
        )  # fmt: skip
    findings = find_peers(document)
    if findings is None:
        raise UsageError(f"{options.source} has no attempts of peer access: run wirespeed p2p")
    if options.format == "env":
        sys.stdout.write("".join(f"{line}\n" for line in findings.exports))
    elif options.format == "json":
        sys.stdout.write(screen.to_json(document, findings))
    elif not (options.quiet or options.consumer):
        print(screen.render(document, findings, option_values.style(options)), end="", flush=True)
        run_files.tell_saved(options.output)
    verdict = findings.verdict
    verdict = Verdict.NOT_JUDGED if document.simulated and verdict is Verdict.PASS else verdict
    code = verdict.exit_code
    return Answer(code, findings.sentence, document.hostname) if options.consumer else code


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        "Try peer access between all GPUs in processes that can be killed, verify every write, and show\n"
        "which pairs work, what breaks the others, with which settings programs compute right now, and the\n"
        "repair. A pair that hangs takes 2 s.",
        examples={
            "p2p": "try all pairs of GPUs",
            "p2p --nccl": "also NCCL between them",
            "p2p --env": "variables to export until it is repaired",
        },
        often="--devices --short --nccl --env --format --for -o -v",
    )
    arguments.add("source FILE", "a saved run to show", nargs="?")
    arguments.add_machine()
    arguments.add_options(names=("devices",))
    arguments.add("--short", "leave out copies, which check measures itself", by_project=True)
    arguments.add("--nccl", "also let NCCL send between each two GPUs, which takes seconds")
    arguments.add("--seed N", "seed of the patterns (default: a new one)", int, by_project=True)
    out = arguments.add_argument_group("output")
    forms = out.add_mutually_exclusive_group()
    forms.add_format(("text", "json", "env"), "text")
    forms.add(
        "--env", "print only the variables to export; the same as --format env",
        action="store_const", const="env", dest="format", default=argparse.SUPPRESS,
    )  # fmt: skip
    out.add_consumer()
    out.add_output()
    out.add_quiet()
    out.add_verbose()
    return arguments
