"""A slower value never gets a milder verdict, and never loses it: logs of others and simulated machines,
whose values are slower by factors from 1 to 0.1, all of them or those of one path of one GPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as struct_replace

import wirespeed
from tests.conftest import with_long
from wirespeed.backends.simulated import parse
from wirespeed.document import Document
from wirespeed.features import imports
from wirespeed.features.imports.log import FoundCollective, FoundLog, FoundTable
from wirespeed.hardware.topology import LinkKind
from wirespeed.judging.judge import judge
from wirespeed.judging.verdict import Verdict
from wirespeed.measurement import Unit
from wirespeed.tables import Half

DATA = Path(__file__).parents[2] / "data"
FACTORS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
PATHS = {
    "all": re.compile(""), "host": re.compile("host_to_device|device_to_host"),
    "peers": re.compile("device_to_device"), "memory": re.compile("device_(local|stream)"),
}  # fmt: skip
#: Logs of one kind each: copies and collectives, bridged and switched, PCIe and C2C, known and unknown GPUs.
LOGS = [
    "published/babelstream-rtx2060-alpaka", "published/nvbandwidth-gb300-station",
    "published/nvbandwidth-h800-0.2", "published/nccl-tests-h200-azure",
    "published/asked/p2p-rtx4090-tinygrad-issue44", "reports/nccl-sendrecv-without-name",
    "reports/nccl-six-slow-values", "reports/p2p-cannot-access", "logs/subset-of-gpus", "logs/p2p8-nccl4",
    "logs/multinode-advice", "logs/bridged-pair",
]  # fmt: skip
#: Testcase, row and column of a value -> its factor.
Factor = Callable[[str, str, str], float]


def mildness(document: Document) -> int:
    """How good the verdict is; none is the mildest."""
    verdict = judge(document).verdict
    return 0 if verdict.is_failure else 1 if verdict is Verdict.WARN else 2 if verdict is Verdict.PASS else 3


def ways(document: Document) -> Iterator[tuple[str, re.Pattern[str], str]]:
    """Which values to make slower: of each kind of path all, and those of one GPU."""
    last = document.machine.gpus[-1].name if document.machine.gpus else ""
    for name, path in PATHS.items():
        if any(path.match(result.name) for result in document.testcases):
            yield from ((name, path, gpu) for gpu in ("", last)[: 1 + bool(last)])


def slower(path: re.Pattern[str], gpu: str, by: float) -> Factor:
    return lambda name, row, column: by if path.match(name) and (not gpu or gpu in (row, column)) else 1.0


def scaled(log: FoundLog, factor: Factor) -> FoundLog:
    """A log whose rates are multiplied by a factor."""

    def table(one: FoundTable) -> FoundTable:
        if one.unit is not Unit.RATE:
            return one
        rows = zip(one.rows or ("",) * len(one.values), one.values, strict=False)
        values = tuple(
            tuple(value and value * factor(one.testcase, row, column)
                  for column, value in zip(one.columns, cells, strict=False))
            for row, cells in rows
        )  # fmt: skip
        return replace(one, values=values)

    def collective(one: FoundCollective) -> FoundCollective:
        by = factor(one.info.operation, "", "")

        def half(at: Half | None) -> Half | None:
            return at and struct_replace(
                at, algorithm=at.algorithm * by, bus=at.bus * by, seconds=at.seconds / by
            )

        return replace(one, points={n: (half(out), half(within)) for n, (out, within) in one.points.items()})

    tables, collectives = map(table, log.tables), map(collective, log.collectives)
    return replace(log, tables=list(tables), collectives=list(collectives))


@pytest.mark.parametrize("name", with_long(LOGS, "published/nvbandwidth-h800-0.2"))
def test_a_slower_log_never_gets_a_milder_verdict(name: str) -> None:
    file = DATA / f"{name}.txt"
    logs = list(imports._understood(str(file), file.read_bytes()))
    for what, path, gpu in ways(imports._document([str(file)], logs, None, None)):
        found = []
        for by in FACTORS:
            changed = [scaled(log, slower(path, gpu, by)) for log in logs]
            found.append(mildness(imports._document([str(file)], changed, None, None)))
        assert found == sorted(found, reverse=True), (what, gpu, found)


@pytest.mark.parametrize(
    "name",
    ["published/nvbandwidth-a100-readme", "published/nvbandwidth-h100-azure", "logs/p2p-slower-than-host"],
)
@pytest.mark.parametrize("by", [1.0, 0.9, 0.8, 0.7])
def test_a_further_run_in_a_log_is_judged_like_the_first(name: str, by: float) -> None:
    """By what others of the model reach, and beside the other ways of its own run."""
    file = DATA / f"{name}.txt"
    (log,) = imports._understood(str(file), file.read_bytes())
    changed = scaled(log, lambda *_: by)
    alone = judge(imports._document([str(file)], [changed], None, None)).judgements
    both = judge(imports._document([str(file)], [log, changed], None, None)).judgements
    again = {j.key._replace(testcase=j.key.tested): j for j in both if j.key.testcase != j.key.tested}
    assert len(again) == len(alone) > 5
    for judgement in alone:
        found = again[judgement.key]
        assert (found.verdict, found.least, found.normal) == (
            judgement.verdict, judgement.least, judgement.normal,
        )  # fmt: skip


def measured_slower(document: Document, factor: Factor) -> Document:
    """A run whose rates are multiplied by a factor, with those of their samples."""
    results = []
    for result in document.testcases:
        tables = []
        for table in result.tables:
            if table.unit is Unit.RATE:
                cells = []
                for cell in table.cells:
                    places = table.rows.labels[cell.row], table.columns.labels[cell.column]
                    by = factor(result.name, *places)
                    known = cell.statistics and struct_replace(
                        cell.statistics, median=cell.statistics.median * by, mean=cell.statistics.mean * by,
                        min=cell.statistics.min * by, max=cell.statistics.max * by,
                    )  # fmt: skip
                    samples = tuple(sample * by for sample in cell.samples)
                    value = cell.value and cell.value * by
                    cells.append(struct_replace(cell, value=value, statistics=known, samples=samples))
                table = struct_replace(table, cells=tuple(cells))
            tables.append(table)
        results.append(struct_replace(result, tables=tuple(tables)))
    return struct_replace(document, testcases=tuple(results))


@pytest.mark.parametrize(
    "machine", with_long(["hgx-h200-2", "rtx4090-2", "gh200-1", "pcie-2-no-p2p"], "rtx4090-2")
)
def test_a_slower_run_never_gets_a_milder_verdict(machine: str) -> None:
    document = wirespeed.run(machine=f"simulated:{machine}", tier="quick")
    for what, path, gpu in ways(document):
        found = [mildness(measured_slower(document, slower(path, gpu, by))) for by in FACTORS]
        assert found[0] == 2 and found == sorted(found, reverse=True), (what, gpu, found)
        assert what == "peers" or found[-1] == 0, (what, gpu, found)


def test_memory_of_a_shared_host_raises_no_alarm() -> None:
    """Next to other tenants, good hosts reached 0.62 of their median in a run, in some sizes or in all."""
    document = wirespeed.load(DATA.parent / "recorded" / "two-h200.json")
    begins = ("host_stream", "host_bandwidth_ladder")
    names = {result.name for result in document.testcases if result.name.startswith(begins)}
    for chosen in (names, {"host_bandwidth_ladder"}):
        run = measured_slower(document, lambda name, *_, own=chosen: 0.62 if name in own else 1.0)
        bad = [one for one in judge(run).judgements if one.verdict.is_bad and one.key.testcase in names]
        assert chosen & names and not bad, bad


@pytest.mark.parametrize(("given", "verdict"), [(None, Verdict.PASS), (460.8e9, Verdict.WARN)])
def test_memory_of_an_unknown_number_of_modules_is_not_compared_with_all_of_them(
    given: float | None, verdict: Verdict, tmp_path: Path
) -> None:
    """Two sockets of 28 cores, each with some of its 12 channels; of a known capacity, it is 27%."""
    (tmp_path / "log.txt").write_text(
        "Intel(R) Memory Latency Checker - v3.10\n"
        "Measuring Memory Bandwidths between nodes within system\n"
        "Bandwidths are in MB/sec (1 MB/sec = 1,000,000 Bytes/sec)\n"
        "Using all the threads from each core if Hyper-threading is enabled\n"
        "Using Read-only traffic type\n                Numa node\nNuma node            0       1\n"
        "       0        125000.0 54457.4\n       1        54387.1 157000.0\n"
    )
    server = parse("hgx-b200-8")
    links = tuple(
        replace(link, capacity=given) for link in server.links
        if link.kind is LinkKind.MEMORY and "gpu" not in link.source
    )  # fmt: skip
    numa = tuple(replace(node, cpus=tuple(range(28 * i, 28 * i + 28))) for i, node in enumerate(server.numa))
    machine = replace(
        server, cpu="AMD EPYC 9354 32-Core Processor", gpus=(), numa=numa, links=links, simulated=False
    )
    found = judge(wirespeed.load_log(tmp_path / "log.txt", machine)).judgements
    assert {one.verdict for one in found if one.key.testcase == "host_stream_read" and one.value} == {verdict}
