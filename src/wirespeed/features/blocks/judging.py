"""How values of block lists are judged: which are alike, and the plan that their tables repeat."""

from __future__ import annotations

import dataclasses

from ...document import TestcaseResult
from ...testcases.base import PlanOptions, Testcase
from .testcases import TESTCASES, of_key


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
