"""Synchronises the W&B runs of a sweep with its run folders, and uploads them when asked.

What is recorded while a run trains is one piece per attempt, and lacks what a killed process had
buffered. From its folder each run is recorded in one piece, under the same id each time:

<sweep's folder>/wandb/offline-run-<time>-<id>/    what `wandb sync` uploads
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import wandb
from rich.console import Console
from rich.markup import escape

from lmkit.errors.user_error import UserError
from lmkit.presentation.progress import tracked
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile, Row
from lmkit.runs.names import RunNames
from lmkit.runs.sweep_folder import Point, SweepFolder
from lmkit.tracking.charts import Charts, all_epoch_charts, final_charts
from lmkit.tracking.record import Filing, RunRecord
from lmkit.tracking.summary import axes_of, filed_as


@dataclass
class Rebuilt:
    """The outcome for each point of a sweep."""

    records: list[Path] = field(default_factory=list)
    unfinished: list[Point] = field(default_factory=list)  # recorded as far as they are
    new: list[Point] = field(default_factory=list)  # nothing to record yet
    damaged: dict[str, str] = field(default_factory=dict)  # label -> why it is left out


class _OfflineRun(NamedTuple):
    """All that W&B records of a run, read before anything is written."""

    folder: RunFolder
    config: dict[str, Any]
    names: RunNames
    rows: list[Row]
    epoch_charts: Charts
    # metrics, cost and charts; None while unfinished
    result: tuple[Mapping[str, Any], Mapping[str, Any], Charts] | None


def rebuild(sweep: SweepFolder) -> Rebuilt:
    """Records every run of the sweep again. A damaged run is left out and keeps its record.

    Raises: UserError when the records cannot be written.
    """
    rebuilt = Rebuilt()
    axes = [axis.option for axis in axes_of(sweep)]
    for point in tracked(sweep.manifest.points, "W&B runs"):
        folder = sweep.run_folder(point)
        if folder.state() == "new":
            rebuilt.new.append(point)
            continue
        try:
            run = _read(folder)
        except UserError as error:
            rebuilt.damaged[point.label] = str(error)
            continue
        rebuilt.records.append(_write(run, sweep, axes, [sweep.manifest.name]))
        if run.result is None:
            rebuilt.unfinished.append(point)
    return rebuilt


def _read(folder: RunFolder) -> _OfflineRun:
    """Raises: UserError naming the file that is damaged."""
    result, metrics = None, MetricsFile(folder.metrics)
    if folder.state() != "finished":
        rows = metrics.read()
    else:
        rows = metrics.read_finished()
        ended = folder.read_result()
        result = ended.metrics, ended.cost, final_charts(folder)
    config = folder.read_config()
    for option in ("name", "seed"):
        if option not in config:
            raise UserError(f"{folder.config} is damaged: {option} is missing")
    names = folder.read_names()
    return _OfflineRun(folder, config, names, rows, all_epoch_charts(folder), result)


def _write(run: _OfflineRun, sweep: SweepFolder, axes: list[str], sweeps: list[str]) -> Path:
    """Records one run beside the others, then removes its earlier records.

    Args:
        sweeps: names of the sweeps with the run.
    """
    name = run.folder.path.name
    records = sweep.path / "wandb"
    project, tags = filed_as(run.config)
    filing = Filing(project, sweep.manifest.name, tags, axes, sweeps)
    try:
        records.mkdir(exist_ok=True)
        # absolute: W&B's process may be in another folder
        with tempfile.TemporaryDirectory(dir=sweep.path.resolve(), prefix=".wandb-") as partial:
            _tell(run, filing, partial)
            (written,) = Path(partial, "wandb").glob("offline-run-*")
            # earlier versions put a folder of tables beside each record
            of_run = re.compile(rf"(offline-run|tables)-\w+-{re.escape(name)}")
            for old in records.iterdir():
                if of_run.fullmatch(old.name):
                    shutil.rmtree(old)
            return written.rename(records / written.name)
    except (OSError, wandb.Error) as error:
        raise UserError(f"{records} cannot be written: {error}") from error


def _tell(run: _OfflineRun, filing: Filing, folder: str) -> None:
    settings = wandb.Settings(
        silent=True,
        mode="offline",
        root_dir=folder,
        console="off",
        # of this process and machine, not those that trained
        disable_code=True,
        disable_git=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
    )
    record = RunRecord(run.folder, run.config, run.names, filing, settings)
    for row in run.rows:
        values = {name: value for name, value in row.items() if name not in ("step", "epoch")}
        record.row(int(row["step"]), int(row["epoch"]), values)
    record.show(run.epoch_charts)
    if run.result is None:
        record.leave()
    else:
        record.conclude(*run.result)


def sync(sweep: SweepFolder, online: bool, console: Console) -> bool:
    """Rebuilds the records of all runs, and with `online` uploads them; False if any is damaged.

    Raises: UserError when the records cannot be written or uploaded.
    """
    rebuilt = rebuild(sweep)
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
