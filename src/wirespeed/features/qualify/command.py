"""``wirespeed qualify``: which nodes, NICs, cables and switches of a cluster are slow."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...cli.measuring import speak_for_leader
from ...cli.parser import Parser
from ...cli.run_files import saving, tell_saved, texts_aside
from ...driver.jobs import join
from ...errors import ExitCode, WirespeedError
from ...terminal import colored, columns, error_line
from ...units import parse_duration, parse_nics
from .cluster import Cluster
from .qualified_run import led, measured, simulated_nodes
from .slurm import topology

if TYPE_CHECKING:
    from ...document import Document
    from ...hardware.topology import Machine
    from ...qualification import Qualification
    from ...results.output import Output


#: Width of lines that are not for a terminal: a line for each sentence.
_ENDLESS = 10_000


def main(name: str, argv: Sequence[str]) -> int:
    options = parser(name).parse_args(argv)
    command = " ".join(["wirespeed", name, *argv])
    blocks = topology(options.topology, os.environ)
    if options.machine is not None:
        cluster, machine = simulated_nodes(options.machine, options.seed)
        return _lead(cluster, machine, options, saving(options), command)
    return _of_job(options, blocks, command)


def parser(name: str) -> Parser:
    arguments = Parser(
        name,
        "Find the slow nodes, NICs, cables and switches of a cluster in about a dozen rounds: sampled pairs\n"
        "of nodes, all at once, repeated measurements of suspects with other partners, and groups of nodes.\n"
        "Start it with a launcher on all nodes, one process per GPU: mpirun -np 512 -N 8 wirespeed qualify.",
        examples={
            "qualify": "the nodes of this job",
            "qualify --within 3min --format slurm": "nodes to exclude",
            "qualify --machine simulated:dgx-a100-8x64": "try it",
        },
        often="--within --transport --topology --format -o",
    )
    arguments.add(
        "--machine simulated:NAMExN",
        "N simulated nodes, with faults, such as simulated:dgx-a100-8x64+nic=0.5@node17.3: node, gpu, "
        "pcie, memory, nic, cable (sends; with <- behind it: receives), leaf or trunk (@block2.1), spine "
        "(@spine1), lost@node3, noise=3%%; or two DGX Sparks, simulated:dgx-spark-2+endpoint@node0, with "
        "causes (mtu=1500@node1, width=2@node0, ...)",
    )  # fmt: skip
    arguments.add(
        "--transport",
        "between nodes: tcp, which continues when nodes are lost, or nccl or mpi, which transfer between "
        "ranks, rail by rail (default: nccl if all nodes have GPUs, else tcp)",
        choices=("tcp", "nccl", "mpi"), by_project=True, former="--over",
    )  # fmt: skip
    arguments.add(
        "--within TIME", "maximum time, such as 3min; rounds that do not fit are skipped",
        parse_duration, default=math.inf, by_project=True,
    )  # fmt: skip
    arguments.add(
        "--seed N", "random seed of the choice of partners (default: 0)", int, default=0, by_project=True
    )
    arguments.add(
        "--topology FILE",
        "output of `scontrol show topology`: names the leaf switches (default: from Slurm)",
    )
    arguments.add(
        "--nics NxRATE|RATE",
        "what the NICs of a node carry in one direction, such as 8x400G or 50GB/s, with which two nodes "
        "are compared (default: as their ports and PCIe links say)", parse_nics,
    )  # fmt: skip
    arguments.add(
        "--timeout TIME", "maximum time for all processes to join, and of one round (default: 60s)",
        parse_duration, default=60.0, by_project=True, former="-T",
    )  # fmt: skip
    arguments.add_format(("text", "json", "slurm", "hostfile"), "text", former="--exclude-format")
    arguments.add_saving()
    arguments.add_verbose()
    return arguments


def _of_job(options: argparse.Namespace, blocks: dict[str, str], command: str) -> int:
    """Measure the nodes of this job: rank 0 leads, the others obey."""
    output = saving(options)
    world = join(1, (), options.timeout, partial=True)

    def leading(cluster: Cluster, machine: Machine) -> int:
        return _lead(cluster, machine, options, output, command)

    try:
        code = led(world, blocks, options.transport, options.timeout, leading)
        return ExitCode.PASS if code is None else code
    except WirespeedError as error:
        if world is None or not world.rank:
            raise
        speak_for_leader(world, str(error))  # rank 0 reports it, unless it cannot be heard
        return ExitCode.RUN


def _lead(
    cluster: Cluster, machine: Machine, options: argparse.Namespace, output: Output | None, command: str
) -> int:
    """Measure, print, save; return the exit code."""
    from ...judging.qualification_verdict import verdict_of
    from ...results.store import Draft, Saver

    saver, draft = (Saver(output, options.force), Draft(output)) if output else (None, None)
    within = None if options.within == math.inf else options.within

    def said(document: Document, qualification: Qualification) -> None:
        """Show a round, and save what is known: a killed process keeps its rounds."""
        _progress(qualification)
        if draft:
            draft.save(lambda: document, always=True)

    document, ended = measured(
        cluster, machine, {"seed": options.seed, "within": within, "machine": options.machine},
        given=options.nics.rate if options.nics else 0.0,
        command=command, said=said,
    )  # fmt: skip
    qualification = document.qualification
    assert qualification is not None
    with texts_aside(output):
        if options.format != "text":
            print(_excluded(qualification, options.format))
        elif not options.quiet:
            print(_shown(document, verbose=options.verbose), end="")
        if saver:
            saver.run_ended(document)
            tell_saved(output)
    if isinstance(ended, KeyboardInterrupt):
        raise ended
    if ended:
        print(error_line(f"wirespeed: error: {document.interrupted}"), file=sys.stderr)
        return ExitCode.RUN
    return verdict_of(qualification).exit_code


def _shown(document: Document, *, verbose: bool) -> str:
    """The report: at a terminal with lines that fit, else a line for each sentence."""
    from ...judging.judged import Judged
    from ...reports import render
    from ...reports.style import Style

    width = columns() if sys.stdout.isatty() else _ENDLESS
    return render(Judged(document), "table", Style(width, colored(), verbose))


def _progress(qualification: Qualification) -> None:
    """Print each round on standard error, at a terminal."""
    if sys.stderr.isatty():
        last = qualification.rounds[-1]
        what = f"{last.stage}, {len(last.groups)} at once, {last.seconds:.1f} s"
        print(f"round {len(qualification.rounds)}: {what}", file=sys.stderr)


def _excluded(qualification: Qualification, form: str) -> str:
    """The nodes to leave out, or of a host file those to use."""
    from ...qualification import compact

    out = list(qualification.excluded)
    if form == "json":
        doubtful = {"in_doubt": list(qualification.in_doubt)} if qualification.in_doubt else {}
        return json.dumps({"exclude": out, **doubtful, "use": list(qualification.chosen)})
    return compact(out) if form == "slurm" else "\n".join(qualification.chosen)
