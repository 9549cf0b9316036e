"""The compilation of the C sources in this folder into one shared library, for ``hatch_build.py`` and for
tests. It needs only the standard library of Python and a C compiler: ``cc``, or that of the wheel
``ziglang``, which compiles for other machines and older C libraries, too.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
#: The suffix keeps Python from taking it for a module.
NAME = "libwirespeed.so.1"
#: The C library that a wheel needs: manylinux_2_17 has it.
GLIBC = "2.17"
#: ``-ffp-contract=fast``: a product and a sum are one instruction where the CPU has it; results are exact.
FLAGS = (
    "-std=c11", "-D_GNU_SOURCE", "-O3", "-fPIC", "-fvisibility=hidden", "-ffp-contract=fast", "-Wall",
    "-Wextra",
)  # fmt: skip
#: Builds of the kernels by machine, the most general first: the options of each. `kernels.c` chooses one when
#: the library is loaded.
BUILDS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {"sse2": (), "avx2": ("-mavx2", "-mfma"), "avx512": ("-mavx512f", "-mavx512dq", "-mfma")},
    "aarch64": {"neon": ()},
}
#: The sources that are compiled for each build.
OF_BUILDS = ("sweeps.c", "contents.c")
ADVICE = (
    "install a C compiler with the headers of the C library (gcc and libc6-dev, or gcc and glibc-devel), or "
    "hide cc from PATH: then the wheel ziglang compiles"
)


class CompileError(Exception):
    """The library cannot be compiled; the message is one line."""


def abi(folder: Path = HERE) -> int:
    """The checksum of the sources, which the library returns: after a change of them it must be compiled."""
    checksum = 0
    for path in sorted([*folder.glob("*.c"), *folder.glob("*.h")]):
        checksum = zlib.crc32(path.read_bytes(), checksum)
    return checksum


def local_compiler() -> tuple[str, ...]:
    """The command of a C compiler that makes libraries for this machine; empty if there is none."""
    command = tuple(shlex.split(os.environ.get("CC", ""))) or ("cc",)
    if not shutil.which(command[0]):
        return ()
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("#include <stdint.h>\n#include <time.h>\nint64_t probe;\n")
        probe = [*command, "-shared", "-fPIC", str(source), "-o", f"{folder}/probe.so"]
        return command if subprocess.run(probe, capture_output=True).returncode == 0 else ()


def zig(machine: str) -> tuple[str, ...]:
    """The command of the compiler in the wheel ``ziglang``, for a machine and the C library of wheels."""
    return sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-gnu.{GLIBC}"


def compile_library(
    output: Path, command: Sequence[str] = (), machine: str = "", flags: Sequence[str] = ()
) -> None:
    """Compile the library, and move it to its place when it is complete: processes may use the previous one.

    Args:
        output: The file.
        command: The compiler; the one of this machine if empty.
        machine: For which machine; this one if empty.
        flags: Further options, for all files and the linker.

    Raises:
        CompileError: If there is no compiler, or it reports an error.
    """
    import tempfile
    from concurrent.futures import ThreadPoolExecutor

    machine = machine or platform.machine()
    command = command or local_compiler()
    if not command:
        raise CompileError(f"no C compiler was found: {ADVICE}")
    builds = BUILDS.get(machine, {"plain": ()})
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".compile") as folder:
        jobs = []
        for source in sorted(HERE.glob("*.c")):
            for build, options in builds.items() if source.name in OF_BUILDS else (("", ()),):
                macros = [f"-DWS_ABI={abi()}", *([f"-DWS_BUILD={build}"] if build else ())]
                target = f"{folder}/{source.stem}{build}.o"
                jobs.append([*command, *FLAGS, *flags, *options, *macros, "-c", str(source), "-o", target])
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(_run, jobs))
        library = f"{folder}/{NAME}"
        _run([*command, "-shared", *flags, *(job[-1] for job in jobs), "-o", library])
        Path(library).replace(output)


def _run(command: Sequence[str]) -> None:
    """Run a compiler.

    Raises:
        CompileError: With its first error.
    """
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        first = next((line for line in lines if "error" in line.lower()), [*lines, "no message"][0])
        raise CompileError(f"{command[0]} failed (status {done.returncode}): {first}; {ADVICE}")


def main() -> int:
    """Compile the library for this machine; further options go to the compiler."""
    import argparse

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("-o", "--output", type=Path, default=HERE / NAME, help="the library (default: here)")
    arguments, flags = parser.parse_known_args()
    try:
        compile_library(arguments.output, flags=flags)
    except CompileError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
