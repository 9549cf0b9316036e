"""What a PCIe link carries, by its generation and number of lanes."""

from __future__ import annotations

from ..units import GB

#: GB/s of transaction layer packets over a PCIe lane by generation: GT/s x encoding / 8. The encoding is
#: 8b/10b, from the third generation on 128b/130b. The sixth sends flits of 256 bytes: 236 of packets, 6 of
#: the data link layer, 14 of checks and correction. (64 x 242/256 / 8 = 7.563 would count those 6 too.)
#: Source: PCI Express Base Specification 6.0, flit mode.
_LANE = (0.25, 0.5, 0.985, 1.969, 3.938, 64 * 236 / 256 / 8)


def rate(generation: int, width: int) -> tuple[float, str] | None:
    """The capacity of a link in B/s and its name; None if the values are invalid."""
    if not 0 < generation <= len(_LANE) or width <= 0:
        return None
    return _LANE[generation - 1] * GB * width, f"PCIe {generation} x{width}"
