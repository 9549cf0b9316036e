"""The table of features: what each adds to the core, as names that are imported when they are used. The core
imports no feature, except in functions of `answers`, `api` and the package itself; a feature may import all
of the core. Other packages add theirs as entry points of the group ``wirespeed.features``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, Literal, NamedTuple

#: Group of the entry points of features of other packages, each of which is a `Feature`.
GROUP = "wirespeed.features"


class Named(NamedTuple):
    """A format of a feature, as `reports.ReportFormat` describes it.

    Attributes:
        name: Name that ``--format`` accepts.
        function: Its function ``render``, or its module, as ``"module:function"``.
        form: What it is.
        short: Whether long lines of text are shortened.
    """

    name: str
    function: str
    form: Literal["text", "terminal", "json"] = "text"
    short: bool = False


class Programs(NamedTuple):
    """Programs of others that are commands here.

    Attributes:
        suffix: How all their names end; nothing is imported for other names.
        names: The function that returns their names.
        module: ``"module:suffix"`` of their functions, as those of commands.
    """

    suffix: str
    names: str
    module: str


@dataclass(frozen=True)
class Feature:
    """What a feature adds to the core; names are ``"module"`` or ``"module:attribute"`` in its package.

    Attributes:
        name: Its name, that of its folder for those of this package.
        commands: Name of a command -> ``"module:suffix"`` of its functions, and its line in ``--help``,
            empty if it is not shown.
        programs: Commands that are programs of others.
        testcases: Tuples of testcases, in the order in which they run.
        backend: Whether its package has the functions of a backend (`backends.backend_modules`).
        formats: Formats of reports.
        judging: A module that may have these functions. ``alike(testcase, table)`` returns what the table
            with a key has in common with those of other paths, None for testcases of others;
            ``planned(result, case, options)`` the testcase and options that repeat the plan of its results;
            ``judgement(judgement, document)`` the judgement on a value, changed by what the feature records;
            ``problems(document, wrong)`` what is wrong besides values; ``advice(document, wrong)`` what to do
            about wrong data, None if it knows nothing of it.
        joined: Format -> its ``joined(runs, unreadable, style)``, the report of several checked runs, if the
            format has none.
        package: The package relative to which names are.
    """

    name: str
    commands: dict[str, tuple[str, str]] = field(default_factory=dict)
    programs: Programs | None = None
    testcases: tuple[str, ...] = ()
    backend: bool = False
    formats: tuple[Named, ...] = ()
    judging: str = ""
    joined: dict[str, str] = field(default_factory=dict)
    package: str = ""

    def path(self, name: str = "") -> str:
        """The full name of a module, or of ``"module:attribute"``."""
        package = self.package or f"{__name__}.{self.name}"
        return f"{package}.{name}" if name else package

    def named(self, name: str) -> Any:
        """What has this name; it is imported."""
        module, _, attribute = self.path(name).partition(":")
        found = import_module(module)
        return getattr(found, attribute) if attribute else found


#: The features of this package, in the order of their testcases.
FEATURES = (
    Feature(
        "pairs",
        commands={
            "pt2pt": ("command:pt2pt", "measure messages between two ranks over MPI and NCCL"),
            "overalloc": ("command:overalloc", "measure the cost of sharing a buffer and of over-allocation"),
            "gpudirect_p2p_overalloc": ("command:overalloc", ""),  # the reproducer's name of overalloc
        },
        testcases=("messages:TESTCASES", "sharing:SHARING"),
        formats=(Named("overalloc", "overalloc_text", short=True),),
    ),
    Feature(
        "blocks",
        testcases=("testcases:TESTCASES",),
        judging="judging",
        formats=(
            Named("blocks", "text", "terminal"),
            Named("blocks-json", "text:render_blocks_json", "json"),
        ),
    ),
    Feature("storage", testcases=("testcases:TESTCASES",), backend=True),
    Feature("p2p", judging="judging"),
    Feature("history"),
    Feature("fleet", joined={"text": "screen:joined", "html": "page:joined"}),
    Feature("imports"),
    Feature(
        "transfers",
        commands={
            "transfer": ("command", "measure transfers that you define, or show what they would use"),
        },
    ),
    Feature(
        "qualify",
        commands={"qualify": ("command", "find the slow nodes, NICs, cables and switches of a cluster")},
    ),
    Feature(
        "nvbandwidth",
        commands={
            "nvbandwidth": ("command", "the command line, text and JSON of nvbandwidth"),
            "sailbandwidth": ("command:sailbandwidth", "the command line, text and JSON of sailbandwidth"),
        },
        formats=(
            Named("nvbandwidth", "text", short=True),
            Named("nvbandwidth-json", "json", "json"),
        ),
    ),
    Feature(
        "nccl_tests",
        programs=Programs("_perf", "programs:names", "command"),
        formats=(
            Named("nccl-tests", "text", short=True),
            Named("nccl-tests-json", "json", "json"),
            Named("iterations", "iterations:render_iterations", short=True),
        ),
    ),
    Feature("bandwidth"),
)


@cache
def features() -> tuple[Feature, ...]:
    """All features: those of this package, then those of others."""
    from ..hardware.devices import registered

    return (*FEATURES, *(point.load() for point in registered(GROUP)))


@cache
def functions(field: str, name: str) -> tuple[Callable[..., Any], ...]:
    """The functions with a name of the modules that features name in a field."""
    return tuple(getattr(module, name) for module in offered(field) if hasattr(module, name))


def offered(field: str) -> Iterator[Any]:
    """What all features offer in a field of `Feature` that has one name or several."""
    for feature in features():
        names = getattr(feature, field)
        for name in (names,) if isinstance(names, str) else names:
            if name:
                yield feature.named(name)
