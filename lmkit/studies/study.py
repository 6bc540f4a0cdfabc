"""The contract of a study: an experiment that isolates the bottleneck, in one class.

A study is a class: its options, its measurements, what they imply for the sources' claims, and its
figures. `conf/studies/<name>.yaml` names the class and holds the options with their defaults. The
command line finds it there; nothing lists it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from matplotlib.figure import Figure

from lmkit.errors.user_error import require_count, require_list
from lmkit.studies.work import Work

Row = dict[str, Any]  # plain data, as JSON holds it
Tables = Mapping[str, Sequence[Row]]  # by name; the rows of a table have the same columns


class Claim(NamedTuple):
    """A statement of a source, and whether it holds here."""

    claim: str
    source: str
    holds: bool
    evidence: str  # in words, with the numbers that decide
    figure: str  # name of the figure that shows it


def where(rows: Sequence[Row], **values: object) -> list[Row]:
    """The rows that have these values in the columns of these names."""
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def require_counts(option: str, values: Sequence[object], minimum: int = 1) -> None:
    """Raises UserError unless `values` is a list of whole numbers of at least `minimum`."""
    require_list(option, values)
    for value in values:
        require_count(option, value, minimum)


class SyntheticStudy(ABC):
    """An experiment with its options; making one checks them.

    The constructor takes the options of its YAML file by their names, and raises UserError for a
    value that is wrong.
    """

    version: ClassVar[int] = 1  # raised when the same options would give other numbers
    # options that name heads, `all` or a list; the constructor gets a `FreeHead` per head
    head_options: ClassVar[Sequence[str]] = ()

    @abstractmethod
    def run(self, seed: int, work: Work) -> Tables:
        """Measures, piece by piece, so that a killed study resumes where it stopped.

        The seed decides every random draw.
        """

    @abstractmethod
    def claims(self, tables: Tables) -> list[Claim]:
        """The sources' claims that the tables of `run` decide."""

    @abstractmethod
    def figures(self, tables: Tables) -> dict[str, Figure]:
        """Figures of the tables of `run`, by name."""
