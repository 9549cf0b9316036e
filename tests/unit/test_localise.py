"""Who is slow: from made-up matrices of machines with eight GPUs."""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import NormalDist

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from wirespeed.backends.simulated import parse
from wirespeed.data import efficiencies
from wirespeed.hardware.limits import allowances
from wirespeed.hardware.link_graph import Network
from wirespeed.judging.cells_seen import Observation, quantile
from wirespeed.judging.localise import localise
from wirespeed.testcases.table import find

SWITCHED = parse("dgx-a100-8")
NETWORK = Network(SWITCHED)
TESTCASES = {
    name: [
        (place, allowed)
        for measurement in find(name).plan(SWITCHED).measurements
        for place, allowed in zip(
            measurement.places, allowances(NETWORK, measurement, efficiencies()), strict=True
        )
    ]
    for name in ("device_to_device_memcpy_read_ce", "device_to_device_memcpy_write_ce",
                 "host_to_device_memcpy_ce", "device_to_host_memcpy_ce", "device_local_copy")
}  # fmt: skip
PAIRS = [name for name in TESTCASES if "to_device_memcpy_" in name and "host" not in name]
#: A link from the switch to a GPU.
PORT = ("nvswitch", "gpu0")
#: The factor of a cell, by testcase, row and column.
Slow = Callable[[str, int, int], float]


def named(slow: Slow, seed: int = 0, names: list[str] | None = None, noise: float = 0.01) -> list[str]:
    """Return who is named where cells are slower by these factors, with 1 % of noise."""
    draw = random.Random(seed)
    observations = [
        Observation(
            name, 0.8 * slow(name, place.row, place.column) * (1 + draw.gauss(0, noise)), 0.8, a.links
        )
        for name in names or TESTCASES
        for place, a in TESTCASES[name]
    ]
    return [str(culprit) for culprit in localise(SWITCHED, observations)]


def test_a_row_and_a_column_are_the_device() -> None:
    """All that a GPU does is slow: itself; only what it does with other GPUs: its link."""

    def slow(name: str, row: int, column: int) -> float:
        touches = column == 3 or (row == 3 and name in PAIRS)
        return 0.85 if touches else 1.0

    assert named(slow) == ["gpu3"]
    assert named(lambda n, r, c: slow(n, r, c) if n in PAIRS else 1.0) == ["NVLink gpu3-nvswitch"]
    assert named(slow, names=PAIRS) == ["NVLink gpu3-nvswitch"]


def test_a_row_or_a_column_alone_is_a_direction() -> None:
    # In reads the row's GPU pulls: a slow row is slow into it; in writes it is slow out of it.
    read = PAIRS[0]
    assert named(lambda n, r, c: 0.85 if r == 3 else 1.0, names=[read]) == ["NVLink nvswitch->gpu3"]
    assert named(lambda n, r, c: 0.85 if c == 3 else 1.0, names=[read]) == ["NVLink gpu3->nvswitch"]


def test_one_cell_and_its_opposite_are_the_pair() -> None:
    assert named(lambda n, r, c: 0.85 if {r, c} == {2, 6} and n in PAIRS else 1.0) == ["path gpu2-gpu6"]
    read = PAIRS[0]
    assert named(lambda n, r, c: 0.85 if (r, c) == (2, 6) else 1.0, names=[read]) == ["path gpu6->gpu2"]


def test_a_block_is_the_switch() -> None:
    host = ["host_to_device_memcpy_ce", "device_to_host_memcpy_ce"]
    assert named(lambda n, r, c: 0.85 if c in (4, 5) else 1.0, names=host) == ["PCIe link numa1-pcie2"]


def test_two_at_once_are_both_named() -> None:
    def slow(name: str, row: int, column: int) -> float:
        if name == "device_local_copy":
            return 0.7 if column == 1 else 1.0
        return 0.85 if name in PAIRS and 6 in (row, column) else 1.0

    assert set(named(slow)) == {"memory of gpu1", "NVLink gpu6-nvswitch"}


def test_slow_cells_that_nothing_explains_name_nobody() -> None:
    assert named(lambda n, r, c: 0.85 if (n, r, c) == (PAIRS[0], 2, 6) else 1.0) == []


@given(st.integers(0, 2**32), st.floats(0.0, 0.01))
@settings(max_examples=50)
def test_nobody_is_named_on_a_machine_that_is_well(seed: int, noise: float) -> None:
    assert named(lambda *_: 1.0, seed, noise=noise) == []


@given(st.integers(0, 7), st.floats(0.3, 0.9), st.integers(0, 2**32))
@example(7, 0.8984375, 6085982)  # two of its cells are just above the bound of a low one
@settings(max_examples=50)
def test_any_slow_gpu_is_named(gpu: int, factor: float, seed: int) -> None:
    def slow(name: str, row: int, column: int) -> float:
        return factor if column == gpu or (row == gpu and name in PAIRS) else 1.0

    assert named(slow, seed) == [f"gpu{gpu}"]


def test_few_cells_are_no_peers() -> None:
    two = parse("hgx-h200-2")
    links = [i for i, x in enumerate(two.links) if x.kind == "nvlink"]
    pair = [
        Observation("t", ratio, 0.8, ((i, 1.0, 1.0),)) for ratio, i in zip((0.8, 0.6), links, strict=True)
    ]
    assert localise(two, pair) == []
    pair[1] = pair[1]._replace(low=True)
    (culprit,) = localise(two, pair)
    assert str(culprit) == "NVLink gpu1->gpu0" and culprit.ratio == pytest.approx(0.75)
    assert localise(two, []) == []


def test_four_cells_say_what_is_normal() -> None:
    links = [i for i, link in enumerate(SWITCHED.links) if link.source == "nvswitch"]
    cells = [Observation("t", 0.8, 0.8, ((i, 1.0, 1.0),)) for i in links[:4]]
    cells[0] = cells[0]._replace(ratio=0.4)
    assert localise(SWITCHED, cells[:3]) == []
    assert [str(culprit) for culprit in localise(SWITCHED, cells)] == ["NVLink nvswitch->gpu0"]


@pytest.mark.parametrize(("factor", "names"), [(0.88, []), (0.8, ["NVLink nvswitch->gpu0"])])
def test_what_is_low_follows_from_the_deviation_of_the_peers(factor: float, names: list[str]) -> None:
    """Good cells vary by 3 %: one that is 12 % below the upper quartile may be noise, 20 % are not."""
    link = next(i for i, link in enumerate(SWITCHED.links) if (link.source, link.destination) == PORT)
    others = [i for i, one in enumerate(SWITCHED.links) if one.source == "nvswitch" and i != link]
    normal = NormalDist(0.8, 0.03 * 0.8)
    good = [normal.inv_cdf((i + 0.5) / 42) for i in range(42)]
    upper = sorted(good)[31]
    cells = [Observation("t", value, 0.8, ((others[i % 7], 1.0, 1.0),)) for i, value in enumerate(good)]
    cells.append(Observation("t", factor * upper, 0.8, ((link, 1.0, 1.0),)))
    assert [str(culprit) for culprit in localise(SWITCHED, cells)] == names


def varying(count: int, factor: float) -> list[str]:
    """Who is named if a cell is lower than others of its group, which vary by 2 %, as two others do not."""
    link = next(i for i, link in enumerate(SWITCHED.links) if (link.source, link.destination) == PORT)
    others = [i for i, one in enumerate(SWITCHED.links) if one.source == "nvswitch" and i != link]
    normal = NormalDist(0.8, 0.02 * 0.8)
    good = sorted(normal.inv_cdf((i + 0.5) / (count - 1)) for i in range(count - 1))
    cells = [
        Observation(group, value, 0.8, ((others[i % 7], 1.0, 1.0),))
        for group, values in (("t", good), ("u", [0.8] * 8), ("v", [0.8] * 8))
        for i, value in enumerate(values)
    ]
    upper = quantile([0.0, *good], 0.75)
    cells.append(Observation("t", factor * upper, 0.8, ((link, 1.0, 1.0),)))
    return [str(culprit) for culprit in localise(SWITCHED, cells)]


def test_many_cells_show_their_own_deviation() -> None:
    """Up to 199, the steady groups say how much cells vary: 8 % below is low; 200 vary by 2 % themselves."""
    assert varying(199, 0.92) == ["NVLink nvswitch->gpu0"]
    assert varying(200, 0.92) == []


def test_of_more_cells_more_deviations_are_chance() -> None:
    """Of 1,000, five are no chance; of 8,000, 5.4 are reached in one of a hundred runs."""
    assert varying(1000, 0.896) == ["NVLink nvswitch->gpu0"]
    assert varying(8000, 0.896) == []
    assert varying(8000, 0.888) == ["NVLink nvswitch->gpu0"]
