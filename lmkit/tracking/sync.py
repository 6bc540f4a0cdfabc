"""Brings the W&B runs of a sweep in line with its run folders, and uploads them when asked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lmkit.errors.user_error import UserError
from lmkit.runs.sweep_folder import SweepFolder
from lmkit.tracking.rebuild import Rebuilt, rebuild


def sync(sweep: SweepFolder, online: bool, console: Console) -> bool:
    """Rebuilds the records of all runs, and with `online` uploads them; False if any is damaged.

    Raises: UserError when the records cannot be written or uploaded.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task("W&B runs", total=len(sweep.manifest.points))
        rebuilt = rebuild(sweep, lambda: progress.advance(task))
    _show(sweep, rebuilt, console)
    if online and rebuilt.records:
        upload(rebuilt.records)
    return not rebuilt.damaged


def upload(records: Sequence[Path]) -> None:
    """Uploads recorded runs; one that W&B has already is replaced.

    Raises: UserError unless W&B has taken all of them.
    """
    command = [sys.executable, "-m", "wandb", "sync", "--include-synced"]
    subprocess.run([*command, *map(str, records)], check=False)
    missing = [record for record in records if not list(record.glob("*.wandb.synced"))]
    if missing:
        raise UserError(
            f"W&B has not taken {len(missing)} of {len(records)} runs, {missing[0]} for one; an "
            f"upload needs an account: python -m wandb login, then the same line again"
        )


def _show(sweep: SweepFolder, rebuilt: Rebuilt, console: Console) -> None:
    for label, reason in rebuilt.damaged.items():
        console.print(f"[red]left out[/]: {escape(label)}: {escape(reason)}", soft_wrap=True)
    for point in rebuilt.unfinished:
        console.print(f"unfinished, as far as it is: {escape(point.label)}", soft_wrap=True)
    if rebuilt.new:
        console.print(f"{len(rebuilt.new):,} have not begun", highlight=False)
    console.print(
        f"{len(rebuilt.records):,} runs recorded in {escape(str(sweep.path / 'wandb'))}",
        highlight=False,
        soft_wrap=True,
    )
