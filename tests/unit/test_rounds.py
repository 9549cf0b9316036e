"""Pairs in rounds of a tournament, sampled peers, and fabrics that block."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wirespeed
from wirespeed.backends.simulated.machines import MACHINES
from wirespeed.document import Status
from wirespeed.errors import UsageError
from wirespeed.model import Measurement, Role
from wirespeed.testcases import PlanOptions, find
from wirespeed.testcases.pair_schedule import ALONE, peers, tournament
from wirespeed.topology import Link, LinkKind, Machine

PAIRS = [
    f"multinode_device_to_device_{name}_{engine}"
    for name in ("memcpy_read", "memcpy_write", "bidirectional_memcpy_read", "bidirectional_memcpy_write")
    for engine in ("ce", "sm")
]


@given(st.integers(2, 80))
def test_everybody_meets_everybody_once_and_nobody_twice_in_a_round(parties: int) -> None:
    rounds = tournament(parties)
    assert len(rounds) == parties - 1 + parties % 2
    met = Counter(frozenset(pair) for pairs in rounds for pair in pairs)
    assert len(met) == parties * (parties - 1) // 2 and set(met.values()) == {1}
    for pairs in rounds:
        playing = [party for pair in pairs for party in pair]
        assert len(playing) == len(set(playing)) and len(pairs) == parties // 2


@given(st.integers(2, 80), st.integers(0, 90))
def test_sampled_peers_are_spread_evenly(parties: int, chosen: int) -> None:
    found = peers(parties, chosen)
    assert len(found) == (min(chosen, parties - 1) or parties - 1)
    assert all(0 < distance < parties for distance in found)


def in_rounds(case: str, machine: Machine) -> list[Measurement]:
    plan = find(case).plan(machine, PlanOptions(parallel_pairs=True))
    return [m for m in plan.measurements if m.places[0].table != ALONE]


@pytest.mark.parametrize("case", PAIRS)
def test_72_gpus_take_71_rounds(case: str) -> None:
    machine = MACHINES["nvl72"]()
    measurements = in_rounds(case, machine)
    cells: Counter[tuple[str, int, int]] = Counter()
    rounds: list[frozenset[frozenset[int | None]]] = []
    for measurement in measurements:
        pairs = {frozenset((t.source.rank, t.destination.rank)) for t in measurement.transfers}
        ranks = [rank for pair in pairs for rank in pair]
        assert len(ranks) == len(set(ranks)) == 72, "a GPU is in two pairs of a round"
        rounds.append(frozenset(pairs))
        for place in measurement.places:
            cells[place.table, place.row, place.column] += 1
            for i in place.transfers:  # the cell is filled by transfers between its row and its column
                transfer = measurement.transfers[i]
                assert {transfer.source.rank, transfer.destination.rank} == {place.row, place.column}
    assert len(set(rounds)) == 71
    if "bidirectional" in case:  # both cells of a pair from the same transfers
        assert len(rounds) == 71
    else:
        assert rounds[0::2] == rounds[1::2]  # one direction, then the other
    tables = {table for table, _, _ in cells}
    assert len(cells) == 72 * 71 * len(tables) and set(cells.values()) == {1}


def test_the_two_ways_of_measuring_agree_where_nothing_blocks() -> None:
    one = wirespeed.run(["44"], machine="simulated:nvl72",
                        sample_peers=2)  # fmt: skip
    many = wirespeed.run(["44"], machine="simulated:nvl72", sample_peers=2, parallel_pairs=True)
    alone, rounds = one.testcases[0].tables[0].values(), many.testcases[0].tables[0].values()
    assert len(alone) == len(rounds) == 144
    assert rounds == pytest.approx(alone, rel=0.02)
    assert many.testcases[0].tables[1].key == ALONE and len(many.testcases[0].tables[1].values()) == 8
    assert many.testcases[0].warnings == () and many.options["sample_peers"] == 2


def trunk() -> Machine:
    """The 72 GPUs with half of them behind another switch, and one link between the switches."""
    machine = MACHINES["nvl72"]()
    links = []
    for link in machine.links:
        ends = [link.source, link.destination]
        if "nvswitch" in ends:
            gpu = next(end for end in ends if end != "nvswitch")
            if int(gpu.split("/")[0]) >= 36:
                link = replace(link, source=link.source.replace("nvswitch", "far"),
                               destination=link.destination.replace("nvswitch", "far"))  # fmt: skip
        links.append(link)
    links += [
        Link(*ends, LinkKind.NVLINK, 5e12, "a trunk") for ends in (("nvswitch", "far"), ("far", "nvswitch"))
    ]
    return replace(machine, links=tuple(links))


def test_a_fabric_that_blocks_is_told() -> None:
    document = wirespeed.run(["44"], machine=trunk(), parallel_pairs=True)
    (warning,) = document.testcases[0].warnings
    assert warning.startswith("the fabric blocks: ") and "slower while others run" in warning
    assert document.testcases[0].status is Status.PASSED
    assert "the fabric blocks" in wirespeed.render(document, "table")


def test_curves_of_pairs_in_rounds() -> None:
    document = wirespeed.run(["44"], machine=MACHINES["nvl72"](), parallel_pairs=True, sample_peers=1,
                             sizes="1MiB,64MiB")  # fmt: skip
    assert len(document.testcases[0].tables[0].values()) == 144


@pytest.mark.parametrize(("gpus", "one_way", "both_ways"), [(4, 6, 3), (8, 14, 7)])
def test_the_quick_tier_takes_few_rounds(gpus: int, one_way: int, both_ways: int) -> None:
    machine = MACHINES["dgx-a100-8"]().only(range(gpus))
    cases = {"4": one_way, "5": one_way, "33": one_way, "6": both_ways, "23": both_ways}
    for name, rounds in cases.items():
        for options in (PlanOptions(tier="quick"), PlanOptions(parallel_pairs=True)):
            measurements = find(name).plan(machine, options).measurements
            assert len(measurements) == rounds and all(m.independent for m in measurements)
        assert not any(m.independent for m in find(name).plan(machine).measurements)


def test_a_round_is_what_its_pairs_are_alone() -> None:
    machine = MACHINES["dgx-a100-8"]()
    for name in ("4", "6"):
        alone = {
            (p.table, p.row, p.column): ([m.transfers[i] for i in p.transfers], p.reduce)
            for m in find(name).plan(machine).measurements
            for p in m.places
        }
        parts = [
            part for m in find(name).plan(machine, PlanOptions(tier="quick")).measurements
            for part in m.separate()
        ]  # fmt: skip
        found = {
            (p.table, p.row, p.column): ([m.transfers[i] for i in p.transfers], p.reduce)
            for m in parts
            for p in m.places
        }
        assert found == alone and {len(part.transfers) for part in parts} == {1 if name == "4" else 2}


def test_the_quick_tier_measures_all_gpus_at_their_hosts_at_once() -> None:
    machine = MACHINES["dgx-a100-8"]()
    for name, transfers in (("8", 8), ("9", 16), ("24", 8), ("25", 8)):
        (measurement,) = find(name).plan(machine, PlanOptions(tier="quick")).measurements
        assert len(measurement.transfers) == transfers and not measurement.independent
        measured = [measurement.transfers[place.transfers[0]] for place in measurement.places]
        assert [t.executor.device for t in measured] == [gpu.name for gpu in machine.gpus]
        assert {t.role for t in measured} == {Role.MEASURED}


def test_local_copies_run_at_the_same_time_too() -> None:
    plan = find("4").plan(MACHINES["dgx-a100-8"](), PlanOptions(parallel_pairs=True, local_copy=True))
    assert [len(m.transfers) for m in plan.measurements if m.places[0].table != ALONE] == [8] + [4] * 14


def test_wrong_numbers() -> None:
    with pytest.raises(UsageError, match="sampled peers"):
        wirespeed.run(["44"], machine="simulated:nvl72", sample_peers=-1)
