"""The spectrum of a model's log P during training."""

from collections.abc import Sequence
from contextlib import nullcontext

import pytorch_lightning as pl

from lmkit.errors.user_error import require_choice, require_count, require_list
from lmkit.measures.model_spectra import matrices_of, model_spectrum
from lmkit.runs.array_files import epoch_spectrum, write_spectrum
from lmkit.runs.observer import tell
from lmkit.spectra.measures import numbers
from lmkit.training.context import RunCallback
from lmkit.training.head_module import HeadModule, data_of, model_of


class SpectrumCallback(RunCallback):
    """Measures the spectrum every `every` epochs, of the evaluated or of the raw weights.

    The measures go into the epoch's row of metrics, the spectra into the run's folder.

    Args:
        every: epochs between two measurements.
        contexts: how many contexts are measured, the first that are read; few keep it cheap.
        splits: "valid", "test" or both.
        weights: "evaluated" (the averages from the switch on) or "raw".
    """

    def __init__(self, *, every: int, contexts: int, splits: Sequence[str], weights: str) -> None:
        require_count("callbacks.spectrum.every", every)
        require_count("callbacks.spectrum.contexts", contexts, 2)
        require_choice("callbacks.spectrum.weights", weights, ("evaluated", "raw"))
        require_list("callbacks.spectrum.splits", splits, "[valid,test]")
        for split in splits:
            require_choice("callbacks.spectrum.splits", split, ("valid", "test"))
        self.every, self.contexts = every, contexts
        self.splits, self.weights = list(splits), weights

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if (trainer.current_epoch + 1) % self.every:
            return
        model = model_of(pl_module)
        for split in self.splits:
            for matrix in matrices_of(model):
                self._measure(trainer, model, split, matrix)

    def _measure(self, trainer: pl.Trainer, model: HeadModule, split: str, matrix: str) -> None:
        batches = data_of(trainer).eval_batches(split)
        contexts = min(self.contexts, batches.num_targets)
        weights = self.run.switch.averaged(model) if self.weights == "evaluated" else nullcontext()
        with weights:
            spectrum = model_spectrum(model, batches, contexts, matrix)
        path = epoch_spectrum(self.run.folder, trainer.current_epoch + 1, split, matrix)
        values, measures = spectrum.singular_values.cpu(), spectrum.measures
        write_spectrum(path, values.numpy(), measures.to_dict(), self.run.check_lock)
        for name, value in numbers(measures).items():
            model.report(f"spectrum/{split}_{matrix}/{name}", value)
        tell(trainer.loggers, lambda observer: observer.epoch_spectrum(split, matrix))
