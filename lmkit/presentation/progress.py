"""Bars on the terminal for what takes a while."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def progress_bar(console: Console | None = None) -> Progress:
    """A bar that counts, and vanishes when the work is done.

    Args:
        console: where it is drawn; None: on standard output.
    """
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(TextColumn("{task.description}"), *columns, transient=True, console=console)
