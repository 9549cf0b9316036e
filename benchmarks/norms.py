"""Does a verdict say whether a machine is as fast as others of its model?

Judges outputs that others published as they are, with all rates multiplied by one factor, and with one path
of one GPU slower, and prints how many pass, are warned of or fail, and how often a slower machine gets a
milder verdict. The rows of norms that are of the source of an output are left out while it is judged. Outputs
below a folder ``asked`` come from threads that complain, and only count for the last figure.

    python benchmarks/norms.py [FILE or FOLDER ...] [--simulated 200] [--verbose]

Without files: those of ``tests/data/published``, ``tests/data/reports`` and ``tests/data/logs``. Saved runs
are judged as well, and are not scaled.
"""

from __future__ import annotations

import argparse
import gzip
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec.structs import replace as struct_replace

import wirespeed
from wirespeed.backends.simulated import parse
from wirespeed.backends.simulated.machines import MACHINES
from wirespeed.data import norms
from wirespeed.document import Document
from wirespeed.errors import WirespeedError
from wirespeed.features import imports
from wirespeed.features.imports.log import FoundCollective, FoundLog, FoundTable
from wirespeed.judging.check import Check
from wirespeed.judging.verdict import Verdict
from wirespeed.measurement import Unit
from wirespeed.results.store import decode
from wirespeed.tables import Half

ROOT = Path(__file__).parents[1]
FOLDERS = [ROOT / "tests/data" / name for name in ("published", "reports", "logs")]
PAGE = ROOT / "docs/results/published.md"
#: Outputs of threads that ask or complain.
ASKED = (
    "issue24", "issue42", "issue48", "issue50", "issue15", "issue1264", "issue44",
)  # fmt: skip
#: Machines and NICs of logs that do not name them.
MACHINE = {
    "nvbandwidth-a100-readme": "dgx-a100-40g-8", "nvbandwidth-h100-issue24": "hgx-h100-8",
    "nvbandwidth-gb200-azure": "gb200-1",
}  # fmt: skip
NICS = {"nccl-tests-2xh100-a3mega": "8x200G"}
FACTORS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.3)
#: Factor of one path of one GPU.
ONE = 0.85
#: Kind of a path -> testcases that measure it.
PATHS = {
    "host": re.compile(r"host_to_device|device_to_host"),
    "peers": re.compile(r"device_to_device"),
    "memory": re.compile(r"device_(local|stream)"),
}
WORDS = {
    Verdict.PASS: "PASS", Verdict.WARN: "WARN", Verdict.FAIL: "FAIL", Verdict.IMPLAUSIBLE: "FAIL",
}  # fmt: skip
#: How good a verdict is: a slower machine must not get a larger number.
MILD = {"FAIL": 0, "WARN": 1, "PASS": 2, "NOT JUDGED": 3}
#: What is slower: testcase, row and column of a value -> its factor.
Factor = Callable[[str, str, str], float]


@dataclass(frozen=True)
class Output:
    """An output of another tool.

    Attributes:
        path: Its file.
        source: Address of the page that it is from; empty if unknown.
        asked: Whether its poster complains.
    """

    path: Path
    source: str
    asked: bool


def outputs(places: Sequence[Path]) -> list[Output]:
    """The outputs in some files and folders."""
    rows = re.findall(r"^\| `([^`]+)` \|.*?(https?://[^ ,|]+)", PAGE.read_text(), re.MULTILINE)
    sources = dict(rows)
    files = [file for place in places for file in (sorted(place.rglob("*")) if place.is_dir() else [place])]
    return [
        Output(
            file, sources.get(file.stem, ""),
            "asked" in file.parts or file.stem.endswith(ASKED),
        )
        for file in files if file.suffix in (".txt", ".log", ".out")
    ]  # fmt: skip


@contextmanager
def left_out(one: Output) -> Iterator[None]:
    """Leave out the rows of norms of the source of an output, also if only its name has the number."""
    numbers = set(re.findall(r"\d{1,5}", one.path.stem))
    all_rows = norms.observations()

    def is_own(row: norms.PublishedRate) -> bool:
        issue = re.search(r"github.com/[^/]+/([^/]+)/(?:issues|pull)/(\d+)", row.source)
        named = issue and issue[2] in numbers and issue[1].split("-")[0] in one.path.stem
        published = re.sub(r"^https?://", "", one.source) + "/"
        return bool(named) or bool(one.source and published.startswith(f"{row.publisher}/"))

    kept = tuple(row for row in all_rows if not is_own(row))
    before = norms.observations
    norms.observations = lambda: kept  # type: ignore[assignment]
    try:
        yield
    finally:
        norms.observations = before


def scaled(log: FoundLog, factor: Factor) -> FoundLog:
    """A log whose rates are multiplied by a factor."""

    def table(one: FoundTable) -> FoundTable:
        if one.unit is not Unit.RATE:
            return one
        rows = zip(one.rows or ("",) * len(one.values), one.values, strict=False)
        values = tuple(
            tuple(
                None if value is None else value * factor(one.testcase, row, column)
                for column, value in zip(one.columns, cells, strict=False)
            )
            for row, cells in rows
        )
        return replace(one, values=values)

    def collective(one: FoundCollective) -> FoundCollective:
        by = factor(one.info.operation, "", "")

        def half(at: Half | None) -> Half | None:
            if at is None:
                return None
            return struct_replace(at, algorithm=at.algorithm * by, bus=at.bus * by, seconds=at.seconds / by)

        return replace(one, points={n: (half(out), half(within)) for n, (out, within) in one.points.items()})

    return replace(
        log, tables=[table(one) for one in log.tables],
        collectives=[collective(one) for one in log.collectives],
    )  # fmt: skip


def imported(one: Output, factor: Factor = lambda *_: 1.0) -> Document:
    """The Document of an output with other rates."""
    data, file = one.path.read_bytes(), str(one.path)
    logs = [scaled(log, factor) for log in imports._understood(file, data)]
    return imports._document([file], logs, MACHINE.get(one.path.stem), NICS.get(one.path.stem))


def word(check: Check) -> str:
    return WORDS.get(check.verdict, "NOT JUDGED")


def named(check: Check, gpu: str, path: re.Pattern[str]) -> bool:
    """Whether a GPU is named: by a culprit, or by a value of the path that is no pass."""
    suspects = [end for culprit in check.culprits for suspect in culprit.suspects for end in suspect.ends]
    of_value = any(
        one.verdict.is_bad and path.search(one.key.testcase) and gpu in (one.key.row, one.key.column)
        for one in check.judgements
    )
    return not check.ok and (gpu in suspects or of_value)


def one_slower(one: Output, document: Document) -> Iterator[tuple[str, bool]]:
    """For each kind of path of an output: the GPU of which it is made slower, and whether it is named."""
    for kind, testcases in PATHS.items():
        cells = [
            (result.name, table.rows.labels[cell.row], table.columns.labels[cell.column])
            for result in document.testcases if testcases.match(result.name)
            for table in result.tables
            for cell in table.cells if cell.value is not None and cell.expected
        ]  # fmt: skip
        gpus = sorted({end for cell in cells for end in cell[1:] if re.fullmatch(r"gpu\d+", end)})
        if not gpus:
            continue
        gpu = gpus[-1]

        def factor(
            testcase: str, row: str, column: str, path: re.Pattern[str] = testcases, slow: str = gpu
        ) -> float:
            return ONE if path.match(testcase) and slow in (row, column) else 1.0

        yield f"{kind} of {gpu}", named(wirespeed.judge(imported(one, factor)), gpu, testcases)


def simulated(count: int) -> tuple[int, list[str]]:
    """The number of healthy simulated machines, and those with an alarm."""
    alarms = []
    names = [name for name in MACHINES if name != "nvl72"] * 3 + ["nvl72"]
    for seed in range(count):
        name, noise = names[seed % len(names)], (0.01, 0.02, 0.03)[seed % 3]
        machine = replace(parse(name), noise=noise)
        check = wirespeed.judge(wirespeed.run(machine=machine, tier="quick", seed=seed))
        if check.verdict.is_bad:
            alarms.append(f"{name}, noise {noise:.0%}, seed {seed}: {check}")
    return count, alarms


def judged(ones: Iterable[Output], verbose: bool) -> None:
    """Judge outputs and print the figures."""
    by_factor: dict[float, Counter[str]] = {factor: Counter() for factor in FACTORS}
    milder, found, refused, failed, passed = [], [], [], [], Counter[str]()
    slower: list[tuple[str, bool]] = []
    for one in ones:
        with left_out(one):
            try:
                words = [word(wirespeed.judge(imported(one, lambda *_, by=factor: by))) for factor in FACTORS]
                document = imported(one)
                excerpt = bool(wirespeed.judge(document).doubts)
            except WirespeedError as error:
                refused.append(f"{one.path.name}: {str(error)[:80]}")
                continue
            rank = [MILD[word] for word in words]
            softer = [
                f"{one.path.stem}: {words[i]} at {FACTORS[i]:g}, {words[i + 1]} at {FACTORS[i + 1]:g}"
                for i in range(len(rank) - 1) if rank[i + 1] > rank[i]
            ]  # fmt: skip
            milder += softer
            kind = "asked" if one.asked else f"normal{', excerpt' if excerpt else ''}"
            passed[f"{kind}: {words[0]}"] += 1
            if one.asked:
                found.append(f"{one.path.stem}: {words[0]}")
                continue
            if excerpt and words[0] != "PASS":
                continue
            if words[0] == "FAIL":
                failed.append(one.path.stem)
            for factor, verdict in zip(FACTORS, words, strict=True):
                by_factor[factor][verdict] += 1
            if words[0] == "PASS":
                slower += [(f"{one.path.stem}: {what}", seen) for what, seen in one_slower(one, document)]
            if verbose:
                print(f"{one.path.stem:50} {' '.join(words)}")
    print("| all rates x | " + " | ".join(MILD) + " |\n|---|---|---|---|---|")
    for factor, counts in by_factor.items():
        print(f"| {factor:g} | " + " | ".join(str(counts[name]) for name in MILD) + " |")
    print("\nas published: " + "; ".join(f"{name} {n}" for name, n in sorted(passed.items())))
    print(f"normal ones that fail: {len(failed)} {failed}")
    print(f"milder when slower: {len(milder)}", *milder, sep="\n  ")
    seen = sum(good for _, good in slower)
    print(f"one path of one GPU x {ONE}: named {seen} of {len(slower)}")
    print(*(f"  not named: {what}" for what, good in slower if not good), sep="\n")
    print("asked:", *found, sep="\n  ")
    print(f"refused: {len(refused)}", *(refused if verbose else ()), sep="\n  ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("places", nargs="*", type=Path, help="files and folders")
    parser.add_argument("--simulated", type=int, default=0, help="number of healthy simulated machines")
    parser.add_argument("--verbose", action="store_true", help="print the verdicts on each output")
    options = parser.parse_args()
    places = options.places or FOLDERS
    judged(outputs(places), options.verbose)
    for file in (file for place in places for file in sorted(place.rglob("*.json.gz"))):
        check = wirespeed.judge(decode(gzip.decompress(file.read_bytes()), file.name))
        print(f"saved run {file.name}: {check}")
    if options.simulated:
        count, alarms = simulated(options.simulated)
        print(f"healthy simulated machines: {len(alarms)} of {count} with an alarm", *alarms, sep="\n  ")


if __name__ == "__main__":
    main()
