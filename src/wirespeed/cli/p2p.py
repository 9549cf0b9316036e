"""``wirespeed p2p``: whether peer access between GPUs works, and which settings make the machine usable."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..errors import EXIT_CODES, UsageError
from .common import add_machine, add_options, add_output, add_verbose, code_of, style, tell_saved
from .consumers import Answer, add_consumer, refuse_mixed
from .parser import Parser


def main(name: str, argv: Sequence[str]) -> int:
    options = parser(name).parse_args(argv)
    if options.env and options.json:
        raise UsageError("--env and --json are two formats: choose one of them")
    from ..api import p2p
    from ..judging.peer_causes import find_peers
    from ..judging.verdict import Verdict
    from ..peer_access import ALL, SHORT, PeerMechanism
    from ..results.output import STDOUT
    from ..screens import p2p as screen

    refuse_mixed(options.consumer, bool(options.output and options.output.path == STDOUT))
    if options.source:
        from ..results.store import load

        if options.machine or options.output or options.short or options.nccl or options.devices:
            raise UsageError(f"a saved run is shown as it is: give only {options.source}")
        document = load(options.source)
    else:
        mechanisms: tuple[PeerMechanism, ...] = SHORT if options.short else ALL
        mechanisms += (PeerMechanism.NCCL,) if options.nccl else ()
        document = p2p(
            options.machine, mechanisms=mechanisms, devices=options.devices, output=options.output,
            force=options.force, seed=options.seed,
        )  # fmt: skip
    findings = find_peers(document)
    if findings is None:
        raise UsageError(f"{options.source} has no attempts of peer access: run wirespeed p2p")
    if options.env:
        sys.stdout.write("".join(f"{line}\n" for line in screen.settings(findings)))
    elif options.json:
        sys.stdout.write(screen.to_json(document, findings))
    else:
        sys.stdout.write(screen.render(document, findings, style(options)))
    sys.stdout.flush()
    tell_saved(options.output)
    verdict = findings.verdict
    code = code_of(Verdict.UNKNOWN if document.simulated and verdict is Verdict.PASS else verdict)
    return Answer(code, findings.sentence, document.hostname) if options.consumer else code


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        "Try peer access between all GPUs in processes that can be killed, verify every write, and show\n"
        "which pairs work, what breaks the others, with which settings programs compute right now, and the\n"
        "repair. A pair that hangs takes 2 s.",
        EXIT_CODES,
    )
    arguments.add_argument("source", nargs="?", metavar="RUN.json", help="show a saved run")
    add_machine(arguments)
    add_options(arguments, names=("devices",))
    arguments.add_argument("--short", action="store_true", help="try only stores and flags, as check does")
    arguments.add_argument(
        "--nccl", action="store_true", help="also let NCCL send between each two GPUs, which takes seconds"
    )
    arguments.add_argument("--seed", type=int, metavar="N", help="seed of the patterns (default: a new one)")
    out = arguments.add_argument_group("output")
    out.add_argument("--env", action="store_true", help="print only the variables to export, for scripts")
    out.add_argument("--json", action="store_true", help="print the answer for programs")
    add_consumer(out)
    add_output(out)
    add_verbose(out)
    return arguments
