"""Every file in `integrations/` for schedulers and monitors: valid, and its commands run and answer."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import wirespeed
from wirespeed.cli.commands import COMMANDS, executables, functions
from wirespeed.cli.main import main
from wirespeed.reports.topics import topic

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
#: The installed program: it measures once for the same command, and gives the same answer again.
PROGRAM = """#!/bin/sh
[ "$1" = check ] && [ "$2" != --no-measure ] && set -- "$@" --allow-simulated -t 0 4
set -- "$@" --machine simulated:{machine}
answer={answers}/$(printf '%s\\n' "$@" | cksum | tr ' ' -)
if [ ! -e "$answer.code" ]; then
    {python} -m wirespeed "$@" >"$answer.out" 2>"$answer.err"
    echo $? >"$answer.code"
fi
cat "$answer.out"
cat "$answer.err" >&2
exit "$(cat "$answer.code")"
"""
#: Where bytecode is kept: of what runs elsewhere, every module is compiled.
BYTECODE = {name: value for name, value in os.environ.items() if name == "PYTHONPYCACHEPREFIX"}
#: Maximum time of a command, in s.
LIMIT_S = 120

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the installed program keeps its answers."""
    return tmp_path_factory.mktemp("answers")


@pytest.fixture
def node(tmp_path: Path, answers: Path) -> Callable[[str], Run]:
    """Return how a command runs on a node in a state, with only an installed wirespeed on the path."""

    def on(state: str) -> Run:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        program = folder / "wirespeed"
        if state == "broken":  # the interpreter ends with 1 and prints nothing on standard output
            text = f"#!{sys.executable}\nimport no_such_module_of_wirespeed\n"
        elif state == "slow":
            text = "#!/bin/sh\nexec sleep 5\n"
        else:
            text = PROGRAM.format(machine=NODES[state], answers=answers, python=sys.executable)
        program.unlink(missing_ok=True)
        if state != "missing":
            program.write_text(text)
            program.chmod(0o755)

        def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
            path = f"{folder}:/usr/sbin:/usr/bin:/sbin:/bin"
            return subprocess.run(
                command, env=BYTECODE | {"PATH": path, **variables}, cwd=tmp_path, capture_output=True,
                text=True, timeout=LIMIT_S,
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
            "check --no-measure --for slurm",
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


@pytest.mark.parametrize("state", [*NODES, "option", "slow"])
def test_the_script_of_slurm_tests_its_installation(
    state: str, node: Callable[[str], Run], tmp_path: Path
) -> None:
    """A broken installation passes every job: only ``--test`` shows it."""
    on = node("good" if state == "option" else state)
    script = tmp_path / "wirespeed.sh"
    text = (HERE / "slurm" / "wirespeed.sh").read_text()
    script.write_text(text.replace("/etc/default/wirespeed", f"{tmp_path}/default"))
    script.chmod(0o755)
    settings = [f'PATH="{tmp_path}/bin:$PATH"']
    settings += ['prolog="check --no-such-option"'] if state == "option" else []
    settings += ["limit=0.2"] if state == "slow" else []
    (tmp_path / "default").write_text("\n".join(settings))
    scontrol = tmp_path / "bin" / "scontrol"
    lines = [f"Prolog[0] = {script}", f"Epilog = {script}", "HealthCheckProgram = (null)"]
    scontrol.write_text(
        "#!/bin/sh\necho 'Configuration data'\n" + "".join(f"echo '{row}'\n" for row in lines)
    )
    scontrol.chmod(0o755)
    (tmp_path / "bin" / "logger").symlink_to("/bin/true")
    done = on(str(script), "--test", SLURM_JOB_ID="1", PATH="/nowhere")
    right = state not in ("broken", "missing", "option", "slow")
    assert done.returncode == (0 if right else 1), done
    assert done.stdout.endswith("\ninstalled correctly\n") == right
    assert f"note: HealthCheckProgram in slurm.conf is not {script}" in done.stdout
    assert done.stdout.count("note: ") == 1 and not done.stderr
    says = {
        "good": "WIRESPEED PASS: ", "bad": "WIRESPEED FAIL: ", "gone": "WIRESPEED FAIL: ",
        "warning": "WIRESPEED WARN: ", "broken": "no verdict: ModuleNotFoundError",
        "missing": "wirespeed is not in PATH=", "option": "no verdict: WIRESPEED ERROR: ",
        "slow": "no verdict within 0.2 s",
    }  # fmt: skip
    assert says[state] in done.stdout
    if state == "option":
        assert done.stdout.endswith("NOT installed correctly: prolog\n")
    if state == "good":  # by its name, and as a file that slurmd could not start
        assert on("sh", str(script), "--test").stdout.endswith("\ninstalled correctly\n")
        script.chmod(0o644)
        found = on("sh", str(script), "--test")
        assert found.returncode == 1 and f"NOT installed correctly: {script} (not executable)" in found.stdout
        script.chmod(0o755)
    scontrol.unlink()
    if state == "good":
        without = on(str(script), "--test")
        assert without.returncode == 1 and "scontrol (it does not answer" in without.stdout


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
    assert "hgx-h200-2 FAIL: NVLinks are down (gpu0); remedy: " in capsys.readouterr().out


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
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="only .ci/run installs it")
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
        pod = job["template"]["spec"] if "template" in job else job
        (container,) = pod.get("initContainers") or pod["containers"]
        assert container["image"] == IMAGE
        probe = container.get("readinessProbe")
        if probe:
            program, *arguments = probe["exec"]["command"]
            assert program == "wirespeed" and answered(arguments) == 0
        else:
            assert answered(container["args"]) == 0 and answered(container["args"], BAD) == 1
            assert container["resources"]["limits"]["nvidia.com/gpu"] == 8
    assert kinds.keys() == {"DaemonSet", "CronJob", "Job", "Pod"}
    (own,) = kinds["Pod"]["containers"]  # the pod gets as many GPUs as the larger of both
    assert own["resources"]["limits"]["nvidia.com/gpu"] == 8
    assert kinds["Job"]["completionMode"] == "Indexed"
    assert kinds["Job"]["completions"] == kinds["Job"]["parallelism"] == kinds["Job"]["maxFailedIndexes"]


def test_the_container_has_the_names_that_operators_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (HERE / "container" / "Containerfile").read_text().replace("\\\n", " ")
    folders = re.findall(r"^RUN wirespeed self install-names (\S+)$", text, re.M)
    for folder in folders:
        assert main(["self", "install-names", f"{tmp_path}{folder}"]) == 0
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


def fields_of(data: bytes) -> dict[int, list[Any]]:
    """Decode a message of protobuf: field -> its values, numbers and bytes."""
    found: dict[int, list[Any]] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = varint()
        value: Any = varint()
        if tag & 7 == 2:
            value, at = data[at : at + value], at + value
        found.setdefault(tag >> 3, []).append(value)
    return found


#: As NVSentinel's webhook sets them (docs/configuration/preflight.md there).
PREFLIGHT = {
    "PLATFORM_CONNECTOR_SOCKET": "unix:///var/run/nvsentinel.sock", "NODE_NAME": "node17",
    "PROCESSING_STRATEGY": "EXECUTE_REMEDIATION",
}  # fmt: skip


#: A failure of node17 as the message HealthEvents, in hexadecimal.
EVENT = (
    "0801126f08011213707265666c696768742d7769726573706565641a044e6f6465220e576972657370656564436865636b28"
    "013a14776972657370656564206661696c3a20736c6f7740054a0e444154415f504154485f4641494c620b08808292c90610"
    "80e59a776a066e6f64653137800101"
)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[tuple[str, str, bytes]]]:
    """The preflight check of NVSentinel, and what it sends through a fake gRPC."""
    calls: list[tuple[str, str, bytes]] = []

    class RpcError(Exception):
        pass

    class Channel:
        def __init__(self, target: str) -> None:
            self.target = target

        def __enter__(self) -> Channel:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def unary_unary(self, method: str, *_: object) -> Callable[..., bytes]:
            def call(message: bytes, timeout: float) -> bytes:
                if "refused" in self.target:
                    raise RpcError("UNAVAILABLE")
                calls.append((self.target, method, message))
                return b""

            return call

    monkeypatch.setitem(sys.modules, "grpc", SimpleNamespace(insecure_channel=Channel, RpcError=RpcError))
    spec = importlib.util.spec_from_file_location("preflight", HERE / "nvsentinel" / "preflight.py")
    assert spec and spec.loader
    preflight = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(preflight)
    monkeypatch.setattr(preflight, "DELAY_S", 0)
    return preflight, calls


@pytest.mark.parametrize("state", NODES)
def test_nvsentinel_gets_an_event_of_each_verdict(
    state: str, sent: tuple[Any, list[tuple[str, str, bytes]]], node: Callable[[str], Run], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Fields and numbers are those of NVSentinel's data-models/protobufs/health_event.proto."""
    preflight, calls = sent
    node(state)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    code = preflight.main([], PREFLIGHT)
    expected = {"good": 0, "warning": 0, "bad": 1, "gone": 1}
    assert code == expected.get(state, 2)
    assert preflight.main([], PREFLIGHT | {"PROCESSING_STRATEGY": "STORE_ONLY"}) == 0
    out = capfd.readouterr()
    if state not in expected:
        assert not calls and "wirespeed gave no verdict" in out.err
        return
    (target, method, message), (_, _, stored) = calls
    assert (target, method) == (
        "unix:///var/run/nvsentinel.sock", "/datamodels.PlatformConnector/HealthEventOccurredV1"
    )  # fmt: skip
    (event,) = fields_of(message)[2]
    found = fields_of(event)
    assert found[1] == fields_of(message)[1] == [1]
    assert [found[i] for i in (2, 3, 4, 13)] == [
        [b"preflight-wirespeed"], [b"Node"], [b"WirespeedCheck"], [b"node17"]
    ]  # fmt: skip
    is_fatal, is_healthy = code == 1, state == "good"
    assert (found.get(5), found.get(6)) == ([1] if is_fatal else None, [1] if is_healthy else None)
    assert found.get(8) == ([5] if is_fatal else None)  # CONTACT_SUPPORT
    codes = [b"DATA_PATH_FAIL"] if is_fatal else None if is_healthy else [b"DATA_PATH_WARN"]
    assert found.get(9) == codes
    (said,) = found[7]
    assert said.decode() in out.out and (b"remedy" in said) != is_healthy
    assert abs(fields_of(found[12][0])[1][0] - time.time()) < 600
    assert found[16] == [1] and fields_of(fields_of(stored)[2][0])[16] == [2]


def test_an_event_that_cannot_be_sent_is_an_error(
    sent: tuple[Any, list[tuple[str, str, bytes]]], node: Callable[[str], Run], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    node("good")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    assert sent[0].main([], PREFLIGHT | {"PLATFORM_CONNECTOR_SOCKET": "/refused"}) == 3
    assert sent[0].main([], {}) == 3
    assert sent[0].main(["wirespeed", "check", "--no-such-option"], PREFLIGHT) == 2
    assert "the event was not sent: RpcError: UNAVAILABLE" in capfd.readouterr().err


def test_the_event_is_that_of_protobuf(sent: tuple[Any, list[tuple[str, str, bytes]]]) -> None:
    """Bytes that google.protobuf 7.36 made of NVSentinel's health_event.proto."""
    assert sent[0].encoded(1, "wirespeed fail: slow", PREFLIGHT, 1764000000.25).hex() == EVENT


def test_the_values_of_nvsentinel_name_the_image_that_is_built() -> None:
    values = yaml.safe_load((HERE / "nvsentinel" / "values.yaml").read_text())
    (entry,) = values["preflight"]["initContainers"]
    image = f"{entry['image']['repository']}:{entry['image']['tag']}"
    text = (HERE / "nvsentinel" / "Containerfile").read_text()
    assert f"-t {image} ." in text and f"FROM {IMAGE}\n" in text
    assert entry["volumeMounts"] == [{"name": "nvsentinel-socket", "mountPath": "/var/run"}]
    assert values["global"]["preflight"]["enabled"] is True
    (script,) = re.findall(r"^COPY (\S+) ", text, re.M)
    assert os.access(ROOT / script, os.X_OK)


def test_all_files_are_documented() -> None:
    page = (ROOT / "docs" / "operate.md").read_text()
    for file in HERE.rglob("*"):
        if file.is_file() and file.parent.name not in ("prometheus", "grafana", "__pycache__"):
            assert f"integrations/{file.relative_to(HERE)}" in page, file


def seconds(text: Any) -> int:
    """Return a duration such as 10m in s."""
    return int(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


#: State of a node -> how the ReFrame test ends, and what it says then.
REFRAMED = {
    "good": ("passes", ""), "warning": ("passes", ""), "bad": ("slow", "gpu_gpu"),
    "gone": ("unsound", "does not show it"), "broken": ("unsound", "no answer"),
    "missing": ("unsound", "no answer"),
}  # fmt: skip


class Skipped(Exception):
    """What a ReFrame test raises to skip itself."""


@pytest.fixture
def reframed(monkeypatch: pytest.MonkeyPatch) -> type:
    """The class of the ReFrame test, with what it uses of ReFrame in a few lines."""

    class RunOnly:
        stdout = "rfm_job.out"

        def __init__(self, stagedir: Path) -> None:
            self.stagedir, self.perf_variables, self.reference = str(stagedir), {}, {}

        def skip(self, why: str) -> None:
            raise Skipped(why)

    def assert_true(value: object, words: str) -> None:
        assert value, words

    sanity = SimpleNamespace(
        evaluate=lambda value: value, defer=lambda value: value, assert_true=assert_true,
        assert_false=lambda value, words: assert_true(not value, words),
        make_performance_function=lambda value, unit: (value, unit),
    )  # fmt: skip
    builtins = SimpleNamespace(
        run_before=lambda _: lambda function: function, sanity_function=lambda function: function,
        variable=lambda *_, value: value,
    )  # fmt: skip
    rfm = SimpleNamespace(simple_test=lambda kind: kind, RunOnlyRegressionTest=RunOnly)
    utility = SimpleNamespace(sanity=sanity)
    for name, module in (("", rfm), (".utility", utility), (".utility.sanity", sanity),
                         (".core", SimpleNamespace()), (".core.builtins", builtins)):  # fmt: skip
        monkeypatch.setitem(sys.modules, f"reframe{name}", module)
    monkeypatch.setattr(rfm, "utility", utility, raising=False)
    spec = importlib.util.spec_from_file_location("reframed", HERE / "reframe" / "wirespeed_check.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.WirespeedCheck


@pytest.mark.parametrize("state", REFRAMED)
def test_reframe_judges_paths_by_the_references_of_the_model(
    state: str, reframed: type, node: Callable[[str], Run], tmp_path: Path
) -> None:
    test = reframed(tmp_path)
    test.set_command()
    found = node(state)("sh", "-c", " ".join([test.executable, *test.executable_opts]))
    (tmp_path / test.stdout).write_text(found.stdout)
    test.read_answer()
    ends, words = REFRAMED[state]
    if ends == "unsound":
        with pytest.raises(AssertionError, match=words):
            test.is_sound()
        return
    test.is_sound()
    test.set_references()
    assert {"host_gpu", "gpu_gpu"} <= test.perf_variables.keys() == test.reference["*"].keys()
    slow = [
        name
        for name, (value, unit) in test.perf_variables.items()
        if value < test.reference["*"][name][0] * (1 + (test.reference["*"][name][1] or 0)) and unit == "GB/s"
    ]
    assert slow == ([words] if words else [])


def test_reframe_skips_a_node_that_is_in_use(reframed: type, tmp_path: Path) -> None:
    test = reframed(tmp_path)
    answer = {"runs": [{"verdict": "busy", "sentence": "gpu0 is in use"}]}
    (tmp_path / test.stdout).write_text(json.dumps(answer))
    with pytest.raises(Skipped, match="not judged: gpu0 is in use"):
        test.read_answer()


@pytest.mark.skipif(not shutil.which("reframe"), reason="ReFrame (reframe-hpc) is not installed")
@pytest.mark.parametrize("state", REFRAMED)
def test_reframe_itself_runs_the_test(state: str, node: Callable[[str], Run], tmp_path: Path) -> None:
    reframe = str(shutil.which("reframe"))
    node(state)
    part = {"name": "node", "scheduler": "local", "launcher": "local", "environs": ["builtin"]}
    systems = [{"name": "here", "hostnames": [".*"], "partitions": [part]}]
    settings = {"systems": systems, "environments": [{"name": "builtin"}]}
    (tmp_path / "settings.py").write_text(f"site_configuration = {settings}\n")
    command = [reframe, "-C", "settings.py", "-c", str(HERE / "reframe" / "wirespeed_check.py"), "-r"]
    environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    found = subprocess.run(
        [*command, "--prefix", str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, env=environment
    )
    ends, words = REFRAMED[state]
    assert (found.returncode == 0) is (ends == "passes"), found.stdout
    if ends == "passes":
        assert "P: gpu_gpu:" in found.stdout
    else:
        assert (
            words in found.stdout and f"'{'sanity' if ends == 'unsound' else 'performance'}'" in found.stdout
        )


SKILL = HERE / "agents" / "SKILL.md"


def test_the_skill_of_agents_is_short_and_names_what_there_is() -> None:
    """Commands, options, keys and pages; agents believe it."""
    text = SKILL.read_text()
    assert len(text.splitlines()) <= 80
    head = yaml.safe_load(text.split("---")[1])
    assert head["name"] == "wirespeed" and len(head["description"]) <= 1024
    known = {*COMMANDS, *executables(), "help"}
    named = re.findall(r"`wirespeed ([a-z0-9_]+)[^`]*`", text)
    assert len(named) > 15 and set(named) - known == set()
    assert all(topic(page) for page in re.findall(r"wirespeed help ([a-z-]+)", text))
    parsers = {name: functions(name).parser(name).format_help() for name in {*named} & {*COMMANDS} - {"help"}}
    for command in re.findall(r"`wirespeed ([a-z][^`]*)`", text):
        name, *words = command.split()
        for option in (word for word in words if word.startswith("--")):
            assert name not in parsers or option in parsers[name], command


def test_the_skill_of_agents_names_keys_of_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["check", "--format", "json", "-t", "0", "4", "--no-save", "--allow-simulated"]
    assert main([*arguments, "--machine", f"simulated:{BAD}"]) == 1
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    section = SKILL.read_text().partition("## How to read the JSON")[2].partition("## Exit codes")[0]
    words = re.findall(r"`(\w+)(?:\[\])?`", section)
    keys = {*run, *run["causes"][0], *run["paths"][0]}
    verdicts = {"pass", "warn", "fail", "implausible", "busy", "unknown", "interrupted", "check", "null"}
    assert len(words) > 25 and set(words) - keys - verdicts == set()
