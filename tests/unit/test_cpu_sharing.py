"""A warning about ranks that shared a CPU while they measured."""

from __future__ import annotations

import os
from typing import Any

import pytest

import wirespeed
from tests.host.test_pairs import Queued
from tests.host.test_pairs import wire as wire
from tests.threads import together, worlds
from wirespeed.backends.cpu_sharing import NO_CPU, current_cpu, sharing
from wirespeed.document import Document
from wirespeed.features.pairs import connection
from wirespeed.worlds.base import Member

MEMBERS = [Member(rank, host, 10 + rank, 0) for rank, host in enumerate("aabb")]


@pytest.mark.parametrize(
    ("cpus", "hosts"),
    [
        ([[0], [1], [0], [1]], ""),  # of different hosts
        ([[0], [0], [0], [1]], "a"),
        ([[0], [0], [1], [1]], "ab"),
        ([[0, 0], [1], [2], [3]], ""),  # threads of one process take turns
        ([[0, 1], [1, 2], [2], [3]], "a"),
        ([[NO_CPU], [NO_CPU], [NO_CPU], [NO_CPU]], ""),
    ],
)
def test_ranks_of_one_host_that_end_on_one_cpu(cpus: list[list[int]], hosts: str) -> None:
    found = sharing(MEMBERS, cpus)
    assert [text.split()[2] for text in found] == list(hosts)
    assert all("shared a CPU" in text and "--bind-to core" in text for text in found)


def test_the_current_cpu_is_one_of_those_allowed() -> None:
    assert current_cpu() in os.sched_getaffinity(0)


@pytest.mark.parametrize("shared", [True, False])
def test_messages_name_the_host(wire: type[Queued], monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    numbers = iter(range(10**6))
    monkeypatch.setattr(connection, "current_cpu", lambda: 3 if shared else next(numbers))

    def one(world: Any) -> Document:
        return wirespeed.run(["message_mpi_host"], world=world, sizes="8B", samples=2, copies=3, timeout=5.0)

    (result,) = together(worlds(2, 5.0), one)[0].testcases
    assert [text for text in result.warnings if "shared a CPU" in text] == list(result.warnings)
    assert len(result.warnings) == shared
