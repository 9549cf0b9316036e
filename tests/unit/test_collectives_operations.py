"""Operations, data types, and what buffers must contain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from wirespeed.backends import describe
from wirespeed.backends import test_data as contents
from wirespeed.backends.mpi.provider import MpiProvider
from wirespeed.backends.provider import Provider
from wirespeed.backends.simulated.collectives import SimulatedProvider, connect
from wirespeed.collectives.data_types import BY_NAME, OPERATORS, TYPES
from wirespeed.collectives.operations import OPERATIONS, Piece, operation_of
from wirespeed.errors import Unreachable, UsageError
from wirespeed.measurement import Measurement
from wirespeed.model import Collective
from wirespeed.options import RunOptions


def outcome(
    name: str, ranks: int, root: int, arrays: list[list[str]], each: int, width: int = 4
) -> list[list[str]]:
    """What an operation leaves, from its definition; elements are names, a reduction joins them."""
    n = range(ranks)
    parts = [[a[i * each : (i + 1) * each] for i in n] for a in arrays]
    joined = ["+".join(column) for column in zip(*arrays, strict=True)]
    if name == "all_reduce":
        return [joined for _ in n]
    if name == "reduce":
        return [joined if r == root else [] for r in n]
    if name == "reduce_scatter":
        return [joined[r * each : (r + 1) * each] for r in n]
    if name in ("all_gather", "hypercube"):
        return [[x for a in arrays for x in a] for _ in n]
    if name == "gather":
        return [[x for a in arrays for x in a] if r == root else [] for r in n]
    if name == "broadcast":
        return [arrays[root] for _ in n]
    if name == "scatter":
        return [parts[root][r] for r in n]
    if name == "sendrecv":
        return [arrays[r - 1] for r in n]
    if name == "alltoall":
        return [[x for source in n for x in parts[source][r]] for r in n]
    total = each * ranks * width
    share = 2 / (ranks * (ranks - 1)) if ranks > 1 else 0
    sizes = [
        [int((b - a) % ranks * share * total if ranks > 1 else total) // 16 * 16 // width for b in n]
        for a in n
    ]
    cut = [[arrays[a][sum(sizes[a][:b]) : sum(sizes[a][: b + 1])] for b in n] for a in n]
    return [[x for a in n for x in cut[a][r]] for r in n]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_rank_holds_what_the_definition_says(name: str, ranks: int) -> None:
    operation, width = OPERATIONS[name], 4
    counts = operation.counts(64, width, ranks)
    arrays = [[f"{rank}.{i}" for i in range(counts.send)] for rank in range(ranks)]
    for root in range(ranks) if operation.rooted else (-1,):
        want = outcome(name, ranks, root, arrays, counts.each)
        for rank in range(ranks):
            held: list[str] = []
            for piece in operation.holds(counts, width, rank, ranks, root):
                assert piece.at == len(held)
                where = slice(piece.start, piece.start + piece.count)
                if piece.source is None:
                    held += ["+".join(column) for column in zip(*(a[where] for a in arrays), strict=True)]
                else:
                    held += arrays[piece.source][where]
            assert held == want[rank], (rank, root)
            assert len(held) in (0, counts.receive)


@pytest.mark.parametrize(
    ("name", "size", "count", "factor"),
    [
        ("all_reduce", 4096, 1024, 1.5), ("all_gather", 4096, 256, 0.75), ("reduce_scatter", 4096, 256, 0.75),
        ("alltoall", 4096, 256, 0.75), ("alltoallv", 4080, 256, 0.75), ("broadcast", 4096, 1024, 1),
        ("reduce", 4096, 1024, 1), ("gather", 4096, 256, 0.75), ("scatter", 4096, 256, 0.75),
        ("sendrecv", 4096, 1024, 1), ("hypercube", 4096, 256, 1),
    ],
)  # fmt: skip
def test_counts_and_factors_of_four_ranks(name: str, size: int, count: int, factor: float) -> None:
    operation = OPERATIONS[name]
    counts = operation.counts(1024, 4, 4)
    assert (operation.size(counts, 4), counts.each, operation.factor(4)) == (size, count, factor)
    assert operation.moved(counts, 4, 4) == (3072 if name == "hypercube" else size)
    assert operation.why


def test_parts_are_multiples_of_16_bytes() -> None:
    assert OPERATIONS["all_gather"].counts(100, 4, 3).each == 32
    assert OPERATIONS["all_gather"].counts(100, 1, 3).each == 32
    assert OPERATIONS["all_gather"].counts(2, 4, 2).each == 0


@pytest.mark.parametrize("type", [t for t in TYPES if t.numpy], ids=lambda t: t.name)
def test_types_encode_as_numpy_does(type: object) -> None:
    assert hasattr(type, "encode")
    for value in (0, 1, 2, 3, 7, 64, 127, *((0.5,) if type.is_float else ())):  # type: ignore[attr-defined]
        bits = np.array([value], type.numpy).view(f"uint{8 * type.bytes}")[0]  # type: ignore[attr-defined]
        assert type.encode(value) == bits  # type: ignore[attr-defined]


def test_types_that_numpy_lacks() -> None:
    assert BY_NAME["bfloat16"].encode(3) == 0x4040
    assert BY_NAME["f8e4m3"].encode(3) == 0x44
    assert BY_NAME["f8e5m2"].encode(0.5) == 0x38
    assert [t.largest for t in TYPES if not t.numpy] == [256, 16, 8]


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_reductions_in_the_type_itself_are_within_the_bound(operator: str, ranks: int) -> None:
    for type in TYPES:
        if not type.numpy:
            continue
        arrays = [contents.given(type, operator, ranks, 7, rank, 0, 500) for rank in range(ranks)]
        total = arrays[0] * np.dtype(type.numpy).type(1)
        for rank, array in enumerate(arrays[1:], 1):  # one after the other, rounding each time
            if operator == "prod":
                total = total * array
            elif operator in ("min", "max"):
                total = np.minimum(total, array) if operator == "min" else np.maximum(total, array)
            else:
                total = total + array * np.dtype(type.numpy).type(
                    contents.scalar(rank) if operator == "mulsum" else 1
                )
        if operator == "avg":
            total = (total / ranks).astype(type.numpy) if type.is_float else total // ranks
        piece = Piece(0, 500, None, 0)
        assert contents.wrong(total, piece, type, operator, ranks, 7) == 0, type
        broken = total.copy()
        for i in (3, 77):
            broken[i] = 60 if broken[i] != 60 else 61
        assert contents.wrong(broken, piece, type, operator, ranks, 7) == 2, type


def test_the_bound_is_zero_where_results_are_exact() -> None:
    single, narrow = BY_NAME["float"], BY_NAME["f8e5m2"]
    assert contents.tolerance(single, "sum", 1024) == 0
    assert contents.tolerance(single, "avg", 8) == 0
    assert 0 < contents.tolerance(single, "avg", 3) < 1e-6
    assert contents.tolerance(narrow, "sum", 8) == 0
    assert contents.tolerance(narrow, "sum", 9) == 1
    assert contents.tolerance(narrow, "prod", 64) == 0


def test_stale_shifted_and_foreign_data_is_wrong() -> None:
    type = BY_NAME["float"]
    right = contents.given(type, None, 2, 1, 0, 0, 100)
    piece = Piece(0, 100, 0, 0)
    assert contents.wrong(right, piece, type, None, 2, 1) == 0
    for other in (
        contents.given(type, None, 2, 0, 0, 0, 100),  # of another run
        contents.given(type, None, 2, 1, 0, 1, 100),  # shifted
        contents.given(type, None, 2, 1, 1, 0, 100),  # of another rank
        contents.before(type, 0, 0, 100),  # what was there before
    ):
        assert contents.wrong(other, piece, type, None, 2, 1) == 100


@pytest.fixture(params=["nccl", "mpi", "simulated"])
def provider(request: pytest.FixtureRequest) -> type[Provider]:
    """The class of a provider; none of them needs its library for what it says of itself."""
    if request.param == "nccl":
        pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
        from wirespeed.backends.nccl.provider import NcclProvider

        return NcclProvider
    found: dict[str, type[Provider]] = {"mpi": MpiProvider, "simulated": SimulatedProvider}
    return found[request.param]


def test_every_operation_is_implemented_by_every_provider(provider: Any) -> None:
    assert list(provider.operations) == list(OPERATIONS)


def test_an_operation_that_a_library_lacks_is_refused() -> None:
    machine = describe("simulated:hgx-h200-2")
    backend = connect(machine, 2)
    made_up = Collective("made_up", "float", "", -1, 1024, 1024, 2)
    operation = replace(OPERATIONS["hypercube"], name="made_up")
    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(Unreachable, match="made_up is not implemented over simulated; choose one of all_r"),
    ):
        patch.setitem(OPERATIONS, "made_up", operation)
        backend.prepare(Measurement((made_up,), ()), RunOptions())
    backend.close()


def test_the_hypercube_requires_a_power_of_two_of_ranks() -> None:
    operation = OPERATIONS["hypercube"]
    assert [ranks for ranks in range(1, 10) if not operation.why_not(ranks)] == [1, 2, 4, 8]
    assert operation.why_not(3) == "hypercube requires a power of two of ranks, not 3"


def test_only_parts_that_differ_can_be_divided() -> None:
    for name, traffic in (("all_reduce", "spread 1"), ("alltoallv", "spread 2"), ("alltoallv", "matrix 1 2"),
                          ("alltoallv", "even"), ("alltoallv", "matrix 1 -2; 3 4")):  # fmt: skip
        with pytest.raises(UsageError):
            operation_of(name, traffic)


def test_parts_grow_with_the_distance_as_far_as_the_spread_says() -> None:
    for spread, sends in (("0", [384, 384, 384]), ("0.5", [192, 384, 576]), ("1", [0, 384, 768])):
        operation = operation_of("alltoallv", f"spread {spread}")
        assert operation.parts is not None
        counts = operation.counts(1152, 1, 3)
        assert operation.parts(counts, 1, 0, 3) == (sends, [sends[0], sends[2], sends[1]])
        assert (counts.send, counts.receive, counts.each) == (1152, 1152, 384)


@pytest.mark.parametrize(
    ("spread", "size", "ranks", "bytes"),
    [("0.3", 2**21, 3, 2097104), ("0.7", 2**20, 7, 1048496), ("0.9", 2**30, 6, 1073741712)],
)
def test_parts_are_rounded_as_in_nccl_tests(spread: str, size: int, ranks: int, bytes: int) -> None:
    """The sums that a C program with its arithmetic printed."""
    operation = operation_of("alltoallv", f"spread {spread}")
    assert operation.counts(size // 4, 4, ranks).send * 4 == bytes
