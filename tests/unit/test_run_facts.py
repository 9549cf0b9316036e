"""What the state of the hardware, read again and again, says about a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

import wirespeed
from tests.unit.test_cuda_discovery import FakeNvml
from tests.unit.test_gpu_facts import GPU, bus
from wirespeed.backends.collective_backend import kept_variables
from wirespeed.backends.cuda import nvml
from wirespeed.backends.cuda.nvml import Nvml
from wirespeed.backends.gpu.gpu_driver import Monitor
from wirespeed.backends.gpu.loaded_links import LoadedLinks
from wirespeed.backends.nccl import debug
from wirespeed.backends.nccl.debug import Debug, transports
from wirespeed.backends.system_files import Tree
from wirespeed.data.causes import Weight
from wirespeed.document import Document
from wirespeed.hardware.facts import COUNTED, Fact, Facts, Known
from wirespeed.hardware.topology import Link, LinkKind, Machine
from wirespeed.judging.causes import CAUSES, signs_of
from wirespeed.judging.causes.run_facts import facts_of
from wirespeed.judging.diagnosis import diagnose
from wirespeed.model import Engine, Executor, Memory, MemoryKind, Transfer
from wirespeed.reports.explanations import explanations
from wirespeed.reports.html.state import charts_and_texts
from wirespeed.tables import RETRAINED, THROTTLED_BY, Quantity, State

OF_GPU0 = "gpu0"


def document(*states: tuple[State, State], seconds: float = 10.0, facts: tuple[Fact, ...] = ()) -> Document:
    """A run of copies of the host to two GPUs, with a state before and after each testcase."""
    cases = ("0", "1", "2", "3")[: len(states)]
    run = wirespeed.run(cases, machine="simulated:hgx-h200-2", samples=1, copies=1)
    results = tuple(
        replace(result, state_before=before, state_after=after, seconds=seconds)
        for result, (before, after) in zip(run.testcases, states, strict=True)
    )
    return replace(run, testcases=results, facts=facts)


def counted(name: str, value: float, unit: str = "", host: str = "") -> Quantity:
    return Quantity(OF_GPU0, name, value, unit, host, counter=True)


def throttled(reason: str, seconds: float) -> Quantity:
    return counted(THROTTLED_BY + reason, seconds, "s")


def test_increases_of_counters_from_the_first_to_the_last_reading() -> None:
    run = document(
        ((counted("PCIe replays", 5), counted("PCIe fatal errors", 1)), (counted("PCIe replays", 9),)),
        ((), (counted("PCIe replays", 100), counted("PCIe NAKs sent", 8), counted("PCIe fatal errors", 1))),
    )
    found = facts_of(run)
    assert found.number(Known.PCIE_RETRIED, OF_GPU0) == 95
    assert found.number(Known.PCIE_FAILED, OF_GPU0) == 0
    assert found.number(Known.NVLINK_RETRIED, OF_GPU0) is None
    reset = document(((counted("NVLink replays", 50),), (counted("NVLink replays", 2),)))
    assert facts_of(reset).number(Known.NVLINK_RETRIED, OF_GPU0) == 0


def test_counters_of_another_host() -> None:
    states = [(counted("PCIe replays", count, host="b"),) for count in (1, 4)]
    found = facts_of(document((states[0], states[1])))
    assert found.number(Known.PCIE_RETRIED, OF_GPU0) is None
    (other,) = (one for one in found.of_each_host if one.host == "b")
    assert other.number(Known.PCIE_RETRIED, OF_GPU0) == 3


def test_throttled_time_as_a_share_of_the_time_in_which_the_gpu_was_used() -> None:
    run = document(
        ((throttled("power cap", 100.0), throttled("power brake", 7.0)),
         (throttled("power cap", 104.0), throttled("power brake", 7.0))),
        ((throttled("power cap", 104.0),), (throttled("power cap", 105.0),)),
    )  # fmt: skip
    found = facts_of(run)
    assert found.number(Known.THROTTLED_TIME, OF_GPU0) == 25
    assert (found.text(Known.THROTTLED_BY, OF_GPU0), found.number(Known.OBSERVED, OF_GPU0)) == (
        "power cap",
        20,
    )
    assert found.number(Known.THROTTLED_TIME, "gpu1") is None
    none = facts_of(document(((throttled("power cap", 3.0),), (throttled("power cap", 3.0),))))
    assert none.number(Known.THROTTLED_TIME, OF_GPU0) == 0
    assert none.text(Known.THROTTLED_BY, OF_GPU0) == "nothing"


def test_copies_of_a_gpu_of_another_host_do_not_use_the_one_with_the_same_name_here() -> None:
    states = ((throttled("power cap", 0.0),), (throttled("power cap", 4.0),))
    run = document(states)
    job = wirespeed.machine("simulated:nvl72")
    (result,) = run.testcases
    (table,) = result.tables
    for rank, seconds in (("4", None), ("0", 10)):  # of node01 and of this host
        links = tuple((link, 1.0, 1.0) for link in job.links_at(f"{rank}/gpu0"))
        cells = tuple(replace(cell, links=links) for cell in table.cells)
        results = (replace(result, tables=(replace(table, cells=cells),)),)
        found = facts_of(replace(run, machine=job, testcases=results))
        assert found.number(Known.OBSERVED, OF_GPU0) == seconds


def test_throttled_time_that_says_nothing() -> None:
    states = ((throttled("power cap", 0.0),), (throttled("power cap", 0.4),))
    assert facts_of(document(states, seconds=0.5)).number(Known.THROTTLED_TIME, OF_GPU0) is None
    too_fast = ((throttled("power cap", 0.0),), (throttled("power cap", 4e4),))
    assert facts_of(document(too_fast)).number(Known.THROTTLED_TIME, OF_GPU0) == 0


def clocks(memory: float, sm: float, state: float) -> State:
    values = (("memory clock", memory * 1e6, "Hz"), ("SM clock", sm * 1e6, "Hz"), ("P-state", state, ""))
    others = [Quantity("gpu1", "SM clock", 1980e6, "Hz")]
    return (*(Quantity(OF_GPU0, name, value, unit) for name, value, unit in values), *others)


@pytest.mark.parametrize(
    ("after", "text"),
    [
        ((405, 345, 8),
         "memory clock at most 405 of 2619 MHz, SM clock at most 345 MHz, others of its model 1980, "
         "P-state P8"),
        ((2619, 1781, 0), "SM clock at most 1781 MHz, others of its model 1980, P-state P0"),
        ((2358, 1783, 2), ""),
    ],
)  # fmt: skip
def test_low_clocks_without_a_throttle_reason(after: tuple[float, float, float], text: str) -> None:
    """The highest clocks of a run count: an idle GPU has low ones before."""
    facts = (Fact(Known.MEMORY_CLOCK_POSSIBLE, 2619e6, "Hz", OF_GPU0),)
    run = document((clocks(405, 345, 8), clocks(*after)), facts=facts)
    (cause,) = (one for one in CAUSES if one.name == "low-clocks")
    found = [sign.text for sign in signs_of(cause, run.machine, facts_of(run))]
    assert found == ([f"{text} while it was measured, without a throttle reason"] if text else [])
    throttling = (
        (*clocks(405, 345, 8), throttled("power cap", 0)),
        (*clocks(*after), throttled("power cap", 9)),
    )
    reasoned = document(throttling, facts=facts)
    assert not list(signs_of(cause, reasoned.machine, facts_of(reasoned)))


@pytest.mark.parametrize(
    ("name", "increase", "expected"),
    [
        ("PCIe replays", 500, ("pcie-errors", "0 uncorrected and 500 corrected errors during the run")),
        ("uncorrected PCIe errors of all ports", 1, ("pcie-errors", "1 uncorrected and 0 corrected errors")),
        ("PCIe replays", 5, None),
        (RETRAINED, 500, None),
        ("link recoveries of all NVLinks", 2, ("nvlink-errors", "2 recoveries and 0 other errors")),
        ("replays of all NVLinks", 9, ("nvlink-errors", "0 recoveries and 9 other errors during the run")),
        (THROTTLED_BY + "power cap", 4.2, ("throttled", "throttled by power cap for 42% of 10 s")),
        (THROTTLED_BY + "power cap", 0.2, None),
    ],
)
def test_an_increase_is_a_defect(name: str, increase: float, expected: tuple[str, str] | None) -> None:
    unit = "s" if name.startswith(THROTTLED_BY) else ""
    states = ((counted(name, 1.0, unit),), (counted(name, 1.0 + increase, unit),))
    run = document(states, facts=(Fact(Known.CPUS, 8.0),))
    found = diagnose(run, wirespeed.judge(run)).findings
    if expected is None:
        assert not found
    else:
        (one,) = found
        assert one.cause.name == expected[0]
        assert one.place == OF_GPU0 and one.evidence.startswith(expected[1]) and one.weight is Weight.DEFECT


def test_counts_of_errors_are_explanations_and_wakeups_are_not() -> None:
    names = ("PCIe replays", RETRAINED, THROTTLED_BY + "power cap")
    before, after = (
        tuple(counted(name, count, "s" * name.startswith(THROTTLED_BY)) for name in names) for count in (1, 4)
    )
    assert explanations(document((before, after))) == ["gpu0 PCIe replays: 3 during the run"]


def test_counters_of_nvml() -> None:
    found = Nvml(FakeNvml(fields={169: 4, 176: 2, 161: lambda link: link, 74: 3_000_000_000, 271: 0}))
    counters = {q.name: q.value for q in found.counters(GPU) if q.counter}
    assert counters == {RETRAINED: 4, "PCIe bad TLPs": 2, "replays of all NVLinks": 3}
    state = {q.name: (q.value, q.unit) for q in found.state(GPU) if q.name.startswith(THROTTLED_BY)}
    assert state == {"throttled by power cap": (3.0, "s"), "throttled by power brake": (0.0, "s")}


def test_every_counter_of_errors_becomes_a_fact() -> None:
    links = {f"{name} of all NVLinks" for name in nvml._ERRORS_OF_LINK}
    others = {name for name in nvml._COUNTERS if "ECC" not in name}
    ports = {
        "uncorrected PCIe errors of all ports",
        "corrected PCIe errors of all ports",
        "errors of the port",
    }
    assert COUNTED.keys() == (nvml._PCIE.keys() - {RETRAINED}) | links | others | ports


HOST = Memory("numa0", MemoryKind.PINNED)
COPY = Transfer(HOST, Memory(GPU.name, MemoryKind.DEVICE), Executor(GPU.name), Engine.CE, 1024)


def speeds(root: Path, *texts: str) -> Path:
    """Set the current speed of all links."""
    for path in root.rglob("current_link_speed"):
        path.write_text(texts[0] if "03:00" in path.parent.name or "02:00" in path.parent.name else texts[-1])
    return root


def test_the_highest_speed_of_the_slowest_link_during_copies(tmp_path: Path) -> None:
    root = bus(tmp_path, width=16)
    links = LoadedLinks(Machine("m", gpus=(GPU,)), Monitor, Tree(root).root)
    links.observe([COPY])  # between two copies: generation 1
    links.observe([Transfer(*(Memory(GPU.name, MemoryKind.DEVICE),) * 2, Executor(GPU.name), Engine.CE, 8)])
    assert not list(links.facts())
    speeds(root, "32.0 GT/s PCIe", "8.0 GT/s PCIe")
    for _ in range(2):
        links.observe([COPY])
    speeds(root, "2.5 GT/s PCIe")
    links.observe([COPY])
    found = Facts(links.facts())
    assert found.text(Known.PCIE_LOADED, "gpu0") == "0000:01:00.0"
    assert [
        found.number(name, "gpu0")
        for name in (Known.PCIE_GENERATION_LOADED, Known.PCIE_GENERATION_LOADED_POSSIBLE,
                     Known.PCIE_WIDTH_LOADED, Known.PCIE_WIDTH_LOADED_POSSIBLE)
    ] == [3, 5, 16, 16]  # fmt: skip


def test_full_speed_is_seen_once(tmp_path: Path) -> None:
    root = speeds(bus(tmp_path, width=16), "32.0 GT/s PCIe")
    links = LoadedLinks(Machine("m", gpus=(GPU,)), Monitor, Tree(root).root)
    links.observe([COPY])
    speeds(root, "2.5 GT/s PCIe")
    links.observe([COPY])
    assert Facts(links.facts()).number(Known.PCIE_GENERATION_LOADED, "gpu0") == 5


def test_nvml_reports_links_that_sysfs_does_not_show(tmp_path: Path) -> None:
    answers = {f"nvmlDeviceGet{name}": value for name, value in (
        ("CurrPcieLinkGeneration", 4), ("CurrPcieLinkWidth", 8), ("MaxPcieLinkGeneration", 5),
        ("MaxPcieLinkWidth", 16),
    )}  # fmt: skip
    links = LoadedLinks(Machine("m", gpus=(GPU,)), lambda: Nvml(FakeNvml(**answers)), Tree(tmp_path).root)
    for _ in range(3):
        links.observe([COPY])
    found = Facts(links.facts())
    assert found.number(Known.PCIE_GENERATION_LOADED, "gpu0") == 4
    assert found.number(Known.PCIE_WIDTH_LOADED, "gpu0") == 8


def test_links_of_gpus_that_copy_over_c2c_are_idle(tmp_path: Path) -> None:
    c2c = (Link("gpu0", "numa0", LinkKind.C2C, 450e9),)
    links = LoadedLinks(
        Machine("m", gpus=(GPU,), links=c2c), Monitor, Tree(speeds(bus(tmp_path), "32.0 GT/s")).root
    )
    links.observe([COPY])
    assert not list(links.facts())


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({Known.PCIE_GENERATION_LOADED: 3.0}, "pcie-generation"),
        ({Known.PCIE_WIDTH_LOADED: 8.0}, "pcie-width"),
        ({Known.PCIE_WIDTH_LOADED: 16.0}, ""),
    ],
)
def test_links_that_are_slow_during_copies_are_defects(change: dict[Known, float], cause: str) -> None:
    facts = {
        Known.PCIE_LOADED: "0000:01:00.0", Known.PCIE_GENERATION_LOADED: 5.0,
        Known.PCIE_GENERATION_LOADED_POSSIBLE: 5.0, Known.PCIE_WIDTH_LOADED: 16.0,
        Known.PCIE_WIDTH_LOADED_POSSIBLE: 16.0,
    } | change  # fmt: skip
    run = document(((), ()), facts=tuple(Fact(name, value, device="gpu1") for name, value in facts.items()))
    found = diagnose(run).findings
    assert [(one.cause.name, one.place, one.weight) for one in found] == (
        [(cause, "gpu1", Weight.DEFECT)] if cause else []
    )
    assert all("0000:01:00.0" in one.evidence and "during copies" in one.evidence for one in found)


LOG = """
host:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
host:1:2 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read
host:1:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/0/GDRDMA
host:1:2 [1] NCCL INFO Channel 00 : 1[1] -> 0[0] via SHM/direct/direct
host:1:2 [1] NCCL INFO Loaded something via dlopen
"""


def test_transports_in_the_log_of_nccl() -> None:
    assert transports(LOG) == ("P2P/CUMEM", "NET/IB", "SHM/direct")
    assert transports("") == ()


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The variables of NCCL's log, which are restored, as is the log."""
    for name in ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"):
        monkeypatch.setenv(name, "x")
        monkeypatch.delenv(name)
    debug.log_of.cache_clear()
    yield monkeypatch
    debug.log_of.cache_clear()


@pytest.mark.parametrize("name", ["NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS"])
def test_the_log_of_the_user_is_left_to_him(name: str, variables: pytest.MonkeyPatch) -> None:
    variables.setenv(name, "/proc/self/fd/2")
    log = Debug()
    assert log.fact().value is None and "NCCL_DEBUG_FILE is set" in log.fact().reason


def test_the_log_that_wirespeed_asks_of_nccl_is_no_setting_of_a_run(variables: pytest.MonkeyPatch) -> None:
    """Its file has another name in each process: every comparison would name it."""
    variables.setenv("NCCL_ALGO", "Ring")
    path = debug.log_of()
    assert path is not None and "NCCL_ALGO=Ring" in kept_variables()
    assert not any("NCCL_DEBUG" in text for text in kept_variables())
    os.close(int(path.name))
    variables.setenv("NCCL_DEBUG_FILE", "/tmp/log")
    assert "NCCL_DEBUG_FILE=/tmp/log" in kept_variables()


def test_the_log_of_nccl_is_in_memory_and_read_from_where_it_was(variables: pytest.MonkeyPatch) -> None:
    log = Debug()
    path = Path(os.environ["NCCL_DEBUG_FILE"])
    assert log.fact().reason == "not in NCCL's log"
    with path.open("w") as written:  # as NCCL opens it, once
        written.write(LOG)
        written.flush()
        assert log.fact() == Fact(Known.NCCL_TRANSPORTS, ("P2P/CUMEM", "NET/IB", "SHM/direct"))
        later = Debug()
        assert later.fact().reason == "not in NCCL's log"
        written.write("host:1:2 [1] NCCL INFO Channel 00 : 1[1] -> 0[0] via SHM/direct/direct\n")
        written.flush()
        assert later.fact().value == ("SHM/direct",)
    debug.log_of.cache_clear()  # as in a program that this process starts
    Debug()
    own = Path(os.environ["NCCL_DEBUG_FILE"])
    assert own != path
    for one in (path, own):
        os.close(int(one.name))


@pytest.mark.parametrize(
    ("machine", "facts", "evidence"),
    [
        ("hgx-h200-2", (), "NVLink connects all GPUs, but NCCL used SHM/direct"),
        ("l40s-8", (), ""),
        ("hgx-h200-2", ("NCCL_P2P_DISABLE=1",), "NCCL_P2P_DISABLE=1; NCCL used SHM/direct"),
        ("hgx-h200-2", ("NCCL_ALGO=Ring",), "NVLink connects all GPUs, but NCCL used SHM/direct"),
    ],
)
def test_nccl_uses_another_transport_than_nvlink(machine: str, facts: tuple[str, ...], evidence: str) -> None:
    run = replace(
        wirespeed.run(["0"], machine=f"simulated:{machine}", samples=1, copies=1),
        facts=(Fact(Known.NCCL_VARIABLES, facts), Fact(Known.NCCL_TRANSPORTS, ("SHM/direct",))),
    )
    found = [one.evidence for one in diagnose(run).findings if one.cause.name == "nccl-disabled"]
    assert found == [evidence] * bool(evidence)


def test_counters_that_do_not_change_have_no_chart() -> None:
    first = (throttled("power cap", 1.0), throttled("power brake", 1.0), counted("PCIe replays", 0))
    last = (throttled("power cap", 2.0), *first[1:])
    charts, texts = charts_and_texts(document((first, ()), ((), last)))
    (chart,) = charts
    assert "throttled by power cap" in "".join(chart.itertext()) and not texts
