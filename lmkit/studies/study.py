"""The contract of a study: a loop, a data frame, a figure; and how one is run.

`conf/studies/<name>.yaml` names the class and holds its options with their defaults; the command
`lmkit study <name>` finds it there.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from matplotlib.figure import Figure

from lmkit.errors.user_error import require_list
from lmkit.presentation.figures import house_style, save
from lmkit.runs.atomic import make_folder, remove_leftovers, replace_text


class Findings(NamedTuple):
    rows: pd.DataFrame  # every measurement
    summary: pd.DataFrame  # what the terminal shows
    figure: Figure


class SyntheticStudy(ABC):
    """An experiment with its options; making one checks them, and raises UserError."""

    @abstractmethod
    def run(self, seed: int) -> Findings:
        """Measures. The seed decides every random draw."""


def finish(study: SyntheticStudy, folder: Path, *, seed: int, threads: int) -> None:
    """Runs it, prints its summary, and writes rows.csv and figure.svg into the folder."""
    torch.set_num_threads(threads)
    with house_style():
        found = study.run(seed)
        make_folder(folder)
        remove_leftovers(folder)  # of a study that was killed
        replace_text(folder / "rows.csv", found.rows.to_csv(index=False))
        save(found.figure, folder / "figure.svg")
    print(found.summary.to_string(index=False, float_format="{:.4g}".format))
    print(f"written: {folder / 'rows.csv'}, {folder / 'figure.svg'}")


def require_each(
    option: str, values: Sequence[object], check: Callable[..., object], *args: Any, least: int = 1
) -> None:
    """Raises UserError unless `values` is a list, of at least as many, and all pass the check."""
    require_list(option, values, may_be_empty=not least)
    for value in values:
        check(option, value, *args)
