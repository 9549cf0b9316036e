"""The language of transfers: what lines mean on a machine, and what their errors say."""

from __future__ import annotations

import pytest

from tests.hostile import mutations
from wirespeed.backends import describe
from wirespeed.errors import UsageError
from wirespeed.features.transfers.parser import parse
from wirespeed.features.transfers.program import of_line, of_transfers
from wirespeed.features.transfers.resolve import resolve
from wirespeed.hardware.topology import Machine
from wirespeed.model import Access, Engine, MemoryKind, Operation, Role, Transfer

EIGHT = describe("simulated:dgx-a100-8")
CPUS = describe("simulated:cpu-2-sockets")


def transfers(text: str, machine: Machine = EIGHT, size: int | None = None) -> list[Transfer]:
    return [one.work for one in resolve(parse(text), machine, size)]


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
    assert [t.way for t in transfers("gpu0 -> gpu1, gpu2")] == ["gpu0->gpu1", "gpu0->gpu2"]
    of_each = transfers("gpu[0-1] -> gpu[2-3] by gpu[2-3]")
    assert {str(t.executor) == str(t.destination) for t in of_each} == {True}
    assert [t.executor.device for t in transfers("gpu0 -> gpu1 by gpu[0,2]")] == ["gpu0", "gpu2"]


def test_memory_is_allocated_as_its_executor_needs_it() -> None:
    kinds = [t.source.kind for t in transfers("numa0 -> gpu0; pageable(numa0) -> gpu0; numa0 -> numa1")]
    assert kinds == [MemoryKind.PINNED, MemoryKind.PAGEABLE, MemoryKind.PAGEABLE]


def test_words_choose_engine_operation_shape_and_size() -> None:
    (one,) = transfers("load numa0 -> numa1 threads=3 64MiB", CPUS)
    assert (one.role, one.operation, len(one.executor.cpus)) == (Role.LOAD, Operation.COPY, 3)
    (three,) = transfers("gpu0 -> gpu1 sm_bulk blocks=8 threads=2")
    assert (three.engine, three.executor.blocks, three.executor.threads) == (Engine.SM_BULK, 8, 2)
    (four,) = transfers("latency gpu0 <- gpu1")
    assert (four.operation, four.engine, four.source, four.executor.device) == (
        Operation.CHASE, Engine.SM, four.destination, "gpu0",
    )  # fmt: skip


def test_given_sizes_stay_and_others_follow_the_option() -> None:
    sizes = [t.bytes for t in transfers("gpu0 -> gpu1; gpu1 -> gpu0 1MiB", EIGHT, 2**22)]
    assert sizes == [2**22, 2**20]


def test_no_core_works_for_two_transfers() -> None:
    text = "latency numa0 <- numa0; numa0 -> numa0; numa0 -> numa1 threads=4"
    cpus = [t.executor.cpus for t in transfers(text, CPUS)]
    assert len(cpus[0]) == 1 and len(cpus[2]) == 4
    assert sum(map(len, cpus)) == len({cpu for some in cpus for cpu in some}) == len(CPUS.numa[0].cores)


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
    ("gpu0 -> gpu1 0B", 14, "out of range"),
    ("gpu[3-1] -> gpu0", 5, "is empty or too large"),
    ("gpu[1,1] -> gpu0", 1, "a number is given twice"),
    ("gpu -> gpu0", 5, "gpu has no number; write gpu0, gpu[0-3] or gpus"),
    ("near(numa0) -> gpu0", 1, "near() takes a GPU"),
    ("near(gpu0 -> gpu0", 11, "expected ')'"),
    ("numa0 -> gpu0 by numa0", 1, "CPUs cannot access the memory of a GPU"),
    ("latency gpu0 -> gpu1", 14, "write latency gpu0 <- gpu1"),
    ("numa0 -> void", 10, "there is no memory 'void'"),
    ("numa0 -> numa0 threads=999", 1, "of them free, not 999"),
    ("numa0 -> numa0 blocks=8", 16, "only a kernel has blocks"),
    ("gpu0 -> gpu1 ce threads=8", 17, "only a kernel has threads"),
    ("rank0 -> rank1", 1, "this machine has no ranks"),
    ("storage0 -> gpu0", 1, "this machine has no storage"),
    ("all_reduce", 1, "a collective is no transfer: `wirespeed run -t all_reduce` measures it"),
    ("load all_reduce; gpu0 -> gpu1", 6, "a collective is no transfer"),
    ("load gpu0 -> gpu1", 1, "nothing is measured"),
    ("", 1, "there is no transfer"),
    ("gpu0 -> gpu1 rate=10GB/s", 14, "unknown word 'rate'"),
    ("gpu0 -> gpu1, gpu2 broadcast", 20, "unknown word 'broadcast'"),
    ("gpu0 -> gpu0 triad", 14, "unknown word 'triad'"),
    ("up: gpu0 -> gpu1", 3, "unexpected character ':'"),
    ("$ -> gpu0", 1, "unexpected character '$'"),
]


@pytest.mark.parametrize(("text", "column", "message"), WRONG)
def test_errors_show_the_place_and_what_is_possible(text: str, column: int, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        of_line(text).testcase.plan(EIGHT)
    first, *shown = str(caught.value).split("\n")
    assert first.startswith(f"line 1, column {column}: ") and message in first
    assert not text or (shown[0] == f"  {text}" and shown[1].index("^") == column + 1)


def test_text_that_no_file_can_hold_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^line 1, column 16: unexpected character"):
        of_line("gpu0 -> gpu1 # \ud800")


def test_the_line_of_an_error_is_counted() -> None:
    with pytest.raises(UsageError, match=r"^line 3, column 6: "):
        of_line("gpu0 -> gpu1 # first\n\ngpu1 <<- gpu0")


def test_transfers_become_a_program() -> None:
    found = transfers("gpu0 -> gpu1; latency gpu0 <- gpu1; load gpu2 -> gpu1; gpu0 -> gpu1")
    plan = of_transfers(found).testcase.plan(EIGHT)
    labels = [label for table in plan.tables for label in table.rows.labels]
    assert labels == ["gpu0->gpu1", "gpu0->gpu1 #2", "sum", "gpu0 from gpu1"]
    assert plan.measurements[0].works == tuple(found)


@pytest.mark.parametrize(("line", "says"), [("gpu0 -> gpu7", "has no gpu7; it has gpu0, gpu1, numa0"),
                                            ("load gpu0 -> gpu1", "nothing is measured")])  # fmt: skip
def test_transfers_that_a_machine_cannot_measure_are_refused(line: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        of_transfers(transfers(line)).testcase.plan(describe("simulated:hgx-h200-2"))


def test_settings_of_the_run_agree() -> None:
    program = of_line("gpu0 -> gpu1 copies=2 samples=3; gpu1 -> gpu0 copies=2")
    assert program.settings({}) == {"copies": 2, "samples": 3}
    with pytest.raises(UsageError, match=r"column 14.*already has copies 5"):
        program.settings({"copies": 5})


def test_mutated_transfers_never_end_in_a_traceback() -> None:
    found = mutations.run(800, seed=1)
    assert found["valid"] > 10 and found["refused"] > 100


def test_storage_has_testcases() -> None:
    with pytest.raises(UsageError, match="storage has testcases: `wirespeed run -p storage_`"):
        transfers("storage0 -> numa0 by numa0", describe("simulated:h200-2-nvme-2"))
