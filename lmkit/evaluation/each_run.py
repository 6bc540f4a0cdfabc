"""The same measurement of one run or of many."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lmkit.errors.user_error import UserError
from lmkit.evaluation.rank import FoundRuns
from lmkit.runs.folder import RunFolder

Found = TypeVar("Found")


def each_of(
    found: FoundRuns, path: str, measure: Callable[[RunFolder], Found]
) -> dict[str, Found]:
    """What `measure` finds of each run, by its name; those that it cannot are named and left out.

    Raises: UserError when none of `path` is left, or its only one cannot be measured.
    """
    results, left_out = {}, dict(found.left_out)
    for run in found.runs:
        try:
            results[run.path.name] = measure(run)
        except UserError as error:
            if len(found.runs) == 1 and not left_out:
                raise
            left_out[run.path.name] = str(error)
    for name, reason in left_out.items():
        print(f"left out: {name}: {reason}")
    if not results:
        raise UserError(f"no run of run={path} could be measured")
    return results
