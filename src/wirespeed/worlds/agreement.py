"""What all processes of a World must have in common."""

from __future__ import annotations

from ..terminal import one_line
from .base import World, WorldError


def agree_on(world: World, options: dict[str, object]) -> None:
    """Compare the options of all ranks.

    Args:
        world: The processes; all must call it.
        options: Name -> value of this process.

    Raises:
        WorldError: For the first option that differs, with the rank.
    """
    everyone = world.allgather(options, "comparing options")
    first = everyone[0]
    for rank, other in enumerate(everyone):
        if not isinstance(other, dict) or not all(isinstance(name, str) for name in other):
            raise WorldError(f"{world.members[rank]} sent no options")
        for name in sorted(first.keys() | other.keys()):
            if other.get(name) != first.get(name):
                raise WorldError(
                    f"the ranks have different options: {one_line(name)} is {other.get(name)!r} on "
                    f"{world.members[rank]} and {first.get(name)!r} on rank 0"
                )
