"""Results as HTML tables for notebooks, plotly figures and data frames. Libraries are imported on use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from html import escape
from typing import TYPE_CHECKING, Any

from ..errors import MissingPackage
from ..units import format_size
from .many import BandwidthMatrix, BandwidthScaling
from .results import Bandwidth, HostDeviceBandwidth, TheoreticalBandwidth, footer_of

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go


@singledispatch
def html(one: object) -> str:
    """Return a result as a table for a notebook."""
    raise TypeError(f"{type(one).__name__} has no table")


@singledispatch
def figure(one: object) -> go.Figure:
    """Return a result as a plotly figure."""
    raise TypeError(f"{type(one).__name__} has no figure")


@singledispatch
def frame(one: object) -> pandas.DataFrame:
    """Return a result as a data frame."""
    raise TypeError(f"{type(one).__name__} has no data frame")


def _plotly() -> Any:
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise MissingPackage("figure()", "plotly") from error
    return go


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise MissingPackage("to_pandas()", "pandas") from error
    return pandas


def _table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> str:
    """Return a table; the first cell of each row is its header. All texts are escaped."""
    right = ' style="text-align:right"'
    top = "".join(f'<th scope="col"{right if i else ""}>{escape(text)}</th>' for i, text in enumerate(head))
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td{right}>{escape(text)}</td>" for text in rest)
        + "</tr>"
        for first, *rest in rows
    )
    return (
        '<table><caption style="caption-side:top;text-align:left;font-weight:bold">'
        f"{escape(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table><small>{escape(note)}</small>"
    )


_HEAD = ("", "GB/s", "GiB/s", "min GB/s", "max GB/s", "std_dev GB/s", "samples")


def _row(name: str, one: Bandwidth) -> tuple[str, ...]:
    numbers = (one.gb_per_s, one.gib_per_s, one.min / 1e9, one.max / 1e9, one.std_dev / 1e9)
    return (name, *(f"{number:.2f}" for number in numbers), str(len(one.samples)))


def _note(one: Bandwidth, *more: str) -> str:
    return footer_of(*more, f"counts {one.counts}", simulated=one.simulated)


@html.register(Bandwidth)
def _bandwidth_html(one: Bandwidth) -> str:
    """Return one bandwidth as a table of one row."""
    return _table(one.title, _HEAD, [_row(one.device, one)], _note(one, format_size(one.bytes)))


@html.register(TheoreticalBandwidth)
def _theoretical_html(one: TheoreticalBandwidth) -> str:
    """Return a theoretical bandwidth as a table."""
    row = (one.device, f"{one.gb_per_s:.2f}", f"{one.gib_per_s:.2f}", one.origin)
    note = footer_of(simulated=one.simulated)
    return _table("Theoretical Maximal Memory Bandwidth", ("", "GB/s", "GiB/s", "from"), [row], note)


@html.register(BandwidthScaling)
def _scaling_html(one: BandwidthScaling) -> str:
    """Return a curve as a table with one row per size; the caption names the peak."""
    rows = [_row(one.shown_size(size), p) for size, p in zip(one.sizes, one.points, strict=True)]
    peak = f"peak {one.peak.gib_per_s:.2f} GiB/s at {one.shown_size(one.peak_size)}"
    caption = f"{one.title} of {one.device} over {one.quantity}, {peak}"
    return _table(caption, (one.quantity, *_HEAD[1:]), rows, _note(one.points[0]))


@html.register(BandwidthMatrix)
def _matrix_html(one: BandwidthMatrix) -> str:
    """Return a matrix as a table with headers."""
    rows = [
        (name, *("-" if cell is None else f"{cell.gib_per_s:.2f}" for cell in row))
        for name, row in zip(one.labels, one.cells, strict=True)
    ]
    return _table(f"{one.title} (GiB/s)", ("", *one.labels), rows, one.footer())


@html.register(HostDeviceBandwidth)
def _host_device_html(one: HostDeviceBandwidth) -> str:
    """Return the four copies as a table."""
    rows = [_row(f"{kind}, {b.device}", b) for kind, b in _kinds(one)]
    size = format_size(one.pinned_to_device.bytes)
    return _table("Host <-> Device Bandwidth", _HEAD, rows, _note(one.pinned_to_device, size))


def _kinds(one: HostDeviceBandwidth) -> list[tuple[str, Bandwidth]]:
    return list(zip(("pageable", "pageable", "pinned", "pinned"), one, strict=True))


def _titled(title: str, simulated: bool) -> str:
    return escape(f"{title} · {footer_of(simulated=True)}" if simulated else title)


@figure.register(Bandwidth)
def _bandwidth_figure(one: Bandwidth) -> go.Figure:
    """Return a histogram of the samples."""
    go = _plotly()
    drawn = go.Figure(go.Histogram(x=[sample / 1e9 for sample in one.samples]))
    drawn.update_layout(title=_titled(f"{one.title}, {one.device}", one.simulated), xaxis_title="GB/s",
                         yaxis_title="samples")  # fmt: skip
    return drawn


@figure.register(BandwidthScaling)
def _scaling_figure(one: BandwidthScaling) -> go.Figure:
    """Return the curve."""
    go = _plotly()
    values = [value / 1e9 for value in one.values]
    above = [(p.statistics.high - p.value) / 1e9 for p in one.points]
    below = [(p.value - p.statistics.low) / 1e9 for p in one.points]
    error = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
    texts = [one.shown_size(size) for size in one.sizes]
    drawn = go.Figure(
        go.Scatter(x=list(one.sizes), y=values, error_y=error, mode="lines+markers", text=texts)
    )
    peak = f"Peak: {one.peak.gb_per_s:.2f} GB/s"
    drawn.add_annotation(x=_log10(one.peak_size), y=one.peak.gb_per_s, text=peak, showarrow=True)
    drawn.update_layout(title=_titled(f"{one.title}, {one.device}", one.simulated),
                         xaxis_title=f"{one.quantity} [{one.unit}]" if one.unit else one.quantity,
                         yaxis_title="GB/s", xaxis_type="log", yaxis_rangemode="tozero")  # fmt: skip
    return drawn


def _log10(value: float) -> float:
    from math import log10

    return log10(value)  # plotly positions annotations on a logarithmic axis by the exponent


@figure.register(BandwidthMatrix)
def _matrix_figure(one: BandwidthMatrix) -> go.Figure:
    """Return a heat map."""
    go = _plotly()
    z = [[None if value is None else value / 1e9 for value in row] for row in one.values]
    names = [escape(label) for label in one.labels]
    drawn = go.Figure(go.Heatmap(z=z, x=names, y=names, texttemplate="%{z:.1f}", colorscale="Viridis",
                                  colorbar={"title": "GB/s"}))  # fmt: skip
    drawn.update_layout(title=_titled(one.title, one.simulated),
                         yaxis_autorange="reversed")  # fmt: skip
    return drawn


@figure.register(HostDeviceBandwidth)
def _host_device_figure(one: HostDeviceBandwidth) -> go.Figure:
    """Return bars."""
    go = _plotly()
    names = [escape(f"{kind}, {b.device}") for kind, b in _kinds(one)]
    drawn = go.Figure(go.Bar(x=names, y=[b.gb_per_s for b in one]))
    drawn.update_layout(title=_titled("Host <-> Device Bandwidth", one.simulated), yaxis_title="GB/s")
    return drawn


_COLUMNS = ("value", "min", "max", "avg", "std_dev")


def _record(one: Bandwidth) -> dict[str, Any]:
    return {name: getattr(one, name) for name in _COLUMNS} | {"n": len(one.samples), "bytes": one.bytes}


def _framed(records: Any, simulated: bool, **settings: Any) -> pandas.DataFrame:
    framed: pandas.DataFrame = _pandas().DataFrame(records, **settings)
    framed.attrs |= {"unit": "B/s", "simulated": simulated}
    return framed


@frame.register(Bandwidth)
def _bandwidth_frame(one: Bandwidth) -> pandas.DataFrame:
    """Return the samples."""
    return _framed({"value": list(one.samples)}, one.simulated)


@frame.register(BandwidthScaling)
def _scaling_frame(one: BandwidthScaling) -> pandas.DataFrame:
    """Return one row per size."""
    rows = [{"size": size} | _record(p) for size, p in zip(one.sizes, one.points, strict=True)]
    return _framed(rows, one.simulated)


@frame.register(BandwidthMatrix)
def _matrix_frame(one: BandwidthMatrix) -> pandas.DataFrame:
    """Return rows and columns with the labels; NaN for missing values."""
    labels = list(one.labels)
    return _framed(
        [list(row) for row in one.values], one.simulated, index=labels, columns=labels, dtype=float
    )


@frame.register(HostDeviceBandwidth)
def _host_device_frame(one: HostDeviceBandwidth) -> pandas.DataFrame:
    """Return one row for each kind of memory and direction."""
    rows = [{"memory": kind, "transfer": b.device} | _record(b) for kind, b in _kinds(one)]
    return _framed(rows, one.simulated)
