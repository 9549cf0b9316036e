"""The map of block lists as JSON, for a server to load; docs/blocks.md describes the fields."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from ..judging.block_map import BlockMap, map_of
from ..judging.judged import Judged
from .records import picked
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
        **picked(document, "simulated host started"),
        "testcases": [result.name for result in document.testcases],
        "paths": [
            {
                "direction": path.direction,
                "path": path.path,
                "points": [
                    picked(
                        point, "direction path block blocks best rates limit submission_s",
                        direction=path.direction, path=path.path, submission_s=point.submissions,
                    )
                    for point in path.points
                ],
                "crossings": list(map(vars, path.crossings)),
                "models": [
                    vars(model) | {"rate": None if math.isinf(model.rate) else model.rate}
                    for model in path.models
                ],
                "rule": path.rule and vars(path.rule),
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
