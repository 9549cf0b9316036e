"""What distinguishes the outputs of nvbandwidth's versions, and of its relatives."""

from __future__ import annotations

from dataclasses import dataclass

from ..topology import Machine
from ..version import __version__


@dataclass(frozen=True)
class Dialect:
    """What distinguishes the output of a version of a program.

    Parameters
    ----------
    program, version : str
        Name and version at the start of the text.
    json_version : str
        Version in the JSON.
    testcases : str
        Version of nvbandwidth whose list of testcases it has.
    exact : bool
        Whether samples, ranges and the parts of bidirectional testcases have nvbandwidth's form, and unknown
        testcases do not change the exit code.
    variation : bool
        Whether it prints coefficients of variation, and CUDA versions as ``13.2 (13020)``.
    """

    program: str
    version: str
    json_version: str
    testcases: str
    exact: bool = True
    variation: bool = False

    def start(self) -> str:
        """The lines at the start of every output."""
        name = f"{self.program} Version: {self.version}\n"
        return f"{name}Built from Git version: wirespeed {__version__}\n\n"

    def versions(self, machine: Machine) -> list[str]:
        """The lines with the versions of libraries and driver."""
        cuda, of_driver = str(machine.cuda), ""
        if self.variation:
            cuda, of_driver = f"{machine.cuda // 1000}.{machine.cuda % 1000 // 10} ({cuda})", " (API)"
        return [
            f"CUDA Runtime Version: {cuda}",
            f"CUDA Driver Version{of_driver}: {cuda}",
            f"Driver Version: {machine.driver or 'none'}",
        ]
