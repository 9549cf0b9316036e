"""What the names of vertices stand for, on the host of the first rank and on others."""

from __future__ import annotations

import pytest

from wirespeed.backends.simulated import parse
from wirespeed.hardware.devices import NumaNode
from wirespeed.hardware.link_graph import MachineVertices
from wirespeed.hardware.topology import Link, LinkKind, Machine, Rank
from wirespeed.judging.suspects import SuspectKind, Suspects

RANKS = (Rank(0, "a", "gpu0"), Rank(1, "b", "gpu0"))
NAMES = ("0/gpu0", "1/gpu0", "numa0", "b:numa0", "b:numa1")
JOB = Machine(
    "job",
    numa=(NumaNode(0),),
    ranks=RANKS,
    links=tuple(Link(name, name, LinkKind.MEMORY) for name in NAMES),
)


@pytest.mark.parametrize(
    ("name", "host", "device"),
    [
        ("0/gpu0", "", "gpu0"),
        ("1/gpu0", "b", "gpu0"),
        ("numa0", "", "numa0"),
        ("b:numa0", "b", "numa0"),
        ("pcie1 up", "", "pcie1 up"),
        ("x:numa0", "", "x:numa0"),  # no host of the job
    ],
)
def test_a_vertex_has_a_host_and_a_device(name: str, host: str, device: str) -> None:
    assert MachineVertices(JOB).of(name) == (name, host, device)


def test_devices_of_all_hosts_are_known() -> None:
    vertices = MachineVertices(JOB)
    assert [gpu.name for gpu in vertices.gpus] == ["0/gpu0", "1/gpu0"]
    assert [node.name for node in vertices.nodes] == ["numa0", "b:numa0", "b:numa1"]
    assert vertices.hosts == {"", "b"}


def test_the_memory_of_a_node_of_another_host_is_host_memory() -> None:
    assert Suspects(JOB).memory("b:numa0").kind is SuspectKind.HOST_MEMORY


def test_a_switch_is_about_the_gpus_below_it() -> None:
    vertices = MachineVertices(parse("dgx-a100-8"))
    assert [gpu.name for gpu in vertices.gpus_at("pcie1")] == ["gpu2", "gpu3"]
    assert [gpu.name for gpu in vertices.gpus_at("gpu3")] == ["gpu3"]
    assert len(vertices.gpus_at("")) == 8 and vertices.gpus_at("numa0") == ()
