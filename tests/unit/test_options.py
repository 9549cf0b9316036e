"""An option is one field of one record."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from dataclasses import Field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest

import wirespeed
from wirespeed import RunOptions, UsageError
from wirespeed.cli.option_values import run_options
from wirespeed.cli.parser import Parser
from wirespeed.features import FEATURES
from wirespeed.features.bandwidth.arguments import GpuEngine, NumaEngine
from wirespeed.features.nvbandwidth.dialects import DIALECTS
from wirespeed.judging.gates import GateSetName
from wirespeed.model import Engine, PoolLayout
from wirespeed.options import PYTHON, Option, PlanOptions, Share, Tier, agreed, declared
from wirespeed.reports import FORMATS, DialectName
from wirespeed.statistics import Fixed, Precise

TWO = "simulated:hgx-h200-2"
DECLARED = {field.name: (field, about) for field, about in declared(RunOptions)}
#: What the Document contains in another form: as its rule, in cells, in the machine, or only of jobs.
ELSEWHERE = {"precision", "time_budget", "rounds", "samples", "copies", "sizes", "devices", "bulk", "share"}
ELSEWHERE |= {
    "host_memory",
    "block_counts",
    "block_layout",
    "while_computing",
    "storage",
    "storage_size",
}
#: A text of every option that takes a value, and the value.
TEXTS: dict[str, tuple[str, object]] = {
    "tier": ("full", "full"),
    "size": ("64MiB", 2**26),
    "blocks": ("8", 8),
    "threads": ("256", 256),
    "block_counts": ("16:1024:x8", (16, 128, 1024)),
    "block_layout": ("strided", PoolLayout.STRIDED),
    "sample_peers": ("4", 4),
    "sizes": ("4KiB:64KiB:x4", (4096, 16384, 65536)),
    "devices": ("0,2", (0, 2)),
    "host_memory": ("8x4800", 307.2e9),
    "storage": ("/mnt/nvme", "/mnt/nvme"),
    "storage_size": ("2GiB", 2**31),
    "precision": ("0.5%", 0.005),
    "time_budget": ("200ms", 0.2),
    "rounds": ("4", 4),
    "samples": ("5", 5),
    "copies": ("7", 7),
    "timeout": ("2min", 120.0),
    "within": ("20s", 20.0),
    "seed": ("3", 3),
    "share": ("ipc", "ipc"),
}


def parsed(*arguments: str) -> RunOptions:
    parser = Parser("", configured=False)
    parser.add_measuring()
    parser.add_job()
    return run_options(parser.parse_args(arguments))


def of_a_command_line(field: Field[Any], about: Option) -> None:
    flag = f"--{about.flag or field.name.replace('_', '-')}"
    if about.group == PYTHON:
        with pytest.raises(SystemExit):
            parsed(flag)
    elif about.parse is None:
        switch = [f"--no-{flag[2:]}" if field.default else flag]
        assert getattr(parsed(*switch), field.name) is not field.default
    else:
        text, value = TEXTS[field.name]
        assert getattr(parsed(flag, text), field.name) == value


def of_a_call(field: Field[Any], about: Option) -> None:
    assert inspect.signature(wirespeed.run).parameters[field.name].default is field.default
    for documented in (wirespeed.run, RunOptions):
        text = " ".join((inspect.getdoc(documented) or "").split())
        assert f" {field.name}: {about.help[0].upper()}{about.help[1:]}" in text
        assert all(repr(choice) in text for choice in about.choices or ())
    text_or_value, value = TEXTS.get(field.name, (not field.default, not field.default))
    assert getattr(RunOptions(**{field.name: text_or_value}), field.name) == value
    assert getattr(RunOptions(**{field.name: value}), field.name) == value


def of_ranks(field: Field[Any], about: Option) -> None:
    of_all = field.name not in ("devices", "host_memory")
    assert (field.name in agreed(RunOptions())) == about.agreed == of_all
    if about.agreed:
        value = TEXTS.get(field.name, (not field.default,))[0]
        assert agreed(RunOptions(**{field.name: value})) != agreed(RunOptions())


@pytest.mark.parametrize(("field", "about"), DECLARED.values(), ids=DECLARED)
def test_an_option_is_one_of_commands_and_calls_and_of_all_ranks(field: Field[Any], about: Option) -> None:
    of_a_command_line(field, about)
    of_a_call(field, about)
    of_ranks(field, about)


def test_without_options_all_have_their_defaults() -> None:
    assert parsed() == RunOptions()


def test_the_document_contains_them() -> None:
    found = wirespeed.run(["0"], machine=TWO, size="1MiB", seed=3, use_mean=True).options
    assert DECLARED.keys() - found.keys() == ELSEWHERE - {"precision", "time_budget", "rounds"}
    assert (found["size"], found["seed"], found["use_mean"], found["tier"]) == (2**20, 3, True, "standard")
    assert {name for name, (_, about) in DECLARED.items() if not about.documented} == ELSEWHERE
    counts = wirespeed.run(["0"], machine=TWO, samples=2, copies=3).options
    assert (counts["rule"], counts["samples"], counts["copies"]) == ("fixed", 2, 3)


#: A program in which the record has one more field, and nothing else is changed.
EXTENDED = f"""
import inspect
import re
from dataclasses import dataclass
from wirespeed import options

@dataclass(frozen=True, kw_only=True)
class Extended(options.RunOptions):
    depth: int = options.option(3, "depth of the queue", options.HOW, int, "N")

options.RunOptions = Extended

import wirespeed
from wirespeed.cli.main import main

assert "depth of the queue" in wirespeed.run.__doc__.lower()
assert inspect.signature(wirespeed.run).parameters["depth"].default == 3
assert options.agreed(Extended(depth=9))["depth"] == "9"
assert wirespeed.run(["0"], machine="{TWO}").options["depth"] == 3
assert wirespeed.run(["0"], machine="{TWO}", depth="9").options["depth"] == 9
assert main(["run", "-t", "0", "--machine", "{TWO}", "--depth", "7", "-o", "d.json"]) == 0
assert wirespeed.load("d.json").options["depth"] == 7
main(["run", "--help"])
"""


def test_an_option_is_one_edit(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", EXTENDED], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--depth N             depth of the queue (default: 3)" in done.stdout


def test_keywords_replace_what_the_record_has() -> None:
    chosen = RunOptions(tier="quick", size=2**20, samples=1)
    found = wirespeed.run(["0"], machine=TWO, options=chosen, size="2MiB").options
    assert (found["tier"], found["size"], found["samples"]) == ("quick", 2**21, 1)
    result = wirespeed.memory_bandwidth(machine=TWO, options=chosen)
    assert (result.document.options["tier"], result.document.options["samples"]) == ("quick", 1)


def test_an_unknown_keyword_is_a_type_error_that_names_the_nearest() -> None:
    for wrong, near in (("verfy", "verify"), ("machin", "machine"), ("time_buget", "time_budget")):
        with pytest.raises(TypeError, match=rf"^run\(\) got .* '{wrong}'; did you mean '{near}'\?$"):
            wirespeed.run(["0"], **{wrong: 1})
    with pytest.raises(TypeError, match=r"argument 'xyzzy'$"):
        wirespeed.p2p_bandwidth(machine=TWO, xyzzy=1)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"tier": "huge"}, "there is no preset 'huge'; choose one of quick, standard, full"),
        ({"size": 0}, "size 0 is out of range; it must be from 1 B to 1 EiB"),
        ({"size": []}, r"\[\] is not a size"),
        ({"size": float("nan")}, "nan is not a size"),
        ({"sizes": []}, "sizes is empty; give at least one size, or omit it"),
        ({"sizes": "8:1"}, "is a range of no sizes"),
        ({"sizes": "64"}, "size 64 has no unit: write 64B"),
        ({"sizes": "1MiB, 4095"}, "size 4095 has no unit: write 4095B"),
        ({"devices": "0,x"}, "'0,x' is not a list of GPU indices; an example is 0,2"),
        ({"blocks": -1}, "blocks must be 0 or more, threads from 0 to 1024"),
        ({"threads": 1025}, "blocks must be 0 or more, threads from 0 to 1024"),
        ({"sample_peers": -1}, r"the number of sampled peers must be 0 \(all\) or more, not -1"),
        ({"samples": 0}, "samples and copies must be from 1 to"),
        ({"copies": 2.5}, "2.5 is not a whole number"),
        ({"precision": 1.0}, "precision must be more than 0% and less than 100%"),
        ({"time_budget": 0.0}, "the time budget must be more than 0 s"),
        ({"samples": 3, "precision": "1%"}, "give one kind or the other"),
        ({"timeout": 0}, "the time-out must be more than 0 s, not 0"),
        ({"share": "telepathy"}, "there is no transport 'telepathy'; choose one of fabric, vmm-fd"),
        ({"seed": "x"}, "'x' is not a whole number"),
    ],
)
def test_a_wrong_value_is_found_when_the_record_is_made(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        RunOptions(**wrong)
    with pytest.raises(UsageError, match=says):
        replace(RunOptions(), **wrong)


def test_the_rule_comes_from_the_tier_and_what_is_given() -> None:
    assert RunOptions().rule == Precise() and RunOptions(tier="full").rule == Precise(0.005, 10.0)
    assert RunOptions(tier="quick").rule == Precise(0.01, 0.2, 0.6, 3, rounds=1)
    assert RunOptions(tier="quick", time_budget=2.0).rule == Precise(0.01, 2.0, rounds=1)
    assert RunOptions(samples=5).rule == Fixed(5, 16) and RunOptions(copies=2).rule == Fixed(3, 2)


def test_what_changes_the_plan_is_part_of_what_a_run_takes() -> None:
    assert {field.name for field, _ in declared(PlanOptions)} < DECLARED.keys()


def test_choices_have_one_source() -> None:
    """The types of choices are Literals, from which parsers, errors and ``--help`` are made."""
    assert DECLARED["tier"][1].choices == get_args(Tier) and DECLARED["share"][1].choices == get_args(Share)
    for name, (_, about) in DECLARED.items():
        for wrong in ["none of them"] if about.choices else []:
            with pytest.raises(UsageError, match=f"{wrong}.*; choose one of {', '.join(about.choices)}"):
                RunOptions(**{name: wrong})
    package = Path(wirespeed.__file__).parent
    files = [*(package / "reports").rglob("*.py"), *(package / "features").rglob("*.py")]
    names = [".".join(one.relative_to(package.parent).with_suffix("").parts) for one in files]
    modules = {
        name.removesuffix(".__init__"): import_module(name.removesuffix(".__init__")) for name in names
    }
    renders = {
        f"{name}{end}"
        for name, module in modules.items()
        for own in vars(module)
        if (own == "render" or own.startswith("render_")) and getattr(module, own).__module__ == name
        if name != "wirespeed.reports" and not name.endswith("screen")
        for end in ["" if own == "render" else f":{own}"]
    }
    assert {row.module or f"wirespeed.reports.{row.name.replace('-', '_')}" for row in FORMATS} == renders
    several = {
        name.rpartition(".")[2]
        for name, module in modules.items()
        if {"part", "joined", "render"} <= vars(module).keys()
    }
    several |= {name for feature in FEATURES for name in feature.joined if name != "text"}
    assert {row.name for row in FORMATS if row.checked} == several
    assert sorted(get_args(GateSetName)) == sorted(
        one.stem for one in (package / "data/gates").glob("*.toml")
    )
    assert set(get_args(DialectName)) == DIALECTS.keys()
    assert {*get_args(GpuEngine), *get_args(NumaEngine)} < set(Engine)


def test_fixed_rounds_have_no_maximum_as_in_nccl_tests() -> None:
    assert RunOptions(samples=1, rounds=1_000_001).rule == Fixed(1, 16, 1_000_001)
    with pytest.raises(UsageError, match="from 1 to 1000000, not 1000001"):
        RunOptions(rounds=1_000_001)


def test_texts_are_values_for_type_checkers_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields of `PlanOptions` and of `RunOptions`, alone and in sequences; reading them gives no texts."""
    api = pytest.importorskip("mypy.api")
    file = tmp_path / "given.py"
    file.write_text(
        "from wirespeed.options import RunOptions\n"
        "options = RunOptions(size='64MiB', within='60s', timeout='5s', precision='1%', devices='0,2')\n"
        "RunOptions(size=64, sizes=['1MiB', 5], block_counts=(64, 1000), devices=[0, 1])\n"
        "size: int | None = options.size\n"
        "sizes: tuple[int, ...] | None = options.sizes\n"
        "timeout: float = options.timeout\n"
        "RunOptions(size=[5])\n"
    )
    monkeypatch.setenv("MYPYPATH", str(Path(wirespeed.__file__).parents[1]))
    settings = ["--follow-imports=silent", "--no-site-packages", "--ignore-missing-imports"]
    printed, _, _ = api.run([*settings, "--cache-dir", str(tmp_path / "cache"), str(file)])
    assert re.findall(r"given\.py:(\d+): error", printed) == ["7"], printed
