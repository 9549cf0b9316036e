"""Values that no known link limits: judged by the model of the CPU, published latencies, and shape."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

import wirespeed
from wirespeed.data import cpu_sheet, cpu_sheets, paths
from wirespeed.document import Document
from wirespeed.hardware.facts import OFF, ON, UNLIMITED, Fact, Known
from wirespeed.judging.check import Check
from wirespeed.judging.criteria import Criteria
from wirespeed.judging.judge import judge
from wirespeed.judging.judged import Judged
from wirespeed.judging.published import OF_MEMORIES
from wirespeed.judging.published_memory import memory_shares
from wirespeed.judging.verdict import Judgement, Verdict
from wirespeed.reports import Style
from wirespeed.results.store import load
from wirespeed.screens import check as check_screen
from wirespeed.tables import Cell

RECORDED = Path(__file__).parents[1] / "recorded"
#: A run on two H200s in a virtual machine with 32 cores, with nothing but the name of the CPU.
TWO = load(RECORDED / "two-h200.json")
EMERALD = "GenuineIntel 6 207"
FAIL, IMPLAUSIBLE, PASS, UNKNOWN, WARN = (
    Verdict.FAIL, Verdict.IMPLAUSIBLE, Verdict.PASS, Verdict.NOT_JUDGED, Verdict.WARN,
)  # fmt: skip
GB, NS = 1e9, 1e-9


def with_facts(document: Document, *facts: Fact) -> Document:
    return replace(document, facts=(*document.facts, *facts))


EMERALD_TWO = with_facts(TWO, Fact(Known.CPU_DESIGN, EMERALD), Fact(Known.HYPERVISOR, ON))


def on_metal(document: Document, *facts: Fact) -> Document:
    return with_facts(document, Fact(Known.HYPERVISOR, OFF), *facts)


def all_samples(cell: Cell, value: float) -> Cell:
    """Return a cell all of whose samples are changed like its value."""
    statistics, factor = cell.statistics, value / (cell.value or value)
    if statistics is not None:
        scaled = {name: getattr(statistics, name) * factor for name in ("median", "mean", "min", "max")}
        statistics = replace(statistics, **scaled)
    return replace(cell, value=value, statistics=statistics)


def median_sample(cell: Cell, value: float) -> Cell:
    return replace(cell, value=value)


def changed(
    document: Document, testcase: str, value: Callable[[float], float], column: str = "", table: str = "",
    *, every_sample: bool = True,
) -> Document:  # fmt: skip
    """Return a run with other values of a testcase, or of one column of it, or of the median sample alone."""
    results = []
    for result in document.testcases:
        if result.name == testcase:
            tables = []
            for one in result.tables:
                cells = tuple(
                    (all_samples if every_sample else median_sample)(cell, value(cell.value or 0.0))
                    if table == one.key and column in ("", one.columns.labels[cell.column])
                    else cell
                    for cell in one.cells
                )
                tables.append(replace(one, cells=cells))
            result = replace(result, tables=tuple(tables))
        results.append(result)
    return replace(document, testcases=tuple(results))


def of(check: Check, testcase: str, column: str = "", table: str = "") -> list[Judgement]:
    return [
        one
        for one in check.judgements
        if one.key.testcase == testcase and one.key.table == table and column in ("", one.key.column)
    ]


def verdicts(document: Document, testcase: str, column: str = "", table: str = "") -> set[Verdict]:
    return {one.verdict for one in of(judge(document), testcase, column, table)}


def only_gpu0(document: Document) -> Document:
    """Return the values of a run that one with only its first GPU would have."""
    results = []
    for result in document.testcases:
        tables = tuple(
            replace(
                table,
                cells=tuple(
                    cell
                    for cell in table.cells
                    if not any(
                        axis.labels[at].startswith("gpu") and axis.labels[at] != "gpu0"
                        for axis, at in ((table.rows, cell.row), (table.columns, cell.column))
                    )
                ),
            )
            for table in result.tables
        )
        results.append(replace(result, tables=tables))
    return replace(document, testcases=tuple(results))


#: Why a copy of a few KiB by all cores is not judged.
TINY = "copy too small: thread start-up dominates"


@pytest.mark.parametrize("name", ["two-h200.json", "four-h200.json"])
@pytest.mark.parametrize("design", ["", EMERALD])
def test_recordings_of_healthy_machines_pass(name: str, design: str) -> None:
    document = load(RECORDED / name)
    check = judge(with_facts(document, Fact(Known.CPU_DESIGN, design)) if design else document)
    others = [one for one in check.judgements if one.verdict is not PASS]
    assert check.verdict is PASS
    assert {(one.key.testcase, one.why) for one in others} <= {("host_bandwidth_ladder", TINY)}


def test_most_values_of_one_gpu_in_a_virtual_machine_are_judged() -> None:
    counts = Counter(one.verdict for one in judge(only_gpu0(TWO)).judgements)
    assert counts[PASS] >= 65 and counts.total() - counts[PASS] == counts[Verdict.NOT_JUDGED] <= 2
    file = str(Path(__file__).parents[1] / "machines" / "one-gpu.json")
    simulated = wirespeed.run(machine=f"simulated:{file}", tier="quick", samples=1, copies=1)
    counts = Counter(one.verdict for one in judge(simulated).judgements)
    assert counts[PASS] >= 55 and not any(verdict.is_bad for verdict in counts)


def test_most_values_of_two_cores_are_judged() -> None:
    """On the recorded virtual machine, without its GPUs."""
    machine = TWO.machine
    (node,) = machine.numa
    small = dataclasses.replace(node, cpus=node.cpus[:2])
    few = replace(
        EMERALD_TWO, machine=dataclasses.replace(machine, numa=(small,), gpus=(), links=machine.links[:1])
    )
    host = replace(
        few,
        testcases=tuple(
            t for t in few.testcases if t.name.startswith(("host_s", "host_l", "host_b", "numa", "all_n"))
        ),
    )
    counts = Counter(one.verdict for one in judge(host).judgements)
    assert counts.total() >= 41 and counts[PASS] == counts.total()


@pytest.mark.parametrize(
    ("gigabytes", "design", "verdict"),
    [(146, EMERALD, PASS), (358, EMERALD, PASS), (375, EMERALD, IMPLAUSIBLE), (375, "", PASS),
     (900, "", IMPLAUSIBLE), (60, EMERALD, PASS), (30, EMERALD, WARN),
     (0.1, EMERALD, WARN), (146, "GenuineIntel 6 999", UNKNOWN)],
)  # fmt: skip
def test_rates_are_bounded_by_the_model_of_the_cpu(gigabytes: float, design: str, verdict: Verdict) -> None:
    document = with_facts(TWO, Fact(Known.CPU_DESIGN, design)) if design else TWO
    document = changed(document, "host_stream_copy", lambda _: gigabytes * GB)
    assert verdicts(document, "host_stream_copy") == {verdict}
    assert judge(document).verdict is (FAIL if verdict is IMPLAUSIBLE else WARN if verdict is WARN else PASS)


def test_an_upper_bound_is_no_limit_that_a_machine_could_reach() -> None:
    (one,) = of(judge(EMERALD_TWO), "host_stream_copy")
    assert one.limit is None and one.normal and 200 * GB < one.normal < 358.4 * GB
    assert one.basis == "maximum of Intel Xeon Scalable 5 (Emerald Rapids), 32 CPUs in use"
    for testcase, most in (("host_stream_copy", 358.4 * GB), ("numa_to_numa_memcpy_read_cpu", 179.2 * GB)):
        (one,) = of(judge(changed(EMERALD_TWO, testcase, lambda _: 400 * GB)), testcase)
        assert one.limit == pytest.approx(most) and "above the highest possible" in one.why


def test_the_screen_shows_what_is_expected_where_no_limit_is_known() -> None:
    text = check_screen.render(Judged(EMERALD_TWO), Style())
    assert re.search(r"✓  host memory   140 GB/s +expected ≥ 5[0-9]", text), text
    assert "no limit known" not in text and "--host-memory" not in text


@pytest.mark.parametrize(("cpus", "verdict"), [(2, PASS), (8, PASS), (32, WARN)])
def test_what_is_low_depends_on_the_number_of_cores(cpus: int, verdict: Verdict) -> None:
    (node,) = TWO.machine.numa
    machine = dataclasses.replace(TWO.machine, numa=(dataclasses.replace(node, cpus=node.cpus[:cpus]),))
    document = changed(replace(EMERALD_TWO, machine=machine), "host_stream_copy", lambda _: 30 * GB)
    assert verdicts(document, "host_stream_copy") == {verdict}


def test_a_quota_of_cpus_lowers_what_is_expected() -> None:
    document = changed(EMERALD_TWO, "host_stream_copy", lambda _: 6 * GB)
    assert verdicts(document, "host_stream_copy") == {WARN}
    assert verdicts(with_facts(document, Fact(Known.CPU_QUOTA, 2.0)), "host_stream_copy") == {PASS}


def test_a_quota_is_for_all_nodes_of_a_host() -> None:
    (node,) = TWO.machine.numa
    halves = tuple(dataclasses.replace(node, index=i, cpus=node.cpus[16 * i : 16 * i + 16]) for i in (0, 1))
    host = replace(EMERALD_TWO, machine=dataclasses.replace(TWO.machine, numa=halves))
    for quota, used in ((UNLIMITED, 16), (8.0, 4)):
        (one,) = of(judge(with_facts(host, Fact(Known.CPU_QUOTA, quota))), "host_stream_copy")
        assert one.basis.endswith(f"{used} CPUs in use")


@pytest.mark.parametrize(("gigabytes", "verdict"), [(600, PASS), (723, PASS), (725, IMPLAUSIBLE)])
def test_what_is_only_read_may_come_from_the_last_cache(gigabytes: float, verdict: Verdict) -> None:
    """Half of the buffer of the load fits into it: up to twice the 358.4 GB/s of the memory."""
    document = changed(EMERALD_TWO, "host_loaded_latency", lambda _: gigabytes * GB, "100%", "bandwidth")
    assert verdicts(document, "host_loaded_latency", "100%", "bandwidth") == {verdict}


@pytest.mark.parametrize(
    ("gigabytes", "verdict"), [(340, PASS), (365, IMPLAUSIBLE), (146, PASS), (75, WARN), (30, FAIL)]
)
def test_a_line_rate_that_was_read_can_fail(gigabytes: float, verdict: Verdict) -> None:
    facts = (
        Fact(Known.CPU_QUOTA, UNLIMITED),
        Fact(Known.MEMORY_RATE, 307.2 * GB, "B/s", "numa0"),
        Fact(Known.MEMORY_RATE_MOST, 358.4 * GB, "B/s", "numa0"),
        Fact(Known.MEMORY_RATE_SOURCE, "SMBIOS: 8 modules", "", "numa0"),
    )
    document = changed(on_metal(EMERALD_TWO, *facts), "host_stream_copy", lambda _: gigabytes * GB)
    hidden = changed(on_metal(EMERALD_TWO, *facts[1:]), "host_stream_copy", lambda _: gigabytes * GB)
    assert verdicts(hidden, "host_stream_copy") == {WARN if verdict is FAIL else verdict}
    (one,) = of(judge(document), "host_stream_copy")
    assert one.verdict is verdict and one.basis == "SMBIOS: 8 modules, 32 CPUs in use"
    assert one.limit == pytest.approx((358.4 if verdict is IMPLAUSIBLE else 307.2) * GB)


def on_skylake(gigabytes: float, *facts: Fact, testcase: str = "host_stream_read") -> Document:
    """A run on a socket with six channels of DDR4-2666, whose kernel reaches a rate."""
    machine = dataclasses.replace(TWO.machine, cpu="Intel(R) Xeon(R) Gold 6140 CPU @ 2.30GHz")
    known = (
        Fact(Known.CPU_DESIGN, "GenuineIntel 6 85"), Fact(Known.CPU_QUOTA, UNLIMITED),
        Fact(Known.MEMORY_RATE, 128 * GB, "B/s", "numa0"),
        Fact(Known.MEMORY_RATE_MOST, 153.6 * GB, "B/s", "numa0"),
        Fact(Known.MEMORY_RATE_SOURCE, "SMBIOS: 6 modules", "", "numa0"),
    )  # fmt: skip
    given = {fact.name for fact in facts}
    known = tuple(fact for fact in known if fact.name not in given)
    document = with_facts(replace(TWO, machine=machine), *facts, *known)
    return without_samples(document, testcase, gigabytes * GB)


def without_samples(document: Document, testcase: str, value: float) -> Document:
    """A run whose values of a testcase are one value, which chance does not move."""
    results = []
    for result in document.testcases:
        if result.name == testcase:
            (table,) = result.tables
            cells = tuple(replace(one, value=value, statistics=None, samples=()) for one in table.cells)
            result = replace(result, tables=(replace(table, cells=cells),))
        results.append(result)
    return replace(document, testcases=tuple(results))


METAL = Fact(Known.HYPERVISOR, OFF)


@pytest.mark.parametrize(
    ("gigabytes", "verdict"), [(105, PASS), (83, PASS), (82, WARN), (67, WARN), (65, FAIL), (20, FAIL)]
)
def test_reads_of_host_memory_are_compared_with_cpus_that_have_such_memory(
    gigabytes: float, verdict: Verdict
) -> None:
    """The slowest published one reaches 0.687 of the line rate; 6% less is usual, and a fifth less fails."""
    (one,) = of(judge(on_skylake(gigabytes, METAL)), "host_stream_read")
    assert one.verdict is verdict
    assert one.reference == OF_MEMORIES


@pytest.mark.parametrize(
    ("facts", "testcase"),
    [
        ((Fact(Known.HYPERVISOR, ON),), "host_stream_read"),
        ((), "host_stream_read"),
        ((METAL, Fact(Known.CPU_QUOTA, 16.0)), "host_stream_read"),
        ((METAL,), "host_stream_triad"),
    ],
    ids=["virtual", "unknown", "quota", "stores"],
)
def test_host_memory_that_others_use_is_not_compared_nor_are_stores(
    facts: tuple[Fact, ...], testcase: str
) -> None:
    document = on_skylake(70, *facts, testcase=testcase)
    (one,) = of(judge(document), testcase)
    assert one.verdict is PASS and not one.reference


def test_host_memory_of_too_few_models_has_no_reference() -> None:
    ice_lake = "Intel(R) Xeon(R) Platinum 8360Y CPU @ 2.40GHz"
    assert {share.model for share in memory_shares(ice_lake, "")} == {"Xeon Platinum 8360Y", "EPYC 7452"}
    document = on_skylake(70, METAL)
    other = replace(document, machine=dataclasses.replace(document.machine, cpu=ice_lake))
    facts = tuple(fact for fact in other.facts if fact.name != Known.CPU_DESIGN)
    (one,) = of(judge(replace(other, facts=facts)), "host_stream_read")
    assert one.verdict is PASS and not one.reference


def test_each_published_read_is_usual_by_the_others_and_none_at_seven_tenths() -> None:
    """Each model left out in turn: no alarm as published, and a warning if 30% is lost."""
    shares = memory_shares("Intel(R) Xeon(R) Gold 6140 CPU @ 2.30GHz", "")
    assert len({share.model for share in shares}) >= 3
    for left_out in shares:
        least = 0.94 * min(share.share for share in shares if share.model != left_out.model)
        assert 0.7 * left_out.share < least < left_out.share


@pytest.mark.parametrize(("factor", "verdicts"), [(1.0, {PASS}), (0.8, {WARN}), (0.7, {WARN}), (0.4, {WARN})])
def test_a_log_of_reads_is_compared_where_the_machine_is_described(
    tmp_path: Path, factor: float, verdicts: set[Verdict]
) -> None:
    """Another source than those of the rows; a log does not say whether others used the memory."""
    source = Path(__file__).parents[1] / "data" / "published" / "mlc-cnf-testbed.txt"
    text = re.sub(r"\d{5,6}\.\d", lambda found: f"{float(found[0]) * factor:.1f}", source.read_text())
    log, described = tmp_path / "mlc.txt", tmp_path / "machine.json"
    log.write_text(text)
    machine = json.loads((source.parents[1] / "trees" / "epyc-2-sockets" / "machine.json").read_text())
    machine["cpu"] = "Intel(R) Xeon(R) Gold 6140 CPU @ 2.30GHz"
    for node in machine["numa"]:
        node["cpus"] = list(range(20 * node["index"], 20 * node["index"] + 20))
    for link in machine["links"]:
        if link["kind"] == "memory":
            link.update(capacity=128 * GB, origin="described")
    described.write_text(json.dumps(machine))
    document = wirespeed.load_log(log, str(described))
    assert {one.verdict for one in of(judge(document), "host_stream_read")} == verdicts


@pytest.mark.parametrize(
    ("nanoseconds", "metal", "virtual"),
    [(90, PASS, PASS), (250, PASS, PASS), (450, WARN, PASS), (900, WARN, WARN), (3000, FAIL, FAIL)],
)
def test_latencies_of_memory(nanoseconds: float, metal: Verdict, virtual: Verdict) -> None:
    document = changed(EMERALD_TWO, "host_latency", lambda _: nanoseconds * NS)
    assert verdicts(document, "host_latency") == {virtual}
    assert verdicts(on_metal(document), "host_latency") == {metal}


@pytest.mark.parametrize(
    ("column", "factor", "verdict"),
    [
        ("256 KiB", 1.2, PASS),
        ("256 KiB", 2.1, WARN),  # half as fast, by the first level
        ("256 KiB", 7.0, WARN),  # missing: as the third level
        ("256 KiB", 25.0, FAIL),
        ("4 KiB", 1.3, PASS),
        ("4 KiB", 3.3, WARN),  # missing: as the second level
        ("64 MiB", 1.5, PASS),
        ("1 GiB", 5.0, WARN),
    ],
)
def test_a_slow_level_of_the_ladder(column: str, factor: float, verdict: Verdict) -> None:
    document = changed(EMERALD_TWO, "host_latency_ladder", lambda value: value * factor, column)
    assert verdicts(document, "host_latency_ladder", column) == {verdict}


def test_half_of_a_cache_may_be_used_by_another_virtual_machine() -> None:
    document = changed(EMERALD_TWO, "host_latency_ladder", lambda _: 25 * NS, "1 MiB")
    assert verdicts(document, "host_latency_ladder", "1 MiB") == {PASS}
    assert verdicts(on_metal(document), "host_latency_ladder", "1 MiB") == {WARN}


@pytest.mark.parametrize(
    ("every_sample", "smaller", "verdict"), [(False, 1.0, PASS), (True, 1.0, WARN), (False, 9.0, WARN)]
)
def test_a_moment_in_which_another_program_ran(every_sample: bool, smaller: float, verdict: Verdict) -> None:
    """A slow cache is slow in every sample, and at the other sizes that it holds."""
    document = changed(EMERALD_TWO, "host_latency_ladder", lambda value: value * smaller, "64 KiB")
    document = changed(
        document, "host_latency_ladder", lambda value: value * 7, "256 KiB", every_sample=every_sample
    )
    assert verdicts(document, "host_latency_ladder", "256 KiB") == {verdict}


def test_a_missing_last_cache_is_a_warning_where_the_machine_has_it_alone() -> None:
    """A virtual machine shares it, so that nothing can be said."""
    document = changed(EMERALD_TWO, "host_latency_ladder", lambda _: 129 * NS, "64 MiB")
    assert verdicts(document, "host_latency_ladder", "64 MiB") == {PASS}
    assert verdicts(on_metal(document), "host_latency_ladder", "64 MiB") == {WARN}
    quick = changed(document, "host_latency_ladder", lambda _: 60 * NS, "64 MiB")
    assert verdicts(on_metal(quick), "host_latency_ladder", "64 MiB") == {PASS}


def test_a_second_cache_that_a_hypervisor_invents_is_not_believed() -> None:
    """By default, QEMU shows 4 MiB, whatever the CPU has."""
    machine = TWO.machine
    caches = tuple(
        dataclasses.replace(one, bytes=4 * 2**20) if one.level == 2 else one for one in machine.caches
    )
    document = replace(EMERALD_TWO, machine=dataclasses.replace(machine, caches=caches))
    document = changed(document, "host_latency_ladder", lambda _: 60 * NS, "1 MiB")
    skylake = with_facts(document, Fact(Known.CPU_DESIGN, "GenuineIntel 6 85"))
    assert verdicts(skylake, "host_latency_ladder", "1 MiB") == {PASS}
    assert verdicts(document, "host_latency_ladder", "1 MiB") == {FAIL}


def test_the_shape_tells_even_if_the_cpu_is_not_known() -> None:
    blind = with_facts(TWO, Fact(Known.CPU_DESIGN, "GenuineIntel 6 999"))
    assert verdicts(blind, "host_latency_ladder", "256 KiB") == {PASS}
    for column, slow in (("64 KiB", 120), ("256 KiB", 400)):
        document = changed(blind, "host_latency_ladder", lambda _, slow=slow: slow * NS, column)
        assert verdicts(document, "host_latency_ladder", column) == {WARN}
    assert verdicts(blind, "host_latency_ladder", "1 GiB") == {UNKNOWN}
    assert verdicts(blind, "host_latency") == {UNKNOWN}
    assert verdicts(blind, "host_loaded_latency", "50%", "latency") == {PASS}


@pytest.mark.parametrize(
    ("columns", "gigabytes", "verdict"),
    [(("1 MiB", "256 KiB", "4 MiB"), 600, PASS), (("1 MiB", "256 KiB", "4 MiB"), 75, WARN),
     (("1 MiB", "256 KiB", "4 MiB"), 10, WARN), (("1 MiB",), 10, PASS),
     (("64 MiB", "16 MiB", "256 MiB"), 40, PASS), (("64 MiB", "16 MiB", "256 MiB"), 20, WARN),
     (("600 MiB",), 10, WARN)],
)  # fmt: skip
def test_copies_that_fit_into_caches_are_faster_than_memory(
    columns: tuple[str, ...], gigabytes: float, verdict: Verdict
) -> None:
    """One slow size between fast ones is the moment when it was measured."""
    document, column = EMERALD_TWO, columns[0]
    for one in columns:
        document = changed(document, "host_bandwidth_ladder", lambda _: gigabytes * GB, one, "size")
    assert verdicts(document, "host_bandwidth_ladder", column, "size") == {verdict}


@pytest.mark.parametrize(
    ("nanoseconds", "verdict"),
    [(300, PASS), (140, PASS), (60, WARN), (2000, PASS), (4000, WARN), (20000, FAIL)],
)
def test_latency_grows_under_load(nanoseconds: float, verdict: Verdict) -> None:
    document = changed(EMERALD_TWO, "host_loaded_latency", lambda _: nanoseconds * NS, "100%", "latency")
    assert verdicts(document, "host_loaded_latency", "100%", "latency") == {verdict}


BLIND = with_facts(TWO, Fact(Known.CPU_DESIGN, "GenuineIntel 6 999"))
_LADDER, _SIZES = "host_latency_ladder", "host_bandwidth_ladder"


@pytest.mark.parametrize(
    ("document", "testcase", "columns", "table", "passes", "warns"),
    [
        (EMERALD_TWO, "host_loaded_latency", ["100%"], "latency", 82.1e-9, 81.7e-9),  # LOADED_LEAST
        (BLIND, "host_loaded_latency", ["100%"], "latency", 2040e-9, 2055e-9),  # LOADED_MOST
        (on_metal(EMERALD_TWO), _LADDER, ["64 MiB"], "", 127.4e-9, 127.9e-9),  # SAVED
        (BLIND, _LADDER, ["64 MiB"], "", 220e-9, 221e-9),  # NO_SLOWER
        (EMERALD_TWO, _LADDER, ["256 KiB"], "", 10.51e-9, 10.57e-9),  # SLOW_CACHE
        (EMERALD_TWO, _SIZES, ["1 MiB", "256 KiB", "4 MiB"], "size", 89e9, 88.6e9),  # SMALL_CACHE
        (EMERALD_TWO, _SIZES, ["64 MiB", "16 MiB", "256 MiB"], "size", 22.3e9, 22.1e9),  # LARGE_CACHE
    ],
)
def test_thresholds_of_caches(
    document: Document, testcase: str, columns: list[str], table: str, passes: float, warns: float
) -> None:
    for given, verdict in ((passes, PASS), (warns, WARN)):
        judged = document
        for column in columns:
            judged = changed(judged, testcase, lambda _, given=given: given, column, table)
        assert verdicts(judged, testcase, columns[0], table) == {verdict}


def test_the_load_is_bounded_too() -> None:
    for factor, verdict in ((1.0, PASS), (0.001, WARN), (10.0, IMPLAUSIBLE)):
        document = changed(EMERALD_TWO, "host_loaded_latency", lambda v, f=factor: v * f, "100%", "bandwidth")
        assert verdicts(document, "host_loaded_latency", "100%", "bandwidth") == {verdict}


@pytest.mark.parametrize(
    ("testcase", "nanoseconds", "verdict"),
    [
        ("host_device_latency_sm", 600, PASS),
        ("host_device_latency_sm", 3000, PASS),  # across sockets, below switches
        ("host_device_latency_sm", 6000, WARN),
        ("host_device_latency_sm", 60000, FAIL),
        ("device_to_device_latency_sm", 1700, PASS),
        ("device_to_device_latency_sm", 5000, WARN),
        ("device_to_device_latency_sm", 50000, FAIL),
    ],
)
def test_latencies_of_gpus(testcase: str, nanoseconds: float, verdict: Verdict) -> None:
    document = changed(TWO, testcase, lambda _: nanoseconds * NS)
    check = judge(document)
    assert {one.verdict for one in of(check, testcase)} == {verdict}
    assert all(one.basis.startswith("published latencies over ") for one in of(check, testcase))
    alone = tuple(result for result in document.testcases if result.name == testcase)
    blind = replace(document, machine=dataclasses.replace(document.machine, links=()), testcases=alone)
    assert verdicts(blind, testcase) == {UNKNOWN}


def test_a_baseline_is_surer_than_what_is_usual() -> None:
    good = [changed(EMERALD_TWO, "host_latency", lambda _: 900 * NS)] * 2
    by = Criteria(baseline=wirespeed.baseline(good))
    assert {one.verdict for one in of(judge(good[0], by), "host_latency")} == {PASS}
    assert {one.verdict for one in of(judge(EMERALD_TWO, by), "host_latency")} == {PASS}
    slower = changed(good[0], "host_latency", lambda value: value * 1.5)
    assert {one.verdict for one in of(judge(slower, by), "host_latency")} == {FAIL}


@pytest.mark.parametrize("values", [(), (1.0,)])
def test_a_curve_without_quantities_is_not_judged(values: tuple[float, ...]) -> None:
    results = tuple(
        replace(one, tables=tuple(
            replace(table, columns=dataclasses.replace(table.columns, values=values)) for table in one.tables
        )) if one.name == "host_latency_ladder" else one
        for one in TWO.testcases
    )  # fmt: skip
    document = replace(TWO, testcases=results)
    assert UNKNOWN in verdicts(document, "host_latency_ladder", "256 KiB")


def test_no_caches_no_cores_no_nodes() -> None:
    for machine in (
        dataclasses.replace(TWO.machine, caches=()),
        dataclasses.replace(TWO.machine, numa=()),
        dataclasses.replace(TWO.machine, numa=(dataclasses.replace(TWO.machine.numa[0], cpus=()),)),
        dataclasses.replace(TWO.machine, cpu="", gpus=()),
    ):
        found = judge(replace(EMERALD_TWO, machine=machine))
        assert not any(one.verdict.is_bad for one in found.judgements)


@pytest.mark.parametrize("number", [-1.0, 0.0, 1e-300, 1e18])
def test_impossible_facts_do_no_harm(number: float) -> None:
    names = (Known.CPU_QUOTA, Known.NODES_PER_SOCKET)
    of_node = (Known.MEMORY_RATE, Known.MEMORY_RATE_MOST, Known.MEMORY_LATENCY)
    facts = [*(Fact(name, number) for name in names), *(Fact(name, number, "", "numa0") for name in of_node)]
    check = judge(with_facts(EMERALD_TWO, *facts))
    assert all(one.least is None or one.least > 0 for one in check.judgements)


@pytest.mark.parametrize("name", cpu_sheets())
def test_data_sheets_are_plausible(name: str) -> None:
    sheet = cpu_sheets()[name]
    l1, l2, l3, local, remote = sheet.nanoseconds
    assert 0.5 < l1 < l2 < l3 < local < remote < 1000
    assert 30e9 < sheet.slowest < sheet.fastest < 2e12 and sheet.cpus >= 32
    assert sheet.source and sheet.names and bool(sheet.vendor) == bool(sheet.models)
    for model in sheet.models:
        assert cpu_sheet("unknown", f"{sheet.vendor} {sheet.family} {model}") == (name, sheet)


@pytest.mark.parametrize(
    ("name", "design", "expected"),
    [
        ("AMD EPYC", "AuthenticAMD 25 17", "AMD EPYC 9004 (Genoa)"),
        ("AMD EPYC 9654 96-Core Processor", "", "AMD EPYC 9004 (Genoa)"),
        ("AMD EPYC", "", "AMD EPYC, model unknown"),
        (
            "Intel(R) Xeon(R) CPU Max 9480",
            "GenuineIntel 6 143",
            "Intel Xeon CPU Max (Sapphire Rapids with HBM)",
        ),
        ("Intel(R) Xeon(R) Platinum 8462Y+", "", "Intel Xeon Scalable 4 (Sapphire Rapids)"),
        (
            "Intel(R) Xeon(R) Processor @ 2.30GHz",
            "GenuineIntel 6 143",
            "Intel Xeon Scalable 4 (Sapphire Rapids)",
        ),
        ("Intel(R) Xeon(R) E-2288G CPU @ 3.70GHz", "GenuineIntel 6 158", None),
        ("Intel Xeon Processor (Icelake)", "GenuineIntel 6 106", None),  # imitated by QEMU
        ("AMD EPYC-Rome Processor", "AuthenticAMD 23 49", None),
        ("Arm Neoverse-V2", "", "Arm Neoverse V2 (Grace, Graviton4, Axion)"),
        ("", "", None),
    ],
)
def test_cpus_are_recognised(name: str, design: str, expected: str | None) -> None:
    found = cpu_sheet(name, design)
    assert (found and found[0]) == expected


def test_published_latencies_have_sources() -> None:
    assert all(one.source and 0 < one.typical < one.most < 1e-4 for one in paths())
