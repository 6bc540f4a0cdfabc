"""What analyses stored: of each kind a table of its fields and at most one figure.

Of finished runs, a line is a head's run of median test perplexity; pretrained models stand by name.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from lmkit.analyses.base import Analysis, StoredRecord, measured
from lmkit.errors.user_error import UserError
from lmkit.presentation.tables import DASH
from lmkit.report.blocks import PANEL, PageFigure, PageTable
from lmkit.runs.folder import RunFolder


def measurements(
    folders: Mapping[str, Path], kinds: Sequence[type[Analysis]], left_out: dict[str, str]
) -> tuple[list[PageTable], list[PageFigure]]:
    """A table and a figure of each kind of which something was measured.

    Args:
        folders: of runs or pretrained models, by their labels.
        left_out: gets the files that are damaged.
    """
    tables, figures = [], []
    for kind in kinds:
        found: list[StoredRecord] = []
        for label, path in folders.items():
            try:
                found += measured(RunFolder(path), kind, label)
            except UserError as error:
                left_out[f"{path.name}, {kind.name}"] = str(error).splitlines()[0]
        if not found:
            continue
        tables.append(_table(kind, found))
        if kind.caption:
            drawn = Figure(figsize=PANEL, layout="constrained")
            kind.draw(drawn.subplots(), found)
            figures.append(PageFigure(kind.name, kind.title, kind.caption, drawn))
    return tables, figures


def _table(kind: type[Analysis], found: Sequence[StoredRecord]) -> PageTable:
    columns = kind.record.columns()
    rows = [{name: getattr(each.record, name) for name in columns} for each in found]
    values = pd.DataFrame(rows, index=pd.Index([each.label for each in found]))
    values = values.dropna(axis="columns", how="all")
    text = values.map(_cell).rename(columns=columns)
    return PageTable(kind.name, kind.title, text, values, is_folded=True)


def _cell(value: object) -> str:
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value))
    if not isinstance(value, int | float) or pd.isna(value):
        return DASH
    text = f"{value:,}" if float(value).is_integer() and abs(value) < 1e12 else f"{value:,.4g}"
    return text.removesuffix(".0").replace("-", "−")
