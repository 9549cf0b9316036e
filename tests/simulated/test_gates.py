"""``wirespeed check --gates``: published thresholds on simulated machines."""

from __future__ import annotations

import re
from dataclasses import replace as changed
from pathlib import Path

import pytest
from msgspec.structs import replace

import wirespeed
from tests.conftest import still
from tests.simulated.test_check import Golden, both
from wirespeed.cli.main import main
from wirespeed.document import Document
from wirespeed.hardware.facts import Fact, Known
from wirespeed.hardware.topology import LinkKind
from wirespeed.judging.criteria import Criteria
from wirespeed.judging.gates import GateResult, compare_gates, known, load
from wirespeed.judging.judge import judge
from wirespeed.judging.judged import Judged
from wirespeed.judging.verdict import Verdict
from wirespeed.screens import check as check_screen
from wirespeed.units import GB, parse_rate

GATE = """read = 2026-11-22
[[gate]]
measures = "m"
source = "s"
at_least = "48 GB/s"
testcases = ["host_to_device_memcpy_ce"]
"""


def measured(machine: str, *testcases: str, **options: object) -> Document:
    return wirespeed.run(testcases, machine=f"simulated:{machine}", samples=2, copies=1, **options)


def results(name: str | Path, document: Document) -> dict[str, GateResult]:
    """The results that are shown, by what the gates measure."""
    found = compare_gates(load(str(name)), document, judge(document).judgements)
    return {one.gate.measures: one for one in found.results if one.verdict is not Verdict.WAIVED}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def written(**fields: str) -> str:
    """The path of a file of one gate with other fields."""
    lines = dict(line.split(" = ", 1) for line in GATE.splitlines() if " = " in line)
    lines |= fields
    text = f"read = {lines.pop('read')}\n[[gate]]\n"
    Path("gates.toml").write_text(text + "".join(f"{name} = {value}\n" for name, value in lines.items()))
    return "gates.toml"


@pytest.mark.parametrize("name", known())
def test_every_shipped_gate_has_a_source_and_a_plain_threshold(name: str) -> None:
    found = load(name)
    assert found.gates and found.read.year == 2026
    for gate in found.gates:
        assert re.fullmatch(r"[\w-]+/[\w.-]+( v[\d.]+)?: \S.*", gate.source)
        assert parse_rate(gate.at_least) > 0
        assert gate.models or gate.needs
    assert len({gate.measures for gate in found.gates}) == len(found.gates)


def test_healthy_machines_pass_the_gates_of_operators() -> None:
    small = measured("hgx-h200-2", "0", "1", "4")
    assert {one.verdict for one in results("azure", small).values()} == {Verdict.PASS}
    large = measured("dgx-a100-8", "0", "1", "4", "all_reduce")
    for name, count in (("azure", 3), ("oci", 1), ("aws", 1), ("gcp", 0)):
        found = results(name, large)
        assert len(found) == count and {one.verdict for one in found.values()} <= {Verdict.PASS}


def test_a_slow_link_fails_gates_with_its_cell(capsys: pytest.CaptureFixture[str]) -> None:
    machine = ["--allow-simulated", "--machine", "simulated:dgx-a100-8+speed@gpu3-nvswitch=0.8", "-t", "4"]
    assert main(["check", *machine]) == 3
    capsys.readouterr()
    assert main(["check", *machine, "--gates", "azure", "-o", "run.json"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"^fail  +reads of a peer over NVLink, A100 40GB: at least 235 GB/s$", out, re.M)
    assert re.search(r"memcpy_read_ce .*gpu3.*: lowest 2[12]\d\.\d\d GB/s; expected 210\.00", out)
    assert "\nFAIL  " in out and "\n1 threshold not met\n" in out and "an InfiniBand test" in out
    saved = ["check", "--allow-simulated", "--from", "run.json"]
    assert main([*saved, "--gates", "azure"]) == 1 and main([*saved, "--gates", "gcp"]) == 2


def test_gates_that_no_machine_with_these_links_can_pass_do_not_fail_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = measured("hgx-h200-2", "0")
    (found,) = results(written(at_least='"64 GB/s"'), document).values()
    assert found.word == "impossible" and found.why == "above the limit of the links, 63 GB/s"
    (found,) = results("aws", document).values()
    assert found.word == "impossible" and found.lowest is None
    assert found.why == "above the 750 GB/s that nodes with a network of 400 GB/s can reach"
    check = ["check", "--allow-simulated", "--machine", "simulated:hgx-h200-2", "-t", "0", "--gates"]
    assert main([*check, "gates.toml"]) == 0
    assert capsys.readouterr().out.count("\nimpossible  ") == 1
    assert main([*check, "aws", "--gates", "gates.toml"]) == 4
    out = capsys.readouterr().out
    assert (
        out.count("\nimpossible  ") == 2 and "\nno threshold of aws was compared; this is not a pass\n" in out
    )


def test_missing_links_do_not_make_a_gate_impossible() -> None:
    document = measured("hgx-h200-2", "0", "4")
    high = {"at_least": '"479 GB/s"', "testcases": '["device_to_device_memcpy_read_ce"]', "link": '"nvlink"'}
    name = written(**high)
    assert results(name, document)["m"].word == "impossible"
    inactive = replace(document, facts=(Fact(Known.NVLINKS_INACTIVE, 9, device="gpu1"),))
    assert results(name, inactive)["m"].verdict is Verdict.FAIL
    no_nvlink = written(**high | {"testcases": '["host_to_device_memcpy_ce"]'})
    assert results(no_nvlink, document)["m"].verdict is Verdict.FAIL


def test_gates_that_find_no_fault_are_named() -> None:
    for machine, threshold in (("hgx-h200-2", "2333 MB/s"), ("dgx-a100-8", "137500 MB/s")):
        (found,) = results("dcgm", measured(machine, "device_stream_triad")).values()
        assert found.verdict is Verdict.PASS and found.gate.at_least == threshold
        assert found.remark.startswith("meaningless: ")
    document = measured("hgx-h200-2", "0")
    assert results(written(), document)["m"].remark == ""
    assert results(written(at_least='"54 GB/s"'), document)["m"].remark.startswith(
        "this threshold is above the typical rate"
    )


def test_less_data_than_the_gate_requires_cannot_fail() -> None:
    document = measured("hgx-h200-2", "0", size=2**20)
    assert results(written(at_least='"60 GB/s"'), document)["m"].word == "unclear"
    assert results(written(at_least='"60 GB/s"', size='"1MiB"'), document)["m"].verdict is Verdict.FAIL
    sweep = measured("hgx-h200-2", "0", sizes=(2**20, 2**29))
    (found,) = results(written(), sweep).values()
    assert found.lowest and found.lowest.key.bytes == 2**29


def test_cells_without_a_value_fail_and_busy_devices_are_left_out() -> None:
    corrupt = measured("hgx-h200-2+corrupt@numa0->gpu1", "0")
    (found,) = results("azure", corrupt).values()
    assert found.verdict is Verdict.FAIL and found.lowest and found.lowest.value is None
    busy = measured("hgx-h200-2+busy@gpu1+speed@numa0-gpu1=0.5", "0")
    (found,) = results("azure", busy).values()
    assert found.verdict is Verdict.PASS and found.lowest and found.lowest.key.column == "gpu0"


def test_only_cells_of_the_named_models_count() -> None:
    document = measured("hgx-h200-2+speed@numa0-gpu1=0.5", "0")
    first, second = document.machine.gpus
    machine = changed(document.machine, gpus=(first, changed(second, model="another")))
    (found,) = results("azure", replace(document, machine=machine)).values()
    assert found.verdict is Verdict.PASS and found.lowest and found.lowest.key.column == "gpu0"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"at_least": '"48"'}, "'48' is not a rate"),
        ({"at_least": '"0 GB/s"'}, "'0 GB/s' is not a rate"),
        ({"at_least": '""'}, "has no threshold or no source"),
        ({"at_least": "48"}, "Expected `str`, got `int`"),
        ({"source": '" "'}, "has no threshold or no source"),
        ({"size": '"big"'}, "is not a size"),
        ({"network": '"3.2 Tbit"'}, "is not a rate"),
        ({"nodes": "0"}, ">= 1"),
        ({"testcases": "[]"}, "it names no testcases"),
        ({"testcases": '["host_to_gpu"]'}, "there is no testcase 'host_to_gpu'"),
        ({"link": '"wire"'}, "Invalid enum value 'wire'"),
        ({"threshold": "48"}, "unknown name 'threshold' in gate[0]"),
        ({"read": '"today"'}, "Invalid RFC3339"),
    ],
)
def test_broken_files_are_one_line(
    fields: dict[str, str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # It hangs as soon as it is measured.
    machine = ["--allow-simulated", "--machine", "simulated:hgx-h200-2+stuck"]
    assert main(["check", *machine, "--gates", written(**fields)]) == 2
    err = capsys.readouterr().err
    assert says in err and "gates.toml" in err and len(err.splitlines()) == 1


@pytest.mark.parametrize("name", ["azur", "", "none/gates.toml", "\x1b[31m"])
def test_unknown_names_name_the_known_sets(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--gates", name]) == 2
    err = capsys.readouterr().err
    assert "known sets: aws, azure, dcgm, gcp, oci" in err and len(err.splitlines()) == 1
    assert "\x1b" not in err


def test_texts_of_a_file_are_shown_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    name = written(measures='"\\u001b[31mred"', source='"\\u001b[31mred"')
    check = ["check", "--allow-simulated", "--machine", "simulated:hgx-h200-2", "-t", "0", "-v"]
    assert main([*check, "--gates", name]) == 0
    out = capsys.readouterr().out
    assert out.count("␛[31mred") == 2 and "\x1b" not in out


def test_the_help_names_all_sets(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    assert ", ".join(known()) in " ".join(capsys.readouterr().out.split())


def test_the_network_bounds_collectives_between_nodes() -> None:
    document = measured("hgx-h200-2", "0")
    fields = {"nodes": "2", "gpus": "8", "network": '"3.2 Tb/s"', "testcases": '["all_reduce"]'}
    for rate, word in ((750, "not applicable"), (751, "impossible")):
        gates = load(written(at_least=f'"{rate} GB/s"', **fields))
        assert compare_gates(gates, document, judge(document).judgements).results[0].word == word
    assert parse_rate("3.2 Tb/s") == 400 * GB and gates.gates[0].link is not LinkKind.NVLINK


def test_golden_gates(golden: Golden) -> None:
    document = still(wirespeed.run(machine="simulated:dgx-a100-8+speed@gpu3-nvswitch=0.8", tier="quick"))
    judged = Judged(document, Criteria(gates=tuple(map(load, known()))))
    both("check/gates", lambda style: check_screen.render(judged, style), golden)
