"""One run as W&B records it, whether it trains or is rebuilt from its folder. No torch.

Everything in the record is in its folder, with relative paths: a run that is moved takes it along.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import wandb
from wandb.plot import CustomChart

from lmkit.runs.folder import RunFolder
from lmkit.runs.names import RunNames
from lmkit.tracking.charts import Charts
from lmkit.tracking.summary import result_fields, run_fields


class Filing(NamedTuple):
    """Where W&B keeps a run, and how it is found."""

    project: str
    group: str | None  # name of the sweep
    tags: Sequence[str]  # besides the head's name and the sweeps
    axes: Sequence[str]  # options whose values become summary fields
    sweeps: Sequence[str] = ()  # all sweeps with the run, which W&B's group alone cannot show


class RunRecord:
    """A run in W&B: opened here, given rows and charts, and finally concluded or left.

    Its id is the name of the run's folder, the same each time. Its head is a tag, and its seed the
    job type. Its summary describes the run from the start.

    Args:
        config: the run's, as plain data.
        settings: W&B's, with the mode and the folder.

    Raises: whatever W&B does, as all methods do.
    """

    def __init__(
        self,
        run: RunFolder,
        config: Mapping[str, Any],
        names: RunNames,
        filing: Filing,
        settings: wandb.Settings,
    ) -> None:
        fields = run_fields(config, names, filing.axes)
        self.run = run
        with _service_logs_in(settings.root_dir):
            self._wandb = wandb.init(
                id=run.path.name,
                name=run.path.name,
                project=filing.project,
                group=filing.group,
                tags=list(dict.fromkeys([names.family, *filing.tags, *filing.sweeps])),
                job_type=f"seed {config['seed']}",
                config=dict(config),
                settings=settings,
                reinit="create_new",  # not a run that this process left open
            )
        self._wandb.summary.update({**fields, "finished": False})

    def row(self, step: int, epoch: int, values: Mapping[str, float]) -> None:
        """Logs a row of `metrics.csv`: epochs count from 1."""
        self._wandb.log({"trainer/global_step": step, "epoch": epoch, **values})

    def show(self, charts: Charts) -> None:
        """Logs charts with the row that comes next."""
        self._wandb.log(self._in_folder(charts), commit=False)

    def conclude(self, metrics: Mapping[str, Any], cost: Mapping[str, Any], charts: Charts) -> None:
        """Logs the last charts and the result, and flushes buffers."""
        self._wandb.log(self._in_folder(charts))
        self._wandb.summary.update({**result_fields(metrics, cost), "finished": True})
        self._wandb.finish(exit_code=0)

    def leave(self) -> None:
        """Flushes the buffers of a run that has not finished."""
        self._wandb.finish(exit_code=1)

    def _in_folder(self, charts: Charts) -> Charts:
        """The charts, with their tables written into the record's folder.

        Otherwise W&B also copies each table into the user's home, as an artifact that the record
        refers to by its absolute path.
        """
        for name, chart in charts.items():
            key, table = name, chart
            if isinstance(chart, CustomChart):
                chart.set_key(name)
                key, table = chart.spec.table_key, chart.table
            table.bind_to_run(self._wandb, key, self._wandb.step)
        return charts


@contextmanager
def _service_logs_in(folder: str) -> Iterator[None]:
    """Makes W&B's own process, if it starts here, log into this folder's wandb/, not the home.

    The user's WANDB_CACHE_DIR counts where it is set.
    """
    if "WANDB_CACHE_DIR" in os.environ:
        yield
        return
    os.environ["WANDB_CACHE_DIR"] = folder
    try:
        yield
    finally:
        del os.environ["WANDB_CACHE_DIR"]
