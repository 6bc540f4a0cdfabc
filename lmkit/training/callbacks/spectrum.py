"""The spectrum of a model's log P while it is trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytorch_lightning as pl
from pytorch_lightning.loggers import WandbLogger

from lmkit.errors.user_error import require_choice, require_count
from lmkit.runs.spectrum_files import write_spectrum
from lmkit.tracking.spectrum_charts import epoch_charts, numbers
from lmkit.training.callbacks.asgd_switch import AsgdSwitch
from lmkit.training.head_module import HeadModule
from lmkit.training.model_spectrum import (
    MATRICES,
    has_transformed_logits,
    model_spectrum,
)


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

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: HeadModule) -> None:
        epoch = trainer.current_epoch + 1
        if self.every == 0 or epoch % self.every:
            return
        matrices = MATRICES if has_transformed_logits(pl_module) else MATRICES[:1]
        for split in self.splits:
            for matrix in matrices:
                self._measure(trainer, pl_module, epoch, split, matrix)

    def _measure(
        self, trainer: pl.Trainer, module: HeadModule, epoch: int, split: str, matrix: str
    ) -> None:
        windows = trainer.datamodule.eval_windows(split)
        contexts = min(self.contexts, windows.num_targets)
        if self.weights == "evaluated":
            with self.switch.averaged(module):
                spectrum = model_spectrum(module, windows, contexts, matrix)
        else:
            spectrum = model_spectrum(module, windows, contexts, matrix)
        path = self.folder / f"epoch_{epoch:04d}_{split}_{matrix}.npz"
        values, measures = spectrum.singular_values.cpu(), spectrum.measures.to_dict()
        write_spectrum(path, values, measures, self.check_lock)
        for name, value in numbers(spectrum.measures).items():
            module.report(f"spectrum/{split}_{matrix}/{name}", value)
        for logger in trainer.loggers:
            if isinstance(logger, WandbLogger):
                charts = epoch_charts(self.folder, split, matrix)
                logger.experiment.log(charts, commit=False)
