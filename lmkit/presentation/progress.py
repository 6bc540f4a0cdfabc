"""Progress bars on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def progress_bar(console: Console | None = None, refresh_per_second: float = 10) -> Progress:
    """A progress bar with counts that vanishes when the work is done.

    Args:
        console: where it is drawn; None: on standard output.
        refresh_per_second: how often it is redrawn.
    """
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(
        TextColumn("{task.description}"),
        *columns,
        transient=True,
        console=console,
        refresh_per_second=refresh_per_second,
    )
