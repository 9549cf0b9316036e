"""JSON as jsoncpp writes it: the layout that readers of lines expect."""

from __future__ import annotations

import json

import pytest

from wirespeed.features.nvbandwidth.json import styled


def test_the_layout() -> None:
    value = {"b": [["N/A", "48.2013"], []], "a": {"c": 12080, "d": None, "e": {}}, "t": True}
    expected = (
        '{\n\t"a" : \n\t{\n\t\t"c" : 12080,\n\t\t"d" : null,\n\t\t"e" : {}\n\t},\n'
        '\t"b" : \n\t[\n\t\t[\n\t\t\t"N/A",\n\t\t\t"48.2013"\n\t\t],\n\t\t[]\n\t],\n\t"t" : true\n}\n'
    )
    assert styled(value) == expected
    assert json.loads(expected) == value


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.1, "0.10000000000000001"),
        (3.0, "3.0"),
        (1e300, "1.0000000000000001e+300"),
        (float("nan"), "null"),
        (7, "7"),
        ("\tÄ\x01/", '"\\t\\u00c4\\u0001/"'),
    ],
)
def test_scalars(number: object, text: str) -> None:
    assert styled(number) == f"{text}\n"
