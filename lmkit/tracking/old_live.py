"""A run as W&B sees it, while it trains and when it is rebuilt from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytorch_lightning.loggers import WandbLogger

from lmkit.tracking.fields import head_tag
from lmkit.tracking.spectrum_charts import final_charts

if TYPE_CHECKING:
    import wandb
    from wandb.sdk.wandb_run import Run

    from lmkit.spectra.storage import StoredSpectrum
    from lmkit.tracking.fields import Value


class MirrorLogger(WandbLogger):
    """Logs the rows that `metrics.csv` has: epochs count from 1."""

    def __init__(self, run: Run) -> None:
        super().__init__(experiment=run)

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """One moment, with the epoch as Lightning counts it, from 0."""
        values = {name: float(value) for name, value in metrics.items() if name != "epoch"}
        self.log_row(step or 0, int(metrics.get("epoch", 0)) + 1, values)

    def log_row(self, step: int, epoch: int, values: dict[str, float]) -> None:
        """One row of `metrics.csv`."""
        self.experiment.log({"trainer/global_step": step, "epoch": epoch, **values})

    def log_final_spectrum(self, spectrum: StoredSpectrum) -> None:
        """The chart goes with the row that is logged next."""
        self.experiment.log(final_charts(spectrum), commit=False)

    def conclude(self, fields: dict[str, Value], finished: bool) -> None:
        """Writes the summary fields, and all that is buffered."""
        self.experiment.summary.update({**fields, "finished": finished})
        self.experiment.finish(exit_code=0 if finished else 1)


def open_run(
    name: str,
    config: dict,
    folder: Path,
    mode: str,
    group: str | None,
    resume: str | None,
    settings: wandb.Settings,
) -> Run:
    """Begins a W&B run: its sweep is its group, its head a tag, its seed the job type.

    Args:
        name: of the run's folder, which is the id too: the same run each time.
        config: the run's, as plain data.
        folder: W&B makes a folder `wandb` in it.
        mode: "offline" or "online".
        group: name of the sweep.
        resume: as W&B's; None replaces what there is of that id.
    """
    import wandb

    tags = dict.fromkeys([head_tag(config["head"]), *config["logger"]["tags"]])
    return wandb.init(
        id=name,
        name=name,
        dir=folder,
        mode=mode,
        project=config["logger"]["project"],
        group=group,
        tags=list(tags),
        job_type=f"seed {config['seed']}",
        config=config,
        resume=resume,
        settings=settings,
    )
