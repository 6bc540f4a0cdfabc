"""The spectrum of a model's log P while it is trained."""

from __future__ import annotations

from collections.abc import Sequence

import pytorch_lightning as pl

from lmkit.errors.user_error import require_choice, require_count, require_list
from lmkit.runs.observer import tell
from lmkit.runs.spectrum_files import epoch_spectrum, write_spectrum
from lmkit.spectra.measures import numbers
from lmkit.training.context import RunCallback
from lmkit.training.head_module import HeadModule
from lmkit.training.model_spectrum import MATRICES, has_transformed_logits, model_spectrum


class SpectrumCallback(RunCallback):
    """Measures the spectrum every `every` epochs, of the weights that count or of the raw ones.

    Measures go into the epoch's row of metrics, spectra into the run's folder.

    Args:
        every: epochs between two measurements.
        contexts: first contexts of each split that are taken; a sample keeps it cheap.
        splits: of "valid" and "test".
        weights: "evaluated", averages from the switch on, or "raw".
    """

    def __init__(self, *, every: int, contexts: int, splits: Sequence[str], weights: str) -> None:
        require_count("callbacks.spectrum.every", every)
        require_count("callbacks.spectrum.contexts", contexts, 2)
        require_choice("callbacks.spectrum.weights", weights, ("evaluated", "raw"))
        require_list("callbacks.spectrum.splits", splits)
        for split in splits:
            require_choice("callbacks.spectrum.splits", split, ("valid", "test"))
        self.every, self.contexts = every, contexts
        self.splits, self.weights = list(splits), weights

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: HeadModule) -> None:  # type: ignore[override]
        epoch = trainer.current_epoch + 1
        if epoch % self.every:
            return
        matrices = MATRICES if has_transformed_logits(pl_module) else MATRICES[:1]
        for split in self.splits:
            for matrix in matrices:
                self._measure(trainer, pl_module, epoch, split, matrix)

    def _measure(
        self, trainer: pl.Trainer, module: HeadModule, epoch: int, split: str, matrix: str
    ) -> None:
        windows = trainer.datamodule.eval_batches(split)
        contexts = min(self.contexts, windows.num_targets)
        if self.weights == "evaluated":
            with self.run.switch.averaged(module):
                spectrum = model_spectrum(module, windows, contexts, matrix)
        else:
            spectrum = model_spectrum(module, windows, contexts, matrix)
        path = epoch_spectrum(self.run.folder, epoch, split, matrix)
        values, measures = spectrum.singular_values.cpu(), spectrum.measures
        write_spectrum(path, values.numpy(), measures.to_dict(), self.run.check_lock)
        for name, value in numbers(spectrum.measures).items():
            module.report(f"spectrum/{split}_{matrix}/{name}", value)
        tell(trainer.loggers, lambda observer: observer.epoch_spectrum(split, matrix))
