"""Kernels over NCCL's device API, which access the memory of other GPUs: option ``-D`` of nccl-tests."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

from ...collectives.operations import Setting
from ..gpu.gpu_driver import Arguments, Headers, pointer, wide
from ..native import Failure, Functions
from ..provider import Case, Refused
from .calls import Make, Part, RankGpu, Site, in_context

_SOURCE = Path(__file__).parent / "kernels" / "device_api.cu"
#: ``THREADS`` in the source.
_THREADS_PER_BLOCK = 512
#: Headers that those of NCCL include and NVRTC lacks; the source declares what is used of them.
_ABSENT = (
    "stdint.h", "stdbool.h", "limits.h", "cuda.h", "cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h",
    "cuda_fp8.h", "cuda/atomic",
)  # fmt: skip
#: Name of a type -> ``ELEMENT`` of the kernels. Sums of signed and unsigned integers have the same bits.
_ELEMENTS = {
    "int8": "uint8_t", "uint8": "uint8_t", "int32": "uint32_t", "uint32": "uint32_t", "int64": "uint64_t",
    "uint64": "uint64_t", "half": "Half", "float": "float", "double": "double",
}  # fmt: skip
#: The same for types that are moved but not reduced.
_MOVED = {"bfloat16": "uint16_t", "f8e4m3": "uint8_t", "f8e5m2": "uint8_t"}
#: The type whose kernels are loaded first.
_FIRST = "float"


def refuses(setting: Setting) -> str | None:
    """Why the kernels cannot run a setting; None if they can."""
    if setting.operation.operator is not None:
        return None
    if setting.operator != "sum":
        return f"-D supports the operator sum, not {setting.operator}"
    if setting.type.name not in _ELEMENTS:
        return f"-D supports sums of {', '.join(_ELEMENTS)}, not of {setting.type.name}"
    return None


def source(element: str) -> str:
    """The source of the kernels for a type of elements."""
    return f"#define ELEMENT {element}\n{_SOURCE.read_text()}"


def headers(version: int, maps: Path = Path("/proc/self/maps")) -> Headers:
    """The headers of the loaded NCCL.

    Args:
        version: Its version, as ncclGetVersion returns it.
        maps: File that names the libraries of this process.

    Raises:
        Refused: If they are not installed, or belong to another version.
    """
    lines = [line.split(maxsplit=5) for line in maps.read_text().splitlines() if "/libnccl.so" in line]
    folders = [parent / "include" for parent in Path(lines[0][-1]).parents[1:3]] if lines else []
    for folder in folders:
        if not (folder / "nccl_device" / "core.h").is_file():
            continue
        code = re.search(r"define NCCL_VERSION_CODE (\d+)", (folder / "nccl.h").read_text())
        if not code or int(code[1]) != version:
            raise Refused(f"-D requires the headers of NCCL {version}, which is loaded; {folder} has others")
        return Headers(folder, str(version), _ABSENT)
    raise Refused(
        f"-D requires NCCL's headers, but there is no nccl_device in {' or '.join(map(str, folders))}: "
        "install NCCL's wheel or development package"
    )


class DeviceKernel:
    """The kernel of a rank, with its device communicator.

    Attributes:
        functions: Functions of NCCL and of the driver.
        gpu: The GPU of the rank.
        headers: The headers of NCCL.
        implementation, blocks: Number of the implementation, and of blocks of the grid.

    Raises:
        BackendError: If the compiler or the driver rejects the kernels.
    """

    def __init__(
        self, functions: Functions, gpu: RankGpu, headers: Headers, implementation: int, blocks: int
    ) -> None:
        self._functions, self._gpu, self._headers = functions, gpu, headers
        self._implementation, self._grid = implementation, (blocks, _THREADS_PER_BLOCK)
        self._modules: dict[str, Any] = {}
        self._requirements = self._global("requirements")
        size = int.from_bytes(self._global("communicator_bytes"), "little")
        self._communicator = (ctypes.c_char * size)()

    def _module(self, element: str) -> Any:
        self._gpu.use()
        if element not in self._modules:
            loaded = self._gpu.driver.module(source(element), self._gpu.handle, self._headers)
            self._modules[element] = loaded
        return self._modules[element]

    def _global(self, name: str) -> Any:
        """The bytes of a variable of the kernels."""
        address, size = self._gpu.driver.variable(self._module(_FIRST), name)
        value = (ctypes.c_char * size)()
        self._gpu.driver.read(ctypes.addressof(value), address, size)
        return value

    def create(self, comm: int) -> Failure | None:
        """Create the device communicator, when all ranks do; return the call if it failed."""
        addresses = ctypes.addressof(self._requirements), ctypes.addressof(self._communicator)
        return self._functions.bind([("ncclDevCommCreate", (comm, *addresses))])()

    def destroy(self, comm: int) -> Failure | None:
        """Destroy the device communicator; return the call if it failed."""
        return self._functions.bind([("ncclDevCommDestroy", (comm, ctypes.addressof(self._communicator)))])()

    def bind(self, case: Case, windows: tuple[int, ...], bases: tuple[int, ...]) -> Make:
        """Choose the kernel of a case; return the function that returns its launches.

        Args:
            windows, bases: Windows and addresses of the send and the receive buffer.
        """
        module = self._module((_ELEMENTS | _MOVED)[case.setting.type.name])
        name = f"{case.setting.operation.name}_{self._implementation}"
        function = int(self._gpu.driver.function(module, name))
        known: dict[tuple[int, int], Arguments] = {}

        def make(case: Case, site: Site, send: int, receive: int) -> list[Part]:
            if (send, receive) not in known:
                source = 1 if case.in_place else 0
                known[send, receive] = Arguments(
                    pointer(windows[source]), wide(send - bases[source]),
                    pointer(windows[1]), wide(receive - bases[1]),
                    wide(case.counts.each), self._communicator,
                )  # fmt: skip
            launch = site.driver.launch(function, *self._grid, 0, site.stream, known[send, receive].address)
            return [(False, in_context(site, launch))]

        return make
