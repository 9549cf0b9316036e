"""NVML's answers, written down while they are given, and given again from a recorded tree."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from ..system_files import TreePath
from .nvml import Nvml, Silence, decoded

#: A number in an answer. No quantity that NVML reports is larger.
_Number = Annotated[int, msgspec.Meta(ge=0, le=10**15)] | Annotated[float, msgspec.Meta(ge=0, le=1e15)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1024)]
_Handle = int | str


def _record(**fields: Any) -> Any:
    """A structure with these fields."""
    return msgspec.defstruct("Answer", list(fields.items()))


class _Process(msgspec.Struct):
    """A process, of which nothing is recorded."""


class _FabricInfo(msgspec.Struct):
    state: _Count
    status: _Number
    healthMask: Annotated[int, msgspec.Meta(ge=0, le=0xFFFFFFFF)] | None = None


_PCI = _record(
    domain=Annotated[int, msgspec.Meta(ge=0, le=0xFFFFFFFF)],
    bus=Annotated[int, msgspec.Meta(ge=0, le=0xFF)],
    device=Annotated[int, msgspec.Meta(ge=0, le=0x1F)],
)
#: Function -> what is recorded of its answer; of others, a number. Serial numbers and UUIDs are not.
_ANSWERS: dict[str, Any] = {
    "nvmlDeviceGetBAR1MemoryInfo": _record(bar1Total=_Number),
    "nvmlDeviceGetComputeRunningProcesses": list[_Process],
    "nvmlDeviceGetCount": _Count,
    "nvmlDeviceGetCudaComputeCapability": tuple[_Count, _Count],
    "nvmlDeviceGetHandleByIndex": _Handle,
    "nvmlDeviceGetHandleByPciBusId": _Handle,
    "nvmlDeviceGetMemoryInfo": _record(total=_Number),
    "nvmlDeviceGetMigMode": tuple[_Count, _Count],
    "nvmlDeviceGetName": str,
    "nvmlDeviceGetNvLinkRemotePciInfo": _PCI,
    "nvmlDeviceGetPciInfo": _PCI,
    "nvmlDeviceGetRemappedRows": tuple[_Number, _Number, _Number, _Number],
    "nvmlDeviceGetUUID": None,
    "nvmlDeviceGetUtilizationRates": _record(gpu=_Number),
    "nvmlDeviceGetVbiosVersion": str,
    "nvmlErrorString": str,
    "nvmlSystemGetConfComputeState": _record(ccFeature=_Number),
    "nvmlSystemGetDriverVersion": str,
    #: Not functions of NVML.
    "fabric": _FabricInfo,
    "field": _Number | None,
}


def opened(root: TreePath, library: Any) -> Nvml:
    """NVML, initialised: a library, while its answers are recorded or not, or recorded answers.

    Args:
        root: Root of the tree.
        library: The module ``pynvml``, or a replacement; not used for a recorded tree.

    Raises:
        pynvml.NVMLError: If NVML cannot be initialised.
    """
    if root.tree.recorded:
        return RecordedNvml(root.tree.nvml or {})
    return Nvml(library) if root.tree.answers is None else RecordingNvml(library, root.tree.answers)


class RecordingNvml(Nvml):
    """NVML that writes down what it answers.

    Attributes:
        library: The module ``pynvml``, or a replacement.
        answers: The call -> the answer; calls that fail are not in it.
    """

    def __init__(self, library: Any, answers: dict[str, Any]) -> None:
        super().__init__(library)
        self._answers = answers
        self._handles: dict[int | None, str] = {}

    def ask(self, function: str, *arguments: Any) -> Any:
        answer = super().ask(function, *arguments)
        if function.startswith("nvml") and function not in _INSIDE:
            self._note(function, arguments, answer)
        return answer

    def field_values(self, handle: Any, fields: Sequence[Any]) -> list[float | None]:
        values = super().field_values(handle, fields)
        for field, value in zip(fields, values, strict=False):
            self._note("field", (handle, field), value)
        return values

    def fabric_info(self, handle: Any) -> Any:
        info = super().fabric_info(handle)
        self._note("fabric", (handle,), info)
        return info

    def _note(self, function: str, arguments: Sequence[Any], answer: Any) -> None:
        plain = _checked(function, self._plain(answer))
        if plain is not None:
            self._answers[_call(function, map(self._plain, arguments))] = msgspec.to_builtins(plain)

    def _plain(self, value: Any) -> Any:
        """A value that means the same in another process: a handle is a pointer."""
        if not isinstance(value, ctypes._Pointer):
            return decoded(value) if isinstance(value, bytes) else value
        address = ctypes.cast(value, ctypes.c_void_p).value
        if address not in self._handles:
            info = super().ask("nvmlDeviceGetPciInfo", value)
            self._handles[address] = self.bus_id(info) if info else f"GPU {len(self._handles)}"
        return self._handles[address]


#: Functions whose answers the methods above note in another form.
_INSIDE = ("nvmlDeviceGetFieldValues", "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetGpuFabricInfo")


class RecordedNvml(Nvml):
    """NVML of a recorded tree. An answer of another kind than NVML gives is none.

    Attributes:
        answers: The call -> the answer, as ``RecordingNvml`` wrote it.
    """

    def __init__(self, answers: Mapping[str, Any]) -> None:
        super().__init__(Silence())
        self._answers = answers

    def ask(self, function: str, *arguments: Any) -> Any:
        return self._answer(function, arguments)

    def field_values(self, handle: Any, fields: Sequence[Any]) -> list[float | None]:
        return [self._answer("field", (handle, field)) for field in fields]

    def fabric_info(self, handle: Any) -> Any:
        return self._answer("fabric", (handle,))

    def _answer(self, function: str, arguments: Sequence[Any]) -> Any:
        keys = (argument.decode() if isinstance(argument, bytes) else argument for argument in arguments)
        return _checked(function, self._answers.get(_call(function, keys)))


def _checked(function: str, answer: Any) -> Any:
    """What is recorded of an answer; None if nothing is, or if the function gives no such answer."""
    kind = _ANSWERS.get(function, _Number)
    if answer is None or kind is None:
        return None
    try:
        return msgspec.convert(answer, kind, from_attributes=True)
    except msgspec.ValidationError:
        return None


def _call(function: str, arguments: Iterable[Any]) -> str:
    """A call as text: the function and its arguments."""
    return " ".join([function, *map(str, arguments)])
