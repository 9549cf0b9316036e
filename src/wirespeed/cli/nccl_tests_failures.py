"""What cannot be measured on this machine, and what nccl-tests prints then."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ..collectives.options import NCCL
from ..errors import WirespeedError
from ..version import __version__

if TYPE_CHECKING:
    from ..topology import Machine
    from .nccl_tests_options import Asked


class NotPossible(WirespeedError):
    """What was asked for is not possible on this machine, or with its libraries."""


class TooFewGpus(NotPossible):
    """There are fewer GPUs than ranks, in the words of nccl-tests, which programs look for."""

    def __init__(self, requested: int, found: int) -> None:
        self.lines = (
            f"Invalid number of GPUs: {requested} requested but only {found} were found.",
            "Please check the number of processes and GPUs per process.",
        )
        super().__init__(" ".join(self.lines))


def header_without_devices(wanted: Asked, ranks: int, machine: Machine | None) -> str:
    """The header of a run for which there are too few GPUs, as nccl-tests prints it before it finds out.

    Args:
        wanted: The run.
        ranks: Number of requested ranks.
        machine: The simulated machine; None if it is not simulated.
    """
    from ..document import SCHEMA, Document
    from ..reports.nccl_tests import header
    from ..reports.nccl_tests_view import View
    from ..topology import Machine
    from ..worlds.base import hostname

    libraries: dict[str, str] = {}
    if wanted.provider == NCCL:
        from ..backends.nccl.channel import libraries as of_nccl

        with suppress(ImportError, RuntimeError):  # without its version, the header has 0
            libraries = of_nccl()
    options = {
        **wanted.described,
        "ranks": ranks,
        "processes": 1,
        "hosts": 1,
        "launcher": "one process",
        "transport": "",
        "environment": [],
    }
    document = Document(
        schema=SCHEMA, version=__version__, host=hostname(), started="", simulated=machine is not None,
        machine=machine or Machine(""), libraries=libraries, options=options,
    )  # fmt: skip
    return header(View(document))
