"""How measured values are written: the one place that rounds them for people."""

from __future__ import annotations

#: Significant digits of values in tables, and where values are seen at a glance: overviews, plots, pages.
EXACT, GLANCE = 6, 3
#: Values from this on have no decimals, others at most ``_DECIMALS``.
_NO_DECIMALS, _DECIMALS = 10_000, 2


def number(value: float, scale: float = 1.0, digits: int = EXACT) -> str:
    """Format a value: ``12346``, ``396.18``, ``1.74``, ``0.396``; with ``GLANCE`` digits ``396``.

    Args:
        value: The value, in base units.
        scale: Base units per display unit.
        digits: Significant digits; at most two of them are decimals, and of values below 1 there are three.
            Digits before the point are never dropped.

    Returns:
        The number without its unit.
    """
    shown = value / scale
    size = abs(shown)
    if size < 1:
        return f"{shown:.{GLANCE}g}"
    decimals = 0 if size >= _NO_DECIMALS else min(_DECIMALS, max(0, digits - len(str(int(size)))))
    return f"{shown:.{decimals}f}"
