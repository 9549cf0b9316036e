"""What the history does for other commands: it keeps their runs, and judges by the past of the machine."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import StorageError, UsageError
from ...terminal import error_line

if TYPE_CHECKING:
    import argparse

    from ...document import Document
    from ...judging.criteria import Criteria
    from ...judging.judged import Judged


def remember(judged: Judged, options: argparse.Namespace) -> None:
    """Add a run of real hardware to the history; say on standard error why it cannot be."""
    document = judged.document
    if options.no_history or options.history is False or document.simulated or document.imported:
        return
    from ...judging.verdict import Verdict
    from .history_file import add
    from .location import DamagedHistory

    try:
        bad = {
            one.key: one.verdict.value for one in judged.check.judgements if one.verdict is not Verdict.PASS
        }
        add(options.history, document, judged.check.verdict, bad)
    except DamagedHistory as error:
        print(error_line(f"wirespeed: warning: {error}"), file=sys.stderr)
    except StorageError as error:
        print(error_line(f"wirespeed: warning: this run is not in the history: {error}"), file=sys.stderr)


def with_past(by: Criteria, document: Document, options: argparse.Namespace) -> Criteria:
    """Criteria that also have the past of the machine of a run, for ``check --since``.

    Without a past that judges, the run is judged by the other criteria, and the reason is one of them.
    """
    from .history_file import History, baseline_of, identity_of
    from .location import age_ago, default_file

    try:
        if options.history is False:
            raise UsageError("there is none (--history none)")
        with closing(History(options.history or default_file(), create=False)) as history:
            past = history.past(identity_of(document), age_ago(options.since), before=document.started)
            return replace(by, baseline=baseline_of(past, document))
    except (UsageError, StorageError) as error:
        return replace(by, lacking=(*by.lacking, f"not judged by the history: {error}"))
