"""What the page is made of."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

PANEL = (3.9, 2.5)  # inches: four figures stand side by side


@dataclass(frozen=True)
class PageTable:
    """A table: as a reader sees it, and its numbers."""

    key: str  # begins the names of its files
    title: str
    text: pd.DataFrame
    values: pd.DataFrame  # of the CSV, in full precision
    notes: Sequence[str] = ()
    classes: pd.DataFrame | None = None  # of style sheets, by cell
    is_folded: bool = False


@dataclass(frozen=True)
class PageFigure:
    """A figure."""

    key: str
    title: str
    caption: str
    figure: Figure


@dataclass(frozen=True)
class PageSection:
    """What is said of one setting."""

    key: str
    title: str
    lead: str = ""
    tables: Sequence[PageTable] = ()
    figures: Sequence[PageFigure] = ()
