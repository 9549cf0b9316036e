"""Many nodes: outliers, groups and what separates them, and the order of the nodes."""

from __future__ import annotations

import dataclasses
import random

import pytest
from msgspec.structs import replace

import wirespeed
from wirespeed.features.fleet.analysis import analyse, boundary, separating
from wirespeed.hardware.facts import Known
from wirespeed.judging.run_summary import OF_RUNS, RunSummary, SummaryFigure
from wirespeed.judging.verdict import Verdict

COPIES = ("host_to_device_memcpy_ce",)


def node(
    i: int,
    value: float,
    lowest: float | None = None,
    verdict: Verdict = Verdict.PASS,
    model: str = "8 x A",
    **of: str,
):
    figure = SummaryFigure("host ↔ GPU", COPIES, value, value if lowest is None else lowest)
    attributes = {"serial": f"s{i}", "rack": f"r{i % 3}", **of}
    return RunSummary(f"{i}.json", f"node{i:02}", "", model, verdict, "", "", (figure,), attributes)


def noisy(n: int, typical: float, seed: int = 0) -> list[float]:
    draw = random.Random(seed)
    return [draw.gauss(typical, typical / 200) for _ in range(n)]


def test_a_node_far_from_the_median_is_an_outlier() -> None:
    nodes = [node(i, value) for i, value in enumerate(noisy(20, 50))] + [node(20, 40.0), node(21, 50.0, 30.0)]
    fleet = analyse(nodes)
    found = {(fleet.nodes[i].host, what): change for (i, _, what), change in fleet.outliers.items()}
    assert found == {
        ("node20", "typical"): pytest.approx(-0.2, abs=0.01),  # its lowest value tells nothing more
        ("node21", "lowest"): pytest.approx(-0.4, abs=0.01),
    }
    assert not fleet.groups


def test_four_nodes_have_no_outliers() -> None:
    assert not analyse([node(i, value) for i, value in enumerate([50, 50, 50, 10])]).outliers


def test_models_are_not_compared_with_each_other() -> None:
    nodes = [node(i, value) for i, value in enumerate(noisy(10, 50))]
    nodes += [node(i, value, model="8 x B") for i, value in enumerate(noisy(6, 25), 10)]
    fleet = analyse([*nodes, node(16, 20.0, model="8 x B")])
    assert [fleet.nodes[i].host for i, *_ in fleet.outliers] == ["node16"]
    assert [len(members) for members in fleet.models.values()] == [10, 7]


def test_figures_of_other_testcases_are_not_compared() -> None:
    nodes = [node(i, value) for i, value in enumerate(noisy(10, 50))]
    other = SummaryFigure("host ↔ GPU", ("host_to_device_memcpy_sm",), 20.0, 20.0)
    nodes.append(RunSummary("o.json", "other", "", "8 x A", Verdict.PASS, "", "", (other,)))
    assert not analyse(nodes).outliers


def test_the_attribute_that_separates_two_groups_is_named() -> None:
    nodes = [node(i, value, driver="580", kernel="6.8") for i, value in enumerate(noisy(12, 50))]
    nodes += [node(i, value, driver="575", kernel="6.8") for i, value in enumerate(noisy(5, 45), 12)]
    nodes.append(node(17, 20.0, driver="580", kernel="6.8"))
    fleet = analyse(nodes)
    (two,) = fleet.groups
    assert (len(two.slow), len(two.fast)) == (6, 12)
    assert two.slow_median == pytest.approx(45, rel=0.02)
    assert [(one.attribute, one.slow, one.fast) for one in two.separations] == []
    # The broken node is in the slower group with the newer driver: 5 of 6 nodes are fewer than 90 %.
    (two,) = analyse(nodes[:-1]).groups
    assert [(one.attribute, one.slow, one.fast) for one in two.separations] == [("driver", "575", "580")]
    assert not analyse(nodes[:-1]).outliers, "each node is compared with its own group"


def test_models_of_cpu_separate_groups_of_a_mixed_fleet() -> None:
    nodes = [node(i, value, CPU="one") for i, value in enumerate(noisy(8, 50))]
    nodes += [node(i, value, model="8 x B", CPU="two") for i, value in enumerate(noisy(8, 30), 8)]
    (two,) = analyse(nodes).groups
    assert (two.model, [one.attribute for one in two.separations]) == ("", ["CPU"])


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_one_group(seed: int) -> None:
    assert boundary(noisy(40, 50, seed)) is None
    draw = random.Random(seed)
    assert boundary([draw.uniform(40, 60) for _ in range(40)]) is None


def test_many_equal_values_and_a_few_broken_nodes_are_one_group() -> None:
    assert boundary([900.0] * 10 + [1300.0] * 60 + [1302.0] * 430) is None
    assert boundary([0.0] * 20) is None
    assert boundary([]) is None
    assert boundary([90.0] * 4 + [100.0] * 4) == 90


def test_values_without_an_empty_range_between_them_are_one_group() -> None:
    between = [90.5 + i / 2 for i in range(19)]
    assert boundary([90.0] * 20 + between + [100.0] * 20) is None
    assert boundary([90.0] * 20 + between[:15] + [100.0] * 20) == between[14]


def test_values_that_only_one_node_has_separate_nothing() -> None:
    slow = [{"serial": f"a{i}", "driver": "575"} for i in range(5)]
    fast = [{"serial": f"b{i}", "driver": "580"} for i in range(5)]
    assert [one.attribute for one in separating(slow, fast)] == ["driver"]
    same = [{"driver": "580"}] * 5
    assert not separating(same, same)
    (known,) = separating([{}] * 4, [{"driver": "580"}] * 4)
    assert (known.slow, known.fast) == ("unknown", "580")


def test_the_worst_nodes_come_first() -> None:
    fleet = analyse([node(i, 50.0, verdict=verdict) for i, verdict in enumerate(reversed(OF_RUNS))])
    assert [one.word for one in fleet.nodes] == ["FAIL", "WARN", "BUSY", "INTERRUPTED", "NOT JUDGED", "PASS"]


def test_nodes_with_links_down_are_said_to_have_some() -> None:
    from wirespeed.features.fleet.page import _named
    from wirespeed.results.settings import NVLINKS, attributes

    document = wirespeed.run(["0"], machine="simulated:dgx-a100-8+nvlinks=6@gpu3", samples=3, copies=1)
    assert attributes(document)[NVLINKS] == "some links down (6 to 12 active)"
    facts = [replace(one, value=6.0) if one.name == Known.NVLINKS else one for one in document.facts]
    assert attributes(replace(document, facts=tuple(facts)))[NVLINKS] == "6 active links"
    assert _named(NVLINKS, attributes(document)[NVLINKS]).startswith("some links down")
    assert _named("kernel", "6.8") == "kernel 6.8"


@pytest.mark.parametrize(("good", "models"), [(3, 1), (2, 2)])
def test_a_node_with_a_lost_gpu_stays_in_its_model(good: int, models: int) -> None:
    """Unless about as many nodes have this number of GPUs: then it is another model."""
    nodes = [dataclasses.replace(node(i, 100.0, model="8 x A"), family="A", gpus=8) for i in range(good)]
    nodes.append(dataclasses.replace(node(9, 100.0, model="7 x A", verdict=Verdict.FAIL), family="A", gpus=7))
    fleet = analyse(nodes)
    assert len(fleet.models) == models and fleet.nodes[0].host == "node09"
    assert fleet.nodes[0].model == ("8 x A" if models == 1 else "7 x A")
