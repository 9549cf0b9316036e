"""What every result offers at a prompt and in notebooks: one line, a table and a data frame."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas


class Tabular:
    """Base of results. ``reports`` knows their forms, and is imported when you ask for one."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def simulated(self) -> bool:
            """Whether no hardware was measured."""

    def _section(self) -> object:
        """What ``reports`` shows: the result itself, or a table of it with a name."""
        return self

    def _repr_html_(self) -> str:
        """The result for a notebook: tables without scripts, for light and dark themes."""
        return str(_report("html.measurements").notebook_html(self._section()))

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame with one row per cell. Values are in base units: B/s, s, 1/s and bytes.

        Raises:
            MissingPackage: If pandas is not installed.
        """
        return _report("records").to_pandas(self._section())

    def _drew(self) -> bool:
        """Show the result with its chart or heat map if this is a notebook; return whether it is."""
        running = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        if not hasattr(running, "kernel"):
            return False
        import_module("IPython.display").display(self)
        return True


def _report(name: str) -> Any:
    """A module of ``reports``, which stands above all results and imports them."""
    return import_module(f"{__package__}.reports.{name}")
