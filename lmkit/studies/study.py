"""The contract of a study: a loop, a data frame, a figure.

`conf/studies/<name>.yaml` names the class and holds its options with their defaults; the command
`lmkit study <name>` finds it there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from lmkit.errors.user_error import require_count, require_list


class Findings(NamedTuple):
    """What a study found."""

    rows: pd.DataFrame  # every measurement
    summary: pd.DataFrame  # what the terminal shows
    figure: Figure


class SyntheticStudy(ABC):
    """An experiment with its options; making one checks them, and raises UserError."""

    @abstractmethod
    def run(self, seed: int) -> Findings:
        """Measures. The seed decides every random draw."""


def require_counts(option: str, values: Sequence[object], least: int = 1) -> None:
    """Raises UserError unless `values` is a list of whole numbers of at least `least`."""
    require_list(option, values)
    for value in values:
        require_count(option, value, least)
