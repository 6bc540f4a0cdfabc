"""Data frames as tables of a page, of a paper and of a spreadsheet, by pandas' Styler."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pandas as pd

from lmkit.presentation.tables import DASH, decimal

_SIGNS = str.maketrans(
    {"−": "$-$", "±": r"$\pm$", "†": r"\dag{}", "‡": r"\ddag{}", "ρ": r"$\rho$"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}  # others in OT1
)
_ESCAPED = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
)


def plus_minus(mean: float, sd: float, digits: int = 2) -> str:
    """`22.89 ± 0.01`; of a single value only the mean."""
    if pd.isna(mean):
        return DASH
    text = decimal(mean, digits)
    return text if pd.isna(sd) else f"{text} ± {decimal(sd, digits)}"


def signed(value: float, digits: int = 2) -> str:
    """`+0.24`, `−1.31`, `0.00`."""
    text = decimal(value, digits)
    return f"+{text}" if value > 0 and re.search("[1-9]", text) else text


def p_text(p: float) -> str:
    """Three digits, small ones in scientific notation."""
    if pd.isna(p):
        return DASH
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1e}".replace("-", "−")


def told_apart(labels: Iterable[str]) -> pd.Index[str]:
    """An index in which equal labels have numbers: `GSS`, `GSS #2`."""
    every = pd.Series(list(labels), dtype=object)
    numbers = every.groupby(every).cumcount() + 1
    return pd.Index(every.where(numbers == 1, every + " #" + numbers.astype(str)))


def to_html(text: pd.DataFrame, key: str, classes: pd.DataFrame | None = None) -> str:
    """The table as an element of a page.

    Args:
        text: what a reader sees; its index has unique labels.
        key: makes the ids, so that the same table gives the same text.
        classes: of style sheets, by cell.
    """
    styled = text.rename_axis(index=None, columns=None).style.set_table_attributes('class="data"')
    styled = styled.format(escape="html").format_index(escape="html", axis="index")
    styled = styled.format_index(escape="html", axis="columns").set_uuid(key)
    if classes is not None:
        styled = styled.set_td_classes(classes.reindex_like(text).fillna(""))
    return str(styled.to_html())


def to_latex(text: pd.DataFrame, key: str, title: str, notes: Sequence[str] = ()) -> str:
    """The table in booktabs' form, its notes in the caption; the list of tables has the title."""
    plain = text.rename_axis(index=None, columns=None).map(
        lambda cell: str(cell).replace("\n", " ")
    )
    styled = plain.style.format(escape="latex").format_index(escape="latex", axis="index")
    styled = styled.format_index(escape="latex", axis="columns")
    label = f"tab:{key.replace('_', '-')}"
    columns = "l" + "r" * text.shape[1]
    short = title.translate(_ESCAPED)
    caption = " ".join([f"{title}.", *notes] if notes else [title]).translate(_ESCAPED)
    drawn = styled.to_latex(
        hrules=True, caption=(caption, short), label=label, column_format=columns
    )
    return str(drawn).translate(_SIGNS)
