"""Measures the rank of log P of finished runs: `lmkit rank run=FOLDER`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from lmkit.cli.entry import entry_point, plain_config
from lmkit.errors.user_error import UserError, require_choice, require_count
from lmkit.runs.sweep_folder import MANIFEST, SweepFolder

if TYPE_CHECKING:
    from lmkit.evaluation.rank import FoundRuns, MeasuredRun, RankOptions

COLUMN_WIDTH = 22  # of a table, so that a run's name takes few lines


@entry_point("rank")
def main(config: DictConfig) -> None:
    """Checks the options, measures one run after the other, then prints and draws them together."""
    plain = plain_config(config)
    path, options = _checked(plain)
    from lmkit.evaluation.each_run import each_of
    from lmkit.evaluation.rank import measure_run

    measured = list(each_of(runs_in(path), path, lambda run: measure_run(run, options)).values())
    _show(measured, options)
    _draw(Path(path), measured, options)


def runs_in(path: str) -> FoundRuns:
    """The run in the folder `path`, or the finished ones of a sweep's folder or of any other."""
    from lmkit.evaluation.rank import find_runs

    if not (Path(path) / MANIFEST).is_file():
        return find_runs(path)
    sweep = SweepFolder.find(path, ".")
    return find_runs(path, [sweep.run_folder(point).path for point in sweep.manifest.points])


def _checked(plain: dict) -> tuple[str, RankOptions]:
    """The folder, and the options for each run. Raises: UserError naming the option."""
    require_choice("split", plain["split"], ("train", "valid", "test"))
    require_choice("matrix", plain["matrix"], ("log_probs", "transformed_logits"))
    require_choice("checkpoint", plain["checkpoint"], ("best", "last"))
    contexts = None if plain["contexts"] == "all" else plain["contexts"]
    if contexts is not None:
        require_count("contexts", contexts, 2)
    if plain["threads"] is not None:
        require_count("threads", plain["threads"])
    if not isinstance(plain["run"], str):
        raise UserError(f"run must be a folder, but is {plain['run']!r}")
    from lmkit.evaluation.rank import RankOptions

    options = RankOptions(
        plain["split"],
        contexts,
        plain["matrix"],
        plain["checkpoint"],
        plain["divergence"],
        plain["data_root"],
        plain["threads"],
    )
    return plain["run"], options


def _show(measured: list[MeasuredRun], options: RankOptions) -> None:
    """Tables of as many runs as fit beside each other."""
    from rich.console import Console

    from lmkit.analyses.rank_report import rank_notes, rank_table

    console = Console()
    beside = max(1, console.width // COLUMN_WIDTH - 1)
    for start in range(0, len(measured), beside):
        console.print(rank_table(measured[start : start + beside], options))
    for note in rank_notes(measured, options):
        print(note)


def _draw(path: Path, measured: list[MeasuredRun], options: RankOptions) -> None:
    """A figure for each run, and one of all in the folder that holds them."""
    from lmkit.analyses.rank_report import rank_title
    from lmkit.evaluation.rank import file_stem
    from lmkit.presentation.figures import save
    from lmkit.presentation.spectrum_figures import spectra

    drawn = {}
    for run in measured:
        stem = file_stem(options, run.spectrum.measures.num_contexts)
        drawn[run.folder.spectra / f"{stem}.svg"] = [run]
    if path != measured[0].folder.path:
        contexts = options.contexts or "all"
        drawn[path / f"spectra_{file_stem(options, contexts)}.svg"] = measured
    title = rank_title(options)
    for file, runs in drawn.items():
        save(spectra({run.folder.path.name: run.spectrum for run in runs}, title), file)
    print(f"spectra:  {list(drawn)[-1]}")
    print(f"measures: {measured[0].folder.analysis}" + (", ..." if len(measured) > 1 else ""))
