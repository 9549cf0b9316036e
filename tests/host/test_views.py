"""Every view of a run of the machine at hand, which may have no GPU and no link but its memory."""

from __future__ import annotations

import pytest

import wirespeed
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.reports import formats
from wirespeed.reports.html.page import page


@pytest.fixture(scope="module")
def real() -> Document:
    cases = ("host_stream_copy", "host_bandwidth_ladder")
    return wirespeed.run(cases, size="1MiB", samples=2, copies=1)


@pytest.mark.parametrize("format", formats())
def test_every_format_of_a_real_run(real, format):
    assert wirespeed.render(real, format).strip()


def test_the_page_draws_the_machine(real):
    text = page([real])
    assert all(f'data-place="{node.name}"' in text for node in real.machine.numa)


@pytest.mark.parametrize(
    "command",
    [
        "show A.json", "report A.json", "report A.json B.json", "report A.json B.json --fleet -o fleet.html",
        "check --from A.json", "check A.json B.json", "check --from A.json --format html",
        "doctor A.json", "compare A.json B.json",
    ],
)  # fmt: skip
def test_every_command_takes_a_real_run(real, command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("A.json", "B.json"):
        wirespeed.save(real, name)
    assert main(command.split()) in (0, 1, 3, 4)  # the tests themselves keep the machine busy
    assert capsys.readouterr().out.strip() or list(tmp_path.glob("*.html"))
