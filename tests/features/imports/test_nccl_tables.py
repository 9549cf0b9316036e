"""Tables of nccl-tests as people post them: rows, columns, and the number of ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

import wirespeed
from tests.features.imports.test_formats import imported
from wirespeed.document import Document
from wirespeed.features.imports.nccl_ranks import of_command
from wirespeed.judging.judge import judge
from wirespeed.judging.judged import Judged

HEAD = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
#: Sizes of rows whose bus bandwidth is that of an all-reduce of 8 ranks: 7/4 of the other.
SIZES = (1 << 30, 1 << 31)


def rows(factor: float = 1.75, sizes: tuple[int, ...] = SIZES, operator: str = "sum") -> list[str]:
    """Rows at 200 GB/s with a ratio of bus to algorithm bandwidth."""
    half = [f"{size / 200e3:.1f} 200.00 {200 * factor:.2f} 0" for size in sizes]
    return [
        f"{size} {size // 4} float {operator} -1 {out} {out}" for size, out in zip(sizes, half, strict=True)
    ]


def ranks_of(document: Document) -> list[int]:
    return [result.collective.ranks for result in document.testcases if result.collective]


def busbw(document: Document) -> list[tuple[int, int, float | None]]:
    table = next(table for table in document.testcases[0].tables if table.key == "busbw")
    return [(cell.row, cell.column, cell.value and round(cell.value / 1e9)) for cell in table.cells]


def shortened(text: list[str], words: int) -> str:
    return "\n".join(" ".join(line.split()[:words]) for line in text) + "\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (HEAD + "\n".join(rows()), 4),
        ("\n".join(rows()), 4),  # no heading
        (" ".join(HEAD.split()[:10]) + "\n" + shortened(rows(), 9), 2),  # no half in place
        (HEAD + shortened(rows(), 9), 2),  # the heading has what no row has
        (HEAD.replace("#wrong time", "time") + "\n".join(r.replace(" 0 ", " ") for r in rows()), 4),
        (HEAD.rstrip().removesuffix("#wrong") + "\n" + shortened(rows(), 12), 4),
        (HEAD + shortened(rows(), 12), 4),
        (shortened(rows(), 9), 2),
        ("| " + HEAD.strip("# \n").replace(" ", " | ") + " |\n|---|---|\n"
         + "".join("| " + row.replace(" ", " | ") + " |\n" for row in rows()), 4),
        ("<td>" + HEAD.strip() + "<br>\n" + "<br>\n".join(rows()) + "</td>\n", 4),
    ],
)  # fmt: skip
def test_rows_are_read_by_the_words_of_the_heading(text: str, found: int, tmp_path: Path) -> None:
    document = imported(tmp_path, f"./all_reduce_perf -g 8\n{text}\n# Avg bus bandwidth : 350\n")
    assert {value for _, _, value in busbw(document)} == {350} and len(busbw(document)) == found
    assert not document.imported[0].unknown and not document.imported[0].doubts
    assert ranks_of(document) == [8]


def test_only_the_half_in_place(tmp_path: Path) -> None:
    text = "#      in-place\n" + " ".join(HEAD.split()[:10]) + "\n" + shortened(rows(), 9)
    assert busbw(imported(tmp_path, text)) == [(1, 0, 350), (1, 1, 350)]


@pytest.mark.parametrize(
    "broken",
    [
        shortened(rows()[1:], 12),
        shortened(rows()[1:], 11),
        shortened(rows()[1:], 7),
        rows()[1].replace(" sum -1 ", " sum ").rsplit(" ", 1)[0],
        rows()[1].replace("10737.4 ", "", 1),
    ],
)
def test_a_row_with_fewer_words_is_left_out(broken: str, tmp_path: Path) -> None:
    document = imported(tmp_path, f"{HEAD}{rows()[0]}\n{broken}\n# Avg bus bandwidth : 350\n")
    assert busbw(document) == [(0, 0, 350), (1, 0, 350)]
    assert [doubt for doubt in document.imported[0].doubts if "parts of 1 row" in doubt]


def test_rows_that_lack_a_column_in_the_middle_are_not_shifted(tmp_path: Path) -> None:
    text = HEAD + "".join(row.replace(" 0 ", " ", 1) + "\n" for row in rows())
    document = imported(tmp_path, text)
    assert not document.testcases and "parts of 2 rows" in document.imported[0].doubts[0]


@pytest.mark.parametrize(
    ("command", "ranks"),
    [
        ("./build/all_reduce_perf -b 8 -e 128M -f 2 -g 8", 8),
        ("NCCL_DEBUG=INFO ./all_reduce_perf -g8 -t 2", 16),
        ("all_reduce_perf --ngpus=4 --nthreads 2", 8),
        ("mpirun -np 16 -N 8 --bind-to none ./all_reduce_perf -b 8 -g 1", 16),
        ("mpirun --allow-run-as-root -n 2 ./all_reduce_perf -g 8 -n 100", 16),
        ("srun -N 2 --ntasks-per-node=8 --mpi=pmix ./all_reduce_perf -g 1", 16),
        ("srun --ntasks=32 ./all_reduce_perf", 32),
        ("mpirun -H node1,node2 ./all_reduce_perf -g 8", 0),
        ("./all_reduce_perf -b 8 -e 128M -n 20", 0),
        ("./all_reduce_perf -g many", 0),
        ("mpirun -np 8", 8),
    ],
)
def test_the_ranks_of_a_command(command: str, ranks: int) -> None:
    assert of_command(command) == ranks


_RANK = "#  Rank {rank:2d} Group  0 Pid 1 on node1 device {rank} [0000:{rank:02x}:00] NVIDIA H100 80GB HBM3\n"
_NRANKS = "node1:1:1 [0] NCCL INFO comm 0x5 rank 0 nranks 8 cudaDev 0 busId f000 - Destroy COMPLETE\n"
_NTHREAD = "# nThread 1 nGpus {gpus} minBytes 1 maxBytes 1 step: 2(factor) warmup iters: 5 iters: 20\n"


@pytest.mark.parametrize(
    ("before", "factor", "after", "ranks"),
    [
        ("./sendrecv_perf -g 8\n", 1.0, "", 8),
        ("mpirun -np 8 \\\n  -x A=1 \\\n  ./sendrecv_perf -g 1\n", 1.0, "", 8),
        ("sendrecv_perf\n", 1.0, _NRANKS, 8),
        ("sendrecv_perf\n", 1.0, "", 0),
        ("sendrecv_perf\n" + _NTHREAD.format(gpus=1), 1.0, "", 0),
        ("sendrecv_perf\n" + _NTHREAD.format(gpus=8), 1.0, "", 8),
        ("sendrecv_perf\n" + _RANK.format(rank=7), 1.0, "", 8),
        ("sendrecv_perf\n" + _RANK.format(rank=0), 1.0, "", 1),
        ("all_reduce_perf\n", 1.75, "", 8),  # by the ratio
        ("all_reduce_perf -g 4\n", 1.75, "", 8),  # which contradicts the command
        ("all_reduce_perf\n" + _RANK.format(rank=0), 1.75, "", 8),  # and a list that was cut
        ("all_reduce_perf\n" + _RANK.format(rank=3), 1.75, "", 8),
        ("all_reduce_perf\n" + _RANK.format(rank=15), 1.75, "", 0),
        ("all_reduce_perf\n", 1.99, "", 0),  # 199 to 201 ranks
        ("all_reduce_perf\n" + _NTHREAD.format(gpus=8), 1.99, "", 200),
        ("all_reduce_perf\n", 0.0, "", 1),
    ],
)
def test_the_number_of_ranks(before: str, factor: float, after: str, ranks: int, tmp_path: Path) -> None:
    document = imported(tmp_path, f"{before}{HEAD}" + "\n".join(rows(factor)) + f"\n{after}")
    assert ranks_of(document) == [ranks]
    unknown = "the number of ranks is unknown" in {judgement.why for judgement in judge(document).judgements}
    assert unknown == (not ranks)


def test_one_rank_of_which_something_is_measured_sends_to_itself(tmp_path: Path) -> None:
    text = "sendrecv_perf\n" + _RANK.format(rank=0) + HEAD + "\n".join(rows(1.0))
    reasons = {judgement.why for judgement in judge(imported(tmp_path, text)).judgements}
    assert "one rank sends only to itself" in reasons and not [why for why in reasons if "definition" in why]


def test_each_table_has_the_command_above_it(tmp_path: Path) -> None:
    table = "{}\n" + HEAD + "\n".join(rows(1.0)) + "\n# Avg bus bandwidth : 200\n"
    text = "".join(map(table.format, ("./sendrecv_perf -g 8", "./sendrecv_perf -g 2", "With all GPUs:")))
    assert ranks_of(imported(tmp_path, text)) == [8, 2, 0]


def test_a_command_behind_the_output_of_another_tool_is_that_of_the_table(tmp_path: Path) -> None:
    text = "GPU 0: Tesla T4 (UUID: GPU-1)\n\n./sendrecv_perf -g 2\n" + HEAD + "\n".join(rows(1.0))
    assert ranks_of(imported(tmp_path, text)) == [2]


def test_a_machine_says_how_many_ranks_there_are_if_nothing_else_does(tmp_path: Path) -> None:
    text = "sendrecv_perf\n" + HEAD + "\n".join(rows(1.0))
    assert ranks_of(imported(tmp_path, text)) == [0]
    assert "--machine" in Judged(imported(tmp_path, text)).overview.advice.do
    assert ranks_of(imported(tmp_path, text, "hgx-h100-8")) == [8]
    contradicted = "all_reduce_perf\n" + HEAD + "\n".join(rows(1.99))
    assert ranks_of(imported(tmp_path, contradicted, "hgx-h100-8")) == [0]


def test_an_excerpt_after_the_last_line_of_a_run_is_another_run(tmp_path: Path) -> None:
    table = "\n".join(rows()) + "\n# Avg bus bandwidth : 350\n"
    document = imported(tmp_path, table + table)
    assert len(document.imported) == 2 and ranks_of(document) == [8, 8]
    assert isinstance(document, wirespeed.Document)
