"""Published rates: the reader of their files, what is usual by them, and the page that is made from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from wirespeed.data import norms as subject
from wirespeed.data.norms import TOLERANCES, Kind, Norm, PublishedRate, Subject, norms, observations, read
from wirespeed.errors import UsageError
from wirespeed.units import GB

PAGE = Path(__file__).parents[2] / "docs/reference/norms.md"
TITLES = {
    subject.Path.HOST_GPU: "Copies between host and GPU",
    subject.Path.GPU_GPU: "Copies between GPUs",
    subject.Path.GPU_MEMORY: "GPU memory",
    subject.Path.COLLECTIVE: "Collectives within a host, bus bandwidth",
    subject.Path.COLLECTIVE_NODES: "Collectives between hosts, bus bandwidth",
    subject.Path.NODE_NODE: "Messages between nodes",
    subject.Path.HOST_MEMORY: "Host memory",
}
WORDS = {
    "to_device": "host to GPU", "from_device": "GPU to host", "both_to": "host to GPU, both at once",
    "both_from": "GPU to host, both at once", "both_sum": "both directions, sum", "one_way": "one direction",
}  # fmt: skip
HEADING = ",".join(subject.HEADING)
ROW = "H200,SXM,gpu-gpu,ce,read,,2,512MiB,,394.8,GB/s,seen,https://example.org/page,2026,nvbandwidth 0.8,,"


def described(one: Subject) -> str:
    """What a norm is about, without its model."""
    parts = (
        WORDS.get(one.direction, one.direction), one.operation if one.operation != one.direction else "",
        one.method, one.algorithm, one.devices and f"{one.devices} of them",
    )  # fmt: skip
    return ", ".join(part for part in parts if part)


def links(ones: list[PublishedRate]) -> str:
    return ", ".join(
        f"[{i}]({one.source.replace('docs/', '../', 1) if one.source.startswith('docs/') else one.source})"
        for i, one in enumerate({one.source: one for one in ones}.values(), 1)
    )


def listed() -> str:
    """The tables of the page: a row for each norm, and one for each lowest accepted rate."""
    parts = []
    for path, title in TITLES.items():
        parts.append(
            f"## {title}\n\n| model | what | typical, GB/s | usual | sources |\n|---|---|---|---|---|\n"
        )
        for norm in sorted((n for s, n in norms().items() if s.path is path), key=lambda n: n.subject):
            low, high = (f"{rate / GB:.4g}" for rate in norm.usual)
            usual = f"{low} to {high}" if norm.sources >= subject.SOURCES else ""
            names = "; ".join(sorted({one.model for one in norm.observations}))
            parts.append(
                f"| {names} | {described(norm.subject)} | {norm.expected / GB:.4g} | {usual} | "
                f"{links(list(norm.observations))} |\n"
            )
        parts.append("\n")
    parts.append("## Lowest rates that acceptance tests take\n\n")
    parts.append("| model | what | least, GB/s | source |\n|---|---|---|---|\n")
    least = [one for one in observations() if one.kind is Kind.LEAST]
    parts += [
        f"| {one.model} | {one.subject.path}: {described(one.subject)} | {one.rate / GB:.4g} | "
        f"{links([one])} |\n"
        for one in sorted(least, key=lambda one: (one.subject, one.rate))
    ]
    return "".join(parts)


def test_the_page_is_made_from_the_rows(request: pytest.FixtureRequest) -> None:
    start = f"## {TITLES[subject.Path.HOST_GPU]}\n"
    if request.config.getoption("--update-golden"):
        PAGE.write_text(PAGE.read_text().partition(start)[0] + listed())
    head, _, tables = PAGE.read_text().partition(start)
    assert start + tables == listed(), "run `pytest --update-golden`"
    for path, least in TOLERANCES.items():
        assert f"{least:.0%}" in head, path


def test_rows_are_of_many_sources_and_models() -> None:
    rows = observations()
    assert len(rows) >= 250 and len({one.publisher for one in rows}) >= 80
    gpus = {one.subject.model for one in rows if one.subject.path in subject._OF_GPUS}
    cpus = {one.model for one in rows if one.subject.path is subject.Path.HOST_MEMORY}
    assert len(gpus) >= 25 and len(cpus) >= 12


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("H200,", "H999,", "no data sheet has the GPU 'H999'"),
        ("gpu-gpu", "gpu-cpu", "unknown path 'gpu-cpu'; paths are host-gpu"),
        ("GB/s", "GB", "unknown unit 'GB'; units are MB/s"),
        ("seen", "good", "unknown kind 'good'; kinds are seen, guide, least, other"),
        ("https://example.org/page", "", "a rate needs the address of its source"),
        ("394.8", "fast", "'fast' is not a rate"),
        ("394.8", "-1", "-1 GB/s is not a possible rate"),
        ("394.8", "nan", "nan GB/s is not a possible rate"),
        (",512MiB", "", "17 fields are needed"),
    ],
)
def test_a_wrong_row_is_named(old: str, new: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        read("gpu-gpu.csv", f"{HEADING}\n{ROW}\n{ROW.replace(old, new, 1)}\n")
    assert str(error.value).startswith("gpu-gpu.csv: line 3: ") and message in str(error.value)


def test_two_rates_of_one_thing_in_one_source_contradict() -> None:
    assert len(read("x", f"{HEADING}\n{ROW}\n{ROW}\n")) == 1
    with pytest.raises(UsageError, match="x: line 3: another row of this source has another rate"):
        read("x", f"{HEADING}\n{ROW}\n{ROW.replace('394.8', '120')}\n")
    with pytest.raises(UsageError, match="x: the first line must be model,form"):
        read("x", f"{ROW}\n")


def test_what_is_of_another_way_is_no_observation() -> None:
    one, other = read("x", f"{HEADING}\n{ROW}\n{ROW.replace('394.8', '120').replace('seen', 'other')}\n")
    (made,) = subject.norms_of([one, other]).values()
    assert made.observations == (one,)


def test_a_copy_that_counts_bytes_once_moves_them_twice() -> None:
    text = ROW.replace("gpu-gpu,ce,read,", "gpu-memory,ce,copy,copy counted once")
    (row,) = read("x", f"{HEADING}\n{text}\n")
    assert row.rate == pytest.approx(2 * 394.8e9)


def norm(*rates: float, path: subject.Path = subject.Path.GPU_GPU) -> Norm:
    (row,) = read("x", f"{HEADING}\n{ROW}\n")
    about = row.subject._replace(path=path)
    return Norm(
        about,
        tuple(
            replace(row, subject=about, rate=rate, source=f"https://a/b{i}/") for i, rate in enumerate(rates)
        ),
    )


def test_what_is_usual_follows_from_the_spread_and_a_smallest_tolerance() -> None:
    assert norm(100, 100).usual == pytest.approx((97, 103))
    assert norm(90, 100, 101).usual == pytest.approx((90, 103))
    assert norm(97.5, 100, 102.5).usual == pytest.approx((97, 103))
    assert norm(96.9, 100, 103.1).usual == pytest.approx((96.9, 103.1))
    assert norm(100, 100, path=subject.Path.HOST_MEMORY).usual == pytest.approx((85, 115))


def test_units_are_those_of_the_source() -> None:
    (row,) = read("x", f"{HEADING}\n{ROW.replace('GB/s', 'Gbit/s')}\n")
    assert row.rate == pytest.approx(394.8e9 / 8)
    (row,) = read("x", f"{HEADING}\n{ROW.replace('GB/s', 'GiB/s')}\n")
    assert row.rate == pytest.approx(394.8 * 2**30)


def test_pages_of_one_thread_or_repository_are_one_source() -> None:
    (row,) = read("x", f"{HEADING}\n{ROW}\n")
    pages = [
        "https://github.com/a/b/issues/1#c2",
        "https://github.com/a/b/issues/1",
        "https://github.com/a/b/issues/2",
        "https://github.com/a/b/blob/x.md",
        "https://github.com/a/b/tree/y",
    ]
    assert len({replace(row, source=page.partition("#")[0]).publisher for page in pages}) == 3
