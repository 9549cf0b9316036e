"""Slurm on two hosts runs our prolog, epilog and health check, which drain a node if its hardware fails."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.warm import Host

SCRIPT = Path(__file__).parents[2] / "integrations" / "slurm" / "wirespeed.sh"
CHECK = "check --no-save --allow-simulated --machine simulated:hgx-h200-2"
DOCTOR = "check --no-measure --machine simulated:hgx-h200-2"
UNUSABLE = "check --no-such-option"
REASON = "WIRESPEED FAIL: hgx-h200-2: NVLinks are down (gpu0)"
#: Maximum time of everything that Slurm does, in s; it takes a few.
LIMIT_S = 60.0
CONFIGURATION = """\
ClusterName=wirespeed
SlurmctldHost=node0(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/linear
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
PlugStackConfig={folder}/none
SchedulerParameters=sched_min_interval=1,batch_sched_delay=0
Prolog={folder}/wirespeed.sh
PrologFlags=Alloc
Epilog={folder}/wirespeed.sh
HealthCheckProgram={folder}/wirespeed.sh
HealthCheckInterval=2
HealthCheckNodeState=IDLE
NodeName=node1 NodeAddr=10.77.0.2 CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@dataclass
class Cluster:
    """A controller on one host and a node on another."""

    folder: Path
    controller: list[str]

    def settings(self, prolog: str = "", epilog: str = "", health: str = "", path: str = "") -> None:
        """Set the commands of the scripts, as an administrator does; empty for a healthy machine."""
        path = path or f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        settings = {
            "PATH": path, "SLURM_CONF": self.folder / "slurm.conf", "prolog": prolog or f"{CHECK} -t 0",
            "epilog": epilog or DOCTOR, "health_check": health or f"{CHECK} -t 0",
        }  # fmt: skip
        new = self.folder / "new"
        new.write_text("export SLURM_CONF\n" + "".join(f'{k}="{v}"\n' for k, v in settings.items()))
        new.replace(self.folder / "default")

    def call(self, *command: str) -> str:
        environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
        done = subprocess.run(
            [*self.controller, *command], capture_output=True, text=True, env=environment, timeout=LIMIT_S
        )
        return done.stdout + done.stderr

    def node(self) -> str:
        return self.call("scontrol", "show", "node", "node1", "--oneliner")

    def until(self, found: Callable[[str], bool]) -> str:
        """Ask for the state of the node until it is as expected."""
        end = time.monotonic() + LIMIT_S
        while not found(state := self.node()):
            assert time.monotonic() < end, state + self.logs()
            time.sleep(0.1)
        return state

    def logs(self) -> str:
        return "".join(f"\n{file.name}:\n{file.read_text()}" for file in sorted(self.folder.glob("*.log")))

    def drain(self, reason: str) -> None:
        self.call("scontrol", "update", "NodeName=node1", "State=DRAIN", f"Reason={reason}")

    def health_check(self) -> int:
        """Run the health check as slurmd does; return its exit code."""
        environment = {"PATH": os.environ["PATH"], "SLURMD_NODENAME": "node1"}
        command = [*self.controller, str(self.folder / SCRIPT.name)]
        return subprocess.run(command, env=environment, timeout=LIMIT_S).returncode


def drained(state: str) -> bool:
    return "DRAIN" in state


@pytest.fixture
def cluster(hosts: Callable[[int], Host], tmp_path: Path) -> Iterator[Cluster]:
    if not all(map(shutil.which, ("slurmctld", "slurmd", "srun", "scontrol"))):
        pytest.skip("Slurm is not installed")
    folder = tmp_path / "slurm"
    for one in (folder, folder / "state", folder / "spool"):
        one.mkdir(mode=0o755)
    (folder / "slurm.conf").write_text(CONFIGURATION.format(folder=folder))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    text = SCRIPT.read_text()
    assert text.count("/etc/default/wirespeed") == 2
    copy = folder / SCRIPT.name
    copy.write_text(text.replace("/etc/default/wirespeed", str(folder / "default")))
    copy.chmod(0o755)
    made = Cluster(folder, hosts(0).inside)
    made.settings()
    daemons = []
    try:
        for host, command in ((0, ["slurmctld", "-D", "-i"]), (1, ["slurmd", "-D", "-N", "node1"])):
            daemons.append(
                subprocess.Popen(
                    [*hosts(host).inside, *command, "-f", str(folder / "slurm.conf")], start_new_session=True,
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )
            )  # fmt: skip
        made.until(lambda state: "State=IDLE " in state)
        yield made
    finally:
        for daemon in reversed(daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(daemon.pid, signal.SIGKILL)
                daemon.wait()


def broken(folder: Path) -> str:
    """A search path whose wirespeed cannot be imported: the interpreter ends with 1."""
    folder.mkdir()
    (folder / "wirespeed").write_text(f"#!{sys.executable}\nimport no_such_module_of_wirespeed\n")
    (folder / "wirespeed").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_only_failures_of_the_hardware_drain_a_node(cluster: Cluster, tmp_path: Path) -> None:
    warning = f"{CHECK}+speed@numa0-gpu1=0.75 -t 0"
    for settings in (
        {},
        {"prolog": warning, "epilog": warning, "health": warning},
        {"prolog": f"{CHECK}+busy@gpu1 -t 0", "epilog": "check --no-such-option", "health": UNUSABLE},
        {"path": broken(tmp_path / "broken")},
        {"path": "/usr/sbin:/usr/bin:/sbin:/bin"},  # not installed
    ):
        cluster.settings(**settings)
        assert cluster.call("srun", "hostname") == "node1\n", cluster.logs()
        assert cluster.health_check() == 0
        assert "Reason=" not in cluster.until(lambda state: "State=IDLE " in state)

    # The epilog fails: a GPU has gone.
    cluster.settings(epilog=f"{DOCTOR}+gone@gpu1", health=UNUSABLE)
    assert cluster.call("srun", "hostname") == "node1\n", cluster.logs()
    assert "Reason=Epilog error" in cluster.until(drained)
    cluster.settings(health=UNUSABLE)
    cluster.call("scontrol", "update", "NodeName=node1", "State=RESUME")
    cluster.until(lambda state: "State=IDLE " in state)

    # The prolog fails; slurmd's log says why.
    failing = f"{CHECK}+nvlinks=9@gpu0 -t device_to_device_memcpy_read_ce"
    cluster.settings(prolog=failing, health=UNUSABLE)
    job = cluster.call("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "true").strip()
    assert "Reason=Prolog error" in cluster.until(drained)
    cluster.call("scancel", job)
    assert f"prolog failed: rc:1 output:{REASON}" in cluster.logs()

    # The health check keeps the reason of an administrator, and gives one for a failed prolog.
    cluster.drain("memory exchange")
    cluster.settings(prolog=failing, health=failing)
    assert cluster.health_check() == 0 and "Reason=memory exchange" in cluster.node()
    cluster.drain("Prolog error")
    assert "DRAIN" in cluster.until(lambda state: f"Reason={REASON}" in state)
