"""What a pass covers: small buffers, busy devices, GPUs that reach less than others of their model."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace

import wirespeed
from tests.conftest import with_long
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.hardware.facts import Known
from wirespeed.hardware.topology import LinkKind, Machine
from wirespeed.judging.causes.run_facts import facts_of
from wirespeed.judging.criteria import Criteria
from wirespeed.judging.inventory import missing
from wirespeed.judging.judge import judge
from wirespeed.judging.odd_devices import odd_devices
from wirespeed.judging.overview import overview
from wirespeed.judging.verdict import Verdict
from wirespeed.results.inventory import InventoryPart

CHECK = ["check", "--allow-simulated", "--no-save", "--machine"]
H200, A100 = "simulated:hgx-h200-2", "simulated:dgx-a100-8"
PAIRS = "device_to_device_memcpy_read_ce"


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main([*arguments])
    return code, " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("size", with_long(["4KiB", "1MiB", "4MiB", "64MiB", "200MiB"], "1MiB", "64MiB"))
@pytest.mark.parametrize("consumer", [(), ("--for", "nagios"), ("--format", "json")])
def test_small_buffers_hide_no_slow_link(
    size: str, consumer: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    slow = f"{H200}+speed@gpu0-gpu1=0.3"
    code, out = run(*CHECK, slow, "--size", size, *consumer, capsys=capsys)
    unknown, failed = (3, 2) if "nagios" in consumer else (4, 1)
    assert code == (failed if size in ("4MiB", "64MiB", "200MiB") else unknown)
    if not consumer:
        assert ("FAIL" if code == 1 else "NOT JUDGED no value of") in out
        assert "buffers too small: starting a copy takes longer than moving its bytes" in out or code == 1
    assert "not limited by link bandwidth" not in out


def test_buffers_of_64_mib_are_judged(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(*CHECK, H200, "--size", "64MiB", capsys=capsys)
    assert code == 0 and "PASS everything judged is as fast as expected" in out
    code, out = run(*CHECK, f"{H200}+speed@gpu0-gpu0=0.5", "--size", "16MiB", capsys=capsys)
    assert code == 4 and "no value of GPU memory, collectives was judged: buffers too small: a cache" in out
    assert "remedy measure with larger buffers" in out


def test_settings_that_change_what_is_judged_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WIRESPEED_SIZE", "64MiB")
    monkeypatch.setenv("WIRESPEED_VERBOSE", "true")
    _, out = run(*CHECK, H200, "-t", "0", capsys=capsys)
    assert "settings: size = 64MiB (WIRESPEED_SIZE) " in out
    _, out = run(*CHECK, H200, "-t", "0", "--size", "512MiB", capsys=capsys)
    assert "settings:" not in out


def test_buffers_fit_into_simulated_memories(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(*CHECK, H200, "-t", "0", PAIRS, "--size", "10TiB", capsys=capsys)
    assert code == 4 and "not enough memory on numa0: 10 TiB requested, 230.4 GiB is free" in out
    code, out = run(*CHECK, H200, "--size", "10TiB", capsys=capsys)
    assert code == 4 and "NOT JUDGED no value of host ↔ GPU, GPU ↔ GPU, GPU memory was judged" in out


def test_bridged_gpus_have_the_links_of_their_rate() -> None:
    links = "NVLinks are down"
    for count, word in ((12, "PASS"), (9, "FAIL")):
        machine = f"simulated:h100-nvl-2+nvlinks={count}@gpu0"
        document = wirespeed.run([PAIRS], machine=machine, tier="quick")
        found = overview(document, judge(document))
        assert (found.verdict.heading, links in found.sentence) == (word, word == "FAIL")
    with pytest.raises(wirespeed.UsageError, match="a number of NVLinks that are left"):
        wirespeed.machine("simulated:h100-nvl-2+nvlinks=18@gpu0")


HALF = Path(__file__).parents[1] / "data/machines/nvlink-half-bridge.machine.json"


def test_half_of_the_links_of_the_data_sheet_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(*CHECK, str(HALF), "-t", PAIRS, capsys=capsys)
    text = "WARN gpu0, gpu1 have 6 active NVLinks; the data sheet gives NVIDIA H100 NVL 12"
    assert code == 3 and text in out
    assert run(*CHECK, str(HALF), "-t", PAIRS, "--expect", "nvlinks=6", capsys=capsys)[0] == 0


@pytest.mark.parametrize(
    ("machine", "model", "links", "lacks"),
    [
        ("h100-nvl-2", "NVIDIA H100 NVL", 12, False), ("h100-nvl-2", "NVIDIA H100 NVL", 11, True),
        ("h100-nvl-2", "NVIDIA H100 NVL", 0, False),  # without a bridge
        ("hgx-h200-2", "NVIDIA H200", 18, False), ("hgx-h200-2", "NVIDIA H200", 17, True),
        ("hgx-h200-2", "NVIDIA H200", 0, True),
        ("hgx-h200-2", "Tesla V100-SXM2-16GB", 4, False),  # half of a cube mesh
        ("hgx-h200-2", "NVIDIA H100", 12, False),  # the name does not say which form
        ("hgx-h200-2", "GPU of a cloud", 1, False),
    ],
)  # fmt: skip
def test_links_are_compared_with_the_data_sheet(machine: str, model: str, links: int, lacks: bool) -> None:
    described = wirespeed.machine(f"simulated:{machine}")
    gpus = tuple(dataclasses.replace(gpu, model=model) for gpu in described.gpus)
    document = wirespeed.described(dataclasses.replace(described, gpus=gpus))
    facts = (replace(f, value=float(links)) if f.name == Known.NVLINKS else f for f in document.facts)
    found = missing(replace(document, facts=tuple(facts)))
    assert [(lost.part, lost.found) for lost in found] == ([(InventoryPart.NVLINKS, links)] if lacks else [])


def test_a_kind_of_path_that_cannot_be_measured_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    line = "– GPU ↔ GPU not measured: no GPU has peer access to another"
    code, out = run(*CHECK, "simulated:pcie-2-no-p2p", capsys=capsys)
    assert code == 0 and line in out
    code, out = run(*CHECK, f"{A100}+no-peers", capsys=capsys)
    assert code == 1 and line in out and "FAIL no peer access between GPUs that NVLinks join" in out
    one = str(Path(__file__).parents[1] / "machines" / "one-gpu.json")
    assert "not measured" not in run(*CHECK, one, capsys=capsys)[1]
    judged = wirespeed.check(machine="simulated:pcie-2-no-p2p")
    assert "GPU ↔ GPU: not measured: no GPU has peer access" in wirespeed.render(judged, "html")


def test_a_busy_cpu_leaves_the_verdict_of_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    machine = f"{H200}+busy@numa0+speed@numa0-numa0=0.4"
    code, out = run(*CHECK, machine, capsys=capsys)
    assert code == 0 and "testcases were not judged: numa0 was in use by a simulated load" in out
    assert "16 not judged; 60 testcases" in out
    code, out = run(*CHECK, machine, "-t", "0", "host_stream_copy", capsys=capsys)
    assert code == 4 and "BUSY numa0 is in use" in out  # no rate of host memory was judged
    code, out = run(*CHECK, f"{A100}+busy@gpu3", "-t", "0", capsys=capsys)
    assert code == 4 and "BUSY gpu3 is in use" in out  # nothing is known of this GPU


def test_what_is_low_while_others_run_has_a_cause_that_is_possible() -> None:
    document = wirespeed.run(["host_latency_ladder"], machine="simulated:cpu-2-sockets+busy@numa0", samples=3)
    check = judge(document, Criteria(ignore_busy=True))
    slow = tuple(dataclasses.replace(one, verdict=Verdict.WARN) for one in check.judgements[:3])
    check = dataclasses.replace(
        check, judgements=slow, testcases={"host_latency_ladder": Verdict.WARN}, culprits=()
    )
    sentence = overview(document, check).sentence
    assert sentence == "3 values are worse than expected; numa0 was in use by a simulated load"


def peers_of(without: dict[int, set[int]], count: int = 8) -> Machine:
    """A machine with some GPUs; some of them lack some peers."""
    machine = wirespeed.machine(A100 if count == 8 else H200)
    return dataclasses.replace(machine, gpus=tuple(
        dataclasses.replace(gpu, peers=tuple(
            peer for peer in gpu.peers if int(peer.removeprefix("gpu")) not in without.get(gpu.index, set())
        ))
        for gpu in machine.gpus
    ))  # fmt: skip


def odd(document: Document) -> list[str]:
    return [text for _, text in odd_devices(document, facts_of(document))]


ALONE = {3: {*range(8)}} | {i: {3} for i in range(8) if i != 3}


def test_a_gpu_without_peers_is_named() -> None:
    document = wirespeed.run(machine=peers_of(ALONE), tier="quick")
    check = judge(document)
    assert check.verdict is Verdict.FAIL
    text = "no peer access between GPUs that NVLinks join: gpu3 with all others"
    assert overview(document, check).sentence == text
    odd_one = "gpu3 has no peers, other GPUs of the model have 6 peers; 246 values are missing"
    assert [str(absent) for absent in check.missing] == [text, odd_one]


@pytest.mark.parametrize(
    ("without", "count", "texts"),
    [
        ({}, 8, []),
        (
            {2: {5}, 5: {2}},
            8,
            ["gpu2, gpu5 have 6 peers, other GPUs of the model have 7 peers; 2 values are missing"],
        ),
        ({i: {j for j in range(8) if j // 4 != i // 4} for i in range(8)}, 8, []),  # two sockets
        ({1: {0}}, 2, ["gpu1 has no peers, gpu0 has 1 peer; 1 value is missing"]),
        ({0: {1}, 1: {0}}, 2, []),
    ],
)  # fmt: skip
def test_gpus_that_differ(without: dict[int, set[int]], count: int, texts: list[str]) -> None:
    assert odd(wirespeed.run([PAIRS], machine=peers_of(without, count), samples=2, copies=1)) == texts


def test_links_that_differ() -> None:
    machine = wirespeed.machine(A100)
    for factor, text in ((0.5, "150 GB/s of NVLinks"), (0.0, "no NVLinks")):
        links = tuple(
            dataclasses.replace(link, capacity=(link.capacity or 0) * factor)
            if link.kind is LinkKind.NVLINK and "gpu5" in (link.source, link.destination)
            else link
            for link in machine.links
        )
        if not factor:
            links = tuple(link for link in links if link.capacity)
        changed = dataclasses.replace(machine, links=links)
        document = wirespeed.run(["0"], machine=changed, samples=2, copies=1)
        (found,) = odd(replace(document, facts=()))
        assert found == f"gpu5 has {text}, other GPUs of the model have 300 GB/s of NVLinks"


def test_failures_say_nothing_of_what_is_missing() -> None:
    document = wirespeed.run(["0", PAIRS], machine=f"{A100}+error@gpu3->gpu1+full@gpu5", samples=2)
    assert odd(document) == [] and odd(replace(document, interrupted="Ctrl-C")) == []
