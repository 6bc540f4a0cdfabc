"""Spectrum of log P, and pairwise divergence of its rows, of finished runs.

Shapes: N contexts, V vocabulary.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lmkit.data.windows import Window
from lmkit.errors.user_error import UserError
from lmkit.evaluation.load import LoadedRun, load_run
from lmkit.evaluation.memory import available_bytes, require_memory
from lmkit.runs.analysis_files import write_analysis
from lmkit.runs.folder import RunFolder
from lmkit.runs.spectrum_files import write_spectrum
from lmkit.spectra.divergence import DivergenceAccumulator, PairwiseDivergence
from lmkit.training.head_module import HeadModule
from lmkit.training.model_spectrum import Spectrum, model_spectrum, spectrum_bytes


class RankOptions(NamedTuple):
    """What is measured of each run."""

    split: str
    contexts: int | None  # the first N of the split; None: all
    matrix: str
    checkpoint: str  # "best" or "last"
    divergence: bool  # of log P's rows; other matrices have none
    data_root: str | None
    threads: int | None


class MeasuredRun(NamedTuple):
    """What was found of one run."""

    folder: RunFolder
    experiment: str
    num_words: int
    averaged: bool
    all_contexts: int  # of the split
    spectrum: Spectrum
    divergence: PairwiseDivergence | None
    test_ppl: float | None  # of the run's result


class FoundRuns(NamedTuple):
    """The runs of a folder that can be measured, and why others cannot."""

    runs: list[RunFolder]
    left_out: dict[str, str]  # name -> reason


def find_runs(path: str, among: Sequence[Path] | None = None) -> FoundRuns:
    """The run in `path`, or all finished runs among its folders, or `among` others; torch-free.

    Raises: UserError when there is none.
    """
    if not Path(path).is_dir():
        raise UserError(f"run={path} is no folder; give that of a run, or a folder of runs")
    if RunFolder(Path(path)).state() != "new":
        return FoundRuns([RunFolder(Path(path))], {})
    runs, left_out = [], {}
    for run in map(RunFolder, sorted(Path(path).iterdir()) if among is None else among):
        if run.state() == "finished":
            runs.append(run)
        elif run.state() == "unfinished" or among is not None:
            left_out[run.path.name] = "it has not finished"
    if not runs:
        reason = f"{len(left_out)} that have not finished" if left_out else "none at all"
        raise UserError(f"run={path} holds no finished run, but {reason}")
    return FoundRuns(runs, left_out)


def measure_run(run: RunFolder, options: RankOptions) -> MeasuredRun:
    """Measures the first contexts of a split, and writes what was found into the run's folder.

    Raises: UserError when the run is damaged, or the memory does not suffice.
    """
    require_writable(run.spectra, run.analysis)
    test_ppl = run.read_result().metrics.get("test_ppl") if run.state() == "finished" else None
    loaded = load_run(run.path, options.checkpoint, options.data_root, options.threads)
    windows = loaded.data.eval_windows(options.split)
    num_contexts = options.contexts or windows.num_targets
    if num_contexts > windows.num_targets:
        raise UserError(
            f"contexts={num_contexts} is more than the {windows.num_targets:,} contexts of the "
            f"{options.split} split; contexts=all takes these"
        )
    model = loaded.model
    require_spectrum_fits(model, num_contexts, options.matrix)
    watch = None
    if options.divergence and options.matrix == "log_probs":
        watch = DivergenceAccumulator(len(model.head.decoder_bias), device=model.device)
    with progress_bar() as progress:
        name = run.path.name
        shown = shown_windows(windows, num_contexts, progress, name, "singular values")
        add = None if watch is None else watch.add
        spectrum = model_spectrum(model, shown, num_contexts, options.matrix, add)
    divergence = None if watch is None else watch.result()
    _write(run, file_stem(options, num_contexts), loaded, spectrum, divergence)
    return MeasuredRun(
        run,
        loaded.config["name"],
        len(model.head.decoder_bias),
        loaded.averaged,
        windows.num_targets,
        spectrum,
        divergence,
        test_ppl,
    )


def file_stem(options: RankOptions, num_contexts: int) -> str:
    """Name of the files with a measurement's results."""
    last = "_last" if options.checkpoint == "last" else ""
    return f"{options.split}_{options.matrix}_{num_contexts}{last}"


def require_spectrum_fits(model: HeadModule, num_contexts: int, matrix: str) -> None:
    """Raises UserError, with how many contexts would fit, unless the spectrum fits into memory."""
    num_words = len(model.head.decoder_bias)
    found = available_bytes(model.device)
    fitting = bisect_right(
        range(num_words), found, key=lambda count: spectrum_bytes(model, count, matrix)
    )
    require_memory(
        spectrum_bytes(model, num_contexts, matrix),
        model.device,
        f"the spectrum of {num_contexts:,} contexts x {num_words:,} words",
        f"choose contexts=N with N at most {max(0, fitting - 1)}",
    )


def require_writable(*folders: Path) -> None:
    """Raises UserError, before the work is done, when its result could not be kept."""
    for folder in folders:
        if folder.is_dir() and not os.access(folder, os.W_OK):
            raise UserError(f"{folder} cannot be written: the result would be lost")


def progress_bar() -> Progress:
    """A bar that counts, and goes when it is done."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(TextColumn("{task.description}"), *columns, transient=True)


def shown_windows(
    windows: Iterable[Window], num_contexts: int, progress: Progress, name: str, then: str
) -> Iterator[Window]:
    """The windows, with a bar over the contexts; the last one says what comes `then`."""
    task = progress.add_task(f"{name}: contexts", total=num_contexts)
    for window in windows:
        progress.advance(task, min(window.targets_TB.numel(), progress.tasks[task].remaining))
        if progress.finished:
            progress.update(task, description=f"{name}: {then}")
        yield window


def _write(
    run: RunFolder,
    stem: str,
    loaded: LoadedRun,
    spectrum: Spectrum,
    divergence: PairwiseDivergence | None,
) -> None:
    measures = asdict(spectrum.measures)
    write_spectrum(run.spectra / f"{stem}.npz", spectrum.singular_values.cpu(), measures)
    write_analysis(
        run,
        f"rank_{stem}",
        {
            "spectrum": measures,
            "pairwise_divergence": None if divergence is None else divergence._asdict(),
        },
        kind="rank",
        schema_version=1,
        checkpoint="last" if stem.endswith("_last") else "best",
        averaged=loaded.averaged,
    )
