"""Every operation does what it says on real memory, and a wrong word is found where it is."""

from __future__ import annotations

import pytest

from wirespeed.backends.host.bound_transfer import bypasses
from wirespeed.errors import VerificationError
from wirespeed.hardware.devices import NumaNode
from wirespeed.hardware.topology import Cache, Machine
from wirespeed.measurement import Measurement
from wirespeed.model import BUFFERS, Operation, Role
from wirespeed.options import RunOptions

#: Without half precision and flags, which the host refuses (tests/host/test_running.py).
OPERATIONS = [o for o in Operation if o not in (Operation.HAXPY, Operation.SIGNAL)]
STORING = [o for o in OPERATIONS if BUFFERS[o][1]]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("size", [1, 64, 4096, 100_000, 3 * 2**20 + 192])
def test_result_is_verified(operation, size, backend, streaming_backend, measurement, node):
    cpus = node.cpus[:1] if operation is Operation.CHASE else node.cpus
    for each in (backend, streaming_backend):
        with each.prepare(measurement(operation, size, cpus), RunOptions(seed=size)) as prepared:
            for copies in (1, 3, 2):
                sample = prepared.sample(copies)
                prepared.verify()
                assert sample.seconds[0] > 0
                assert sample.wall >= sample.seconds[0] * 0.5
                if operation is not Operation.CHASE:
                    assert sample.amounts == (float(-(-size // 64) * 64 * copies),)


@pytest.mark.parametrize("operation", STORING)
@pytest.mark.parametrize("word", [0, 1000, 2**17 - 1])
def test_flipped_word_is_found(operation, word, backend, measurement, node, word_at):
    with backend.prepare(measurement(operation, 2**20, node.cpus), RunOptions()) as prepared:
        prepared.sample(1)
        word_at(prepared.bound[0].destination.address + 8 * word).value ^= 1 << 40
        with pytest.raises(VerificationError, match="numa") as caught:
            prepared.verify()
        assert (caught.value.offset, caught.value.wrong, caught.value.words) == (8 * word, 1, 2**17)
        prepared.sample(1)
        prepared.verify()


def test_first_of_several_wrong_words_is_named(backend, measurement, node, word_at):
    with backend.prepare(measurement(Operation.COPY, 2**20, node.cpus), RunOptions()) as prepared:
        prepared.sample(1)
        for word in (70_000, 300, 90_000, 5000):
            word_at(prepared.bound[0].destination.address + 8 * word).value = 0
        with pytest.raises(VerificationError) as caught:
            prepared.verify()
        assert (caught.value.offset, caught.value.wrong) == (2400, 4)


@pytest.mark.parametrize(
    "operation", [Operation.COPY, Operation.SCALE, Operation.ADD, Operation.TRIAD, Operation.SAXPY]
)
def test_wrong_source_is_found(operation, backend, measurement, word_at):
    with backend.prepare(measurement(operation, 2**16), RunOptions()) as prepared:
        word_at(prepared.bound[0].sources[-1].address + 8 * 11).value ^= 1 << 50
        prepared.sample(1)
        with pytest.raises(VerificationError) as caught:
            prepared.verify()
        assert caught.value.offset == 88


def test_wrong_sum_names_the_word_that_was_read(backend, measurement, node, word_at):
    with backend.prepare(measurement(Operation.READ, 2**16, node.cpus), RunOptions()) as prepared:
        word_at(prepared.bound[0].sources[0].address + 8 * 5000).value += 1
        prepared.sample(2)
        with pytest.raises(VerificationError) as caught:
            prepared.verify()
        assert (caught.value.offset, caught.value.wrong) == (40_000, 1)


def test_wrong_sum_of_right_words_is_an_error(backend, measurement):
    with backend.prepare(measurement(Operation.READ, 2**16), RunOptions()) as prepared:
        prepared.sample(1)
        prepared.table[prepared.bound[0].rows[0], 3] += 1
        with pytest.raises(VerificationError, match="8192 of 8192"):
            prepared.verify()


def test_chase_that_takes_another_way_is_found(backend, measurement, word_at):
    with backend.prepare(measurement(Operation.CHASE, 2**12), RunOptions()) as prepared:
        base = prepared.bound[0].sources[0].address
        word_at(base + 64 * 7).value = base + 64 * 7  # from there on it stays where it is
        prepared.sample(1)
        with pytest.raises(VerificationError) as caught:
            prepared.verify()
        assert (caught.value.offset, caught.value.wrong, caught.value.words) == (448, 1, 64)


def test_a_broken_cycle_does_not_outlive_its_measurement(backend, measurement, word_at):
    with backend.prepare(measurement(Operation.CHASE, 2**12), RunOptions()) as prepared:
        base = prepared.bound[0].sources[0].address
        word_at(base).value = base
        prepared.sample(1)
        with pytest.raises(VerificationError):
            prepared.verify()
    with backend.prepare(measurement(Operation.CHASE, 2**12), RunOptions()) as prepared:
        prepared.sample(1)
        prepared.verify()


@pytest.mark.parametrize("operation", STORING)
def test_sample_that_stores_nothing_is_found(operation, backend, measurement):
    """After a verification the destination is poisoned again, so an old result does not pass."""
    with backend.prepare(measurement(operation, 2**14), RunOptions()) as prepared:
        prepared.sample(1)
        prepared.verify()
        prepared.sample(0)  # no copy at all
        row = prepared.bound[0].rows[0]
        prepared.table[row, 2] = 2**14  # says that it made one
        with pytest.raises(VerificationError, match="2048 of 2048"):
            prepared.verify()


def test_transfers_have_patterns_of_their_own(backend, transfer, word_at):
    both = Measurement((transfer(), transfer()), ())
    with backend.prepare(both, RunOptions()) as prepared:
        one, other = (bound.sources[0].address for bound in prepared.bound)
        assert all(word_at(one + 8 * i).value != word_at(other + 8 * i).value for i in range(1000))
        prepared.sample(1)
        prepared.verify()


def test_seed_decides_the_pattern(backend, measurement, word_at):
    words = []
    for seed in (1, 2, 1):
        with backend.prepare(measurement(size=4096), RunOptions(seed=seed)) as prepared:
            words.append(word_at(prepared.bound[0].sources[0].address).value)
    assert words[0] == words[2] != words[1]


def test_load_is_verified_as_far_as_it_came(backend, transfer, node):
    load = transfer(Operation.COPY, 2**24, node.cpus[-1:], Role.LOAD, 0.5)
    with backend.prepare(Measurement((transfer(size=4096), load), ()), RunOptions()) as prepared:
        sample = prepared.sample(1)
        prepared.verify()
        assert sample.amounts[0] == 4096
        prepared.sample(20_000)
        prepared.verify()


@pytest.mark.parametrize(
    ("caches", "size", "cpus", "bypass"),
    [
        ((), 16 * 2**20, 1, False),  # unknown: 32 MiB
        ((), 16 * 2**20 + 64, 1, True),
        ((Cache(1, "instruction", 2**30), Cache(3, "unified", 2**20, 4)), 2**19, 1, False),
        ((Cache(1, "instruction", 2**30), Cache(3, "unified", 2**20, 4)), 2**20, 1, True),
        ((Cache(3, "unified", 2**20, 4),), 2**20, 4, False),  # two caches of two cores each
    ],
)
def test_stores_bypass_the_caches_when_the_buffers_do_not_fit(caches, size, cpus, bypass, measurement):
    machine = Machine("", caches=caches, numa=(NumaNode(0, tuple(range(8)), 2),))
    copy = measurement(Operation.COPY, size, tuple(range(cpus))).transfers[0]
    assert bypasses(copy, machine) is bypass
