"""No log crashes the importer."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.features.imports.mutate import OSU, SEEDS, attempt, mutated

#: Mutations of each log.
EACH = 15


@pytest.mark.parametrize("text", [*(path.read_text() for path in SEEDS), OSU], ids=range(len(SEEDS) + 1))
def test_changed_logs_are_read_or_refused(text: str, tmp_path: Path) -> None:
    found = {
        attempt(tmp_path / "log", mutated(text, random.Random(i)), "hgx-h100-8" if i % 5 == 0 else None)
        for i in range(EACH)
    }
    assert found <= {"refused", "pass", "warn", "fail", "implausible", "unknown"}
    assert found - {"refused"}
