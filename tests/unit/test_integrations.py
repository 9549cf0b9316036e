"""Every file in `integrations/` for schedulers and monitors: valid, and its commands run and answer."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import wirespeed
from wirespeed.cli.commands import executables
from wirespeed.cli.main import main

ROOT = Path(__file__).parents[2]
HERE = ROOT / "integrations"
SCRIPTS = sorted(HERE.rglob("*.sh"))
#: Image of all manifests; its entry point is wirespeed.
IMAGE = f"registry.example.com/wirespeed:{wirespeed.__version__}"
GOOD, BAD, WARNING = "hgx-h200-2", "hgx-h200-2+nvlinks=9@gpu0", "hgx-h200-2+speed@numa0-gpu1=0.75"
#: State of a node -> what `wirespeed` is there.
NODES = {
    "good": GOOD, "bad": BAD, "gone": f"{GOOD}+gone@gpu1", "warning": WARNING, "broken": "", "missing": "",
}  # fmt: skip
#: Maximum time of a command, in s.
LIMIT_S = 120

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def node(tmp_path: Path) -> Callable[[str], Run]:
    """Return how a command runs on a node in a state, with only an installed wirespeed on the path."""

    def on(state: str) -> Run:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        program = folder / "wirespeed"
        if state == "broken":  # the interpreter ends with 1 and prints nothing on standard output
            text = f"#!{sys.executable}\nimport no_such_module_of_wirespeed\n"
        else:
            machine = f"--machine simulated:{NODES[state]}"
            text = (
                '#!/bin/sh\n[ "$1" = check ] && set -- "$@" --allow-simulated -t 0 4\n'
                f'exec {sys.executable} -m wirespeed "$@" {machine}\n'
            )
        program.unlink(missing_ok=True)
        if state != "missing":
            program.write_text(text)
            program.chmod(0o755)

        def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
            path = f"{folder}:/usr/sbin:/usr/bin:/sbin:/bin"
            return subprocess.run(
                command, env={"PATH": path, **variables}, cwd=tmp_path, capture_output=True, text=True,
                timeout=LIMIT_S,
            )  # fmt: skip

        return run

    return on


def answered(arguments: list[str], machine: str = GOOD) -> int:
    """Run the arguments of a container in this process, on a simulated machine."""
    allowed = ["--allow-simulated", "-t", "4"] if arguments[0] == "check" else []
    return main([*arguments, "--machine", f"simulated:{machine}", *allowed])


@pytest.mark.parametrize("script", [*SCRIPTS, HERE / "nhc" / "wirespeed.nhc"], ids=lambda path: path.name)
def test_scripts_are_valid(script: Path) -> None:
    assert subprocess.run(["bash", "-n", script], capture_output=True).returncode == 0
    is_program = script.suffix == ".sh"
    assert bool(script.stat().st_mode & stat.S_IXUSR) == is_program
    assert script.read_text().startswith("#!/bin/sh\n") == is_program
    if shutil.which("shellcheck"):
        kind = [] if is_program else ["-s", "bash"]
        done = subprocess.run(["shellcheck", *kind, script], capture_output=True, text=True)
        assert not done.stdout


CHECKED = "check --within 20s --no-save --for slurm"


@pytest.mark.parametrize(
    ("context", "called"),
    [
        ({"SLURM_SCRIPT_CONTEXT": "prolog_slurmd", "SLURM_JOB_ID": "1"}, CHECKED),
        (
            {"SLURM_SCRIPT_CONTEXT": "prolog_slurmd", "SLURM_JOB_ID": "1", "SLURM_JOB_GPUS": "2,3"},
            f"{CHECKED} --devices 2,3",
        ),
        (
            {"SLURM_SCRIPT_CONTEXT": "epilog_slurmd", "SLURM_JOB_ID": "1", "SLURM_JOB_GPUS": "2,3"},
            "doctor --no-measure --for slurm",
        ),
        ({"SLURMD_NODENAME": "node1"}, CHECKED),
        ({"SLURM_SCRIPT_CONTEXT": "prolog_slurmctld", "SLURM_JOB_ID": "1"}, ""),
        ({"SLURM_JOB_ID": "1"}, ""),  # of an old Slurm: no command of Slurm may run there
    ],
)
def test_the_script_of_slurm_knows_where_it_runs(
    context: dict[str, str], called: str, tmp_path: Path
) -> None:
    (tmp_path / "wirespeed").write_text(
        f'#!/bin/sh\necho "$*" >{tmp_path}/called\necho "WIRESPEED PASS: x"\n'
    )
    (tmp_path / "wirespeed").chmod(0o755)
    (tmp_path / "default").write_text(f'PATH="{tmp_path}:$PATH"\n')
    script = (HERE / "slurm" / "wirespeed.sh").read_text()
    script = script.replace("/etc/default/wirespeed", f"{tmp_path}/default")
    (tmp_path / "logger").symlink_to("/bin/true")
    (tmp_path / "called").write_text("\n")
    assert subprocess.run(["sh", "-c", script], env=context, timeout=LIMIT_S).returncode == 0
    assert (tmp_path / "called").read_text() == f"{called}\n"


@pytest.mark.parametrize("state", NODES)
def test_nhc(state: str, node: Callable[[str], Run], tmp_path: Path) -> None:
    (tmp_path / "nhc").write_text(
        'die() { echo "die $*"; }\nlog() { echo "log $*"; }\n'
        f'. {HERE}/nhc/wirespeed.nhc\nHW_WIRESPEED_PATH="$SHIM"\n'
        'check_hw_wirespeed "$@"; echo "returned $?"\n'
    )
    on = node(state)
    done = on("bash", str(tmp_path / "nhc"), SHIM=str(tmp_path / "bin"))
    with_code = on(
        "bash", str(tmp_path / "nhc"), "check", "--no-save",
        SHIM=str(tmp_path / "bin"), HW_WIRESPEED_FAULT_CODE="NHC2010",
    )  # fmt: skip
    assert not done.stderr
    if state in ("bad", "gone"):
        why = "NVLinks are down .gpu0." if state == "bad" else "the GPU at .* is on the PCI bus, .*"
        died = rf"die 1 check_hw_wirespeed: WIRESPEED FAIL: {GOOD}: {why}"
        assert re.fullmatch(rf"{died}\nreturned 1\n", done.stdout)
        assert re.fullmatch(rf"{died} FaultCode: NHC2010\nreturned 1\n", with_code.stdout)
    else:
        assert done.stdout.endswith("returned 0\n") and "die" not in done.stdout
        assert with_code.stdout.endswith("returned 0\n")
        assert ("log check_hw_wirespeed: no failure" in done.stdout) == (state != "good")


def test_node_problem_detector(node: Callable[[str], Run]) -> None:
    folder = HERE / "node-problem-detector"
    monitor = json.loads((folder / "wirespeed-monitor.json").read_text())
    limits = monitor["pluginConfig"]
    assert monitor["plugin"] == "custom" and limits["max_output_length"] == 512
    (condition,), (rule,) = monitor["conditions"], monitor["rules"]
    assert {"type", "reason", "message"} == condition.keys()
    assert rule["type"] == "permanent" and rule["condition"] == condition["type"]
    assert seconds(rule["timeout"]) <= seconds(limits["timeout"]) < seconds(limits["invoke_interval"])
    script = folder / Path(rule["path"]).name
    for state, code in {"good": 2, "bad": 0, "gone": 1, "broken": 2, "missing": 2}.items():
        # Simulated machines have no facts to pass by; NVLinks that are down but not measured are a warning.
        done = node(state)(str(script), *rule["args"])
        assert (done.returncode, done.stdout.count("\n")) == (code, 1), done
    for state, code in {"good": 0, "bad": 1, "warning": 0}.items():
        done = node(state)(str(script), "check", "--no-save")
        assert done.returncode == code and done.stdout.startswith("WIRESPEED "), done


def test_gpud(node: Callable[[str], Run]) -> None:
    plugins = yaml.safe_load((HERE / "gpud" / "wirespeed.yaml").read_text())
    modes = {plugin["plugin_name"]: plugin["run_mode"] for plugin in plugins}
    assert modes == {"wirespeed-facts": "auto", "wirespeed-check": "manual"}  # the second measures
    for plugin in plugins:
        assert plugin["type"] == "component" and seconds(plugin["timeout"]) >= 60
        assert seconds(plugin.get("interval", "1m")) >= 60
        (step,) = plugin["health_state_plugin"]["steps"]
        script = step["run_bash_script"]
        assert step["name"] and script["content_type"] == "plaintext"
        measures = plugin["plugin_name"] == "wirespeed-check"
        for state in NODES:
            done = node(state)("bash", "-c", script["script"])
            assert done.returncode == (state == "gone" or (state == "bad" and measures)), done
            answers = state not in ("broken", "missing")
            assert done.stdout.startswith("WIRESPEED " if answers else "wirespeed gave no verdict"), done


def test_aicr(capsys: pytest.CaptureFixture[str]) -> None:
    catalog = yaml.safe_load((HERE / "aicr" / "catalog.yaml").read_text())
    assert (catalog["apiVersion"], catalog["kind"]) == ("validator.nvidia.com/v1alpha1", "ValidatorCatalog")
    (entry,) = catalog["validators"]
    assert entry["phase"] in ("deployment", "performance", "conformance") and entry["image"] == IMAGE
    assert entry["name"] and entry["description"] and seconds(entry["timeout"]) >= 60
    assert answered(entry["args"]) == 0 and answered(entry["args"], BAD) == 1
    assert "hgx-h200-2 FAIL: NVLinks are down (gpu0); what to do: " in capsys.readouterr().out


@pytest.mark.parametrize("state", NODES)
def test_systemd_writes_metrics(state: str, node: Callable[[str], Run], tmp_path: Path) -> None:
    unit = (HERE / "systemd" / "wirespeed-check.service").read_text().replace("\\\n", " ")
    (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.M)
    script, file, *options = command.split()
    assert Path(script).name == "wirespeed-textfile.sh" and file.endswith("/wirespeed.prom")
    options = [option.replace("/var/lib/wirespeed", str(tmp_path)) for option in options]
    options[options.index("--wait-idle") + 1] = "1s"
    metrics = tmp_path / "wirespeed.prom"
    metrics.write_text("# old\n")
    run = node(state)
    done = run(str(HERE / "systemd" / "wirespeed-textfile.sh"), str(metrics), *options)
    assert (
        done.returncode == {"good": 0, "bad": 1, "gone": 1, "warning": 3, "broken": 1, "missing": 127}[state]
    ), done
    if state in ("broken", "missing"):
        assert metrics.read_text() == "# old\n"  # its time shows that it is old
    else:
        assert [*text_string_to_metric_families(metrics.read_text())]
        assert stat.S_IMODE(metrics.stat().st_mode) == 0o644
        assert (tmp_path / "latest.json").exists()
    assert not [*tmp_path.glob(".wirespeed*")]
    assert re.search(r"^SuccessExitStatus=3 4$", unit, re.M)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_units_are_valid(tmp_path: Path) -> None:
    for unit in ("wirespeed-check.service", "wirespeed-check.timer"):
        text = (HERE / "systemd" / unit).read_text()
        (tmp_path / unit).write_text(text.replace("/usr/local/libexec", str(HERE / "systemd")))
    units = [str(tmp_path / name) for name in ("wirespeed-check.service", "wirespeed-check.timer")]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True)
    assert "wirespeed" not in done.stderr, done.stderr


MANIFESTS = sorted((HERE / "kubernetes").glob("*.yaml"))


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_manifests_follow_the_api(path: Path, version: str) -> None:
    manifest = yaml.safe_load(path.read_text())
    kubernetes_validate.validate(manifest, version, strict=True)
    manifest["spec"]["unknown"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, version, strict=True)


def test_containers_run_commands_that_answer(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = {}
    for path in MANIFESTS:
        manifest = yaml.safe_load(path.read_text())
        kinds[manifest["kind"]] = manifest["spec"]
        job = manifest["spec"].get("jobTemplate", manifest)["spec"]
        (container,) = job["template"]["spec"]["containers"]
        assert container["image"] == IMAGE
        probe = container.get("readinessProbe")
        if probe:
            program, *arguments = probe["exec"]["command"]
            assert program == "wirespeed" and answered(arguments) == 0
        else:
            assert answered(container["args"]) == 0 and answered(container["args"], BAD) == 1
            assert container["resources"]["limits"]["nvidia.com/gpu"] == 8
    assert kinds.keys() == {"DaemonSet", "CronJob", "Job"}
    assert kinds["Job"]["completionMode"] == "Indexed"
    assert kinds["Job"]["completions"] == kinds["Job"]["parallelism"] == kinds["Job"]["maxFailedIndexes"]


def test_the_container_has_the_names_that_operators_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (HERE / "container" / "Containerfile").read_text().replace("\\\n", " ")
    folders = re.findall(r"^RUN wirespeed install-names (\S+)$", text, re.M)
    for folder in folders:
        assert main(["install-names", f"{tmp_path}{folder}"]) == 0
    for path in (
        "/workspace/nccl-tests/build/all_reduce_perf",
        "/workspace/nccl-tests/build/alltoall_perf",
        "/usr/local/bin/all_reduce_perf_mpi",
        "/usr/local/bin/sendrecv_perf_mpi",
        "/usr/local/bin/nvbandwidth",
    ):
        assert os.access(f"{tmp_path}{path}", os.X_OK), path
    assert {file.name for file in tmp_path.rglob("*") if file.is_file()} == executables().keys()
    assert re.findall(r"^FROM (\S+)$", text, re.M) == ["docker.io/library/debian:bookworm-slim"]
    for copied in re.findall(r"^COPY (.*) \S+$", text, re.M):
        assert all((ROOT / name).exists() for name in copied.split())
    assert " -c /opt/wirespeed/source/constraints.txt " in text  # the versions that are tested
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r"^ARG EXTRAS=(\S+)$", text, re.M)
    assert {*extras.split(",")} <= project["optional-dependencies"].keys()
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", text, re.M)
    assert json.loads(entry) == ["wirespeed"]


def test_all_files_are_documented() -> None:
    page = (ROOT / "docs" / "operate.md").read_text()
    for file in HERE.rglob("*"):
        if file.is_file() and file.parent.name not in ("prometheus", "grafana"):
            assert f"integrations/{file.relative_to(HERE)}" in page, file


def seconds(text: Any) -> int:
    """Return a duration such as 10m in s."""
    return int(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]
