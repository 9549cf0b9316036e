"""A/A and A/B tests of ``compare``: false changes between runs of one machine, and true ones that are found.

Runs a command several times in fresh processes, or takes saved runs, and compares each pair of runs, random
halves of all runs, and pairs of which one cell was made slower in one run.

    python benchmarks/compare_aa.py --runs 20 wirespeed run --tier standard
    python benchmarks/compare_aa.py --from runs/
"""

from __future__ import annotations

import argparse
import itertools
import random
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

import wirespeed
from wirespeed.document import Document
from wirespeed.measurement import NoiseKind
from wirespeed.results.cells import Key, key_of, placed
from wirespeed.results.compare import Change, Outcome
from wirespeed.results.comparison_evidence import noise_of
from wirespeed.results.store import files_in, load
from wirespeed.tables import Cell

#: Factor of the speed of the slower cell; number of comparisons with one, and of divisions into halves.
SLOWER, TRIALS, DIVISIONS = 0.97, 200, 20


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    options = parsed(arguments)
    documents = saved(options.source) if options.source else list(measured(options.command, options.runs))
    if len(documents) < 2:
        raise SystemExit("an A/A test requires at least two runs")
    pairs = list(itertools.combinations(documents, 2))
    print(f"{len(documents)} runs of {len(list(placed(documents[0])))} values")
    table("pairs of runs", without_change(pairs))
    if len(documents) >= 4:
        table("random halves of all runs", without_change(halves(documents, random.Random(0))))
    for noise, (trials, found, only) in with_change(pairs, random.Random(0)).items():
        print(
            f"one value of {noise} {1 - SLOWER:.0%} slower in one run: found in {found} of {trials}, "
            f"only it in {only}"
        )


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20, help="number of runs (default: 20)")
    parser.add_argument("--from", dest="source", nargs="+", help="saved runs, or folders of them")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="command that saves a run with -o FILE")
    options = parser.parse_args(arguments)
    if bool(options.command) == bool(options.source):
        parser.error("pass a command, or saved runs with --from")
    return options


def saved(names: Sequence[str]) -> list[Document]:
    """Load saved runs."""
    return [load(file) for file in files_in(names)[0]]


def measured(command: Sequence[str], runs: int) -> Iterator[Document]:
    """Yield the runs of a command, each of a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        for i in range(runs):
            file = Path(folder) / f"{i}.json"
            ended = subprocess.run([*command, "-o", str(file)], capture_output=True, text=True)
            if not file.exists():
                raise SystemExit(f"{shlex.join(command)} saved no run: {ended.stderr.strip()}")
            print(f"\rrun {i + 1} of {runs}", end="", file=sys.stderr, flush=True)
            yield load(file)
    print(file=sys.stderr)


def changed(before: Sequence[Document], after: Sequence[Document]) -> list[Change]:
    """Return what `compare` reports as worse or better."""
    return wirespeed.compare(before, after).those(Outcome.WORSE, Outcome.BETTER)


def without_change(pairs: Sequence[tuple[Document | Sequence[Document], ...]]) -> list[set[str]]:
    """Return the testcases with a change of each comparison of runs of one machine."""
    sides = (
        [[side] if isinstance(side, Document) else side for side in (before, after)]
        for before, after in pairs
    )
    return [{change.key.testcase for change in changed(before, after)} for before, after in sides]


def halves(documents: Sequence[Document], draw: random.Random) -> list[tuple[list[Document], list[Document]]]:
    """Return random divisions of the runs."""
    half = len(documents) // 2
    orders = [draw.sample(documents, len(documents)) for _ in range(DIVISIONS)]
    return [(order[:half], order[half:]) for order in orders]


def with_change(
    pairs: Sequence[tuple[Document, Document]], draw: random.Random
) -> dict[NoiseKind, tuple[int, int, int]]:
    """Compare pairs with one slower cell; return trials, found, and only it found, by kind of value."""
    counts: dict[NoiseKind, list[int]] = {}
    for _ in range(TRIALS):
        before, after = draw.choice(pairs)
        known = {one.key for one in placed(before) if one.cell.value}
        one = draw.choice([one for one in placed(after) if one.cell.value and one.key in known])
        reported = [change.key for change in changed([before], [slowed(after, one.key)])]
        of_kind = counts.setdefault(noise_of(one), [0, 0, 0])
        for i, is_true in enumerate((True, one.key in reported, reported == [one.key])):
            of_kind[i] += is_true
    return {noise: (trials, found, only) for noise, (trials, found, only) in counts.items()}


def slowed(document: Document, key: Key) -> Document:
    """Return a run with one cell slower at all levels."""

    def cell_of(cell: Cell, factor: float) -> Cell:
        return replace(
            cell,
            value=None if cell.value is None else factor * cell.value,
            samples=tuple(factor * value for value in cell.samples),
            rounds=tuple(factor * value for value in cell.rounds),
        )

    testcases = []
    for result in document.testcases:
        tables = []
        for one in result.tables:
            factor = SLOWER if one.unit.more_is_better else 1 / SLOWER
            cells = (cell_of(c, factor) if key_of(result, one, c) == key else c for c in one.cells)
            tables.append(replace(one, cells=tuple(cells)))
        testcases.append(replace(result, tables=tuple(tables)))
    return replace(document, testcases=tuple(testcases))


def table(title: str, found: Sequence[set[str]]) -> None:
    """Print how many comparisons report a change, in total and by testcase."""
    wrong = sum(map(bool, found))
    print(f"{title}: any change in {wrong} of {len(found)} ({wrong / len(found):.1%})")
    for name, count in Counter(itertools.chain.from_iterable(found)).most_common():
        print(f"  {name}: {count}")


if __name__ == "__main__":
    main()
