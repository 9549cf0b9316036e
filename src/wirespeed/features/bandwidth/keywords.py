"""The keywords of GPUInspector.jl, as further names of our own."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec, cast

from ...api import run
from ...errors import UsageError
from . import Bandwidth

P = ParamSpec("P")
#: Keywords of ``run`` that the functions give themselves.
_FIXED = {"testcases", "prefixes", "size", "sizes", "pageable", "listeners"}
#: Its keywords without a counterpart among ours, and what to use.
_INSTEAD = {
    "DtoDfactor": "counts says which bytes count, and bytes and samples are in the result",
    "src": "several devices are named by devices",
    "dst": "several devices are named by devices",
    "alternate": "measure p2p_bandwidth(src, dst, alternate=True), or p2p_bandwidth_all for every direction",
    "dev1": "the devices are src and dst",
    "dev2": "the devices are src and dst",
    "dtype": "copies move bytes; only memory_bandwidth_saxpy computes with a type",
    "hist": "the result's plot() draws the histogram",
    "io": "use print(result, file=...)",
    "repeat": "copies=N times N copies together",
    "memsize": "size is the length of a vector",
    "nbench": "it measures nothing",
    "times": "a sample took result.bytes / rate seconds, with the bytes of both directions if both count",
}


def with_original_keywords(function: Callable[P, Bandwidth]) -> Callable[P, Bandwidth]:
    """Let a function accept ``memsize``, ``nbench``, ``verbose`` and ``stats``.

    Raises:
        UsageError: If one is given together with our name of the same, or is a keyword of GPUInspector.jl
            that the function does not have; the message says what to use.
        TypeError: If a keyword is unknown; the message suggests the nearest one.
    """
    parameters = signature(function).parameters
    measures = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())
    # The size of a saxpy is a length; GPUInspector.jl has no memsize there either.
    sized = "size" in parameters and "dtype" not in parameters
    renamed = {**({"memsize": "size"} if sized else {}), **({"nbench": "samples"} if measures else {})}
    theirs = ["verbose", "stats", *renamed]

    @wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> Bandwidth:
        given = cast("dict[str, Any]", keywords)
        verbose, stats = given.pop("verbose", False), given.pop("stats", None)
        for name, own in [pair for pair in renamed.items() if pair[0] in given]:
            if own in given or own in [*parameters][: len(arguments)]:
                raise UsageError(f"{name} is another name of {own}; give one of them")
            given[own] = given.pop(name)
        known = {*parameters, *(signature(run).parameters.keys() - _FIXED if measures else ())}
        for name in sorted(given.keys() - known):
            if name in _INSTEAD:
                raise UsageError(f"{function.__name__} has no keyword {name}: {_INSTEAD[name]}")
            near = get_close_matches(name, [*known, *theirs], 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}{hint}")
        result = function(*arguments, **keywords)
        if verbose:
            result.show(stats, "GiB/s")
        return result

    return call
