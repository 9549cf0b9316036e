"""The build hook of hatchling: compiles the C sources of ``src/wirespeed/native`` into the shared library of
a wheel, or of a source tree for editable installs. ``cc`` compiles if it works; else the wheel ``ziglang``,
which is a build dependency only then. With ``WIRESPEED_WHEEL=x86_64`` or ``aarch64``, zig makes a wheel for
every Linux with glibc 2.17 or later on that machine.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_NATIVE = Path("src", "wirespeed", "native")
_PLACE = "wirespeed/native"


class NativeLibrary(BuildHookInterface[Any]):
    """Compiles the library before the files of a wheel are collected."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """The wheel with a compiler, if no other works or a wheel is for many machines."""
        if self.target_name != "wheel" or (not _target() and self._compile.local_compiler()):
            return []
        return ["ziglang>=0.13"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the library: beside its sources if editable, else into the wheel."""
        if self.target_name != "wheel":
            return
        native = self._compile
        machine = _target() or platform.machine()
        command = () if _target() else native.local_compiler()
        tag = "linux" if command else f"manylinux_{native.GLIBC.replace('.', '_')}"
        if version == "editable":
            output = Path(self.root, _NATIVE, native.NAME)
        else:
            self._folder = tempfile.TemporaryDirectory()
            output = Path(self._folder.name, native.NAME)
            build_data["force_include"][str(output)] = f"{_PLACE}/{native.NAME}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}_{machine}"
        try:
            native.compile_library(
                output, command or native.zig(machine), machine, () if command else ("-s",)
            )
        except native.CompileError as error:
            sys.exit(f"error: the C functions of wirespeed cannot be compiled: {error}")

    @property
    def _compile(self) -> ModuleType:
        """The module that compiles, without the package, whose dependencies are not installed here."""
        place = Path(self.root, _NATIVE, "compile.py")
        specification = importlib.util.spec_from_file_location("wirespeed_compile", place)
        assert specification is not None and specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        return module


def _target() -> str:
    """The machine for which a wheel is requested; empty for this one."""
    return os.environ.get("WIRESPEED_WHEEL", "")
