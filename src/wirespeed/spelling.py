"""Names that a person wrote and nothing knows: where they are, and which name was probably meant."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from typing import Any, NamedTuple

#: Maximum number of known names that a message lists.
_LISTED = 12
#: Maximum length of a name for which a similar one is searched, in characters: the search is quadratic.
_LONGEST = 100


def meant(name: str, known: Collection[str]) -> str:
    """`` (did you mean 'link'?)``: the known name that is nearest to a wrong one; empty if none is near.

    Upper case, dashes and underscores make no difference.
    """
    if len(name) > _LONGEST:
        return ""
    folded = {_folded(other): other for other in known}
    near = get_close_matches(_folded(name), folded, 1)
    return f" (did you mean {folded[near[0]]!r}?)" if near else ""


class UnknownName(NamedTuple):
    """A name that a type does not have.

    Attributes:
        place: Where it is in the file: ``override[0]``; empty at the top.
        name: The name.
        hint: The name that was probably meant, or those that are known.
    """

    place: str
    name: str
    hint: str

    def __str__(self) -> str:
        return f"unknown name {self.name!r}{f' in {self.place}' if self.place else ''}{self.hint}"


def unknown_name(value: object, kind: Any) -> UnknownName | None:
    """The first name in decoded TOML or JSON that its type does not have; None if there is none.

    Args:
        value: Plain data.
        kind: The type to which it is to be converted: a dataclass or a Struct, possibly of others.
    """
    from msgspec import inspect

    for place, name, known in _unknown(value, inspect.type_info(kind), ""):
        listed = f"; use {', '.join(known)}" if len(known) <= _LISTED else ""
        return UnknownName(place, name, meant(name, known) or listed)
    return None


def _unknown(value: object, kind: Any, place: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the unknown names: their place, the name, and the names that are known there."""
    from msgspec import inspect

    if isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _unknown(value, one, place)
    elif isinstance(value, dict):
        if isinstance(kind, inspect.StructType | inspect.DataclassType):
            fields = {field.encode_name: field.type for field in kind.fields}
            for name, part in value.items():
                if name not in fields:
                    yield place, str(name), list(fields)
                elif isinstance(part, dict | list):
                    yield from _unknown(part, fields[name], f"{place}.{name}" if place else name)
        elif isinstance(kind, inspect.DictType):
            for name, part in value.items():
                yield from _unknown(part, kind.value_type, f"{place}.{name}" if place else str(name))
    elif isinstance(value, list) and isinstance(kind, inspect.VarTupleType | inspect.ListType):
        for i, part in enumerate(value):
            yield from _unknown(part, kind.item_type, f"{place}[{i}]")


def _folded(name: str) -> str:
    return name.lower().replace("_", "-")
