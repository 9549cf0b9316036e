"""What carried the bytes between nodes, by the counters of a node."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wirespeed.backends.system_files import Tree
from wirespeed.features.qualify.carriers import Carrier, carrier, counters, difference, others, said
from wirespeed.features.qualify.job_nodes import JobNodes
from wirespeed.features.qualify.node_facts import node_facts
from wirespeed.features.qualify.transfer_cluster import TransferCluster
from wirespeed.hardware.facts import Fact, Known
from wirespeed.qualification import QualifiedNode

PORT = "sys/class/infiniband/mlx5_0/ports/1"


def node(root: Path, eth0: int, mlx5_0: int, layer: str = "InfiniBand") -> Tree:
    """A node with an interface of 10 Gbit/s below a bond, and a port of 400 Gbit/s."""
    files = {
        "proc/self/net/dev": "Inter-|   Receive\n face |bytes\n"
        "    lo:  9  1 0 0 0 0 0 0  99000000 1 0 0 0 0 0 0\n"
        f"  eth0:123  1 0 0 0 0 0 0 {eth0} 1 0 0 0 0 0 0\n bond0: 123 1 0 0 0 0 0 0 {eth0} 1 0 0 0 0 0 0\n",
        "sys/class/net/eth0/speed": "10000\n",
        "sys/class/net/bond0/lower_eth0/speed": "10000\n",
        f"{PORT}/state": "4: ACTIVE\n",
        f"{PORT}/link_layer": f"{layer}\n",
        f"{PORT}/rate": "400 Gb/sec (4X NDR)\n",
        f"{PORT}/counters/port_xmit_data": f"{mlx5_0 // 4}\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return Tree(root)


def used(root: Path, eth0: int, mlx5_0: int, layer: str = "InfiniBand") -> Carrier:
    """What carried 1 MB of which the devices sent some."""
    before = counters(node(root, 1000, 4000, layer).root)
    after = counters(node(root, 1000 + eth0, 4000 + mlx5_0, layer).root)
    return carrier(difference(before, after), 1e6)


def test_the_device_that_sent_most(tmp_path: Path) -> None:
    assert used(tmp_path, 1_040_000, 0) == Carrier("TCP", ("eth0",))
    assert used(tmp_path, 9000, 1_040_000) == Carrier("InfiniBand", ("mlx5_0",))
    assert used(tmp_path, 9000, 1_040_000, "Ethernet") == Carrier("RoCE", ("mlx5_0",))


def test_little_traffic_shows_nothing(tmp_path: Path) -> None:
    """The nodes share memory."""
    assert used(tmp_path, 90_000, 90_000) == Carrier() == carrier({}, 1e6)


def test_ip_over_infiniband_is_tcp(tmp_path: Path) -> None:
    """The port counts its bytes, too."""
    (tmp_path / "sys/class/net/eth0").mkdir(parents=True)
    (tmp_path / "sys/class/net/eth0/type").write_text("32\n")
    assert used(tmp_path, 1_040_000, 1_060_000) == Carrier("TCP", ("eth0",))


def test_the_driver_of_efa_counts_elsewhere(tmp_path: Path) -> None:
    tree, nic = node(tmp_path, 0, 0), tmp_path / "sys/class/infiniband/mlx5_0"
    for folder in ("sys/bus/drivers/efa", "sys/devices/a"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "sys/devices/a/driver").symlink_to("../../bus/drivers/efa")
    (nic / "device").symlink_to("../../../devices/a")
    (nic / "ports/1/hw_counters").mkdir()
    (nic / "ports/1/hw_counters/tx_bytes").write_text("77\n")
    assert counters(tree.root)["mlx5_0"] == ("EFA", 77)


def test_what_people_read() -> None:
    many = Carrier("InfiniBand", tuple(f"mlx5_{i}" for i in range(6)))
    assert said([many, many, Carrier()]) == "InfiniBand (mlx5_0, mlx5_1, mlx5_2, mlx5_3 and 2 more)"
    assert said([]) == said([Carrier()]) == ""
    nodes = {f"n{i}": many for i in range(9)}
    assert others(nodes) == others({}) == ""
    nodes |= {f"x{i}": Carrier("TCP", ("eth0",)) for i in range(5)}
    assert others(nodes) == "x0, x1, x2, x3 and 1 more used TCP, 9 of 14 nodes InfiniBand"


def test_devices_whose_link_is_down_do_not_count(tmp_path: Path) -> None:
    tree = node(tmp_path, 0, 0)
    assert node_facts("127.0.0.1", tree.root).rdma == ("mlx5_0",)
    (tmp_path / PORT / "state").write_text("1: DOWN\n")
    assert node_facts("127.0.0.1", tree.root).rdma == ()


TCP, RDMA = Carrier("TCP", ("eth0",)), Carrier("InfiniBand", ("mlx5_0",))


@pytest.mark.parametrize(
    ("over", "carriers", "rate", "doubt"),
    [
        ("nccl", {"a": RDMA, "b": RDMA}, 46e9, ""),
        ("nccl", {"a": RDMA, "b": RDMA}, 20e9, "reaches 40% of what its NICs carry, where 80% are usual"),
        ("nccl", {"a": TCP, "b": TCP}, 1e9, "NCCL over TCP (eth0) does not use: check NCCL_IB_DISABLE"),
        ("mpi", {"a": TCP, "b": TCP}, 1e9, "MPI over TCP (eth0) does not use: its UCX may be built"),
        ("nccl", {"a": RDMA, "b": RDMA, "c": TCP}, 46e9, "c used TCP, 2 of 3 nodes InfiniBand"),
        ("nccl", {}, 46e9, ""),
    ],
)
def test_a_transport_that_is_not_what_it_should_be(
    over: str, carriers: dict[str, Carrier], rate: float, doubt: str
) -> None:
    """RDMA devices that nobody uses, or that some do not use, or that carry too little."""
    port = (
        Fact(Known.PORT_STATE, "ACTIVE", device="mlx5_0"), Fact(Known.PORT_RATE, 400.0, "Gbit/s", "mlx5_0")
    )  # fmt: skip
    nodes = tuple(QualifiedNode(name) for name in "ab")
    job = JobNodes(nodes, ((0,), (1,)), {}, frozenset(), (), ("mlx5_0",), nics={"a": port, "b": port})
    crew: Any = SimpleNamespace()
    cluster = TransferCluster(crew, job, crew, 60.0, over)
    cluster._carriers, cluster._rate = dict(carriers), rate
    assert len(cluster.doubts) == bool(doubt) and doubt in "".join(cluster.doubts)
    of_rdma = carriers.get("a") is RDMA
    assert [limit.port for limit in cluster.limits] == [50e9] * 2 * of_rdma
