"""nccl-tests' command lines: what is refused, and with which words."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from wirespeed.backends import describe
from wirespeed.backends.rank_groups import group_of
from wirespeed.backends.simulated.simulated_collectives import SimulatedProvider
from wirespeed.cli import nccl_tests, nccl_tests_options
from wirespeed.cli.main import COLLECTIVES, main
from wirespeed.errors import UsageError
from wirespeed.testcases.collective_ops import OPERATIONS
from wirespeed.worlds.launchers import alone
from wirespeed.worlds.mpirun import mpirun

H200 = ("--machine", "simulated:hgx-h200-2", "-g", "2")


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_tests, "_gpus", lambda: 0)


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
        ("all_gather", ("-o", "prod"), "all_gather has no operator"),
        ("all_reduce", ("-r", "1"), "all_reduce has no root"),
        ("all_reduce", ("-D", "1"), "kernels of NCCL's device API"),
        ("all_reduce", ("-V", "4"), "kernels of NCCL's device API"),
        ("all_reduce", ("-I", "1", "-G", "1"), "-I and -G"),
        ("all_reduce", ("-z", "3", "-G", "1"), "-z and -G"),
        ("all_reduce", ("-z", "1", "-m", "2"), "-z 1 or 2 and -m"),
        ("all_reduce", ("-y", "1", "-G", "1"), "-y and -G"),
        ("all_reduce", ("-I", "1", "-K", "20"), "-K must be less than -n 20"),
        ("all_reduce", ("-K", "2"), "-K requires -I 1"),
        ("all_reduce", ("-J", "out.txt"), "must end in .json"),
        ("all_reduce", ("-J", "out.json", "--output", "out.json"), "-J and --output are the same file"),
        ("all_reduce", ("-T", "10000000000"), "-T must be at most 1000000000"),
        ("all_reduce", ("-b", "8", "-e", "8G", "-i", "8"), "give 1073741824 sizes; the maximum is 100000"),
        ("all_reduce", (*H200, "--launch", "here"), "it has no effect on a simulated machine"),
        ("all_reduce", ("-o", "xor"), "invalid choice"),
        ("all_reduce", ("-n", "0"), "1 or more"),
        ("all_reduce", ("-C", "2"), "neither 0 nor 1"),
        ("all_reduce", ("-w", "-1"), "not a whole number"),
        ("all_reduce", ("-b", "8Q"), "not a size"),
        ("all_reduce", ("--format", "xml"), "there is no format"),
        ("broadcast", (*H200, "-r", "2"), "root 2 does not exist; the ranks are 0 to 1"),
        ("all_reduce", ("-g", "2"), "over MPI every rank is a process"),
        ("all_reduce", ("-t", "2"), "over MPI every rank is a process"),
        ("all_reduce", ("-G", "1"), "it applies only to GPUs"),
        ("all_reduce", ("-R", "2"), "it applies only to GPUs"),
        ("all_reduce", (*H200, "-R", "1"), "simulated machine"),
        ("all_reduce", (*H200, "-z", "1"), "simulated machine"),
        ("all_reduce", ("--machine", "simulated:nowhere"), "is neither a simulated machine nor"),
        ("all_reduce", ("--machine", "here.json"), "the launcher places real ranks"),
        ("all_reduce", (*H200[:2], "-g", "3"), "3 ranks require 3 GPUs; hgx-h200-2 has 2"),
    ],
)  # fmt: skip
def test_what_is_not_possible_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], program: str, options: tuple[str, ...], reason: str
) -> None:
    assert reason in refused(capsys, f"{program}_perf", *options)


def test_hypercube_needs_a_power_of_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hypercube_perf", "--machine", "simulated:dgx-a100-8", "-g", "6"]) == 2
    assert "power of two" in capsys.readouterr().err


def test_environment_that_is_not_understood(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_TESTS_ALLTOALLV_SPREAD", "0.5")
    assert "NCCL_TESTS_ALLTOALLV_SPREAD is set" in refused(capsys, "alltoallv_perf", *H200)
    monkeypatch.setenv("NCCL_TESTS_SPLIT", "MOD 2")
    assert "one group" in refused(capsys, "all_reduce_perf", *H200)


def test_help_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(name in text for name in COLLECTIVES) and text.count("_perf") == 1
    assert set(COLLECTIVES) == set(OPERATIONS)
    for name in COLLECTIVES:
        with pytest.raises(SystemExit):
            main([f"{name}_perf", "--help"])
        text = capsys.readouterr().out
        assert all(f"-{letter} " in text for letter in "tgbeifnwmNodrczGCRaIKuMSJTpDVyx"), name


def test_sizes() -> None:
    assert nccl_tests_options._sizes(8, 100, 1, 2) == (8, 16, 32, 64)
    assert nccl_tests_options._sizes(8, 32, 8, 1) == (8, 16, 24, 32)
    assert nccl_tests_options._sizes(8, 8, 8, 1) == (8,)


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


@pytest.mark.parametrize(("text", "size"), [("8KB", 8192), ("8K", 8192), ("1gb", 2**30), ("2KiB", 2048)])
def test_sizes_are_powers_of_1024(text: str, size: int) -> None:
    assert nccl_tests_options.parser("all_reduce_perf").parse_args(["-b", text]).minbytes == size


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
    with pytest.raises(UsageError, match="made_up is not implemented over simulated; choose one of all_red"):
        nccl_tests.main("made_up_perf", [*H200, "-d", "all"])
    assert capsys.readouterr().out == ""


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
    monkeypatch.setattr("wirespeed.worlds.join", lambda *_, **__: alone())
    monkeypatch.setattr(nccl_tests, "_maker", lambda *_: lambda *_: SimulatedProvider(describe(H200[1]), 1))
    assert nccl_tests.main("all_reduce_perf", ["--mpi", "-b", "8", "-e", "8"]) == 0
    (note,) = capsys.readouterr().err.splitlines()
    assert note.startswith("wirespeed: note: one rank moves no data") and "--allow-run-as-root" in note
