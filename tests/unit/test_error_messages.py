"""Errors that name what the user meant."""

from __future__ import annotations

import pytest

from wirespeed.cli.main import main

H200 = "--machine=simulated:hgx-h200-2"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("check --from log.txt", "log.txt is a log of nccl-tests without values"),
        ("show log.txt", "log.txt is a log of nccl-tests without values"),
        (f"transfer host to gpu0 {H200}", "host memory is numa0, or near(gpu0)"),
        (f"transfer gpu0 to cpu0 {H200}", "host memory is numa0, or near(gpu0)"),
        ("-b 8 -e 128M -f 2 -g 8", "wirespeed all_reduce_perf -b 8 -e 128M -f 2 -g 8"),
        ("run -b 8", "wirespeed all_reduce_perf -b 8"),
        ("run -b 64 -i 10 -t 0", "wirespeed nvbandwidth -b 64 -i 10 -t 0; or in options of wirespeed: "
         "wirespeed run --size 64MiB --samples 10 -t 0"),
        ("check --bufferSize=64 -s -j", "wirespeed check --size 64MiB --no-verify --format nvbandwidth-json"),
        ("--testSamples 4 --loopCount 2 -m", "wirespeed run --samples 4 --copies 2\n"),
        ("run -b64 -i3 -t0", "wirespeed nvbandwidth -b64 -i3 -t0; or in options of wirespeed: "
         "wirespeed run --size 64MiB --samples 3 -t0"),
        ("run -l", "wirespeed list"),
        ("run -t 0 --size 64", "write 64B, or 64MiB"),
        ("run host_stream_copy 4", "did you mean -t host_stream_copy -t 4?"),
        ("run hst_stream_copy", "did you mean -t host_stream_copy?"),
        ("list device_to", "did you mean -p device_to?"),
        ("check 4", "did you mean -t 4?"),
        ("doctor GPU1", "did you mean --devices 1?"),
        ("show host_stream_copy", "did you mean -t host_stream_copy?"),
        ("machine dgx-a100-8", "did you mean --machine simulated:dgx-a100-8?"),
        ("run -t 0 --machine dgx-a100-8", "did you mean simulated:dgx-a100-8?"),
        ("run log.txt", "did you mean wirespeed check log.txt?"),
        ("log.txt", "did you mean wirespeed check log.txt?"),
        ("host_stream_copy", "did you mean -t host_stream_copy?"),
        ("run -p devcie", "did you mean device?"),
        ("run -p device_to_*", "did you mean device_to?"),
        (f"transfer gpu0 gpu1 {H200}", "write 'gpu0 -> gpu1'"),
        (f"transfer gpu0 - {H200}", "put the transfer in quotes"),
        (f"run -t 0 --devices numa0 {H200}", "an example is 0,2"),
    ],
)  # fmt: skip
def test_the_error_names_what_was_meant(command, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.txt").write_text("# nccl-tests version 2.17.6\n")
    try:
        code = main(command.split())
    except SystemExit as end:  # refused by the parser
        code = end.code
    assert code == 2 and says in capsys.readouterr().err


@pytest.mark.parametrize("command", ["help check", "help all_reduce_perf"])
def test_help_is_a_command(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert ended.value.code == 0
    assert "usage" in capsys.readouterr().out.lower()
