"""Code that the readers of other tools' files share."""

from __future__ import annotations

from collections.abc import Sequence

from .syntax import Source, quoted
from .toml_file import Program, loads


def program_of(source: Source, tests: Sequence[tuple[str, Sequence[str]]]) -> Program:
    """The program of transfers in the language, each group of them with its name.

    Raises:
        UsageError: If there is none.
    """
    if not tests:
        raise source.error("there is no transfer", 0)
    texts = [
        f"[[measurement]]\nname = {quoted(name)}\ntransfers = [\n"
        + "".join(f"  {quoted(transfer)},\n" for transfer in transfers)
        + "]\n"
        for name, transfers in tests
    ]
    return loads("\n".join(texts), f"{source.name or 'the file'} in the language")
