"""What analyses stored: of each kind a table of its fields and at most one figure.

Of finished runs, a line is a head's run of median test perplexity; pretrained models stand by name.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from lmkit.analyses.base import Analysis, StoredRecord, measured
from lmkit.errors.user_error import UserError
from lmkit.presentation.styled import told_apart
from lmkit.presentation.tables import DASH, decimal
from lmkit.report.page import PANEL, PageFigure, PageTable
from lmkit.results.frame import Row, analyses_in, fields_of
from lmkit.runs.folder import RunFolder

_STEM = re.compile(r"rank_(?P<text>.+)_log_probs_(?P<contexts>\d+)(@\w+)?")
_COLUMNS = {  # of what `lmkit rank hf=` stores: heading and digits
    "contexts": ("contexts", 0),
    "bits_per_byte": ("bits per byte", 3),
    "perplexity": ("perplexity per token", 2),
    "spectrum.num_columns": ("tokens", 0),
    "spectrum.press_rank": ("Press rank", 0),
    "spectrum.effective_rank.0.0001": ("1e−4-effective rank", 0),
    "weight_spectrum.entropy_rank": ("decoder's entropy rank", 1),
    "mean_cosine": ("mean cosine of two contexts", 3),
    "share": ("gradient's share that passes", 3),
}


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


def pretrained(models: Sequence[RunFolder], left_out: dict[str, str]) -> PageTable | None:
    """A row for each text of each model; None where no rank was measured. Perplexities per token do
    not compare between tokenizers. Bits per byte do, at equal texts.

    Args:
        left_out: gets the files that are damaged.
    """
    rows = [row for model in models for row in _rank_rows(model, left_out)]
    if not rows:
        return None
    values = pd.DataFrame(rows).set_index("model")
    columns = {name: how for name, how in _COLUMNS.items() if values.get(name) is not None}
    shown = {"text": values["text"]}
    for name, (heading, digits) in columns.items():
        shown[heading] = values[name].map(
            lambda value, digits=digits: DASH if pd.isna(value) else decimal(float(value), digits)
        )
    text = pd.DataFrame(shown)
    text.index = told_apart(values.index)
    note = "Bits per byte compare on one text; ranks at equal contexts and vocabularies alone."
    return PageTable("pretrained", "Pretrained models", text, values, [note])


def _rank_rows(model: RunFolder, left_out: dict[str, str]) -> list[Row]:
    stored, damaged = analyses_in(model)
    left_out |= {f"{model.path.name}/{file}": why for file, why in damaged.items()}
    by_stem = {stem: fields_of(content) for stem, content in stored.items()}
    shares = {
        content.get("pretrained.text_sha256"): content.get("share")
        for stem, content in by_stem.items()
        if re.fullmatch(r"gradient_bottleneck(@\w+)?", stem)
    }
    found = []
    for stem, content in by_stem.items():
        if (about := _STEM.fullmatch(stem)) is not None:
            row: Row = {"model": model.path.name, "text": about["text"]}
            row |= {"share": shares.get(content.get("pretrained.text_sha256"))}
            found.append(row | {"contexts": int(about["contexts"])} | content)
    return found
