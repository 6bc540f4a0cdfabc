"""Rebuilds the W&B runs of a sweep from its run folders.

What was recorded while a run trained is in as many pieces as it had attempts, and lacks what a
killed process had buffered. From the folder each run is recorded whole, in one piece, under the
same id each time:

<sweep's folder>/wandb/offline-run-<time>-<id>/    what `wandb sync` uploads
<sweep's folder>/wandb/tables-<time>-<id>/         its tables, until they are uploaded
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import wandb
import yaml

from lmkit.errors.user_error import UserError
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile, Row
from lmkit.runs.sweep_folder import Point, SweepFolder
from lmkit.spectra.storage import StoredSpectrum, read_spectrum
from lmkit.tracking.fields import Value, result_fields, run_fields, varied
from lmkit.tracking.live import MirrorLogger, open_run
from lmkit.tracking.spectrum_charts import all_epoch_charts

FINAL_SPECTRUM = "test_log_probs.npz"


@dataclass(frozen=True)
class Record:
    """All that W&B is told of a run."""

    name: str  # of its folder
    config: dict
    rows: list[Row]
    charts: dict[str, object]  # of its epochs
    spectrum: StoredSpectrum | None  # of log P on test; None while it is unfinished
    fields: dict[str, Value]

    @property
    def finished(self) -> bool:
        return self.spectrum is not None


@dataclass
class Rebuilt:
    """What became of each point of a sweep."""

    records: list[Path] = field(default_factory=list)
    unfinished: list[Point] = field(default_factory=list)  # recorded as far as they are
    new: list[Point] = field(default_factory=list)  # nothing to record yet
    damaged: dict[str, str] = field(default_factory=dict)  # label -> why it was left out


def rebuild(sweep: SweepFolder, progress: Callable[[], None]) -> Rebuilt:
    """Records every run of the sweep anew; `progress` is called after each.

    A damaged run is left out, with what was recorded of it before.

    Raises: UserError when the records cannot be written.
    """
    rebuilt = Rebuilt()
    axes = [axis.option for axis in varied([point.overrides for point in sweep.manifest.points])]
    for point in sweep.manifest.points:
        folder = sweep.run_folder(point)
        if folder.state() == "new":
            rebuilt.new.append(point)
        else:
            try:
                record = read_record(folder, axes)
            except UserError as error:
                rebuilt.damaged[point.label] = str(error)
            else:
                rebuilt.records.append(_write(record, sweep))
                if not record.finished:
                    rebuilt.unfinished.append(point)
        progress()
    return rebuilt


def read_record(folder: RunFolder, axes: Sequence[str]) -> Record:
    """Reads a run's folder. Raises: UserError naming the file that is damaged."""
    config = _read_config(folder.config)
    rows = MetricsFile(folder.metrics).read()
    try:
        fields = run_fields(config, axes)
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{folder.config} is damaged: {error!r} is missing or wrong") from None
    spectrum = None
    if folder.state() == "finished":
        fields |= result_fields(folder.read_result().metrics)
        spectrum = read_spectrum(folder.spectra / FINAL_SPECTRUM)
    charts = all_epoch_charts(folder.spectra)
    return Record(folder.path.name, config, rows, charts, spectrum, fields)


def _write(record: Record, sweep: SweepFolder) -> Path:
    """Records one run beside the others, then removes what was recorded of it before."""
    records = sweep.path / "wandb"
    tables = records / f"tables-{time.time_ns()}-{record.name}"
    try:
        records.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=sweep.path, prefix=".wandb-") as partial:
            with _staged_in(tables):
                _log(record, Path(partial), sweep.manifest.name)
            (written,) = Path(partial, "wandb").glob("offline-run-*")
            its = re.compile(rf"(offline-run|tables)-\w+-{re.escape(record.name)}")
            for old in records.iterdir():
                if its.fullmatch(old.name) and old != tables:
                    shutil.rmtree(old)
            return written.rename(records / written.name)
    except OSError as error:
        raise UserError(f"{records} cannot be written: {error}") from error


def _log(record: Record, folder: Path, group: str) -> None:
    settings = wandb.Settings(
        silent=True,
        console="off",
        # of this process and machine, which are not those that trained
        disable_code=True,
        disable_git=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
    )
    run = open_run(record.name, record.config, folder, "offline", group, None, settings)
    logger = MirrorLogger(run)
    with_spectrum = [i for i, row in enumerate(record.rows) if any(map(_of_spectrum, row))]
    for i, row in enumerate(record.rows):
        if i in with_spectrum[-1:]:
            run.log(record.charts, commit=False)
        if i == len(record.rows) - 1 and record.spectrum is not None:
            logger.log_final_spectrum(record.spectrum)
        values = {name: value for name, value in row.items() if name not in ("step", "epoch")}
        logger.log_row(row["step"], row["epoch"], values)
    logger.conclude(record.fields, record.finished)


def _of_spectrum(metric: str) -> bool:
    return metric.startswith("spectrum/")


@contextmanager
def _staged_in(folder: Path) -> Iterator[None]:
    """W&B keeps a copy of each table for the upload: here, and not in the user's home."""
    before = os.environ.get("WANDB_DATA_DIR")
    os.environ["WANDB_DATA_DIR"] = str(folder)
    try:
        yield
    finally:
        del os.environ["WANDB_DATA_DIR"]
        if before is not None:
            os.environ["WANDB_DATA_DIR"] = before


def _read_config(path: Path) -> dict:
    try:
        config = yaml.safe_load(path.read_bytes())
    except (OSError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} cannot be read: {reason}") from None
    if not isinstance(config, dict):
        raise UserError(f"{path} is damaged: it holds no mapping")
    return config
