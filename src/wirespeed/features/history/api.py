"""The history for Python."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from ...answers import Run, several
from ...errors import UsageError
from ...units import parse_age
from .events import MachineHistory as MachineHistory
from .events import judged
from .history_file import History
from .location import age_ago, default_file, identity_named


def history(
    runs: Run | Iterable[Run] = (),
    *,
    host: str | None = None,
    since: str | float | None = None,
    file: str | Path | None = None,
) -> MachineHistory:
    """What changed on a machine, and since when: ``wirespeed history``.

    Args:
        runs: Runs or their files, in place of the history.
        host: Name of the host; None for this one, or the only one.
        since: Only runs of this time, such as ``"30d"`` or a number of seconds.
        file: A history; None for the one of this user.

    Returns:
        The kinds of paths over the runs, and what changed.

    Raises:
        UsageError: If an argument is invalid, or there is no such machine or run.
        StorageError: If the history cannot be used.
    """
    given = several(runs)
    if given and file is not None:
        raise UsageError("give runs, or the file of a history, not both")
    store = History(None) if given else History(Path(file) if file else default_file(), create=False)
    with closing(store):
        for document in given:
            store.add(document)
        age = parse_age(since) if isinstance(since, str) else since
        return judged(store.past(identity_named(store.machines(), host), age_ago(age)))
