"""How values of block lists are judged: which are alike, the plan of their tables, and the first sentence."""

from __future__ import annotations

import dataclasses

from ...document import Document, TestcaseResult
from ...judging.check import Check
from ...judging.verdict import Verdict
from ...testcases.base import PlanOptions, Testcase
from ...units import many
from .testcases import PREFIX, TESTCASES, of_key


def first_words(document: Document, check: Check) -> tuple[str, str] | None:
    """Sentence and extent of a run of block lists that passes: links limit only the largest lists."""
    rates = [one for one in check.judgements if one.value is not None and one.unit.more_is_better]
    if check.verdict is not Verdict.PASS or not all(
        case.name.startswith(PREFIX) for case in document.testcases
    ):
        return None
    judged = sum(one.verdict.is_judged for one in rates)
    extent = f"{judged} of {many(len(rates), 'rate')} judged; smaller lists have no expected rate"
    return "the largest lists move as fast as expected", extent


def alike(testcase: str, table: str) -> str | None:
    """The key of the same lists on no path; None for tables of other testcases."""
    lists = of_key(testcase, table)
    return None if lists is None else dataclasses.replace(lists, path="").key


def planned(
    result: TestcaseResult, case: Testcase, options: PlanOptions
) -> tuple[Testcase, PlanOptions] | None:
    """The testcase with the sizes and numbers of its tables; None for other testcases."""
    axes = result.tables[0]
    sizes, counts = axes.rows.values, axes.columns.values
    if not (case in TESTCASES and sizes and counts and case.swept):
        return None
    lists = [found for table in result.tables if (found := of_key(result.name, table.key)) is not None]
    options = dataclasses.replace(
        options, block_counts=tuple(map(round, counts)),
        block_layout=next((found.layout for found in lists), options.block_layout),
        while_computing=any(found.computing for found in lists),
    )  # fmt: skip
    return dataclasses.replace(case, pattern=case.swept(tuple(map(round, sizes)))), options
