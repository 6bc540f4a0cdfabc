"""Bars on the terminal for what takes a while."""

from __future__ import annotations

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def progress_bar() -> Progress:
    """A bar that counts, and vanishes when the work is done."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(TextColumn("{task.description}"), *columns, transient=True)
