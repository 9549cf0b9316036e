"""The JSON of a run of nccl-tests' programs: a file that is complete at every moment from the start."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path

from msgspec.structs import replace

from ...document import Document
from ...driver.jobs import timestamp
from ...errors import StorageError
from ...judging.judged import Judged
from ...reports import Style
from ...results.output import Output
from ...results.store import Draft, Drafting
from ...terminal import visible
from . import json as nccl_tests_json
from .options import FORMAT


class JsonFile(Drafting):
    """Listener that writes the JSON before anything is measured, after every measurement, and at the end.

    Like nccl-tests, an existing file is not replaced: ``.0``, ``.1``... is appended to the name.

    Args:
        path: The file.
        document: The Document of the run as far as it is known.
        live: Whether lines of nccl-tests are printed.

    Raises:
        StorageError: If the file cannot be written.
    """

    def __init__(self, path: Path, document: Document, live: bool) -> None:
        self._document, self._live = document, live
        self._file = Output(path, names=(path.with_name(f"{path.name}.{i}") for i in count()))
        super().__init__(Draft(self._file, _encoded))
        self._file.check()
        self._file.write(_encoded(document))
        self._announce()

    @classmethod
    def of(cls, options: argparse.Namespace, document: Document) -> JsonFile | None:
        """The file that a command was given; None if there is none, or it cannot be written."""
        path: Path | None = options.output_file
        live = options.format == FORMAT
        try:
            return cls(path, document, live) if path else None
        except StorageError as error:
            _say(f"# skipping json output; {path} not accessible", live)
            print(visible(f"wirespeed: note: {error}"), file=sys.stderr)
            return None

    def fail(self, reason: str) -> None:
        """Write why nothing was measured, if the file can be written."""
        with suppress(StorageError):  # the reason counts more
            self.end(replace(self._document, interrupted=reason, ended=timestamp()))

    def end(self, document: Document) -> None:
        """Write the JSON of a run that has ended.

        Raises:
            StorageError: If it cannot be written.
        """
        self._draft.last(document)
        if self._file.path != self._announced:  # another process has taken the name
            self._announce()

    def _announce(self) -> None:
        self._announced = self._file.path
        _say(f"# Writing JSON output to {self._announced}", self._live)


def _say(line: str, live: bool) -> None:
    if live:
        print(visible(line), flush=True)


def _encoded(document: Document) -> bytes:
    return nccl_tests_json.render(Judged(document), Style()).encode()
