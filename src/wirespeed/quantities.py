"""Numbers that a Document may hold, and quantities: the state of the hardware at one time."""

from __future__ import annotations

from typing import Annotated

import msgspec

#: Names of quantities: start skew between the processes of a job; throttle reasons, PCIe generation of a GPU.
SKEW, THROTTLED, GENERATION = "start skew, median", "throttle reasons", "PCIe generation"
#: Counter of a GPU: how often its PCIe link was trained again, as it is when an idle link wakes up.
RETRAINED = "PCIe recoveries from L0"
#: Prefix of the names of counters of throttled time, in s; the reason follows.
THROTTLED_BY = "throttled by "
#: The throttle reason of a GPU that is not throttled.
IDLE = "idle"

_MOST = 2**63 - 1
#: Smallest measured number above 0, and the largest: sums, squares and ratios of such numbers remain finite.
SMALLEST, LARGEST = 1e-18, 1e18

#: An integer that JSON readers of other languages can represent, and a non-negative one.
Integer = Annotated[int, msgspec.Meta(ge=-_MOST, le=_MOST)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
#: A measured number, a non-negative one, and a positive one.
Number = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=LARGEST)]
Positive = Annotated[float, msgspec.Meta(ge=SMALLEST, le=LARGEST)]


class Quantity(msgspec.Struct, frozen=True, omit_defaults=True):
    """A quantity of the state of the hardware, and its value at one time.

    Attributes:
        device: Name of the device; empty for a host or the whole job.
        name: Name of the quantity.
        value: The value; several texts, or none, for throttle reasons.
        unit: Unit of the value; empty for texts, counters and other numbers without one.
        host: Name of its host; empty for the host of the first process.
        counter: Whether it only increases: it counts errors, or a time in s.
    """

    device: str
    name: str
    value: Number | str | tuple[str, ...]
    unit: str = ""
    host: str = ""
    counter: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies the quantity at all times."""
        return self.host, self.device, self.name

    @property
    def where(self) -> str:
        """Host and device, for people."""
        return ": ".join(filter(None, (self.host, self.device)))

    @property
    def label(self) -> str:
        """Host, device and name, for people: ``gpu0 throttle reasons``."""
        return f"{self.where}{' ' if self.device else ': ' if self.host else ''}{self.name}"

    @property
    def shown(self) -> str:
        """The value, for people, without its unit."""
        if isinstance(self.value, tuple):
            return ", ".join(self.value) or "none"
        return self.value if isinstance(self.value, str) else f"{self.value:g}"


State = tuple[Quantity, ...]


class Reading(msgspec.Struct, frozen=True):
    """State of the hardware during a testcase.

    Attributes:
        seconds: Time since the start of the testcase, in s.
        state: The quantities that the backends reported.
    """

    seconds: Amount
    state: State
