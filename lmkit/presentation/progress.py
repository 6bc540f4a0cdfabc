"""Progress bars on the terminal; elsewhere nothing is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

_Item = TypeVar("_Item")


def progress_bar(
    console: Console | None = None,
    refresh_per_second: float = 10,
    *,
    more: Iterable[ProgressColumn] = (),
    show: bool = True,
) -> Progress:
    """A progress bar with counts that vanishes when the work is done.

    Off a terminal nothing is drawn: rich would end with an empty line, and end the process where
    nobody reads it.

    Args:
        console: where it is drawn; None: on standard output.
        refresh_per_second: how often it is redrawn.
        more: columns to the right of the others.
        show: false: nothing is drawn on a terminal either.
    """
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), *more)
    console = console or Console()
    return Progress(
        TextColumn("{task.description}"),
        *columns,
        transient=True,
        console=console,
        refresh_per_second=refresh_per_second,
        disable=not (show and console.is_terminal),
    )


def tracked(items: Iterable[_Item], name: str, console: Console | None = None) -> Iterator[_Item]:
    """The items, with a progress bar."""
    with progress_bar(console) as progress:
        yield from progress.track(items, description=name)
