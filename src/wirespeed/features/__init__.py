"""The table of features: what each adds to the core, as names that are imported when they are used. The core
imports no feature, except in the names of the package itself; a feature may import all
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
        form: What it is; the text of ``terminal`` is as `reports.console.printed` returns it.
        short: Whether long lines of text are shortened.
    """

    name: str
    function: str
    form: Literal["text", "terminal", "json"] = "text"
    short: bool = False


class Command(NamedTuple):
    """A command, of the core or of a feature.

    Attributes:
        functions: The module with ``main(name, argv)`` and ``parser(name)``; behind a colon what
            distinguishes them from others of the module, as in ``main_of_sailbandwidth``.
        does: Its line in ``--help``; empty if it is not shown.
        measures: Whether it measures this machine, so that the start of devices begins with it.
        of_others: Whether it is a program of others; a link to wirespeed with its name runs it.
        configured: Whether its options are those of wirespeed, which files may set.
        mistaken: Whether people take it for the program that they know, and give it the options of that.
        former: Its present spelling, if this is a former one, which works and is not shown.
    """

    functions: str
    does: str
    measures: bool = False
    of_others: bool = False
    configured: bool = True
    mistaken: bool = False
    former: str = ""


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
    """What a feature adds to the core, as names: ``"module"``, ``"module:attribute"``, ``":attribute"``.

    Attributes:
        name: Its name, that of its folder for those of this package.
        commands: Its commands by name.
        programs: Commands that are programs of others.
        testcases: Tuples of testcases, in the order in which they run.
        backend: Whether its package has the functions of a backend (`backends.backend_modules`).
        formats: Formats of reports.
        report: ``(document) -> Report | None`` of `reports.additions`: what all formats show of a run of the
            feature, in place of tables.
        page_part: ``(judged) -> PagePart | None``, also of `reports.additions`: a section of a run's page.
        results: A module that registers its results with `reports.records.records` and
            `reports.html.notebook.notebook_html`.
        judging: A module that may have these functions. ``alike(testcase, table)`` returns what the table
            with a key has in common with those of other paths, None for testcases of others;
            ``planned(result, case, options)`` the testcase and options that repeat the plan of its results;
            ``judgement(judgement, document)`` the judgement on a value, changed by what the feature records;
            ``first_words(document, check)`` sentence and extent of a run that only the feature measured, if
            nothing is wrong; ``problems(document, wrong)`` what is wrong besides values;
            ``advice(document, wrong)`` what to do about wrong data, None if it knows nothing of it.
        joined: Format -> its ``joined(runs, unreadable, style)``, the report of several checked runs, if the
            format has none.
        remember: ``remember(judged, options)``, called with a run that `run` or `check` measured and showed.
        past: ``with_past(criteria, document, options)``, the criteria with what they are since ``--since``.
        compared: ``behind(nodes)``, by file what `check --fleet` finds slow in some of the checked runs.
        is_log: ``is_log(path)``, whether a file in a folder is one that it reads.
        of_log: ``of_content(file, data, machine, error)``, the Document of a file that is no saved run; it
            raises `NotARun` if it does not read such files.
        with_named: ``with_named(machine, options)``, the Machine with what only the options name.
        asked: ``is_named(case, options)``, whether the options ask for a testcase, whatever the tier.
        attempt: ``tried(machine, facts)``, attempts of peer access before a run; None if there are none.
        of_job: The class of a backend of jobs; its arguments are the exchange, the Machine of all ranks,
            that of this process, the options, and the time that a late rank may take.
        package: The package relative to which names are.
    """

    name: str
    commands: dict[str, Command] = field(default_factory=dict)
    programs: Programs | None = None
    testcases: tuple[str, ...] = ()
    backend: bool = False
    formats: tuple[Named, ...] = ()
    report: str = ""
    page_part: str = ""
    results: str = ""
    judging: str = ""
    joined: dict[str, str] = field(default_factory=dict)
    remember: str = ""
    past: str = ""
    compared: str = ""
    is_log: str = ""
    of_log: str = ""
    with_named: str = ""
    asked: str = ""
    attempt: str = ""
    of_job: str = ""
    package: str = ""

    def path(self, name: str = "") -> str:
        """The full name of a module, or of ``"module:attribute"``."""
        package = self.package or f"{__name__}.{self.name}"
        return f"{package}{'' if name.startswith(':') else '.'}{name}" if name else package

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
            "overalloc": Command("command", "measure the cost of sharing a buffer and of over-allocation"),
            # The reproducer's name of overalloc.
            "gpudirect_p2p_overalloc": Command("command", "", of_others=True),
        },
        testcases=("messages:TESTCASES", "sharing:SHARING"),
        of_job="backend:PairsBackend",
        formats=(Named("overalloc", "overalloc_text", short=True),),
    ),
    Feature(
        "blocks",
        commands={"blocks": Command("command", "find the fastest way to move scattered blocks (a KV cache)")},
        testcases=("testcases:TESTCASES", "saturation:TESTCASES"),
        judging="judging",
        formats=(
            Named("blocks", "text", "terminal"),
            Named("blocks-json", "text:render_blocks_json", "json"),
            Named("vllm", "vllm", short=True),
        ),
        page_part="page:part",
        results="page",
    ),
    Feature(
        "storage",
        testcases=("testcases:TESTCASES",),
        backend=True,
        with_named=":with_named",
        asked="testcases:is_named",
    ),
    Feature(
        "p2p",
        commands={"p2p": Command("command", "test whether GPU peer access (P2P) really works")},
        page_part="page:part",
        judging="judging",
        attempt="attempts:tried",
    ),
    Feature(
        "history",
        commands={"history": Command("command", "show what changed on this machine, and since when")},
        results="page",
        remember="other_commands:remember",
        past="other_commands:with_past",
    ),
    Feature("fleet", joined={"text": "screen:joined", "html": "page:joined"}, compared="analysis:behind"),
    Feature(
        "imports",
        commands={
            "import": Command("command", "convert logs of nvbandwidth, nccl-tests, ... to a saved run")
        },
        is_log=":is_log",
        of_log=":of_content",
    ),
    Feature(
        "transfers",
        commands={
            "transfer": Command(
                "command", "measure transfers that you define, or show what they would use", measures=True
            ),
        },
    ),
    Feature(
        "qualify",
        commands={
            "qualify": Command("command", "find the slow nodes, NICs, cables and switches of a cluster")
        },
        report="report:report",
        page_part="page:part",
    ),
    Feature(
        "nvbandwidth",
        commands={
            "nvbandwidth": Command(
                "command",
                "the command line, text and JSON of nvbandwidth",
                measures=True,
                of_others=True,
                configured=False,
            ),
            "sailbandwidth": Command(
                "command:sailbandwidth",
                "the command line, text and JSON of sailbandwidth",
                measures=True,
                of_others=True,
                configured=False,
            ),
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
