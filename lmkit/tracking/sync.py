"""Synchronises the W&B runs of a sweep with its run folders, and uploads them when asked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from lmkit.errors.user_error import UserError
from lmkit.presentation.progress import progress_bar
from lmkit.runs.sweep_folder import SweepFolder
from lmkit.tracking.rebuild import Rebuilt, rebuild


def sync(sweep: SweepFolder, online: bool, console: Console) -> bool:
    """Rebuilds the records of all runs, and with `online` uploads them; False if any is damaged.

    Raises: UserError when the records cannot be written or uploaded.
    """
    with progress_bar() as bar:
        task = bar.add_task("W&B runs", total=len(sweep.manifest.all_points))
        rebuilt = rebuild(sweep, lambda: bar.advance(task))
    _show(sweep, rebuilt, console)
    if online and rebuilt.records:
        upload(rebuilt.records)
    return not rebuilt.damaged


def upload(records: Sequence[Path]) -> None:
    """Uploads recorded runs. A run that W&B has already is replaced.

    Raises: UserError unless W&B has accepted all of them.
    """
    command = [sys.executable, "-m", "wandb", "sync", "--include-synced"]
    subprocess.run([*command, *map(str, records)], check=False)
    missing = [record for record in records if not list(record.glob("*.wandb.synced"))]
    if missing:
        raise UserError(
            f"W&B has rejected {len(missing)} of {len(records)} runs, such as {missing[0]}; an "
            f"upload needs an account: type python -m wandb login, then the same command again"
        )


def _show(sweep: SweepFolder, rebuilt: Rebuilt, console: Console) -> None:
    for label, reason in rebuilt.damaged.items():
        console.print(f"[red]left out[/]: {escape(label)}: {escape(reason)}", soft_wrap=True)
    for point in rebuilt.unfinished:
        console.print(f"not finished, recorded so far: {escape(point.label)}", soft_wrap=True)
    if rebuilt.new:
        console.print(f"{len(rebuilt.new):,} have not begun", highlight=False)
    console.print(
        f"{len(rebuilt.records):,} runs recorded in {escape(str(sweep.path / 'wandb'))}",
        highlight=False,
        soft_wrap=True,
    )
