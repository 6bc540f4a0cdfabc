"""The spectrum of a model's log P, at the end and while it is trained.

Shapes: N contexts, D trunk output, V vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import WandbLogger
from torch import Tensor

from lmkit.callbacks.asgd_switch import AsgdSwitch
from lmkit.data.windows import Window
from lmkit.errors import UserError, require_choice, require_count
from lmkit.heads.transforms import Identity
from lmkit.module import LanguageModel, exact_evaluation
from lmkit.runs.atomic import replace_atomically
from lmkit.spectra.factors import FactorAccumulator
from lmkit.spectra.gram import GramAccumulator
from lmkit.spectra.measures import SpectrumMeasures, measure
from lmkit.spectra.storage import read_spectrum, write_spectrum

MATRICES = ("log_probs", "transformed_logits")
PLOTTED_POINTS = 200


class Spectrum(NamedTuple):
    """Singular values, descending, and their measures."""

    singular_values: Tensor
    measures: SpectrumMeasures


def model_spectrum(
    model: LanguageModel,
    windows: Iterable[Window],
    num_contexts: int,
    matrix: str = "log_probs",
) -> Spectrum:
    """The spectrum of log P, or of the transformed logits, over the first `num_contexts` contexts.

    log P of a head that has factors comes from these. Otherwise rows stream into a Gram matrix of
    the smaller side: of the words, or of the contexts, whose rows are then held (N x V float32).

    Raises: UserError when the head has no one matrix of transformed logits.
    """
    require_choice("matrix", matrix, MATRICES)
    head = model.head
    if matrix == "transformed_logits" and not has_transformed_logits(model):
        raise UserError("only a head with one context and a transform has transformed logits")
    blocks = _first(model.contexts(windows), num_contexts)
    with exact_evaluation(model, model.device.type):
        if matrix == "log_probs" and head.has_factors:
            factors = FactorAccumulator(head.decoder_weight, head.decoder_bias)
            for hidden_1ND in blocks:
                factors.add(*head.factors(hidden_1ND))
            return _measured(factors.singular_values(), factors.num_rows, model, factors.method)
        rows_of = head.log_probs if matrix == "log_probs" else head.transformed_logits
        gram = _gram(map(rows_of, blocks), num_contexts, len(head.decoder_bias), model.device)
        values = gram.singular_values(consume=True)
    return _measured(values, num_contexts, model, gram.method)


def has_transformed_logits(model: LanguageModel) -> bool:
    """Whether the head maps each context to one row of logits that a transform changes."""
    head = model.head
    return head.mixture.num_experts == 1 and not isinstance(head.transform, Identity)


def _gram(
    blocks: Iterable[Tensor], num_contexts: int, num_words: int, device: torch.device
) -> GramAccumulator:
    if num_contexts >= num_words:
        gram = GramAccumulator(num_words, device)
        for rows_NV in blocks:
            gram.add(rows_NV)
        return gram
    rows_NV = torch.cat(list(blocks))
    gram = GramAccumulator(num_contexts, device)
    for columns_NV in rows_NV.split(max(1, 2**24 // num_contexts), dim=1):
        gram.add(columns_NV.T)
    return gram


def _measured(values: Tensor, num_rows: int, model: LanguageModel, method: str) -> Spectrum:
    num_words = len(model.head.decoder_bias)
    return Spectrum(values, measure(values, num_rows, num_words, torch.float32, method))


def _first(blocks: Iterator[Tensor], num_contexts: int) -> Iterator[Tensor]:
    """The first `num_contexts` contexts, as blocks (1, N, D)."""
    seen = 0
    for hidden_TBD in blocks:
        hidden_ND = hidden_TBD.flatten(0, 1)[: num_contexts - seen]
        seen += len(hidden_ND)
        yield hidden_ND.unsqueeze(0)
        if seen == num_contexts:
            return


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
        """Spectra of all epochs so far over each other: log scale, and normalised cumulative."""
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
        found = {}
        for path in sorted(self.folder.glob(f"epoch_*_{split}_{matrix}.npz")):
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
    """At most 200 indices (from 1, denser at the start) and relative singular values there."""
    relative = (singular_values / singular_values[0]).numpy()
    indices = np.unique(np.geomspace(1, len(relative), PLOTTED_POINTS).astype(int))
    return indices.tolist(), relative[indices - 1]
