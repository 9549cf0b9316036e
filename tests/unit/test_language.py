"""The language of transfers: what lines mean on a machine, and what their errors say."""

from __future__ import annotations

import pytest

from wirespeed.backends import describe
from wirespeed.errors import UsageError
from wirespeed.language.parser import parse
from wirespeed.language.resolve import Defaults, resolve
from wirespeed.language.toml_file import of_line
from wirespeed.model import Access, Collective, Engine, MemoryKind, Operation, Role, Transfer
from wirespeed.topology import Machine

from ..hostile import mutations

EIGHT = describe("simulated:dgx-a100-8")
CPUS = describe("simulated:cpu-2-sockets")


def transfers(text: str, machine: Machine = EIGHT, defaults: Defaults | None = None) -> list[Transfer]:
    found = [one.work for one in resolve(parse(text), machine, defaults or Defaults())]
    return [work for work in found if isinstance(work, Transfer)]


def test_the_arrow_says_who_executes() -> None:
    (pushed,), (pulled,) = transfers("gpu0 -> gpu1"), transfers("gpu0 <- gpu1")
    assert (str(pushed), pushed.access) == ("gpu0->gpu1 by gpu0 (ce)", Access.WRITE)
    assert (str(pulled), pulled.access) == ("gpu1->gpu0 by gpu0 (ce)", Access.READ)
    assert str(transfers("gpu0 -> gpu1 by gpu2 sm")[0]) == "gpu0->gpu1 by gpu2 (sm)"
    assert {str(one) for one in transfers("numa0 -> gpu0; gpu0 <- numa0")} == {"numa0->gpu0 by gpu0 (ce)"}


def test_words_in_place_of_signs_need_no_quotes_in_a_shell() -> None:
    assert transfers("gpus to gpu0 and gpu1 from near gpu0") == transfers("gpu* -> gpu0; gpu1 <- near(gpu0)")
    assert transfers("gpu0-2 to gpu5") == transfers("gpu[0-2] -> gpu5") == transfers("gpu[0,1,2]->gpu5")


def test_sides_are_paired_if_both_name_the_same_devices_and_else_multiplied() -> None:
    assert [t.way for t in transfers("near(gpu*) -> gpu*")][-2:] == ["numa1->gpu6", "numa1->gpu7"]
    assert len(transfers("gpu[0-3] -> gpu[4-7]")) == 16
    assert len(transfers("gpu* -> other(gpu*)")) == 56
    assert [t.way for t in transfers("gpu0 -> gpu1, gpu2")] == ["gpu0->gpu1", "gpu0->gpu2"]
    of_each = transfers("gpu[0-1] -> gpu[2-3] by gpu[2-3]")
    assert {str(t.executor) == str(t.destination) for t in of_each} == {True}
    assert [t.executor.device for t in transfers("gpu0 -> gpu1 by gpu[0,2]")] == ["gpu0", "gpu2"]


def test_memory_is_allocated_as_its_executor_needs_it() -> None:
    kinds = [t.source.kind for t in transfers("numa0 -> gpu0; pageable(numa0) -> gpu0; numa0 -> numa1")]
    assert kinds == [MemoryKind.PINNED, MemoryKind.PAGEABLE, MemoryKind.PAGEABLE]


def test_words_choose_engine_operation_shape_and_size() -> None:
    (one,) = transfers("load numa0 -> void cpus=[1-3] rate=25% 64MiB", CPUS)
    assert (one.role, one.operation, one.executor.cpus, one.pace) == (
        Role.LOAD,
        Operation.READ,
        (1, 2, 3),
        0.25,
    )
    (two,) = transfers("gpu0 -> gpu0 triad counted=3 1MiB")
    assert (two.operation, two.engine, two.counted, two.bytes) == (Operation.TRIAD, Engine.SM, 3, 2**20)
    (three,) = transfers("gpu0 -> gpu1 sm_bulk blocks=8 threads=2")
    assert (three.engine, three.executor.blocks, three.executor.threads) == (Engine.SM_BULK, 8, 2)
    (four,) = transfers("latency gpu0 <- gpu1")
    assert (four.operation, four.engine, four.source, four.executor.device) == (
        Operation.CHASE, Engine.SM, four.destination, "gpu0",
    )  # fmt: skip
    assert transfers("void -> gpu0")[0].operation is Operation.WRITE


def test_given_sizes_stay_and_others_follow_the_axis() -> None:
    sizes = [t.bytes for t in transfers("gpu0 -> gpu1; gpu1 -> gpu0 1MiB", EIGHT, Defaults(size=2**22))]
    assert sizes == [2**22, 2**20]


def test_no_core_works_for_two_transfers() -> None:
    text = "latency numa0 <- numa0; numa0 -> void; numa0 -> numa1 threads=4; void -> numa0 cpus=5"
    cpus = [t.executor.cpus for t in transfers(text, CPUS)]
    assert len(cpus[0]) == 1 and len(cpus[2]) == 4 and cpus[3] == (5,)
    assert sum(map(len, cpus)) == len({cpu for some in cpus for cpu in some}) == len(CPUS.numa[0].cores)


def test_a_collective_stands_next_to_load_or_is_load() -> None:
    works = [one.work for one in resolve(parse("load gpu0 -> gpu1; all_reduce 1GiB"), EIGHT)]
    assert isinstance(works[0], Collective) and works[1].role is Role.LOAD
    works = [one.work for one in resolve(parse("load all_reduce; gpu0 -> gpu1"), EIGHT)]
    assert isinstance(works[1], Collective) and works[1].role is Role.LOAD


#: A line, the column of its error, and a part of its message.
WRONG = [
    ("gpu8 -> gpu0", 1, "gpu8: this machine has gpu0 to gpu7"),
    ("gpu0 -> numa7", 9, "numa7: this machine has numa0, numa1"),
    ("gpu0 -> gpu1 blokcs=8", 14, "did you mean blocks=?"),
    ("gpu0 -> nuna0", 9, "did you mean numa0?"),
    ("gpu0 => gpu1", 7, "unexpected character '>'"),
    ("gpu0 gpu1", 6, "expected -> (the source pushes) or <- (the destination pulls), not 'gpu1'"),
    ("gpu0 ->", 8, "not the end of the text"),
    ("gpu0 -> gpu1 gpu2 -> gpu3", 14, "unknown word 'gpu2'"),
    ("gpu0 -> gpu1 ce sm", 17, "the engine is given twice"),
    ("gpu0 -> gpu1 cpu", 14, "gpu0 executes with ce, sm, sm_bulk or sm_split, not with cpu"),
    ("gpu0 -> gpu1 blocks=8", 14, "only a kernel has blocks"),
    ("gpu0 -> gpu1 rate=10GB/s", 19, "possible is a fraction of the full speed of a load by CPUs"),
    ("gpu0 -> gpu1 rate=10%", 14, "only a load by CPUs has a rate"),
    ("gpu0 -> gpu1 start=+5ms", 14, "all transfers of a line start together"),
    ("gpu0 -> gpu1 over=nvl", 19, "there is no transport 'nvl'"),
    ("gpu0 -> gpu1 0B", 14, "out of range"),
    ("gpu[3-1] -> gpu0", 5, "is empty or too large"),
    ("gpu[1,1] -> gpu0", 1, "a number is given twice"),
    ("gpu -> gpu0", 5, "gpu has no number; write gpu0, gpu[0-3] or gpus"),
    ("near(numa0) -> gpu0", 1, "near() takes a GPU"),
    ("near(gpu0 -> gpu0", 11, "expected ')'"),
    ("numa0 -> gpu0 by numa0", 1, "CPUs cannot access the memory of a GPU"),
    ("latency gpu0 -> gpu1", 14, "write latency gpu0 <- gpu1"),
    ("void -> void", 1, "void is only one side"),
    ("numa0 -> numa0 cpus=999", 16, "CPU 999 does not exist"),
    ("rank0 -> rank1", 1, "this machine has no ranks"),
    ("$ -> gpu0", 1, '$ stands for the device of an axis; add each = "gpus"'),
    ("all_reduce", 1, "`wirespeed run -t all_reduce` measures it alone"),
    ("all_reduce; gpu0 -> gpu1", 1, "cannot be measured at once"),
    ("load gpu0 -> gpu1", 1, "nothing is measured"),
    ("gpu0 -> other(gpu0)", 1, "no transfer is left"),
    ("", 1, "there is no transfer"),
]


@pytest.mark.parametrize(("text", "column", "message"), WRONG)
def test_errors_show_the_place_and_what_is_possible(text: str, column: int, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        for case in of_line(text).testcases:
            case.plan(EIGHT)
    first, *shown = str(caught.value).split("\n")
    assert first.startswith(f"line 1, column {column}: ") and message in first
    assert shown[0] == f"  {text}" and shown[1].index("^") == column + 1


def test_the_line_of_an_error_is_counted() -> None:
    with pytest.raises(UsageError, match=r"^line 3, column 6: "):
        of_line("gpu0 -> gpu1 # first\n\ngpu1 <<- gpu0")


def test_mutated_transfers_never_end_in_a_traceback() -> None:
    found = mutations.run(400, seed=1)
    assert found["valid"] > 10 and found["refused"] > 100
