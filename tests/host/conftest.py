"""Fixtures for real runs on the machine that runs the tests, with small buffers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from wirespeed.backends.host import discover
from wirespeed.backends.host.backend import HostBackend
from wirespeed.hardware.devices import NumaNode
from wirespeed.hardware.topology import Cache, Machine
from wirespeed.measurement import Measurement
from wirespeed.model import Engine, Executor, Memory, MemoryKind, Operation, Role, Transfer

MakeMeasurement = Callable[..., Measurement]


@pytest.fixture(scope="session")
def machine() -> Machine:
    return discover(Machine(""))


@pytest.fixture(scope="session")
def node(machine: Machine) -> NumaNode:
    return next(node for node in machine.numa if node.cpus and node.memory_bytes)


@pytest.fixture
def backend(machine: Machine) -> Iterator[HostBackend]:
    backend = HostBackend(machine)
    yield backend
    backend.close()


@pytest.fixture
def streaming_backend(machine: Machine) -> Iterator[HostBackend]:
    """One that takes the caches for so small that every store bypasses them."""
    backend = HostBackend(replace(machine, caches=(Cache(1, "data", 64),)))
    yield backend
    backend.close()


@pytest.fixture
def transfer(node: NumaNode) -> Callable[..., Transfer]:
    def make(
        operation: Operation = Operation.COPY,
        size: int = 2**20,
        cpus: tuple[int, ...] = node.cpus[:1],
        role: Role = Role.MEASURED,
        pace: float = 1.0,
    ) -> Transfer:
        memory = Memory(node.name, MemoryKind.PAGEABLE)
        executor = Executor(node.name, cpus=cpus)
        return Transfer(memory, memory, executor, Engine.CPU, size, role, operation, 1, pace)

    return make


@pytest.fixture
def measurement(transfer: Callable[..., Transfer]) -> MakeMeasurement:
    """A Measurement of one transfer."""
    return lambda *arguments, **options: Measurement((transfer(*arguments, **options),), ())


@pytest.fixture
def word_at() -> Callable[[int], Any]:
    """The 8-byte word at an address, to read and to write."""
    return ctypes.c_uint64.from_address
