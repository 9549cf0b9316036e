"""The simulated machines behave like the ones they are modelled on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import wirespeed
from tests.conftest import SPECS
from wirespeed.backends.simulated import parse
from wirespeed.document import Status
from wirespeed.errors import MachineError
from wirespeed.hardware.link_graph import Network
from wirespeed.hardware.topology import load


def matrix(name: str, machine: str, table: int = 0) -> dict[tuple[int, int], float]:
    document = wirespeed.run([name], machine=f"simulated:{machine}")
    cells = document.testcases[0].tables[table].cells
    return {(cell.row, cell.column): cell.value / 1e9 for cell in cells if cell.value}


#: Read off the tables of sailbandwidth's guide: who is joined by two links.
TWO_LINKS = {0: (4, 5, 7), 1: (4, 5, 6), 2: (5, 6, 7), 3: (4, 6, 7)}


@pytest.mark.parametrize(
    ("name", "one", "two"),
    [
        ("device_to_device_memcpy_read_sm", 48.17, 96.31),
        ("device_to_device_memcpy_write_sm", 46.80, 93.25),
        ("device_to_device_bidirectional_memcpy_read_sm", 41.86, 83.70),
        ("device_to_device_bidirectional_memcpy_write_sm", 45.26, 89.99),
    ],
)
def test_ppu_pairs_show_the_pattern_of_the_guide(name: str, one: float, two: float) -> None:
    found = matrix(name, "ppu-8")
    assert len(found) == 56
    for (row, column), rate in found.items():
        low, high = min(row, column), max(row, column)
        expected = two if high in TWO_LINKS.get(low, ()) else one
        assert rate == pytest.approx(expected, rel=0.02), (row, column)


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("host_to_device_memcpy_ce", 54.2),
        ("host_to_device_bidirectional_memcpy_ce", 42.6),
        ("device_to_device_memcpy_read_ce", 394.0),
        ("device_to_device_memcpy_write_ce", 396.4),
        ("device_to_device_bidirectional_memcpy_read_ce", 389.4),
        ("device_to_device_memcpy_read_sm", 376.2),
        ("device_to_device_memcpy_write_sm", 370.0),
        ("device_to_device_bidirectional_memcpy_read_sm", 338.6),
        ("host_to_device_bidirectional_memcpy_sm", 42.4),
        ("device_local_copy", 2095.0),
    ],
)
def test_h200s_show_the_recorded_figures(name: str, rate: float) -> None:
    for value in matrix(name, "hgx-h200-2").values():
        assert value == pytest.approx(rate, rel=0.015)


def test_h200_latencies() -> None:
    assert matrix("host_device_latency_sm", "hgx-h200-2")[0, 0] * 1e18 == pytest.approx(1195, rel=0.02)
    assert matrix("device_to_device_latency_sm", "hgx-h200-2")[0, 1] * 1e18 == pytest.approx(829, rel=0.02)


@pytest.mark.parametrize(
    ("machine", "name", "rate"),
    [
        ("gh200-1", "host_to_device_memcpy_ce", 375.0),
        ("gh200-1", "device_to_host_memcpy_ce", 297.0),
        ("gh200-1", "host_to_device_bidirectional_memcpy_ce", 160.0),
        ("gb200-4", "host_to_device_memcpy_ce", 201.0),
        ("gb200-4", "device_to_host_memcpy_ce", 193.0),
        ("gb200-4", "device_to_device_memcpy_read_ce", 765.0),
        ("hgx-b200-8", "device_to_device_memcpy_read_ce", 765.0),
    ],
)
def test_machines_show_the_published_figures(machine: str, name: str, rate: float) -> None:
    for value in matrix(name, machine).values():
        assert value == pytest.approx(rate, rel=0.05)


def test_gpus_without_nvlink_copy_by_way_of_the_root_complexes() -> None:
    found = matrix("device_to_device_memcpy_read_ce", "l40s-8")
    assert len(found) == 56
    for (row, column), rate in found.items():
        assert rate == pytest.approx(26.3 if row // 4 == column // 4 else 22.2, rel=0.02), (row, column)


@pytest.mark.parametrize("name", ["dgx-a100-8", "hgx-b200-8", "l40s-8", "gb200-4"])
def test_data_of_another_socket_takes_no_detour_over_gpus(name: str) -> None:
    network = Network(parse(name))
    last = network.machine.gpus[-1]
    for way in ("numa0", "numa1"), ("numa1", "numa0"), ("numa0", last.name), (last.name, "numa0"):
        passed = {network.links[i].destination for i in network.route(*way)} - {way[1]}
        assert not any(vertex.startswith(("gpu", "nvswitch")) for vertex in passed), way


def test_gpus_behind_one_switch_share_it() -> None:
    alone, together = matrix("0", "dgx-a100-8"), matrix("10", "dgx-a100-8")
    assert together[0, 0] == pytest.approx(alone[0, 0] / 2, rel=0.05)


def test_a_large_matrix_is_measured_and_saved(tmp_path: Path) -> None:
    document = wirespeed.run(
        ["multinode_device_to_device_memcpy_write_ce"], machine="simulated:nvl72", rounds=1,
        output=tmp_path / "d.json",
    )  # fmt: skip
    assert len(document.testcases[0].tables[0].cells) == 72 * 71
    assert wirespeed.load(tmp_path / "d.json").testcases[0].status is Status.PASSED


def test_a_seed_repeats_a_run_and_another_does_not() -> None:
    def values(seed: int) -> list[float]:
        document = wirespeed.run(["4"], machine="simulated:dgx-a100-8", seed=seed)
        return document.testcases[0].tables[0].values()

    assert values(1) == values(1) != values(2)


@pytest.mark.parametrize("name", sorted(SPECS))
def test_a_machine_survives_json(name: str, tmp_path: Path) -> None:
    machine = wirespeed.machine(SPECS[name])
    path = tmp_path / "machine.json"
    path.write_bytes(machine.to_json())
    assert load(path) == machine


def test_a_machine_file_is_simulated_like_the_machine_it_describes(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_bytes(parse("hgx-h200-2").to_json())
    assert wirespeed.run(["0"], machine=str(path)).simulated
    assert wirespeed.run(["0"], machine=f"simulated:{path}").good


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not a valid machine file"),
        ("[]", "is not a valid machine file"),
        ("{}", "required field `name`"),
        ('{"name": "x", "links": [{"source": "a"}]}', "destination"),
        (
            '{"name":"x","links":[{"source":"a","destination":"b","kind":"pcie","capacity":-1}]}',
            "capacity -1",
        ),
        ('{"name":"x","noise":2}', "noise is 2"),
        ('{"name":"x","ranks":[{"index":3,"host":"h","device":"gpu0"}]}', "not numbered"),
        ('{"name":"x","gpus":[{"index":0,"model":"a"},{"index":0,"model":"b"}]}', "duplicate GPU 0"),
        ('{"name":"x","rates":[{"engine":"ce","link":"pcie","efficiency":0}]}', "efficiency 0"),
        (
            '{"name":"x","links":[{"source":"a","destination":"b","kind":"pcie","latency":5}]}',
            "latency 5",
        ),
    ],
)
def test_a_broken_machine_file_is_one_clear_line(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text(text)
    with pytest.raises(MachineError, match=re.escape(says)) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_a_machine_that_is_not_there() -> None:
    for spec, says in {
        "simulated:none": "'none' is neither a simulated machine nor a machine file",
        "simulated:ppu-8+broken": "unknown simulated fault 'broken'",
        "none.json": "machine file .* does not exist",
    }.items():
        with pytest.raises(MachineError, match=says):
            wirespeed.machine(spec)


def test_links_without_capacity_are_an_error_of_the_testcase(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text('{"name":"bare","simulated":true,"gpus":[{"index":0,"model":"g"}]}')
    document = wirespeed.run(["0", "38"], machine=str(path))
    assert [r.status.value for r in document.testcases] == ["error", "error"]
    assert "no links that lead from" in document.testcases[0].reason
    assert "no capacity" in document.testcases[1].reason


def test_another_hosts_file_is_not_measured_here(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text('{"name":"far","numa":[{"index":0,"cpus":[4095],"memory_bytes":1}]}')
    with pytest.raises(MachineError, match="CPU 4095 does not exist here; use --machine simulated:"):
        wirespeed.machine(str(path))
    path.write_text('{"name":"far","gpus":[{"index":0,"model":"g","bus_id":"ffff:00:00"}]}')
    with pytest.raises(MachineError, match="the GPU at ffff:00:00"):
        wirespeed.machine(str(path))
