"""Follow the README on this machine as a newcomer does; nothing is simulated.

    python3 tests/newcomer.py views    # make run, then every format and page of the run that it saved
    python3 tests/newcomer.py mpirun   # the README's mpirun lines; after `make test`, which installs an MPI
    python3 tests/newcomer.py wheel    # after `make wheel`: installed where there is no compiler

Needs only Python's standard library. Exits with 1 if a command ends with a traceback, an unexpected exit
code or without output.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
BIN = ROOT / ".venv" / "bin"
#: Exit codes of commands that judge a machine which is healthy or of which little is known: pass, only
#: warnings (such as a small /dev/shm), or not judged (such as busy CPUs).
NO_FAILURE = (0, 3, 4)
#: Maximum time of a command, in s.
LIMIT_S = 180
#: Lets Open MPI start as root, with more ranks than cores, without probing for networks.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_mtl": "^ofi",
    "OMPI_MCA_btl": "^ofi", "OMPI_MCA_mpi_yield_when_idle": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}  # fmt: skip
#: Time per value in jobs, in place of the default of 5 s: that they run is tested, not their precision.
TIME_BUDGET = "100ms"


class Newcomer:
    """Runs commands and keeps what was wrong."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = f"{BIN}:{os.environ['PATH']}"
        self.wrong: list[str] = []
        self.count = 0
        self._counting = threading.Lock()

    def run(self, command: str, codes: tuple[int, ...] = (0,), *, writes: str = "") -> str:
        """Run a command in the folder, which prints something or writes a file; return what it printed."""
        began = time.monotonic()
        environment = {**os.environ, **OPEN_MPI, "PATH": self.path}
        environment.pop("PYTHONPATH", None)
        environment["XDG_DATA_HOME"] = str(self.folder)  # the history of runs
        environment |= {"WIRESPEED_TIME_BUDGET": TIME_BUDGET} if "mpirun" in command else {}
        try:
            done = subprocess.run(
                shlex.split(command, comments=True), cwd=self.folder, env=environment, text=True,
                stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            self.wrong.append(f"{command}: took more than {LIMIT_S} s")
            return ""
        with self._counting:
            self.count += 1
        text = done.stdout + done.stderr
        print(f"{done.returncode:3} {time.monotonic() - began:5.1f} s  {command}", flush=True)
        if done.returncode not in codes:
            self.wrong.append(f"{command}: exit code {done.returncode}\n{text[-2000:]}")
        elif "Traceback" in text:
            self.wrong.append(f"{command}: {text[text.index('Traceback') :][-2000:]}")
        elif not (self.folder.joinpath(writes).stat().st_size if writes else done.stdout.strip()):
            self.wrong.append(f"{command}: {writes or 'what it printed'} is empty")
        return text


def views(newcomer: Newcomer) -> None:
    """Measure this machine as `make run` does, and look at the run in every way."""
    text = newcomer.run(f"make -C {ROOT} --no-print-directory run")
    saved = re.search(r"^saved to (.+\.json)$", text, re.M)
    page = re.search(r"^HTML page: (.+)$", text, re.M)
    if not saved or not page:
        newcomer.wrong.append("make run does not say where it saved the run, or how to make a page of it")
        return
    run = ROOT / saved[1]
    newcomer.folder.joinpath("a.json").write_bytes(run.read_bytes())
    newcomer.folder.joinpath("b.json").write_bytes(run.read_bytes())
    listed = "from wirespeed.reports import formats; from wirespeed.screens import check_formats;"
    names = subprocess.check_output(
        [BIN / "python", "-c", f"{listed} print(*formats()); print(*check_formats())"],
        text=True,
    )
    formats, verdicts = (line.split() for line in names.splitlines())
    command = page[1].replace(".venv/bin/", f"{BIN}/").replace(saved[1].removesuffix(".json"), "a")
    written = {command: "a.html"} | {
        f"wirespeed report {files} -o {output}": output
        for files, output in (("a.json b.json", "c.html"), ("a.json b.json --fleet", "d.html"),
                              *((f"a.json --format {name}", f"as.{name}") for name in formats))
    }  # fmt: skip
    judged = [f"check {files} --format {name}" for name in verdicts for files in ("a.json", "a.json b.json")]
    judged += ["check a.json b.json --max-age 1d -v", "check --explain a.json", "check --no-measure",
               "compare a.json b.json", "compare a.json b.json -v"]  # fmt: skip
    shown = [f"report a.json --format {name}" for name in formats]
    shown += ["machine", "machine --format json", "list", "self config"]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # nothing here measures
        for one, output in written.items():
            pool.submit(newcomer.run, one, writes=output)
        for one in judged:
            pool.submit(newcomer.run, f"wirespeed {one}", NO_FAILURE)
        for one in shown:
            pool.submit(newcomer.run, f"wirespeed {one}")
    if newcomer.count != 1 + len(written) + len(judged) + len(shown):
        newcomer.wrong.append(f"only {newcomer.count} commands were run")
    run.unlink()


def mpirun(newcomer: Newcomer) -> None:
    """Run the README's mpirun lines, with as many ranks on this host as the line wants on each."""
    lines = re.findall(r"^ *(mpirun .+)$", (ROOT / "README.md").read_text(), re.M)
    if not lines:
        newcomer.wrong.append("the README has no mpirun line")
    # Each command once, whatever the options of the launcher.
    commands = {re.split("wirespeed|#", line)[1].strip(): line for line in reversed(lines)}
    for line in reversed(commands.values()):
        several = re.search(r"-np \d+ -N \d+", line)
        newcomer.run(line.replace(several[0], "-np 2 -N 2") if several else line)


def wheel(newcomer: Newcomer) -> None:
    """Install the wheel of this machine into an empty environment, and measure; no compiler is in PATH."""
    found = [*ROOT.glob(f"dist/wirespeed-*-py3-none-manylinux_*_{platform.machine()}.whl")]
    environment = newcomer.folder / "empty"
    newcomer.path = str(environment / "bin")
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip = "python -m pip install --disable-pip-version-check --no-compile"
    newcomer.run(f"{pip} -c {ROOT}/constraints.txt {shlex.join(map(str, found)) or 'no-wheel'}")
    newcomer.run("wirespeed run -t host_stream_copy -t host_stream_triad --time-budget 100ms -o run.json")


PARTS = {"views": views, "mpirun": mpirun, "wheel": wheel}


def main() -> int:
    """Return 1 if a command did not do what the README says."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("part", choices=(*PARTS,))
    part = arguments.parse_args().part
    with tempfile.TemporaryDirectory() as folder:
        newcomer = Newcomer(Path(folder))
        PARTS[part](newcomer)
    for problem in newcomer.wrong:
        print(f"\nWRONG {problem}")
    print(f"{newcomer.count} commands of a newcomer, {len(newcomer.wrong)} wrong")
    return bool(newcomer.wrong) or not newcomer.count


if __name__ == "__main__":
    sys.exit(main())
