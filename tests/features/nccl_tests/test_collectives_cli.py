"""nccl-tests' command lines: what is refused, and with which words."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wirespeed.backends import describe
from wirespeed.backends.rank_groups import group_of
from wirespeed.backends.simulated.collectives import SimulatedProvider
from wirespeed.cli.commands import called_as, executables, module_of
from wirespeed.cli.main import main
from wirespeed.collectives.operations import OPERATIONS
from wirespeed.collectives.options import OPTIONS, CollectiveOptions
from wirespeed.errors import UsageError
from wirespeed.features.nccl_tests import command as nccl_tests
from wirespeed.features.nccl_tests import options as nccl_tests_options
from wirespeed.features.nccl_tests.options import check_kernels, given, parser, sizes
from wirespeed.worlds.launchers import alone, mpirun

H200 = ("--machine", "simulated:hgx-h200-2", "-g", "2")


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_tests, "usable_gpus", lambda: 0)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    try:
        code = main(list(arguments))
    except SystemExit as error:
        code = error.code  # type: ignore[assignment]
    captured = capsys.readouterr()
    assert code == 2 and captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1
    return captured.err


@pytest.mark.parametrize(
    ("program", "options", "reason"),
    [
        ("all_reduce", ("-b", "1G", "-e", "1M"), "-b 1073741824 is more than -e 1048576"),
        ("all_reduce", ("-D", "1", "-V", "129"), "-V must be at most 128"),
        ("all_reduce", ("--mpi", "-D", "1"), "it applies only to GPUs"),
        ("all_reduce", (*H200, "-D", "1"), "it has no effect on a simulated machine"),
        ("all_reduce", ("-i", "0"), "-i 0 requires a factor (-f)"),
        ("all_reduce", ("-y", "1", "-G", "1"), "-y and -G"),
        ("all_reduce", ("-J", "out.json", "--output", "out.json"), "-J and --output are the same file"),
        ("all_reduce", ("-T", "10000000000"), "-T must be at most 1000000000"),
        ("all_reduce", ("-b", "8", "-e", "8G", "-i", "8"), "give 1073741824 sizes; the maximum is 100000"),
        ("all_reduce", (*H200, "--launch", "here"), "it has no effect on a simulated machine"),
        ("all_reduce", ("-n", "0"), "1 or more"),
        ("all_reduce", ("-C", "2"), "neither 0 nor 1"),
        ("all_reduce", ("-w", "-1"), "not a whole number"),
        ("all_reduce", ("-b", "8Q"), "not a size"),
        ("all_reduce", ("--format", "xml"), "there is no format"),
        ("broadcast", (*H200, "-r", "2"), "root 2 does not exist; the ranks are 0 to 1"),
        ("all_reduce", ("--mpi", "-g", "2"), "over MPI every rank is a process"),
        ("all_reduce", ("--mpi", "-t", "2"), "over MPI every rank is a process"),
        ("all_reduce", ("--mpi", "-G", "1"), "it applies only to GPUs"),
        ("all_reduce", ("--mpi", "-R", "2"), "it applies only to GPUs"),
        ("all_reduce", (*H200, "-m", "2"), "simulated machine"),
        ("all_reduce", ("--mpi", "-M", "1"), "it applies only to GPUs"),
        ("all_reduce", ("--machine", "simulated:nowhere"), "is neither a simulated machine nor"),
        ("all_reduce", ("--machine", "here.json"), "the launcher places real ranks"),
    ],
)  # fmt: skip
def test_what_is_not_possible_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], program: str, options: tuple[str, ...], reason: str
) -> None:
    assert reason in refused(capsys, f"{program}_perf", *options)


@pytest.mark.parametrize(
    ("program", "arguments", "reason"),
    [
        (
            "broadcast",
            ("-D", "1"),
            "-D: broadcast_perf has no kernels of NCCL's device API; all_reduce_perf and",
        ),
        ("all_reduce", ("-D", "5"), "-D 5 does not exist: choose 0, 1 or 2"),
        ("all_reduce", ("-D", "3"), "-D 3: implementations 3 and 4 reduce by multicast objects of NVLink"),
        ("alltoall", ("-D", "4"), "-D 4: implementations 3 and 4 send over the network from the GPU (GIN)"),
        ("alltoall", ("-D", "2"), "-D 2 requires buffers that other GPUs can access: pass -R 2"),
        ("alltoall", ("-D", "2", "-R", "1"), "pass -R 2"),
    ],
)
def test_kernels_of_the_device_api_that_cannot_run_are_refused(
    program: str, arguments: tuple[str, ...], reason: str
) -> None:
    program = f"{program}_perf"
    with pytest.raises(UsageError, match=re.escape(reason)):
        check_kernels(program, given(program, parser(program).parse_args(arguments), arguments))


@pytest.mark.parametrize(
    ("arguments", "number", "blocks"),
    [((), 0, 0), (("-D", "2", "-R", "2"), 2, 16), (("-D", "1", "-R", "2", "-V", "128"), 1, 128)],
)
def test_kernels_of_the_device_api_are_requested(
    arguments: tuple[str, ...], number: int, blocks: int
) -> None:
    options = given("alltoall_perf", parser("alltoall_perf").parse_args(arguments), arguments)
    check_kernels("alltoall_perf", options)
    assert (options.device_implementation, options.device_blocks) == (number, blocks)


def test_the_number_of_ctas_without_their_kernels_is_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["all_reduce_perf", "-V", "4", *H200, "-b", "8", "-e", "8"]) == 0
    assert "note: ignored: -V requires -D 1 or -D 2" in capsys.readouterr().err


def test_environment_that_is_not_understood(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_TESTS_ALLTOALLV_SPREAD", "wide")
    assert "SPREAD='wide' is not a number of 0 or more" in refused(capsys, "alltoallv_perf", *H200)
    monkeypatch.setenv("NCCL_TESTS_SPLIT", "MOD")
    assert "NCCL_TESTS_SPLIT='MOD' is invalid" in refused(capsys, "all_reduce_perf", *H200)


DGX = ("--machine", "simulated:dgx-a100-8", "-g")
SMALL = ("-b", "1M", "-e", "4M", "-f", "2", "-n", "2", "-w", "0")


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


def done(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    assert main(list(arguments)) == 0
    captured = capsys.readouterr()
    return captured.out, captured.err


@pytest.mark.parametrize(
    ("options", "note"),
    [
        (("-i", "0"), ""),  # with -f of SMALL
        (("-o", "max", "-r", "3"), ""),  # all_gather has neither
        (("-z", "0", "stray"), "ignored: stray"),
        (("-K", "1"), "ignored: -K requires -I 1"),
        (("-I", "1", "-K", "2"), "ignored: -K must be less than -n 2"),
        (("-I", "1", "-G", "1"), "ignored: -I with -G"),
        (("-z", "3", "-G", "1"), "ignored: -z with -G"),
    ],
)
def test_what_nccl_tests_ignores_is_ignored(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], note: str
) -> None:
    out, err = done(capsys, "all_gather_perf", *DGX, "0x8", *SMALL, *options)
    assert [row[0] for row in lines(out)] == ["1048576", "2097152", "4194304"]
    assert note in err and ("ignored" in err) is bool(note)


def test_json_goes_into_any_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    done(capsys, "all_gather_perf", *DGX, "2", *SMALL, "-J", str(tmp_path / "out.txt"))
    assert json.loads((tmp_path / "out.txt").read_text())["results"]


def test_groups_of_a_simulated_machine(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = done(capsys, "all_reduce_perf", *DGX, "8", *SMALL)
    for name, text in (("SPLIT_MASK", ""), ("SPLIT", "MOD 2"), ("SPLIT_MASK", "0x3")):
        monkeypatch.delenv("NCCL_TESTS_SPLIT_MASK", raising=False)
        monkeypatch.setenv(f"NCCL_TESTS_{name}", text)
        out, _ = done(capsys, "all_reduce_perf", *DGX, "8", *SMALL)
        ranks = [line.split() for line in out.splitlines() if line.startswith("#  Rank")]
        groups = {"": {"0"}, "MOD 2": {"0", "1"}, "0x3": {"0", "1", "2", "3"}}[text]
        assert len(ranks) == 8 and {rank[4] for rank in ranks} == groups
        assert (lines(out)[-1][5] == lines(whole)[-1][5]) is (not text)  # fewer ranks take less time


def test_parts_of_alltoallv(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = ("alltoallv_perf", *DGX, "3", "-b", "3M", "-e", "3M", "-n", "2", "-w", "0")
    monkeypatch.setenv("NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY", "1")

    def sent(*more: str) -> tuple[list[str], str, list[str]]:
        """Return the bytes of each rank, the heads of the summary, and the size and count."""
        out, _ = done(capsys, *run, *more)
        ranks = [word for line in out.splitlines() if " rank=" in line for word in line.split()[2:4]]
        (head, *_) = re.findall(r"PRINT_SUMMARY: (.*) time_usec=\d+\.\d\d$", out, re.M)
        return ranks, head, lines(out)[-1][:2]

    parts, head, columns = sent()
    assert parts[:2] == ["send_bytes=3145728", "recv_bytes=3145728"]
    assert head == "mode=generated nranks=3 total_bytes=3145728 spread=1.000"
    assert columns == ["3145728", "262144"]
    monkeypatch.setenv("NCCL_TESTS_ALLTOALLV_SPREAD", "0.3")
    parts, head, columns = sent("-b", "2M", "-e", "2M")
    assert columns == ["2097104", "174760"] and parts[0] == "send_bytes=2097104"
    assert head == "mode=generated nranks=3 total_bytes=2097120 spread=0.300"
    monkeypatch.setenv("NCCL_TESTS_ALLTOALLV_SPREAD", "0.123456789")
    assert "spread=0.123" in sent()[1]
    matrix = tmp_path / "traffic.txt"
    matrix.write_text("100 200 150 1\n50 100 75 1\n\n300 150 200 1\n0 0 0 0\n")
    monkeypatch.setenv("NCCL_TESTS_ALLTOALLV_MATRIX_FILE", str(matrix))
    monkeypatch.setenv("NCCL_TESTS_ALLTOALLV_MATRIX_SCALE", "2")
    parts, head, columns = sent()
    assert parts[:6] == [  # multiples of 16 bytes
        "send_bytes=880", "recv_bytes=880", "send_bytes=432", "recv_bytes=880", "send_bytes=1280",
        "recv_bytes=832",
    ]  # fmt: skip
    assert head == "mode=matrix nranks=3 matrix_dim=4 scale=2.000" and columns == ["1280", "0"]
    monkeypatch.setenv("NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY", "00")
    assert "PRINT_SUMMARY" not in done(capsys, *run)[0]
    assert "-b and -e must be equal" in refused(capsys, *run, "-e", "6M")
    assert "-b and -e of at least 1280 bytes" in refused(capsys, *run, "-b", "64", "-e", "64")
    assert "is for 4 ranks, not 8" in refused(capsys, *run, "-g", "8")
    matrix.write_text("1 2\n")
    assert "must be a square matrix" in refused(capsys, *run)
    matrix.write_text("-0.5\n")
    assert "a number is less than 0" in refused(capsys, *run)
    matrix.unlink()
    assert "cannot be read" in refused(capsys, *run)


def test_a_matrix_is_scaled_as_nccl_tests_scales_it(tmp_path: Path) -> None:
    """The product of doubles is 48; that of long doubles, which is truncated, is less."""
    matrix = tmp_path / "traffic.txt"
    matrix.write_text("10")
    assert 10 * 4.8 == 48.0
    assert nccl_tests_options._matrix(str(matrix), 4.8) == ((47,),)
    assert nccl_tests_options._matrix(str(matrix), 1.6) == ((16,),)


@pytest.mark.parametrize("options", [(), ("-I", "1"), ("-S", "1"), ("-I", "1", "-S", "1")])
def test_headings_end_where_the_values_end(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    out, _ = done(capsys, "all_reduce_perf", *DGX, "2", *SMALL, *options)
    named, row = (
        next(line for line in out.splitlines() if line.startswith(start))
        for start in ("#       size", "     1048576")
    )
    assert (
        [m.end() for m in re.finditer(r"[\S]+", named)][2:]
        == [
            m.end() - (":" in m[0])  # the heading of nccl-tests is one column short of the time stamps
            for m in re.finditer(r"\d\S* \d\S*:\S+|\S+", row)
        ][1:]
    )


def test_help_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert "all_reduce_perf, ... of nccl-tests" in text and text.count("_perf") == 1
    for name in OPERATIONS:
        with pytest.raises(SystemExit):
            main([f"{name}_perf", "--help"])
        text = capsys.readouterr().out
        assert all(f"-{letter} " in text for letter in "tgbeifnwmNodrczGCRaIKuMSJTpDVyx"), name


def test_every_field_declares_its_option() -> None:
    assert list(OPTIONS) == [field.name for field in fields(CollectiveOptions)]
    for names in (
        [flag for about in OPTIONS.values() for flag in about.flags],
        [about.json for about in OPTIONS.values() if about.json],
    ):
        assert len(names) == len(set(names))
    assert all(about.parse for about in OPTIONS.values() if about.flags)
    assert CollectiveOptions().described("mpi").keys() < CollectiveOptions().described("nccl").keys()


@pytest.mark.parametrize(
    ("step", "factor", "expected"), [(1, 2, (8, 16, 32, 64)), (8, 1, tuple(range(8, 101, 8)))]
)
def test_sizes(step: int, factor: int, expected: tuple[int, ...]) -> None:
    given = CollectiveOptions(first_size=8, last_size=100, step=step, factor=factor)
    assert sizes(given) == expected
    assert sizes(replace(given, last_size=8)) == (8,)


@pytest.mark.parametrize(
    ("text", "colors"),
    [
        ("", [0, 0, 0, 0]), ("MOD 2", [0, 1, 0, 1]), ("%2", [0, 1, 0, 1]), ("DIV 2", [0, 0, 1, 1]),
        ("AND 0x1", [0, 1, 0, 1]), ("or 0b1", [1, 1, 3, 3]),
    ],
)  # fmt: skip
def test_ranks_are_divided_into_groups(text: str, colors: list[int]) -> None:
    for rank, color in enumerate(colors):
        world: Any = SimpleNamespace(rank=rank, size=4)
        group = group_of(world, 2, {"NCCL_TESTS_SPLIT": text})
        assert group.color == color and group.ranks == 2 * colors.count(color)
        assert group.processes == tuple(r for r, c in enumerate(colors) if c == color)
    world = SimpleNamespace(rank=0, size=4)
    assert group_of(world, 1, {"NCCL_TESTS_SPLIT_MASK": "1"}).processes == (0, 2)
    for wrong in ("XOR 1", "MOD 0", "DIV x"):
        with pytest.raises(UsageError, match="is invalid"):
            group_of(world, 1, {"NCCL_TESTS_SPLIT": wrong})


@pytest.mark.parametrize(("text", "size"), [
    ("8KB", 8192), ("8K", 8192), ("1gb", 2**30), ("2KiB", 2048), ("0x10", 16), ("1e3", 1000), ("1.5k", 1536),
    ("0x1B", 27), ("0x1.8p4", 24), (" 1 M ", 2**20), ("10.7", 10),
])  # fmt: skip
def test_sizes_are_powers_of_1024(text: str, size: int) -> None:
    assert parser("all_reduce_perf").parse_args(["-b", text]).first_size == size


def test_a_least_bandwidth_that_is_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_TESTS_MIN_BW", "fast")
    assert "NCCL_TESTS_MIN_BW='fast' is not a number" in refused(capsys, "all_reduce_perf", *H200)


@pytest.mark.parametrize(("mask", "color"), [("1", 1), ("0x1", 1), ("f", 3)])
def test_a_mask_divides_the_ranks(mask: str, color: int) -> None:
    world: Any = SimpleNamespace(size=4, rank=3)
    assert group_of(world, 1, {"NCCL_TESTS_SPLIT_MASK": mask}).color == color
    with pytest.raises(UsageError, match="NCCL_TESTS_SPLIT_MASK='x' is not a hexadecimal"):
        group_of(world, 1, {"NCCL_TESTS_SPLIT_MASK": "x"})


def test_an_operation_without_an_implementation_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OPERATIONS, "made_up", replace(OPERATIONS["hypercube"], name="made_up"))
    assert nccl_tests.main("made_up_perf", [*H200, "-d", "all"]) == 5
    captured = capsys.readouterr()
    assert (
        "error: made_up int8: made_up is not implemented over simulated; choose one of all_red"
        in captured.err
    )
    assert re.search(r"^ \.\. \S+ pid \d+: Test failure wirespeed:0$", captured.out, re.MULTILINE)


def test_a_row_makes_a_program(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert module_of("made_up_perf") is None and called_as("made_up_perf_mpi") is None
    monkeypatch.setitem(OPERATIONS, "made_up", replace(OPERATIONS["hypercube"], name="made_up"))
    assert (
        str(module_of("made_up_perf")).endswith("nccl_tests.command")
        and called_as("made_up_perf_mpi") == "made_up_perf"
    )
    assert executables()["made_up_perf_mpi"] == "made_up_perf_mpi"
    with pytest.raises(SystemExit):
        main(["made_up_perf", "--help"])
    assert "made_up_perf" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("user", "cores", "ranks", "hint"),
    [
        (1000, 4, 4, ""),
        (0, 4, 4, " (Open MPI needs --allow-run-as-root for root)"),
        (1000, 2, 4, " (Open MPI needs --oversubscribe for more ranks than cores (2))"),
        (0, 2, 0, " (Open MPI needs --allow-run-as-root for root and "
                  "--oversubscribe for more ranks than cores (2))"),
    ],
)  # fmt: skip
def test_a_command_of_mpirun_comes_with_what_open_mpi_needs_here(
    user: int, cores: int, ranks: int, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    assert mpirun("wirespeed ...", ranks) == f"`mpirun -np {ranks or 'N'} wirespeed ...`{hint}"


def test_who_asks_for_ranks_over_mpi_is_told_how_to_start_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    said = refused(capsys, "all_reduce_perf", "-g", "2", "--mpi")
    assert "start them with `mpirun -np N wirespeed ...` (Open MPI needs --allow-run-as-root for root" in said


def test_one_rank_over_mpi_is_told_how_to_be_several(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("wirespeed.worlds.launchers.join", lambda *_, **__: alone())
    monkeypatch.setattr(nccl_tests, "_maker", lambda *_: lambda *_: SimulatedProvider(describe(H200[1]), 1))
    assert nccl_tests.main("all_reduce_perf", ["--mpi", "-b", "8", "-e", "8"]) == 0
    (note,) = capsys.readouterr().err.splitlines()
    assert note.startswith("wirespeed: note: one rank moves no data") and "--allow-run-as-root" in note
