"""The map of blocks for Python."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...api import machine_named, run
from ...hardware.topology import Machine
from ..storage import testcases as storage
from .block_map import BlockMap as BlockMap
from .block_map import map_of
from .testcases import of_directions


def blocks(
    *directions: str,
    sizes: str | Iterable[int] | None = None,
    blocks: str | Iterable[int] | None = None,
    machine: str | Machine | None = None,
    **how: Any,
) -> BlockMap:
    """Find the fastest way to move scattered blocks, such as those of a KV cache.

    Args:
        *directions: ``host_to_device``, ``device_to_host``, ``device_to_device``, ``host``, ``both_ways``
            (the first two at once); default: the first two, on a machine without GPUs ``host``.
        sizes: Block sizes in bytes, or a text such as ``"1KiB:4MiB:x2"``.
        blocks: Numbers of blocks, or a text such as ``"16:65536:x4"``.
        machine: As for ``run``.
        **how: Options of ``run``; the preset is quick.

    Returns:
        The best method for each block size and number, where it changes, and a model of each method.

    Raises:
        UsageError: If an argument is invalid, or a direction needs a GPU that is not there.

    Examples:
        >>> import wirespeed
        >>> blocks = wirespeed.blocks(sizes="4KiB", blocks="4096", machine="simulated:hgx-h200-2")
        >>> blocks.best(4096, 4000)
        <Method.KERNEL: 'kernel'>
    """
    target = machine_named(machine)
    settings = {"tier": "quick", "sizes": sizes, "block_counts": blocks} | how
    settings["prefixes"] = storage.also_asked(target, "storage" in how)
    cases = of_directions(target, directions, computing=bool(how.get("while_computing")))
    return map_of(run(cases, machine=target, **settings))
