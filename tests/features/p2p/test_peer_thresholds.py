"""Each threshold by which peer access is judged, with a value just below and one just above it."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from msgspec.structs import replace as with_fields

import wirespeed
from wirespeed.backends.simulated import parse
from wirespeed.document import Document
from wirespeed.features.p2p.attempts import with_slow
from wirespeed.features.p2p.causes import find_peers
from wirespeed.features.p2p.judging import problems
from wirespeed.hardware.facts import ON, Fact, Known
from wirespeed.judging.judge import judge
from wirespeed.judging.localise import WrongData
from wirespeed.judging.verdict import Verdict
from wirespeed.peer_access import (
    PEER_ACCESS,
    Attempt,
    Pair,
    PeerAccess,
    PeerMechanism,
    PeerVerdict,
)  # fmt: skip
from wirespeed.thresholds.causes import PEER_OF_HOST, PEER_OF_LINE, PEER_OF_MIRROR, PEER_OF_PEERS

V, M = PeerVerdict, PeerMechanism
assert (PEER_OF_HOST, PEER_OF_MIRROR, PEER_OF_PEERS, PEER_OF_LINE) == (0.6, 0.5, 0.5, 0.5), (
    "docs/p2p.md has the numbers"
)
GPUS = ("gpu0", "gpu1", "gpu2")
RATE = 50e9


def copies(rates: dict[Pair, float], through_host: dict[str, float] | None = None) -> PeerAccess:
    attempts = tuple(Attempt(*pair, M.COPY, V.WORKS, rate=rate) for pair, rate in rates.items())
    return PeerAccess(attempts, through_host=through_host or {})


def verdict(access: PeerAccess, pair: Pair, joined: object = None, line: float = 0.0) -> PeerVerdict:
    pairs = {attempt.pair for attempt in access.attempts}
    judged = with_slow(access, dict.fromkeys(pairs, joined), {pair: line} if line else {})
    return judged.verdicts[pair]


@pytest.mark.parametrize(("factor", "found"), [(0.999, V.SLOW), (1.001, V.WORKS)])
def test_slower_than_pairs_joined_alike(factor: float, found: PeerVerdict) -> None:
    """Both directions of a pair are slow, so that only other pairs show it."""
    rates = dict.fromkeys(permutations(GPUS, 2), RATE)
    rates["gpu0", "gpu1"] = rates["gpu1", "gpu0"] = PEER_OF_PEERS * RATE * factor
    assert verdict(copies(rates), ("gpu0", "gpu1")) is found
    few = {pair: rates[pair] for pair in (("gpu0", "gpu1"), ("gpu1", "gpu0"), ("gpu0", "gpu2"))}
    assert verdict(copies(few), ("gpu0", "gpu1")) is V.WORKS, "the median of three says nothing"


@pytest.mark.parametrize(("factor", "found"), [(0.999, V.SLOW), (1.001, V.WORKS)])
def test_slower_than_through_the_host(factor: float, found: PeerVerdict) -> None:
    """The slower of the two ways counts: a copy through the host takes both."""
    rates = dict.fromkeys([("gpu0", "gpu1"), ("gpu1", "gpu0")], PEER_OF_HOST * 20e9 * factor)
    assert verdict(copies(rates, {"gpu0": 20e9, "gpu1": 40e9}), ("gpu0", "gpu1")) is found
    assert verdict(copies(rates, {"gpu0": 40e9}), ("gpu0", "gpu1")) is V.WORKS, "one way is unknown"


@pytest.mark.parametrize(("factor", "found"), [(0.999, V.SLOW), (1.001, V.WORKS)])
def test_slower_than_the_other_direction(factor: float, found: PeerVerdict) -> None:
    rates = {("gpu0", "gpu1"): PEER_OF_MIRROR * RATE * factor, ("gpu1", "gpu0"): RATE}
    assert verdict(copies(rates), ("gpu0", "gpu1")) is found


@pytest.mark.parametrize(("factor", "found"), [(0.999, V.SLOW), (1.001, V.WORKS)])
def test_slower_than_the_line(factor: float, found: PeerVerdict) -> None:
    rates = dict.fromkeys([("gpu0", "gpu1"), ("gpu1", "gpu0")], PEER_OF_LINE * RATE * factor)
    assert verdict(copies(rates), ("gpu0", "gpu1"), line=RATE) is found


def attempted(spec: str, bad: dict[Pair, tuple[PeerMechanism, ...]], *facts: Fact) -> Document:
    """A run in which some mechanisms of some pairs deliver wrong data, and all others work."""
    document = wirespeed.p2p(parse(spec), seed=3)
    assert document.peers is not None
    attempts = tuple(
        with_fields(attempt, verdict=V.WRONG if attempt.mechanism in bad.get(attempt.pair, ()) else V.WORKS)
        for attempt in document.peers.attempts
    )
    return with_fields(
        document, peers=with_fields(document.peers, attempts=attempts), facts=(*document.facts, *facts)
    )


def test_a_cause_of_the_broken_pairs_only_comes_first() -> None:
    """One that holds for good pairs, too, explains less: half of the share of good pairs is subtracted."""
    pair = {("gpu0", "gpu1"): (M.STORE, M.COPY), ("gpu1", "gpu0"): (M.STORE, M.COPY)}
    everywhere = Fact(Known.IOMMU, ("DMA-FQ",))
    here = [Fact(Known.ACS_REDIRECTS, (f"0000:0{i}:01.1",), device=f"gpu{i}") for i in (0, 1)]
    found = find_peers(attempted("rtx3090-4", pair, everywhere, *here))
    assert found is not None
    scores = {finding.cause.name: finding.share for finding in found.causes}
    assert found.causes[0].cause.name == "acs" and scores["acs"] > scores["iommu"] == 0.5
    # gpu0 and gpu1 also belong to 8 of the 10 good pairs.
    assert scores["acs"] == pytest.approx(1 - 0.5 * 8 / 10)


def levels(bad: Pair, spec: str = "pcie-4-switched") -> dict[str, str]:
    found = find_peers(attempted(spec, {bad: (M.STORE,), bad[::-1]: (M.STORE,)}))
    assert found is not None
    return found.settings


def test_how_near_pairs_are_joined() -> None:
    """Below one switch (two links) NCCL calls it PIX, across several bridges PXB."""
    machine = parse("pcie-4-switched")
    assert levels(("gpu0", "gpu2")) in ({"NCCL_P2P_LEVEL": "PIX"}, {"NCCL_P2P_LEVEL": "PXB"})
    assert levels(("gpu0", "gpu1")) == {"NCCL_P2P_DISABLE": "1"}, "no nearer pair works"
    from wirespeed.features.p2p.causes import _LEVELS, _level
    from wirespeed.hardware.link_graph import Network

    names = {_LEVELS[_level(Network(machine), pair)] for pair in [("gpu0", "gpu1"), ("gpu2", "gpu3")]}
    assert names == {"PIX"}
    links = [link for link in machine.links if {link.source, link.destination} == {"gpu0", "pcie0"}]
    assert links, "gpu0 is below a switch"
    more = []
    for link in machine.links:  # another bridge between gpu0 and its switch
        ends = [f"bridge{0}" if end == "pcie0" and "gpu0" in link.ends else end for end in link.ends]
        more.append(replace(link, source=ends[0], destination=ends[1]))
    more += [
        replace(links[0], source=a, destination=b) for a, b in (("bridge0", "pcie0"), ("pcie0", "bridge0"))
    ]
    longer = replace(machine, links=tuple(more))
    assert _LEVELS[_level(Network(longer), ("gpu0", "gpu1"))] == "PXB"


def test_atomics_alone_change_no_setting_of_nccl() -> None:
    found = find_peers(attempted("rtx3090-4", {("gpu0", "gpu1"): (M.ATOMICS,)}))
    assert found is not None and found.verdict is Verdict.FAIL and found.settings == {}
    both = find_peers(attempted("rtx3090-4", {("gpu0", "gpu1"): (M.ATOMICS, M.STORE)}))
    assert both is not None and both.settings == {"NCCL_P2P_DISABLE": "1"}


def test_wrong_pairs_that_other_testcases_measured_are_said_once() -> None:
    """All of them must have been measured; those that were not are a problem of their own."""
    pairs = [("gpu0", "gpu1"), ("gpu2", "gpu3")]
    document = attempted("rtx3090-4", dict.fromkeys(pairs, (M.STORE,)))
    measured = [WrongData("", (path,), ("device_to_device_memcpy_write_sm",)) for path in pairs]
    assert problems(document, measured) == []
    assert len(problems(document, measured[:1])) == 1
    itself = [replace(one, testcases=(PEER_ACCESS,)) for one in measured]
    assert len(problems(document, itself)) == 1


@pytest.mark.parametrize(
    ("spec", "found", "says"),
    [
        ("rtx5090-4", Verdict.PASS, "works for 12 of 12 pairs"),
        ("rtx5090-4+no-peers@gpu2", Verdict.WARN, "6 of 12 pairs; not offered: gpu2 with all others"),
        ("rtx5090-4+no-peers@gpu2-gpu3", Verdict.WARN, "10 of 12 pairs; not offered: gpu2 <-> gpu3"),
        ("rtx5090-4+gone@gpu3", Verdict.FAIL, "is on the PCI bus, but the driver does not show it"),
        ("rtx5090-4+no-peers", Verdict.NOT_JUDGED, "no peer access is offered"),
        ("hgx-h200-2+no-peers@gpu0-gpu1", Verdict.FAIL, "between GPUs that NVLinks join: gpu0 <-> gpu1"),
        ("dgx-a100-8+no-peers", Verdict.FAIL, "between GPUs that NVLinks join: all pairs"),
        ("dgx-a100-8+no-peers@gpu3", Verdict.FAIL, "between GPUs that NVLinks join: gpu3 with all others"),
    ],
)  # fmt: skip
def test_pairs_that_were_not_tried_or_offered_are_no_pass(spec: str, found: Verdict, says: str) -> None:
    document = wirespeed.p2p(f"simulated:{spec}")
    findings = find_peers(document)
    assert findings is not None and findings.verdict is found and says in findings.sentence
    check = wirespeed.check(machine=f"simulated:{spec}", prefixes=["device_to_device_memcpy_read_ce"]).check
    assert (check.verdict is Verdict.FAIL) is (found is Verdict.FAIL)


def test_modes_in_which_nvlinks_carry_nothing_are_no_missing_peers() -> None:
    """MIG and confidential computing are named as such."""
    document = wirespeed.p2p("simulated:hgx-h200-2+no-peers")
    assert judge(document).verdict is Verdict.FAIL
    with_mode = with_fields(document, facts=(*document.facts, Fact(Known.MIG, ON, device="gpu0")))
    assert judge(with_mode).verdict is not Verdict.FAIL
