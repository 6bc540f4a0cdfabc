"""The spectrum of a model's log P while it is trained."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
from pytorch_lightning.loggers import WandbLogger
from torch import Tensor

from lmkit.callbacks.asgd_switch import AsgdSwitch
from lmkit.callbacks.model_spectrum import (
    MATRICES,
    Spectrum,
    has_transformed_logits,
    model_spectrum,
)
from lmkit.errors import require_choice, require_count
from lmkit.module import LanguageModel
from lmkit.runs.atomic import replace_atomically
from lmkit.spectra.measures import SpectrumMeasures
from lmkit.spectra.storage import read_spectrum, write_spectrum

PLOTTED_POINTS = 100
PLOTTED_EPOCHS = 8  # all of them, logged anew after each, would grow with their square


class SpectrumCallback(pl.Callback):
    """Measures the spectrum every `every` epochs, of the weights that count or of the raw ones.

    Measures go into the epoch's row of metrics, spectra into `<folder>/*.npz`, and overlaid over
    the epochs to W&B.

    Args:
        folder: the run's folder of spectra.
        switch: owner of the averages.
        every: epochs between two measurements, 0 for none while training.
        contexts: first contexts of each split that are taken; a sample keeps it cheap.
        splits: of "valid" and "test".
        weights: "evaluated", averages from the switch on, or "raw".
        check_lock: called before a file gets its name.
    """

    def __init__(
        self,
        folder: Path,
        switch: AsgdSwitch,
        every: int,
        contexts: int,
        splits: Sequence[str],
        weights: str,
        check_lock: Callable[[], None],
    ) -> None:
        require_count("callbacks.spectrum.every", every, 0)
        require_count("callbacks.spectrum.contexts", contexts, 2)
        require_choice("callbacks.spectrum.weights", weights, ("evaluated", "raw"))
        for split in splits:
            require_choice("callbacks.spectrum.splits", split, ("valid", "test"))
        self.folder, self.switch, self.check_lock = folder, switch, check_lock
        self.every, self.contexts = every, contexts
        self.splits, self.weights = list(splits), weights

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: LanguageModel) -> None:
        epoch = trainer.current_epoch + 1
        if self.every == 0 or epoch % self.every:
            return
        matrices = MATRICES if has_transformed_logits(pl_module) else MATRICES[:1]
        for split in self.splits:
            for matrix in matrices:
                self._measure(trainer, pl_module, epoch, split, matrix)

    def _measure(
        self, trainer: pl.Trainer, module: LanguageModel, epoch: int, split: str, matrix: str
    ) -> None:
        windows = trainer.datamodule.eval_windows(split)
        contexts = min(self.contexts, windows.num_targets)
        if self.weights == "evaluated":
            with self.switch.averaged(module):
                spectrum = model_spectrum(module, windows, contexts, matrix)
        else:
            spectrum = model_spectrum(module, windows, contexts, matrix)
        path = self.folder / f"epoch_{epoch:04d}_{split}_{matrix}.npz"
        replace_atomically(path, lambda file: write_spectrum(file, *spectrum), self.check_lock)
        for name, value in numbers(spectrum.measures).items():
            module.report(f"spectrum/{split}_{matrix}/{name}", value)
        for logger in trainer.loggers:
            if isinstance(logger, WandbLogger):
                self._plot(logger, split, matrix)

    def _plot(self, logger: WandbLogger, split: str, matrix: str) -> None:
        """Spectra of the epochs so far over each other: log scale, and normalised cumulative."""
        import wandb

        spectra = self._stored(split, matrix)
        table = wandb.Table(columns=["epoch", *numbers(next(iter(spectra.values())).measures)])
        lines, keys, x = [], [], []
        for epoch, spectrum in spectra.items():
            found = numbers(spectrum.measures)
            table.add_data(epoch, *(found.get(name) for name in table.columns[1:]))
            x, y = plotted(spectrum.singular_values)
            lines.append(y)
            keys.append(f"epoch {epoch}")
        name = f"spectrum/{split}_{matrix}"
        log_plot = wandb.plot.line_series(
            x, [np.log10(np.maximum(y, 1e-12)).tolist() for y in lines], keys,
            title="log10 of singular value / largest", xname="index",
        )
        plain_plot = wandb.plot.line_series(
            x, [y.tolist() for y in lines], keys, title="singular value / largest", xname="index"
        )
        plots = {f"{name}/log": log_plot, f"{name}/normalised": plain_plot, f"{name}/table": table}
        logger.experiment.log(plots, commit=False)

    def _stored(self, split: str, matrix: str) -> dict[int, Spectrum]:
        """A few of the epochs measured so far, evenly spaced, the last among them."""
        paths = sorted(self.folder.glob(f"epoch_*_{split}_{matrix}.npz"))
        chosen = np.unique(np.linspace(0, len(paths) - 1, PLOTTED_EPOCHS).round().astype(int))
        found = {}
        for path in (paths[i] for i in chosen):
            epoch = int(re.match(r"epoch_(\d+)_", path.name).group(1))
            found[epoch] = Spectrum(*read_spectrum(path))
        return found


def numbers(measures: SpectrumMeasures) -> dict[str, float]:
    """The measures that are resolved, by short names."""
    values = {
        "press_rank": measures.press_rank,
        **{f"rank_{epsilon}": rank for epsilon, rank in measures.effective_rank.items()},
        "stable_rank": measures.stable_rank,
        "participation_ratio": measures.participation_ratio,
        "entropy_rank": measures.entropy_rank,
    }
    return {name: float(value) for name, value in values.items() if value is not None}


def plotted(singular_values: Tensor) -> tuple[list[int], np.ndarray]:
    """At most 100 indices (from 1, denser at the start) and relative singular values there."""
    relative = (singular_values / singular_values[0]).numpy()
    indices = np.unique(np.geomspace(1, len(relative), PLOTTED_POINTS).astype(int))
    return indices.tolist(), relative[indices - 1]
