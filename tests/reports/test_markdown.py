"""Markdown, also for an issue: twenty lines that are seen, folded tables, nothing that names its owner."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import wirespeed
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.hardware.facts import ON, Fact, Known
from wirespeed.reports import Style
from wirespeed.reports.markdown import environment

#: GitHub takes no longer comment.
_COMMENT = 65_536


@pytest.fixture(scope="module")
def down() -> Document:
    return wirespeed.check(machine="simulated:dgx-a100-8+nvlinks=6@gpu3").document


def seen(text: str) -> list[str]:
    """The lines that are not folded and not empty."""
    return [line for line in text.partition("<details>")[0].splitlines() if line]


def test_twenty_lines_have_verdict_remedy_paths_and_environment(down: Document) -> None:
    text = wirespeed.render(down, "markdown")
    lines = seen(text)
    assert len(lines) <= 20
    assert lines[0] == "# wirespeed: 8 x NVIDIA A100-SXM4-40GB"
    assert lines[1].startswith("**SIMULATED") and lines[2].startswith("**FAIL**: NVLinks are down (gpu3)")
    assert any(line.startswith("remedy: reset the GPU") for line in lines)
    assert any(line.startswith("| ✖ fail | GPU ↔ GPU |") for line in lines)
    assert any(line.startswith("- versions: wirespeed ") for line in lines)
    assert "- GPUs: 8 x NVIDIA A100-SXM4-40GB" in lines
    assert text.count("<details>") == 1 == text.count("</details>")
    assert "## device_to_device_memcpy_read_ce: fail" in text.partition("<details>")[2]


def test_nothing_identifies_the_owner(down: Document) -> None:
    command = (
        "wirespeed check --baseline ~/alice/good.json -o /home/alice/runs/node.json --machine=./x/m.json"
    )
    document = replace(down, command=command, host="alice-laptop")
    (line,) = (line for line in seen(wirespeed.render(document, "markdown")) if "command" in line)
    assert line == "- command: `` wirespeed check --baseline good.json -o node.json --machine=m.json ``"
    assert "alice" not in wirespeed.render(document, "markdown")


def test_nics_of_one_kind_are_one_text(down: Document) -> None:
    nics = ("mlx5_0", "mlx5_1", "eth0")
    facts = [Fact(Known.NICS, nics), Fact(Known.HYPERVISOR, ON)]
    facts += [Fact(Known.PORT_RATE, 400.0, "Gbit/s", nic) for nic in nics[:2]]
    facts += [Fact(Known.PORT_LAYER, "InfiniBand", "", nic) for nic in nics[:2]]
    lines = list(environment(replace(down, facts=tuple(facts))))
    assert "- NICs: 2 × mlx5_0 (400 Gbit/s, InfiniBand), 1 × eth0" in lines
    assert any(line.endswith(" · virtual machine") for line in lines)


def test_a_comment_is_not_longer_than_github_takes(down: Document) -> None:
    (one,) = down.only("device_to_device_memcpy_read_ce").testcases
    many = replace(down, testcases=tuple(replace(one, name=f"case{i}") for i in range(200)))
    text = wirespeed.render(many, "markdown")
    assert len(text) < _COMMENT and "further lines would not fit; attach the saved run" in text
    assert text.splitlines()[-3] == "</details>" and text.splitlines()[-1].startswith("FAIL  200 testcases")
    assert len(wirespeed.render(many, "markdown", Style(verbose=True))) > _COMMENT


def test_a_qualification_shows_its_findings(tmp_path: Path) -> None:
    result = wirespeed.qualify("simulated:dgx-spark-2+endpoint@node0")
    text = wirespeed.render(result.document, "markdown")
    assert any(line.startswith("- slow: path between node0 and node1") for line in seen(text))
    assert "messages, GPU memory: node0 to node1 12" in text


def test_a_log_names_its_tool() -> None:
    document = wirespeed.load_log("tests/data/published/nvbandwidth-h100-azure.txt")
    assert any(
        line.startswith("- logs of: nvbandwidth") for line in seen(wirespeed.render(document, "markdown"))
    )


def test_the_command_prints_it(tmp_path: Path, down: Document, capsys: pytest.CaptureFixture[str]) -> None:
    wirespeed.save(down, tmp_path / "run.json")
    assert main(["report", str(tmp_path / "run.json"), "--for", "github"]) == 0
    assert seen(capsys.readouterr().out) == seen(wirespeed.render(down, "markdown"))
    assert wirespeed.render(down, "github") == wirespeed.render(down, "markdown"), "a former name"
