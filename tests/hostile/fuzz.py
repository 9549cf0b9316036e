"""A fuzzer: hostile command lines, Documents, machine files, TOML, environments and frames.

    python -m tests.hostile.fuzz [--seconds 60] [--inputs N] [--seed N] [KIND ...]

KIND is command, document, forged, links, baselines, overrides, machines, configuration, environment or frame;
the default is all, in turn.
The seed is the date unless one is given, so that every day tests other inputs and a failure can be repeated.
An input fails if it ends in a traceback, in an exit code that is not documented, in control characters on the
terminal, in a line that only a text of a file can have made, in an error or a line of text that is too long,
or not within 20 s. Exit code 1 if one failed; the folder that is printed has what repeats it.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import datetime
import io
import json
import os
import random
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import wirespeed
from tests.hostile.forging import FORGED, LONG, forged, forging
from wirespeed import backends
from wirespeed.cli.commands import COMMANDS, programs
from wirespeed.cli.consumers import CONSUMERS
from wirespeed.cli.main import main
from wirespeed.errors import ExitCode
from wirespeed.reports import formats
from wirespeed.results.store import encode
from wirespeed.terminal import LONGEST_LINE
from wirespeed.worlds.channel import Channel, InvalidMessage

TESTS = Path(__file__).parents[1]
LIMIT_S = 20
MEMORY_BYTES = 8 * 2**30
#: Exit codes that are documented; argparse raises SystemExit with 0 or 2.
CODES = set(ExitCode)
TEXTS = (
    "", " ", "-", "--", "0", "-1", "x" * 3000, "\x1b]0;title\x07", "\u202egpu0", "\x00", "\x9b31m", "=1+1",
    "a\nb", "gpu99", "numa0", "1e308", "nan", "inf", "9223372036854775808", "0x8", "64MiB", "1:2:x2", "5%",
    "../..", "/dev/null", "/dev/full", "\ud800", "\ufffe", "é" * 200, "{}", "[]", "%s%n", "${HOME}",
    "<script>alert(1)</script>", "gpu0->gpu1",
)  # fmt: skip
NUMBERS = (0, -1, 1, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63), 1e308, -1e308, 1e-320, 0.1, 10**300)
SPECS = ("simulated:hgx-h200-2", "simulated:dgx-a100-8", "simulated:pcie-2-no-p2p", "simulated:cpu-2-sockets")
#: Valid overrides, to be changed.
OVERRIDES = """[[override]]
link = "gpu0->gpu1"
accept = 0.45
reason = "this slot is x8"
[[override]]
testcase = "host_to_*"
row = "*"
column = "gpu1"
reason = "its slot is behind the chipset"
"""
#: Commands that start processes.
PROCESSES = ("overalloc", "gpudirect_p2p_overalloc")
#: Options that would start processes, wait, or measure for long.
SLOW = (
    "--processes",
    "--wait-idle",
    "-g",
    "--launch",
    "--tier",
    "-o",
    "--output",
    "-J",
    "--mpi",
    "--cycles",
    "--run_cycles",
    "--iters",
    "-n",
    "--warmup_iters",
    "-w",
    "--agg_iters",
    "-m",
    "--check",
    "-c",
    "--copies",
    "--samples",
    "-N",
)

Input = tuple[list[str], dict[str, str]]


class TooSlow(BaseException):
    """An input took longer than `LIMIT_S`."""


def nested(depth: int) -> Any:
    """Return a list in a list in a list."""
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def weird(rng: random.Random, whole: Any) -> Any:
    """Return a value that is unlikely to fit, or one from elsewhere in the same file."""
    choice = rng.randrange(8)
    if choice < 3:
        return rng.choice(TEXTS)
    if choice < 5:
        return rng.choice(NUMBERS)
    if choice == 5:
        return copy.deepcopy(rng.choice(list(paths(whole)))[1]) if isinstance(whole, (dict, list)) else None
    return rng.choice((None, True, False, [], {}, nested(rng.choice((3, 200))), {"": {}}, [[]] * 50))


def paths(value: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield every part of a value: container, key, part."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in list(items):
        yield value, part, key
        yield from paths(part)


def mutated(rng: random.Random, value: Any) -> Any:
    """Return a copy with one to four changes."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 2, 4))):
        found = list(paths(value))
        if not found:
            break
        container, part, key = rng.choice(found)
        change = rng.randrange(5)
        if change == 0 and isinstance(container, dict):
            del container[key]
        elif change == 1 and isinstance(container, list):
            container.insert(rng.randrange(len(container) + 1), copy.deepcopy(part))
        elif change == 2 and isinstance(part, (int, float)) and not isinstance(part, bool):
            container[key] = part * rng.choice((-1, 0, 0.5, 1e9, 1e300))
        elif change == 3 and isinstance(container, dict):
            container[rng.choice(TEXTS)] = part
        else:
            container[key] = weird(rng, value)
    return value


def written(rng: random.Random, path: Path, value: Any) -> None:
    """Write JSON, sometimes damaged."""
    try:
        data = json.dumps(value).encode("utf-8", "surrogatepass")
    except (RecursionError, ValueError):
        data = b"{}"
    if rng.random() < 0.15:
        at = rng.randrange(len(data) + 1)
        data = rng.choice((data[:at], data[:at] + rng.randbytes(8) + data[at:], data + data, b""))
    path.write_bytes(data)


class Fuzzer:
    """Makes inputs of every kind in a folder.

    Attributes:
        rng: Where all choices come from.
        folder: An empty folder for files.
    """

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self.rng, self.folder = rng, folder
        self.formats = formats()
        self.good = folder / "good.json"
        document = wirespeed.run(
            ["0", "4", "all_reduce", "host_stream_copy"], machine=SPECS[0], samples=3, copies=1
        )
        self.good.write_bytes(encode(document))
        self.documents = [json.loads(self.good.read_text())]
        self.documents += [json.loads(p.read_text()) for p in (TESTS / "recorded").glob("all_reduce*.json")]
        self.machine = json.loads(backends.describe(SPECS[0]).to_json())
        path = folder / "baseline.json"
        main(["baseline", "make", str(self.good), "-o", str(path)])
        self.baseline = json.loads(path.read_text())
        self.documents += [json.loads(p.read_text()) for p in (TESTS / "recorded").glob("*-h200.json")]

    def command(self) -> Input:
        """Return a command line of known options with unlikely values."""
        rng = self.rng
        name = rng.choice([name for name in [*COMMANDS, *programs()] if name not in PROCESSES])
        known = _options(name)
        line = [name]
        for _ in range(rng.randrange(5)):
            option = rng.choice(known)
            value = rng.choice((*TEXTS, *map(str, NUMBERS), *SPECS, str(self.good), "0", "all_reduce", "1"))
            line += rng.choice(([option], [option, value], [f"{option}={value}"], [value]))
        if rng.random() < 0.8 and not any("machine" in part for part in line) and "--machine" in known:
            line += ["--machine", rng.choice(SPECS)]
        if name in ("run", "check") and not any(part in line for part in ("--samples", "--from", "-t")):
            line += ["-t", "4", "--samples", "1", "--copies", "1"]
        return line, {}

    def document(self) -> Input:
        """Return a command that reads a changed Document."""
        rng, path = self.rng, self.folder / "changed.json"
        written(rng, path, mutated(rng, rng.choice(self.documents)))
        out, file = str(self.folder / "out"), str(path)
        return rng.choice(
            (
                ["show", file, "--format", rng.choice(self.formats)],
                ["show", "-v", file, "--format", rng.choice(self.formats)],
                ["check", "--from", file, "--allow-simulated"],
                ["compare", str(self.good), file],
                ["compare", file, str(self.good)],
                ["compare", str(self.good), "--to", file, str(self.good), "--format", "json"],
                ["baseline", "make", file, "-o", f"{out}.toml"],
                ["baseline", "make", file, str(self.good), "-o", f"{out}.toml"],
                ["report", file, str(self.good), "-o", f"{out}.html"],
            )
        ), {}

    def reading(self, file: str) -> Input:
        """Return a command that reads a run, of all that do, some with a good run."""
        rng, good, out = self.rng, str(self.good), str(self.folder / "out")
        commands = [
            ["show", file, "--format", rng.choice(self.formats)],
            ["show", "-v", file, good, "--format", rng.choice(self.formats)],
            ["check", "--from", file], ["check", "--from", good, file, "-v"],
            ["check", "-q", "--from", file, good],
            ["check", "--from", file, good, "--for", rng.choice(list(CONSUMERS))],
            ["check", "--from", file, "--for", rng.choice(list(CONSUMERS))],
            ["check", "--from", file, good, "--format", rng.choice(("junit", "markdown", "json"))],
            ["compare", good, file], ["compare", file, good, "-v"], ["compare", good, "--to", file, good],
            ["compare", file, good, "--format", rng.choice(("markdown", "junit", "json", "html"))],
            ["doctor", file], ["doctor", file, "-v"], ["doctor", file, "--for", rng.choice(list(CONSUMERS))],
            ["report", file, good, "-o", f"{out}.html"],
            ["report", "--fleet", file, good, "-o", f"{out}.html"],
            ["report", file, "-o", f"{out}.md"], ["baseline", "make", file, good, "-o", f"{out}.toml"],
        ]  # fmt: skip
        line = rng.choice(commands)
        return line + (["--allow-simulated"] if line[0] == "check" else []), {}

    def forged(self) -> Input:
        """Return a command that reads a run with a forged line, or a long end, in some or all texts."""
        rng, path = self.rng, self.folder / "forged.json"
        run, end = copy.deepcopy(rng.choice(self.documents)), rng.choice((FORGED, LONG))
        if rng.random() < 0.5:
            run = forging(run, end)
        for container, part, key in rng.sample(found := list(paths(run)), min(8, len(found))):
            if isinstance(part, str):
                container[key] = part + end
            elif isinstance(container, dict) and rng.random() < 0.5:
                container[f"{key}{end}"] = part
        path.write_text(json.dumps(run, ensure_ascii=rng.random() < 0.5))
        return self.reading(str(path))

    def links(self) -> Input:
        """Return a command that reads a run whose machine has changed links and devices."""
        rng, path = self.rng, self.folder / "links.json"
        run = copy.deepcopy(rng.choice(self.documents))
        machine = run["machine"]
        ends = ["", "`x`|y|gpu3", "gpu9", "9/gpu0", "host:gpu0", "numa7", "pcie9", FORGED]
        ends += [end for link in machine["links"] for end in (link["source"], link["destination"])]
        for _ in range(rng.choice((1, 1, 2, 4))):
            part = rng.choice([*machine["links"], *machine["links"], *machine.get("gpus", ()), machine])
            if "source" in part:
                key = rng.choice(("source", "destination", "kind"))
                part[key] = rng.choice(("memory", "nvlink", "pcie")) if key == "kind" else rng.choice(ends)
            elif part is machine:
                key = rng.choice([key for key in ("links", "gpus", "numa", "ranks") if machine.get(key)])
                del machine[key][rng.randrange(len(machine[key]))]
            else:
                part["peers"] = [rng.choice(ends)]
        path.write_text(json.dumps(run))
        return self.reading(str(path))

    def configuration(self) -> Input:
        """Return a command in a folder with a configuration that is unlikely to be valid."""
        rng = self.rng
        tables = ["defaults", "check", "expect", "Expect", "chek", "x" * 3000, FORGED, "run"]
        names = ["expect", "expct", "gpus", "size", "timeout", "wait_idle", "for", FORGED, "x" * 3000]
        lines = []
        for _ in range(rng.choice((1, 2, 4))):
            value = json.dumps(rng.choice((*TEXTS, *NUMBERS, True, [], ["1"], {})))
            lines.append(f"[{json.dumps(rng.choice(tables))}]\n{json.dumps(rng.choice(names))} = {value}\n")
        (self.folder / "wirespeed.toml").write_bytes("".join(lines).encode("utf-8", "surrogatepass"))
        variable = rng.choice(("WIRESPEED_EXPCT", "WIRESPEED_EXPECT", "WIRESPEED_", "WIRESPEED_FOR", "OTHER"))
        line = rng.choice(
            (["check", "--from", str(self.good)], ["config"], ["list"], ["show", str(self.good)])
        )
        return line, {variable: rng.choice(("gpus=8", "x", ""))}

    def baselines(self) -> Input:
        """Return a command that uses a changed baseline."""
        path = self.folder / "changed-baseline.json"
        written(self.rng, path, mutated(self.rng, self.baseline))
        return ["check", "--from", str(self.good), "--allow-simulated", "--baseline", str(path)], {}

    def overrides(self) -> Input:
        """Return a command that uses changed overrides."""
        rng, path = self.rng, self.folder / "changed.toml"
        lines = OVERRIDES.splitlines()
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(len(lines))
            key = lines[at].partition("=")[0] or "link "
            values = [
                *(json.dumps(text) for text in TEXTS),
                *map(str, NUMBERS),
                "[]",
                "{}",
                "1979-05-27",
                "inf",
            ]
            damage = [
                "",
                lines[rng.randrange(len(lines))],
                "[" * 500,
                f"x = {'[' * 500}",
                f"x = {'9' * 5000}",
            ]
            change = rng.randrange(3)
            lines[at] = f"{key}= {rng.choice(values)}" if change else rng.choice(damage)
        path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
        return ["check", "--from", str(self.good), "--allow-simulated", "--overrides", str(path)], {}

    def machines(self) -> Input:
        """Return a command that uses a changed machine file."""
        rng, path = self.rng, self.folder / "machine.json"
        written(rng, path, mutated(rng, self.machine))
        return rng.choice(
            (
                ["machine", "--machine", str(path)],
                ["list", "--machine", str(path)],
                [
                    "run",
                    "--machine",
                    str(path),
                    "-t",
                    "0",
                    "4",
                    "14",
                    "--samples",
                    "1",
                    "--copies",
                    "1",
                    "-o",
                    "/dev/null",
                ],
                ["machine", "--machine", f"simulated:{path}"],
                ["machine", "--machine", f"{SPECS[0]}+{rng.choice(TEXTS)}@gpu0->gpu1={rng.choice(TEXTS)}"],
                [
                    "run",
                    "--machine",
                    f"simulated:{path}",
                    "-t",
                    "4",
                    "--samples",
                    "1",
                    "--copies",
                    "1",
                    "-o",
                    "/dev/null",
                ],
            )
        ), {}

    def environment(self) -> Input:
        """Return a command in an unlikely environment."""
        rng = self.rng
        names = (
            "COLUMNS",
            "LINES",
            "NO_COLOR",
            "TERM",
            "LANG",
            "PYTHONIOENCODING",
            "WIRESPEED_JOB_SECRET",
            "XDG_CACHE_HOME",
            "HOME",
            "CUDA_VISIBLE_DEVICES",
            "NCCL_DEBUG",
            "NCCL_TESTS_DEVICE",
            "NCCL_TESTS_SPLIT_MASK",
            "TMPDIR",
            "OMPI_COMM_WORLD_RANK",
            "SLURM_PROCID",
        )
        values = {name: rng.choice((*TEXTS, *map(str, NUMBERS))) for name in rng.sample(names, 3)}
        values = {k: v.replace("\0", "").encode("utf-8", "replace").decode() for k, v in values.items()}
        return rng.choice(
            (
                ["list", "--machine", SPECS[0]],
                ["machine", "--machine", SPECS[1]],
                ["show", str(self.good)],
                ["all_reduce_perf", "--machine", SPECS[0], "-b", "8", "-e", "64"],
                ["run", "--machine", SPECS[0], "-t", "4", "-o", "/dev/null"],
            )
        ), values

    def frame(self) -> bytes:
        """Return bytes that a peer might send."""
        rng = self.rng
        body = rng.choice(
            (
                rng.randbytes(rng.randrange(64)),
                b"\x91" * 2000,
                b"\xdd\xff\xff\xff\xff",
                b"\xc4\xff" + b"x" * 10,
                b"\xa5\xff\xfe\xfd\xfc\xfb",
                b"\x81\xa1a" * 400,
                b"\x92\x01\x02",
            )
        )
        size = rng.choice((len(body), len(body) + 5, 2**32 - 1, 0, rng.randrange(2**32)))
        return size.to_bytes(4, "little") + body


def _options(name: str) -> list[str]:
    """Return the options of a command, from its help."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([name, "--help"])
    words = {word.strip("[],|") for word in out.getvalue().split() if word.startswith(("-", "[-"))}
    return sorted(word for word in words if word not in SLOW and word.strip("-") and "." not in word)


def attempt(line: list[str], environment: dict[str, str]) -> str:
    """Run a command line; return what is wrong with its end, empty if nothing is."""
    out, err = io.StringIO(), io.StringIO()
    code: object = None
    try:
        with (
            mock.patch.dict(os.environ, {"COLUMNS": str(LONGEST_LINE)} | environment),  # wraps no forged line
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            alarm(),
        ):
            code = main(line)
    except SystemExit as end:
        code = 0 if end.code is None else end.code
    except TooSlow:
        return f"not done after {LIMIT_S} s"
    except BaseException:
        return traceback.format_exc()
    if code not in CODES:
        return f"exit code {code!r}"
    text = err.getvalue()
    if "Traceback" in text or "internal error" in text + out.getvalue():
        return text + out.getvalue()
    if hidden := [c for c in text if c in "\x1b\x07\x00\x9b\u202e"]:
        return f"control characters {hidden!r} in {text!r}"
    if lines := forged(text + out.getvalue()):
        return f"forged lines {lines[:3]!r}"
    most = LONGEST_LINE if "--for" not in line else 4096  # what the most patient of them takes
    if any(len(one) > most for one in text.splitlines()):
        return "a line of standard error is too long"
    is_text = line[0] in ("compare", "doctor", "check", "show") and not {"--format", "--for"} & {*line}
    if is_text and max(map(len, out.getvalue().splitlines()), default=0) > LONGEST_LINE:
        return f"a line of {line[0]} is too long"
    return ""


@contextlib.contextmanager
def alarm() -> Iterator[None]:
    """Raise TooSlow after the limit."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def receive(data: bytes) -> str:
    """Let a channel read bytes from a peer; return what is wrong, empty if nothing is."""
    ours, theirs = socket.socketpair()
    theirs.sendall(data)
    theirs.close()
    channel = Channel(ours)
    try:
        channel.receive(time.monotonic() + 1, limit=2**20)
    except (InvalidMessage, EOFError):
        return ""
    except BaseException:
        return traceback.format_exc()
    finally:
        channel.close()
    return ""


def simulated(spec: str | None = None, real: Callable[..., Any] = backends.describe, **_: object) -> Any:
    """Describe a simulated machine where this one was meant: nothing is measured here."""
    return real(SPECS[0] if spec is None else spec)


def fuzz(
    kinds: list[str], seed: int, seconds: float, inputs: int, kept: Path
) -> tuple[Counter[str], list[str]]:
    """Try inputs in turn; return how many of each kind, and descriptions of those that failed."""
    rng, counts, failures = random.Random(seed), Counter[str](), list[str]()
    end = time.monotonic() + seconds
    seen = set[str]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            made = Fuzzer(rng, folder)
        before = Path.cwd()
        os.chdir(folder)
        try:
            with mock.patch.object(backends, "describe", simulated), mock.patch.object(backends, "warm_up"):
                while time.monotonic() < end and sum(counts.values()) < inputs:
                    kind = kinds[sum(counts.values()) % len(kinds)]
                    counts[kind] += 1
                    (folder / "wirespeed.toml").unlink(missing_ok=True)
                    if kind == "frame":
                        data = made.frame()
                        wrong, line = receive(data), [data.hex()]
                    else:
                        line, environment = getattr(made, kind)()
                        wrong = attempt(line, environment)
                    last = wrong.strip().splitlines()[-1:]
                    if wrong and str(last) not in seen:
                        seen.add(str(last))
                        place = kept / f"{seed}-{len(failures)}"
                        shutil.copytree(folder, place)
                        (place / "what.txt").write_text(f"{line!r}\n{wrong}", errors="backslashreplace")
                        failures.append(f"{kind} {line!r}: {last[0] if last else wrong}")
        finally:
            os.chdir(before)
    return counts, failures


KINDS = (
    "command", "document", "forged", "links", "configuration", "baselines", "overrides", "machines",
    "environment", "frame",
)  # fmt: skip


def run() -> int:
    """Run the command line of the fuzzer."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND", default=list(KINDS))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--inputs", type=int, default=10**9)
    parser.add_argument(
        "--seed", type=int, default=int(datetime.datetime.now(datetime.UTC).strftime("%Y%m%d"))
    )
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    kept = Path(tempfile.mkdtemp(prefix="wirespeed-fuzz-"))
    counts, failures = fuzz(options.kinds, options.seed, options.seconds, options.inputs, kept)
    print(f"seed {options.seed}: {counts.total()} inputs {dict(counts)}, {len(failures)} kinds of failures")
    for failure in failures:
        print(failure.encode("ascii", "backslashreplace").decode()[:300])
    if failures:
        print(f"to repeat them: {kept}")
    else:
        kept.rmdir()
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(run())
