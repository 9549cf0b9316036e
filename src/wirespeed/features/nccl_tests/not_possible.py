"""What cannot be measured on this machine, and what nccl-tests prints then."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from msgspec.structs import replace as with_fields

from ...backends.rank_groups import MASK, SPLIT
from ...collectives.operations import CollectiveOp
from ...collectives.options import CollectiveOptions
from ...document import UNFINISHED, Document
from ...errors import WirespeedError
from ...hardware.topology import Machine
from ...terminal import error_line
from ...worlds.base import hostname
from .closing import Result, failed
from .view import View


@dataclass(frozen=True)
class Request:
    """The requested run, in the terms of the Session and of the Document.

    Attributes:
        options: What was given.
        operation: The collective.
        provider: Name of the library.
        per_process: Number of ranks of the collective per process.
        sizes: Sizes of the array, in bytes.
        timestamps: Time stamps of the lines printed so far, for the Document; None if not requested.
        reduced_to: Largest size that fits the memory of the GPUs, in bytes, if larger ones were requested;
            else 0.
    """

    options: CollectiveOptions
    operation: CollectiveOp
    provider: str
    per_process: int
    sizes: tuple[int, ...]
    timestamps: list[str] | None
    reduced_to: int = 0

    def fitting(self, most: int) -> Request:
        """The run without the sizes of more than ``most`` bytes; if all are, with this size."""
        if self.sizes[-1] <= most or most <= 0:
            return self
        return replace(self, sizes=tuple(s for s in self.sizes if s <= most) or (most,), reduced_to=most)

    @property
    def described(self) -> dict[str, Any]:
        """The options as the Document contains them."""
        reduced = {"reduced_to": self.reduced_to} if self.reduced_to else {}
        return {**self.options.described(self.provider), "timestamps": self.timestamps, **reduced}

    def comparable(self) -> dict[str, object]:
        """The options that must be equal on all ranks, by name."""
        return {
            **self.options.agreed(self.provider),
            "traffic": self.operation.traffic,
            "each": self.per_process,
            **{name: os.environ.get(name, "") for name in (SPLIT, MASK)},
        }


class NotPossible(WirespeedError):
    """What was asked for is not possible on this machine, or with its libraries.

    Attributes:
        code: The exit code.
        is_early: Whether nccl-tests finds it out before it has printed the devices.
        line: The line of nccl-tests on standard output, with its end; empty if there is none.
        text: What is printed on standard error.
    """

    code = Result.NOT_IMPLEMENTED
    is_early = False
    line = ""

    @property
    def text(self) -> str:
        return error_line(f"wirespeed: error: {self}")


class NoGpu(NotPossible):
    """There is no GPU, in the words of CUDA."""

    code, is_early = Result.CUDA_ERROR, True

    def __init__(self) -> None:
        self.line = failed(hostname(), "CUDA", "no CUDA-capable device is detected") + "\n"
        super().__init__("no GPU was found; to measure host memory, start ranks with mpirun and pass --mpi")


class TooFewGpus(NotPossible):
    """There are fewer GPUs than ranks, in the words of nccl-tests, which programs look for."""

    is_early = True

    def __init__(self, requested: int, found: int) -> None:
        self.lines = (
            f"Invalid number of GPUs: {requested} requested but only {found} were found.",
            "Please check the number of processes and GPUs per process.",
        )
        super().__init__(" ".join(self.lines))

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def document_before(wanted: Request, ranks: int, machine: Machine | None) -> Document:
    """The Document of a run whose processes have not joined, with the options and no devices.

    Args:
        wanted: The run.
        ranks: Number of requested ranks of this process.
        machine: The simulated machine; None if it is not simulated.
    """
    from ...driver.jobs import blank
    from ...worlds.launchers import promised

    name, processes = promised()
    launcher = f"{name} in the environment" if name else "one process"
    options = wanted.described | {"ranks": ranks * processes, "processes": processes, "hosts": 1}
    options |= {"launcher": launcher, "transport": "", "environment": []}
    about = {"host": hostname(), "options": options, "interrupted": UNFINISHED}
    return blank(machine or Machine(""), **about)


def header_without_devices(before: Document) -> str:
    """The header of a run that has too few GPUs, as nccl-tests prints it before it finds out."""
    from .text import header

    libraries: dict[str, str] = {}
    if not before.simulated:
        from ...backends.nccl.library import libraries as of_nccl

        with suppress(ImportError, RuntimeError):  # without its version, the header has 0
            libraries = of_nccl()
    return header(View(with_fields(before, libraries=libraries)))
