"""Errors that name what the user meant."""

from __future__ import annotations

import pytest

from wirespeed.cli.main import main

H200 = "--machine=simulated:hgx-h200-2"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("check --from log.txt", "wirespeed import LOG -o run.json"),
        ("show log.txt", "wirespeed import LOG -o run.json"),
        (f"transfer host to gpu0 {H200}", "host memory is numa0, or near(gpu0)"),
        (f"transfer gpu0 to cpu0 {H200}", "host memory is numa0, or near(gpu0)"),
        ("-b 8 -e 128M -f 2 -g 8", "wirespeed all_reduce_perf -b 8 -e 128M -f 2 -g 8"),
        ("run -b 8", "wirespeed all_reduce_perf -b 8"),
    ],
)
def test_the_error_names_what_was_meant(command, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.txt").write_text("# nccl-tests version 2.17.6\n")
    assert main(command.split()) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("command", ["help check", "help all_reduce_perf"])
def test_help_is_a_command(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert ended.value.code == 0
    assert "usage" in capsys.readouterr().out.lower()
