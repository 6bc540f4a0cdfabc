"""The end of a run: its evaluation, spectrum, result, figures, and the closing table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers.logger import Logger
from rich.console import Console
from rich.table import Table

from lmkit.data.toy import ToyLanguage
from lmkit.evaluation.perplexity import Perplexity, perplexity
from lmkit.presentation import figures
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.provenance import provenance
from lmkit.runs.result import SCHEMA_VERSION, Result, Spent, publish_result
from lmkit.runs.spectrum_files import final_spectrum, write_spectrum
from lmkit.tracking.fields import result_fields, run_fields
from lmkit.tracking.live import MirrorLogger
from lmkit.tracking.spectrum_charts import numbers
from lmkit.training.callbacks.asgd_switch import AsgdSwitch
from lmkit.training.callbacks.checkpoints import Checkpoints
from lmkit.training.callbacks.cost import Cost, peak_memory_mb
from lmkit.training.callbacks.transform_plot import sample_transform
from lmkit.training.head_module import HeadModule
from lmkit.training.model_spectrum import Spectrum, has_transformed_logits, model_spectrum

if TYPE_CHECKING:
    from lmkit.training.run import Run


class Trained(NamedTuple):
    """What training leaves to be measured."""

    model: HeadModule  # with the best weights
    data: pl.LightningDataModule
    steps: int
    checkpoints: Checkpoints
    cost: Cost
    switch: AsgdSwitch
    spent: Spent


def conclude(
    defined: Run, trained: Trained, loggers: Sequence[Logger], check_lock: Callable[[], None]
) -> None:
    """Measures the best weights on test, publishes `result.json`, draws the figures."""
    folder, model, data = defined.folder, trained.model, trained.data
    test = perplexity(model, data.eval_windows("test"), "test perplexity")
    with Console().status("spectrum of log P"):
        contexts = defined.config["callbacks"]["spectrum"]["final_contexts"] or test.num_tokens
        windows = data.eval_windows("test")
        spectrum = model_spectrum(model, windows, min(contexts, test.num_tokens))
        sample = min(defined.config["callbacks"]["spectrum"]["contexts"], test.num_tokens)
        spectra = {"log_probs": spectrum, **_transformed_logits(trained, sample)}
    for matrix, found in spectra.items():
        path, values = final_spectrum(folder, matrix), found.singular_values.cpu()
        write_spectrum(path, values, found.measures.to_dict(), check_lock)
    metrics = _metrics(trained, test, spectrum) | _truth(defined.source)
    _log(defined, trained, metrics, spectrum, loggers)
    _draw(folder, model, metrics, spectrum)
    result = Result(
        SCHEMA_VERSION,
        defined.config["name"],
        defined.identity.digest,
        metrics,
        _cost(trained),
        _origin(defined, model),
        trained.spent,
    )
    publish_result(folder.result, result, check_lock)


def _transformed_logits(trained: Trained, num_contexts: int) -> dict[str, Spectrum]:
    """Their spectrum on a sample of test, of a head that has them; `lmkit rank` measures more."""
    if not has_transformed_logits(trained.model):
        return {}
    windows = trained.data.eval_windows("test")
    matrix = "transformed_logits"
    return {matrix: model_spectrum(trained.model, windows, num_contexts, matrix)}


def _metrics(trained: Trained, test: Perplexity, spectrum: Spectrum) -> dict[str, object]:
    return {
        "train_ppl": trained.checkpoints.train_ppl_at_best,
        "valid_ppl": trained.checkpoints.best_ppl,
        "test_ppl": test.perplexity,
        "test_nll": test.nll,
        "test_bits_per_token": test.bits_per_token,
        "test_tokens": test.num_tokens,
        "best_epoch": trained.checkpoints.best_epoch,
        "switched_after": trained.switch.switched_after,
        "test_spectrum": spectrum.measures.to_dict(),
    }


def _cost(trained: Trained) -> dict[str, object]:
    seconds = trained.cost.seconds
    return {
        "seconds_per_epoch": statistics.median(seconds) if seconds else None,
        "peak_memory_mb": peak_memory_mb(trained.model.device),
        "parameters": sum(p.numel() for p in trained.model.parameters() if p.requires_grad),
    }


def _origin(defined: Run, model: HeadModule) -> dict[str, object]:
    on_gpu = model.device.type == "cuda"
    names = [torch.cuda.get_device_name(model.device)] if on_gpu else []
    found = provenance(defined.data_sha256, torch.get_num_threads(), names)
    parent = defined.config.get("parent")
    return found if parent is None else found | {"parent": parent}


def _log(
    defined: Run,
    trained: Trained,
    metrics: dict[str, object],
    spectrum: Spectrum,
    loggers: Sequence[Logger],
) -> None:
    """The test row: one step after the last, where going on with a larger budget cuts it off."""
    config = defined.config
    MetricsFile(defined.folder.metrics).cut_back(trained.steps)  # a conclusion that was killed
    row = {
        "epoch": trained.spent.epochs - 1,
        "test/ppl": metrics["test_ppl"],
        **{f"test/{name}": value for name, value in numbers(spectrum.measures).items()},
    }
    fields = run_fields(config, config["logger"]["axes"]) | result_fields(metrics)
    for logger in loggers:
        if isinstance(logger, MirrorLogger):
            logger.log_final_spectrum(spectrum)
        logger.log_metrics(row, trained.steps + 1)
        if isinstance(logger, MirrorLogger):
            logger.conclude(fields, finished=True)


def _truth(source: object) -> dict[str, object]:
    """What only the toy language knows: its floor of perplexity on test, and its true rank."""
    if not isinstance(source, ToyLanguage):
        return {}
    return {
        "floor_ppl": math.exp(source.floor("test")),
        "entropy_ppl": math.exp(source.entropy("test")),
        "true_rank": source.rank,
    }


def _draw(folder: RunFolder, model: HeadModule, metrics: dict, spectrum: Spectrum) -> None:
    rows = MetricsFile(folder.metrics).read()
    title = folder.path.name
    figures.save(
        figures.curves(rows, metrics.get("floor_ppl"), title), folder.path / "curves.svg"
    )
    measures = spectrum.measures
    title = f"log P of {measures.num_contexts:,} test contexts, {title}"
    drawn = figures.spectrum(spectrum.singular_values.numpy(), measures.press_tolerance, title)
    figures.save(drawn, folder.path / "spectrum.svg")
    if any(True for _ in model.head.transform.parameters()):
        curve = (values.numpy() for values in sample_transform(model.head.transform, model.device))
        figures.save(figures.transform_curve(*curve, title), folder.path / "transform.svg")


def show(folder: RunFolder) -> None:
    """Prints the closing table of a finished run."""
    result = folder.read_result()
    metrics, spectrum = result.metrics, result.metrics["test_spectrum"]
    table = Table(title=folder.path.name, show_header=False)
    parent = result.provenance.get("parent", {})
    for split in ("train", "valid", "test"):
        name = f"{split}_ppl"
        before = f" (before: {parent[name]:.2f})" if name in parent else ""
        table.add_row(f"{split} perplexity", f"{metrics[name]:.2f}{before}")
    if "floor_ppl" in metrics:
        table.add_row("entropy floor of the language", f"{metrics['floor_ppl']:.2f}")
        table.add_row("true rank of log P", str(metrics["true_rank"]))
    contexts = f"{spectrum['num_contexts']:,} test contexts"
    table.add_row(f"Press rank ({contexts})", _or_reason(spectrum, "press_rank"))
    for epsilon, rank in spectrum["effective_rank"].items():
        table.add_row(f"{epsilon}-effective rank", "unresolved" if rank is None else str(rank))
    seconds = result.cost["seconds_per_epoch"]
    if seconds is not None:
        table.add_row("seconds an epoch", f"{seconds:.1f}")
    table.add_row("best epoch", f"{metrics['best_epoch']} of {result.budget.epochs}")
    Console().print(table)
    print(f"run folder: {folder.path}")
    print(f"curves:     {folder.path / 'curves.svg'}")
    print(f"spectrum:   {folder.path / 'spectrum.svg'}")


def _or_reason(spectrum: dict, name: str) -> str:
    value = spectrum[name]
    return str(value) if value is not None else f"unresolved: {spectrum['unresolved'][name]}"

