"""The end of a run: its test perplexity, spectrum, result and figures."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import yaml

from lmkit.data.toy import ToyLanguage
from lmkit.errors.user_error import require_count
from lmkit.experiment.definition import RunDefinition
from lmkit.heads.predictor import exact_evaluation, trainable
from lmkit.measures.contexts import with_bar
from lmkit.measures.memory import GB, available_bytes
from lmkit.measures.model_spectra import (
    MATRICES,
    Spectrum,
    matrices_of,
    model_spectrum,
    spectrum_bytes,
)
from lmkit.measures.perplexity import Perplexity, perplexity, text_content
from lmkit.presentation.quantities import perplexity_text
from lmkit.runs.array_files import final_spectrum, write_spectrum
from lmkit.runs.folder import RunFolder
from lmkit.runs.identity import foreign_targets
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.observer import tell
from lmkit.runs.provenance import provenance
from lmkit.runs.quoting import as_value, typed
from lmkit.runs.result import SCHEMA_VERSION, Result, Spent
from lmkit.spectra.measures import SpectrumMeasures, numbers
from lmkit.training.checkpoint_files import load_checkpoint

if TYPE_CHECKING:  # it makes the `Conclusion`
    from lmkit.experiment.objects import RunObjects

Metrics = dict[str, Any]


class Conclusion:
    """Measures a run's best weights on the test split, and draws the figures.

    Args:
        contexts: number of test contexts, from the first, for the spectrum of log P; None: all.
        sample: the same for the spectrum of transformed logits.
        published_contexts: those of the published ranks, used instead of fewer `contexts` where the
            split has as many and memory allows; None: nothing is published.
    """

    def __init__(
        self, *, contexts: int | None, sample: int, published_contexts: int | None = None
    ) -> None:
        for option, count in (("contexts", contexts), ("published_contexts", published_contexts)):
            if count is not None:
                require_count(f"conclusion.{option}", count, 2)
        require_count("conclusion.sample", sample, 2)
        self.contexts, self.sample = contexts, sample
        self.published_contexts = published_contexts

    def conclude(
        self, defined: RunDefinition, trained: RunObjects, made_by: dict[str, Any]
    ) -> Result:
        """The result, not yet published. The caller holds the run's lock.

        Args:
            trained: with the best weights in the model.
            made_by: the provenance, but for the versions of the code that it resumed from.
        """
        folder, check_lock = defined.folder, trained.run.check_lock
        log = trained.run.log
        log.write("measuring the test perplexity and the spectrum of log P")
        batches = trained.data.eval_batches("test")
        # a terminal has the bar
        tell = log.note if sys.stdout.isatty() else log.write
        test = perplexity(trained.model, batches, "test perplexity", tell)
        contexts = self._contexts(trained, test.num_tokens)
        spectra = self._spectra(trained, test.num_tokens, contexts, tell)
        for matrix, spectrum in spectra.items():
            path, values = final_spectrum(folder, matrix), spectrum.singular_values.cpu()
            write_spectrum(path, values.numpy(), spectrum.measures.to_dict(), check_lock)
        metrics = _metrics(trained, test, spectra["log_probs"])
        defined.require_same_data()  # words and bytes are counted in the files
        metrics |= text_content(trained.model, trained.data, defined.source, "test", test, "test_")
        if isinstance(defined.source, ToyLanguage):
            metrics |= _truth(defined.source)
        cost = _cost(trained)
        _log_test_row(trained, metrics, cost, spectra["log_probs"])
        _draw(trained, metrics, spectra["log_probs"])
        if earlier := trained.epoch_end.trained_by[:-1]:
            made_by = made_by | {"earlier_code": earlier}
        ppl = perplexity_text(test.perplexity)
        trained.run.log.write(f"test perplexity {ppl}, of epoch {metrics['best_epoch']:,}")
        return Result(
            SCHEMA_VERSION,
            defined.config["name"],
            defined.identity.digest,
            metrics,
            cost,
            made_by,
            Spent(
                *defined.budget[:2],
                epochs=trained.trainer.current_epoch,
                stopped=trained.epoch_end.stopped,
                min_delta=defined.budget.min_delta,
            ),
        )

    def _contexts(self, trained: RunObjects, available: int) -> int:
        """Number of contexts of log P's spectrum: the published one where possible.

        If only memory is lacking, a message says how to measure it later.
        """
        model, run = trained.model, trained.run
        contexts = min(self.contexts or available, available)
        published = self.published_contexts
        if published is None or not contexts < published <= available:
            return contexts
        needed, free = spectrum_bytes(model, published, "log_probs"), available_bytes(model.device)
        if needed <= free:
            return published
        later = typed(["rank", f"run={as_value(str(run.folder.path))}", f"contexts={published}"])
        run.log.write(
            f"The published ranks are over {published:,} test contexts, which need "
            f"{needed / GB:.1f} GB of memory, but {free / GB:.1f} GB are free: "
            f"{contexts:,} contexts are measured. Later: {later}"
        )
        return contexts

    def _spectra(
        self, trained: RunObjects, available: int, contexts: int, tell: Callable[[str], object]
    ) -> dict[str, Spectrum]:
        model, spectra = trained.model, {}
        for matrix in matrices_of(model):
            count = contexts if matrix == "log_probs" else min(self.sample, available)
            name, windows = f"spectrum of {MATRICES[matrix]}", trained.data.eval_batches("test")
            shown = with_bar(name, windows, count, "singular values", tell)
            spectra[matrix] = model_spectrum(model, shown, count, matrix)
        return spectra


def _metrics(trained: RunObjects, test: Perplexity, spectrum: Spectrum) -> Metrics:
    switch = trained.run.switch
    return {
        "train_ppl": trained.epoch_end.train_ppl_at_best,
        "valid_ppl": trained.epoch_end.best_ppl,
        "test_ppl": test.perplexity,
        "test_nll": test.nll,
        "test_bits_per_token": test.bits_per_token,
        "test_tokens": test.num_tokens,
        "best_epoch": trained.epoch_end.best_epoch,
        "switched_after": switch.switched_after if switch.averages else None,
        "test_spectrum": spectrum.measures.to_dict(),
    }


def _truth(language: ToyLanguage) -> Metrics:
    """Known for the toy language only: its true rank, and the floor of test perplexity."""
    floor, entropy = map(math.exp, language.floor_and_entropy("test"))
    return {"floor_ppl": floor, "entropy_ppl": entropy, "true_rank": language.rank}


def _cost(trained: RunObjects) -> dict[str, Any]:
    rows = trained.run.metrics.read()  # of training: what is measured since took memory too
    seconds, memory = (
        [row[name] for row in rows if name in row]
        for name in ("seconds_per_epoch", "peak_memory_mib")
    )
    return {
        "seconds_per_epoch": statistics.median(seconds) if seconds else None,
        "peak_memory_mib": max(memory, default=None),
        "parameters": sum(p.numel() for p in trainable(trained.model).values()),
    }


def origin(defined: RunDefinition) -> dict[str, Any]:
    """The provenance of a run that this process is about to train."""
    names = [torch.cuda.get_device_name()] if defined.accelerator == "gpu" else []
    targets = foreign_targets([defined.identity.settings, defined.config["data"]])
    made_by = provenance(defined.data_sha256, defined.config["threads"], names, targets)
    start = defined.config.get("finetuned_from")
    return made_by if start is None else made_by | {"finetuned_from": start}


def _log_test_row(
    trained: RunObjects, metrics: Metrics, cost: dict[str, Any], spectrum: Spectrum
) -> None:
    """Logs the test row, one step after the last: a run that resumes cuts it off again, as after a
    killed conclusion.
    """
    trainer = trained.trainer
    row = {"epoch": trainer.current_epoch - 1} | _test_row(metrics, spectrum.measures)
    for logger in trainer.loggers:
        logger.log_metrics(row, trainer.global_step + 1)
        logger.save()
    tell(trainer.loggers, lambda observer: observer.concluded(metrics, cost))


def _test_row(metrics: Metrics, measures: SpectrumMeasures) -> dict[str, float]:
    ranks = {f"test/{name}": value for name, value in numbers(measures).items()}
    return {"test/ppl": metrics["test_ppl"]} | ranks


def restore_metrics(folder: RunFolder, check_lock: Callable[[], None]) -> None:
    """Restores the `metrics.csv` of a finished run from its last checkpoint and its result.

    Raises: UserError when they are damaged, or the file cannot be written; LockLost.
    """
    result, checkpoint = folder.read_result(), load_checkpoint(folder.last)
    copy, step = checkpoint["lmkit"]["metrics"], checkpoint["global_step"]
    file = MetricsFile(folder.metrics, check_lock)
    file.restore(step, checkpoint["epoch"] + 1, copy)
    measures = SpectrumMeasures(**result.metrics["test_spectrum"])
    file.append(step + 1, result.budget.epochs, _test_row(result.metrics, measures))


def restore_config(folder: RunFolder, check_lock: Callable[[], None]) -> None:
    """Restores the `config.yaml` of a finished run from its last or its best checkpoint.

    Raises: UserError when that is damaged, or the file cannot be written; LockLost.
    """
    checkpoint = load_checkpoint(folder.last if folder.last.exists() else folder.best)
    config = yaml.safe_dump(checkpoint["lmkit"]["config"], sort_keys=False)
    folder.write_config(config, check_lock)


def _draw(trained: RunObjects, metrics: Metrics, spectrum: Spectrum) -> None:
    from lmkit.presentation import figures  # matplotlib, for which no training waits

    run, transform = trained.run, trained.model.head.transform
    path, title = run.folder.path, run.folder.path.name
    curves = figures.curves(run.metrics.read(), metrics.get("floor_ppl"), title)
    figures.save(curves, path / "curves.svg", run.check_lock)
    measures = spectrum.measures
    drawn = figures.spectrum(
        spectrum.singular_values.numpy(),
        measures.press_tolerance,
        measures.resolution,
        f"log P of {measures.num_contexts:,} test contexts, {title}",
    )
    figures.save(drawn, path / "spectrum.svg", run.check_lock)
    if any(True for _ in transform.parameters()):
        with exact_evaluation(trained.model):  # over the published PLIF's knots
            logits = torch.linspace(-20.0, 20.0, 401, device=trained.model.device)
            transformed = trained.model.head.transform_curve(logits)
        if transformed is not None:
            values = logits.cpu().numpy(), transformed.cpu().numpy()
            curve = figures.transform_curve(*values, title)
            figures.save(curve, path / "transform.svg", run.check_lock)
