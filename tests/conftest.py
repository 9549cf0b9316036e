"""What all tests share: the machines, golden files, and skipping of tests that need a GPU."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings
from msgspec.structs import replace

from tests import threads
from tests.leaks import left, present
from tests.warm import Warm
from wirespeed.backends.simulated.machines import MACHINES
from wirespeed.document import Document

settings.register_profile("untimed", deadline=None)  # other work on the machine is no failure
settings.load_profile("untimed")

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"

#: Every machine that tests run on: those that ship, and small ones of their own.
SPECS = {name: f"simulated:{name}" for name in MACHINES} | {
    path.stem: f"simulated:{path}" for path in sorted((HERE / "machines").glob("*.json"))
}

#: Machines for tests that measure every testcase: each of the others is like one of these.
SHAPES = sorted(set(SPECS) - {"gb200-4", "hgx-b200-8", "h100-nvl-2", "pcie-4-switched"})


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C be handled as at a prompt, and give each process that runs tests its temporary files."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has it ignored in the background
    gc.set_threshold(100_000, 20, 50)  # as for the command line
    if getattr(config.option, "numprocesses", None):  # its workers run the tests; coverage is kept here
        return
    root = os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # tmp_path stays there
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="tests", dir=root)
    # Runs of this machine by tests do not belong to its history.
    os.environ["XDG_DATA_HOME"] = f"{tempfile.tempdir}/data"
    config.add_cleanup(partial(shutil.rmtree, tempfile.tempdir, ignore_errors=True))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run tests that take long too")
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what takes long unless it is asked for, and what needs a GPU where there is none."""
    if not (config.getoption("--long") or config.getoption("--update-golden")):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="takes long: run it with --long or `make coverage`"))
    if shutil.which("nvidia-smi") or Path("/proc/driver/nvidia/version").exists():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no GPU"))


def pytest_collection_finish() -> None:
    """Spare collections of garbage, of which some tests need many, what was there before the first."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a thread, process, socket, shared memory or file behind, unless it says why."""
    before = present()
    yield
    threads.AT_END.close()
    if request.node.get_closest_marker("leaves"):
        return
    of_gpu = request.node.get_closest_marker("gpu") is not None
    assert not (more := left(before, descriptors=not of_gpu)), f"the test leaves {'; '.join(more)}"


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """The parent of processes that need not load everything themselves."""
    parent = Warm()
    yield parent
    parent.close()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a golden file, or write it with ``--update-golden``."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing; make it with `pytest --update-golden` and read it"
        assert text == path.read_text(), f"differs from {path}"

    return compare


def with_long(values: Iterable[object], *long: object) -> list[object]:
    """Parameters of a test, of which those in ``long`` run only with ``--long``: others are of their kind."""
    return [pytest.param(value, marks=pytest.mark.long) if value in long else value for value in values]


def own_time(**functions: Callable[..., object]) -> SimpleNamespace:
    """The module ``time`` for one module, with other functions: the threads of others keep theirs."""
    return SimpleNamespace(**{**vars(time), **functions})


#: The version of Documents without what differs from run to run.
VERSION = "0.0.0"


def still(document: Document) -> Document:
    """Return a Document without what differs from run to run and from place to place."""
    return replace(
        document,
        version=VERSION,
        host="here",
        python="3",
        command="wirespeed",
        started="2026-01-01T00:00:00Z",
        ended="2026-01-01T00:00:01Z",
        seconds=1.0,
        testcases=tuple(replace(r, started="2026-01-01T00:00:00Z") for r in document.testcases),
        ranks=tuple(replace(rank, pid=1, host="here") for rank in document.ranks),
        options={k: [] if k == "environment" else v for k, v in document.options.items()},
    )
