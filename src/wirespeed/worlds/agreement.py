"""What all processes of a World must have in common."""

from __future__ import annotations

from .base import World, WorldError


def agree_on(world: World, options: dict[str, object]) -> None:
    """Compare the options of all ranks.

    Raises
    ------
    WorldError
        For the first option that differs, with the rank.
    """
    everyone = world.allgather(options, "comparing options")
    first = everyone[0]
    for rank, other in enumerate(everyone):
        for name in sorted(first.keys() | other.keys()):
            if other.get(name) != first.get(name):
                raise WorldError(
                    f"the ranks have different options: {name} is {other.get(name)!r} on "
                    f"{world.members[rank]} and {first.get(name)!r} on rank 0"
                )
