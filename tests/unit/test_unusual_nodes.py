"""NUMA nodes without CPUs or memory, hybrid CPUs, and quotas of nested control groups, on posted machines.

The trees follow public reports: ``power9-lpar`` (numactl/numactl issue 127), ``xeon-max-snc4``
(open-mpi/hwloc issue 541; oneapi-src/unified-memory-framework issue 1289 is alike), ``threadripper-nps4``
(numactl/numactl issue 165), ``gh200-nodes`` (bytedance/xpu-perf issue 129).
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as changed

import wirespeed
from wirespeed.document import TestcaseResult
from wirespeed.hardware.facts import UNLIMITED, Facts, Known
from wirespeed.hardware.topology import Machine
from wirespeed.judging.verdict import Verdict
from wirespeed.options import RunOptions
from wirespeed.testcases.table import find

TREES = Path(__file__).parents[1] / "data/trees"
ONLY_CPUS = "CPUs and no memory: only latencies of other memory are measured from there"
EMPTY = "numa2, numa3, numa4, numa5, numa6, numa7, numa8: neither CPUs nor memory: not measured"
NEAR = "and no usable CPUs: measured from the nearest cores, and not judged"
FROM_NEAR = f"memory {NEAR}"


def described(tree: str) -> Machine:
    return wirespeed.described(root=TREES / tree).machine


def planned(machine: Machine, testcase: str) -> dict[str, str]:
    """Memory -> the node whose cores execute, of the cells that a testcase measures."""
    plan = find(testcase).plan(machine, RunOptions())
    return {work.source.device: work.executor.device for m in plan.measurements for work in m.transfers}


@pytest.mark.parametrize(
    ("tree", "texts"),
    [
        ("power9-lpar", [f"numa0, numa1, numa3: {FROM_NEAR}",
                         f"numa2: {ONLY_CPUS}"]),
        ("xeon-max-snc4", [f"{', '.join(f'numa{i}' for i in range(8, 16))}: HBM {NEAR}"]),
        ("threadripper-nps4", [f"numa0, numa3: {ONLY_CPUS}"]),
        ("gh200-nodes", [f"numa1: memory of a GPU {NEAR}", EMPTY]),
        ("epyc-2-sockets", []),
        ("alder-lake", []),
    ],
)  # fmt: skip
def test_unusual_nodes_are_named(tree: str, texts: list[str]) -> None:
    document = wirespeed.described(root=TREES / tree)
    assert document.machine.unusual_nodes() == texts == list(document.warnings)


def test_memory_without_cpus_is_measured_from_the_nearest_cores() -> None:
    near = {f"numa{i}": f"numa{i % 8}" for i in range(16)}
    assert planned(described("xeon-max-snc4"), "host_stream_triad") == near
    assert planned(described("power9-lpar"), "host_stream_copy") == dict.fromkeys(
        ("numa0", "numa1", "numa3"), "numa2"
    )
    assert planned(described("gh200-nodes"), "host_saxpy") == {"numa0": "numa0", "numa1": "numa0"}


def test_cores_without_memory_wait_for_that_of_others() -> None:
    plan = find("host_latency").plan(described("threadripper-nps4"), RunOptions())
    (table,) = plan.tables
    assert table.rows.labels == ("numa0", "numa1", "numa2", "numa3")
    assert table.columns.labels == ("numa1", "numa2") and len(plan.measurements) == 8
    assert find("numa_to_numa_memcpy_read_cpu").plan(described("power9-lpar"), RunOptions()).reason == (
        "no NUMA node with both cores and memory was found"
    )


def test_memory_without_cpus_is_not_judged_with_a_reason(tmp_path: Path) -> None:
    machine = described("xeon-max-snc4")
    links = tuple(replace(link, capacity=1e11, latency=1e-7) for link in machine.links)
    (file := tmp_path / "machine.json").write_bytes(replace(machine, links=links).to_json())
    document = wirespeed.run(["host_stream_triad", "host_latency"], machine=f"simulated:{file}", tier="quick")
    assert machine.unusual_nodes() == list(document.warnings)

    def unlimited(result: TestcaseResult) -> TestcaseResult:
        """As it is measured where the system reports no capacities."""
        tables = (
            changed(t, cells=tuple(changed(c, limit=None, peak=None, expected=None) for c in t.cells))
            for t in result.tables
        )
        return changed(result, tables=tuple(tables))

    results = tuple(map(unlimited, document.testcases))
    check = wirespeed.judge(changed(document, machine=machine, testcases=results))
    of_hbm = [judgement for judgement in check.judgements if judgement.key.column == "numa8"]
    assert len(of_hbm) == 9 and {judgement.verdict for judgement in of_hbm} == {Verdict.NOT_JUDGED}
    assert {judgement.why for judgement in of_hbm} == {
        "memory of NUMA nodes without CPUs, such as HBM or CXL: its capacity is unknown"
    }


def test_memory_that_a_cpuset_forbids_is_not_measured(tmp_path: Path) -> None:
    assert all(node.allowed for node in described("xeon-max-snc4").numa)
    shutil.copytree(TREES / "xeon-max-snc4", tmp_path, dirs_exist_ok=True)
    (tmp_path / "proc/self/status").write_text("Cpus_allowed_list:\t0-111\nMems_allowed_list:\t0-7\n")
    machine = described(str(tmp_path))
    assert [node.allowed for node in machine.numa] == [True] * 8 + [False] * 8
    assert set(planned(machine, "host_stream_triad")) == {f"numa{i}" for i in range(8)}
    (text,) = machine.unusual_nodes()
    assert text.endswith("memory that this process may not use (cpuset): not measured")


def test_cores_of_hybrid_cpus() -> None:
    """Eight cores of two threads and eight of one."""
    (node,) = described("alder-lake").numa
    assert node.cores == (*range(0, 16, 2), *range(16, 24)) and node.threads_per_core == 2
    assert node.cpus[16:] == tuple(range(1, 16, 2))


@pytest.mark.parametrize(
    ("tree", "quota"), [("threadripper-nps4", 6.0), ("gh200-nodes", 4.0), ("alder-lake", None)]
)
def test_the_lowest_quota_of_nested_groups(tree: str, quota: float | None) -> None:
    """Docker with version 1, and slices of systemd."""
    facts = Facts(wirespeed.described(root=TREES / tree).facts)
    assert facts.number(Known.CPU_QUOTA) == quota


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        ("0::/a", {"a/cpu.max": "max 100000"}, UNLIMITED),
        ("0::/", {}, UNLIMITED),
        ("4:cpu:/x\n0::/", {"cpu/x/cpu.cfs_quota_us": "-1", "cpu/x/cpu.cfs_period_us": "100000"}, UNLIMITED),
        ("4:cpuacct,cpu:/x\n0::/", {"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5),
        ("4:cpu:/x\n0::/", {}, None),
        ("5:cpuset:/x\n6:name=systemd:/", {}, None),
        ("0::/a/b", {"a/cpu.max": "150000 100000", "a/b/cpu.max": "max 100000"}, 1.5),
    ],
)
def test_quotas_of_both_versions(
    groups: str, files: dict[str, str], quota: float | str | None, tmp_path: Path
) -> None:
    for name, text in {
        "proc/self/cgroup": groups,
        **{f"sys/fs/cgroup/{n}": t for n, t in files.items()},
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    (tmp_path / "sys").mkdir(exist_ok=True)
    (fact,) = [f for f in wirespeed.described(root=tmp_path).facts if f.name == Known.CPU_QUOTA]
    assert fact.value == quota


def test_the_rate_of_hbm_is_no_speed_of_modules() -> None:
    """The data sheet gives the rate of DDR5 and HBM together, which was printed as 30400 MT/s."""
    facts = Facts(wirespeed.described(root=TREES / "xeon-max-snc4").facts)
    source = facts.text(Known.MEMORY_RATE_SOURCE, "numa0")
    assert "MT/s" not in source and "HBM and 8 channels of DDR5 together" in source
