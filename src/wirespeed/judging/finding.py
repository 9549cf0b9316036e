"""The record of a cause that measured values or facts speak for, with what reports say of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..data.causes import Cause, Weight
from ..terminal import brief
from ..testcases.table import Testcase
from ..units import many


@dataclass(frozen=True)
class Finding:
    """A cause that the measured values or the facts speak for.

    Attributes:
        cause: The cause.
        place: Device or switch that it applies to; empty for the machine.
        evidence: Facts that speak for it; empty if there are none.
        cells: Number of slow cells that it explains, or may explain.
        factor: Factor of the speed of its links that predicts the cells that it explains; None if only facts
            speak for it.
        others: Causes that explain the same cells equally well.
        lower: Number of other cells below the typical value that it explains.
        weight: What it says of the machine on its own, as its evidence says.
        host: Host of the place; empty for the host of the first process, and for a place that names its rank.
        residual: Whether only what another cause leaves unexplained speaks for it, and no fact.
        next: Testcase not yet measured that distinguishes it from most of ``others``; None if there is none.
        commands: Commands that confirm it, then those for ``others``, for the device.
        slow: Number of slow cells of the run.
        at_any_rate: Whether it is the cause of its cells however slow they are, as of a disabled transport.
        share: Of peer access: share of the broken pairs that it concerns, less a part of the share of the
            good ones; None for causes of slow values.
        repair: Of peer access: what to do; commands are lines of their own.
    """

    cause: Cause
    place: str
    evidence: str
    cells: int
    factor: float | None = None
    others: tuple[Cause, ...] = ()
    lower: int = 0
    weight: Weight = Weight.CONDITION
    host: str = ""
    next: Testcase | None = None
    residual: bool = False
    commands: tuple[str, ...] = ()
    slow: int = 0
    at_any_rate: bool = False
    share: float | None = None
    repair: tuple[str, ...] = ()

    def __repr__(self) -> str:
        where = f" ({self.where})" if self.where else ""
        others = "".join(f" or {other.name}" for other in self.others)
        return brief(f"Finding {self.cause.name}{where}{others}: {many(self.cells, 'slow value')}")

    @property
    def where(self) -> str:
        """Host and place as text; empty for the machine."""
        return ": ".join(filter(None, (self.host, self.place)))

    @property
    def likely(self) -> bool:
        """Whether it predicts the slow cells, and no other cause does equally well.

        What the predictions of one cause miss, a second one can often fit: it needs facts.
        """
        return (self.factor is not None or self.at_any_rate) and not self.others and not self.residual

    @property
    def certainty(self) -> str:
        """How sure it is, in words."""
        if self.likely:
            return "likely cause"
        if self.is_explaining:
            return "possible cause"
        return "note" if self.is_note else "also found"

    @property
    def is_note(self) -> bool:
        """Whether it is no defect, and explains no value."""
        return self.weight is Weight.NOTE and not self.is_explaining

    @property
    def is_explaining(self) -> bool:
        """Whether it explains any value."""
        return bool(self.cells or self.lower)

    @property
    def title(self) -> str:
        """The cause and its place."""
        return self.cause.title + (f" ({self.where})" if self.where else "")

    @property
    def explains(self) -> str:
        """How many of the slow values it explains, in words; empty if it explains nothing."""
        if self.cells:
            return f"{self.verb} {self.cells} of {many(self.slow, 'slow value')}"
        return f"explains {many(self.lower, 'value')} below the typical ones" if self.lower else ""

    @property
    def verb(self) -> str:
        """Whether it explains its slow values, or may explain them."""
        return "may explain" if self.factor is None and not self.at_any_rate else "explains"

    @property
    def details(self) -> list[tuple[str, str]]:
        """Evidence, prediction, alternatives, confirmation and remedy, each with its name.

        Commands are behind ``confirm``; further ones have no name.
        """
        first, *more = self.commands or ("",)
        details = (
            ("evidence", self.evidence),
            ("predicted", self._predicted),
            *(("or", other.title) for other in self.others),
            ("to distinguish", self._telling),
            ("confirm", first),
            *(("", command) for command in more),
            ("remedy", self.cause.remedy),
        )
        return [(name, text) for name, text in details if text]

    @property
    def line(self) -> str:
        """Everything in one line."""
        others = "".join(f" or {other.title}" for other in self.others)
        cells = f", {many(self.cells, 'slow value')}" if self.cells else ""
        evidence = f"; evidence: {self.evidence}" if self.evidence else ""
        return f"{self.certainty}: {self.title}{others}{cells}{evidence}; remedy: {self.cause.remedy}"

    @property
    def data(self) -> dict[str, Any]:
        """Everything as data, for JSON, data frames and labels."""
        return {
            "cause": self.cause.name, "title": self.cause.title, "host": self.host, "place": self.place,
            "where": self.where, "certainty": self.certainty, "likely": self.likely, "cells": self.cells,
            "lower": self.lower, "factor": self.factor, "evidence": self.evidence, "weight": self.weight,
            "others": [other.name for other in self.others], "next": self.next and self.next.name,
            "confirm": "".join(self.commands[:1]), "remedy": self.cause.remedy,
        }  # fmt: skip

    @property
    def _telling(self) -> str:
        """How to tell the cause from the others; empty if there are no others."""
        if self.others and self.next is None:
            return "no testcase would: their values are the same; use the commands below"
        return f"wirespeed run -t {self.next.name}" if self.others and self.next else ""

    @property
    def _predicted(self) -> str:
        """What predicts the slow values; empty if only facts speak for the cause."""
        if self.factor is None:
            return ""
        slower = f"links running at {self.factor:.0%} of their rate"
        return f"consistent with {slower if self.factor < 1 else 'another route of the data'}"
