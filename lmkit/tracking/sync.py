"""Records finished runs in W&B from their folders, and uploads them when asked.

A run that trained without W&B has no record, and one that was killed has a piece for each attempt.
Made of its folder, a record is whole, under the same id each time:

<run>/wandb/offline-run-<time>-<run>/    what `wandb sync` uploads
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import wandb

from lmkit.errors.user_error import UserError
from lmkit.presentation.progress import tracked
from lmkit.runs.atomic import NO_SPACE
from lmkit.runs.folder import FinishedRun, read_finished
from lmkit.runs.lock import RunLock
from lmkit.runs.metrics import MetricsFile
from lmkit.tracking.charts import Charts, all_charts, log_charts, result_fields
from lmkit.tracking.wandb import DEFAULT_PROJECT, OF_AN_AGENT, OWN, opened

_NEW = ".wandb-"  # begins the name of the folder in which a record is made


def record_all(
    runs: Sequence[FinishedRun], sweeps: Mapping[str, str]
) -> tuple[list[Path], dict[str, str]]:
    """Records each run anew. Returns: the records, and why others have none.

    Args:
        sweeps: by the names of runs, the sweeps that are the groups of those without one.

    Raises: UserError when the disk is too full for a record.
    """
    records: list[Path] = []
    left_out: dict[str, str] = {}
    for variable in OF_AN_AGENT:  # else all have its run's id
        os.environ.pop(variable, None)
    for run in tracked(runs, "W&B runs"):
        try:
            with RunLock(run.folder.lock) as lock:
                now = read_finished(run.folder)  # it may have been trained further
                config = now.folder.read_config()
                rows = MetricsFile(now.folder.metrics).read_finished()
                charts = all_charts(now.folder)
                for left in run.folder.path.glob(f"{_NEW}*"):
                    lock.check()
                    shutil.rmtree(left, ignore_errors=True)
                # W&B's process holds its log there, which a file server keeps until then
                with tempfile.TemporaryDirectory(
                    dir=run.folder.path.resolve(),
                    prefix=_NEW,
                    suffix=".tmp",
                    ignore_cleanup_errors=True,
                ) as new:
                    options = _options(now, config, sweeps.get(now.name))
                    record = opened(new, config, now.names, options, _settings())
                    _fill(record, now, config, rows, charts)
                    records.append(_in_place_of_others(now, Path(new)))
        except UserError as error:  # as when another process uses the run
            left_out[run.name] = str(error)
        except (TypeError, ValueError) as error:
            left_out[run.name] = f"W&B refuses its options: {' '.join(str(error).split())}"
        except (OSError, wandb.Error) as error:
            left_out[run.name] = f"{run.folder.path}/wandb cannot be written: {error}"
            if isinstance(error, OSError) and error.errno in NO_SPACE:
                raise UserError(left_out[run.name]) from error
    return records, left_out


def upload(records: Sequence[Path]) -> None:
    """Uploads recorded runs. A run that W&B has already is replaced.

    Raises: UserError unless W&B has accepted all of them.
    """
    command = [sys.executable, "-m", "wandb", "sync", "--include-synced"]
    subprocess.run([*command, *map(str, records)], check=False)
    missing = [record for record in records if not list(record.glob("*.wandb.synced"))]
    if missing:
        raise UserError(
            f"W&B has rejected {len(missing)} of {len(records)} runs, such as {missing[0]}; its "
            f"lines above say why: without an account, type python -m wandb login, then the same "
            f"command again; for a run deleted there, python -m wandb sync --id NEW_ID RECORD"
        )


def _options(run: FinishedRun, config: Mapping[str, Any], sweep: str | None) -> dict[str, Any]:
    """Those of `wandb.init` with which the run was trained, recorded offline."""
    filed = run.folder.substituted((config.get("logger") or {}).get("wandb") or {})
    taken = signature(wandb.init).parameters.keys() - set(OWN)
    options = {"id": run.name, "name": run.name, "project": None}
    options |= {name: value for name, value in filed.items() if name in taken}
    # the variable, as in training, or the default: of a run that was trained without W&B
    project = options["project"] or os.environ.get("WANDB_PROJECT") or DEFAULT_PROJECT
    return options | {"mode": "offline", "project": project, "group": options.get("group") or sweep}


def _fill(
    record: wandb.Run,
    run: FinishedRun,
    config: Mapping[str, Any],
    rows: Sequence[Mapping[str, float]],
    charts: Charts,
) -> None:
    record.config.update(config, allow_val_change=True)  # as Lightning's logger does
    for row in rows:
        values = {name: value for name, value in row.items() if name not in ("step", "epoch")}
        step, epoch = int(row["step"]), int(row["epoch"])
        record.log({**values, "epoch": epoch, "trainer/global_step": step})
    log_charts(record, charts)
    result = result_fields(run.result.metrics, run.result.cost)
    record.summary.update({**result, "finished": True})
    record.finish(exit_code=0)


def _settings() -> wandb.Settings:
    return wandb.Settings(
        silent=True,
        console="off",
        # of this process and machine, not those that trained
        disable_code=True,
        disable_git=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
    )


def _in_place_of_others(run: FinishedRun, new: Path) -> Path:
    """Puts a new record in the place of the run's earlier ones, and returns its folder."""
    (written,) = (new / "wandb").glob("offline-run-*")
    place = run.folder.path / "wandb"
    place.mkdir(exist_ok=True)  # or a link to elsewhere
    is_shared = place.is_symlink()  # then it may hold records of other runs
    for earlier in place.iterdir():
        if not is_shared or earlier.name.endswith(f"-{run.name}"):
            shutil.rmtree(earlier, ignore_errors=True)  # a file server may hold some of it
    for link in place.iterdir():
        if link.is_symlink() and not link.exists():  # the latest run, and its log
            link.unlink(missing_ok=True)
    return Path(shutil.move(written, place / written.name))
