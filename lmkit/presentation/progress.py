"""Progress bars on the terminal; elsewhere nothing is drawn."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_Item = TypeVar("_Item")


def progress_bar(console: Console | None = None, refresh_per_second: float = 10) -> Progress:
    """A progress bar with counts that vanishes when the work is done.

    Off a terminal nothing is drawn: rich would end with an empty line, and end the process where
    nobody reads it.

    Args:
        console: where it is drawn; None: on standard output.
        refresh_per_second: how often it is redrawn.
    """
    console = console or Console()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        transient=True,
        console=console,
        refresh_per_second=refresh_per_second,
        disable=not console.is_terminal,
    )


def tracked(items: Iterable[_Item], name: str, console: Console | None = None) -> Iterator[_Item]:
    with progress_bar(console) as progress:
        yield from progress.track(items, description=name)
