"""The map of block lists as JSON, for a server to load; docs/blocks.md describes the fields."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from ..judging.block_map import BlockMap, map_of
from ..judging.judged import Judged
from .style import Style

#: Version of the shape.
SHAPE = 1


def render(judged: Judged, style: Style) -> str:
    """The maps of a run as one JSON object."""
    del style
    return of(map_of(judged.document))


def of(blocks: BlockMap) -> str:
    """A map as one JSON object."""
    return msgspec.json.format(msgspec.json.encode(data(blocks)), indent=1).decode() + "\n"


def data(blocks: BlockMap) -> dict[str, Any]:
    """The maps as plain data, for a server to load."""
    document = blocks.document
    return {
        "schema": SHAPE,
        "simulated": document.simulated,
        "host": document.host,
        "started": document.started,
        "testcases": [result.name for result in document.testcases],
        "paths": [
            {
                "direction": path.direction,
                "path": path.path,
                "layout": path.layout,
                "while_computing": path.while_computing,
                "points": [
                    {
                        "direction": path.direction, "path": path.path, "block": point.block,
                        "blocks": point.blocks, "best": point.best, "rates": dict(point.rates),
                        "limit": point.limit, "submission_s": dict(point.submissions),
                        "calls": {m: calls.n for m, calls in point.calls.items()},
                        "p50_s": {m: calls.p50 for m, calls in point.calls.items()},
                        "p99_s": {m: calls.p99 for m, calls in point.calls.items()},
                        "joules_per_byte": dict(point.joules_per_byte),
                        "slowdown": dict(point.slowdown),
                        "computation_slowdown": dict(point.computation_slowdown),
                        "first_s": {m: calls.first for m, calls in point.calls.items()},
                    }
                    for point in path.points
                ],
                "crossings": [
                    {"block": c.block, "blocks": c.blocks, "before": c.before, "after": c.after}
                    for c in path.crossings
                ],
                "models": [
                    {
                        "method": m.method, "call_s": m.call_s, "block_s": m.block_s,
                        "rate": None if math.isinf(m.rate) else m.rate, "error": m.error,
                        "nearly_full": m.nearly_full,
                    }
                    for m in path.models
                ],
                "rule": None if path.rule is None else vars(path.rule),
                "sentences": list(path.sentences()),
            }
            for path in blocks.paths
        ],
        "storage": [
            {
                "testcase": storage.testcase,
                "path": storage.path,
                "points": [
                    {"block": block, "depth": depth, "rate": rate}
                    for (block, depth), rate in sorted(storage.rates.items())
                ],
            }
            for storage in blocks.storage
        ],
    }  # fmt: skip
