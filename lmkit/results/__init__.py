"""Finished runs as one data frame: groups, tests, and what was published."""

import sys
from types import ModuleType
from typing import Any


class _Results(ModuleType):
    """`lmkit.results("runs")` calls the package, which has the name of the function."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """See `lmkit.results.frame.results`."""
        from lmkit.results.frame import results  # brings pandas

        return results(*arguments, **options)


sys.modules[__name__].__class__ = _Results
