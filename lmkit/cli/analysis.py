"""Any analysis as a command: `lmkit rank run=RUNS` measures finished runs and shows the outcome.

Each file in conf/analyses/, or in the same folder of the user's own configs, names an analysis.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from matplotlib.figure import Figure
from omegaconf import DictConfig
from rich.console import Console

from lmkit.analyses import base
from lmkit.analyses.analysis import Analysis, MeasuredRun
from lmkit.analyses.measuring import (
    Measured,
    Outcomes,
    measure_models,
    measure_pretrained,
    measure_runs,
    measure_subjects,
)
from lmkit.cli.entry import create, entry_point, plain_config
from lmkit.cli.finetune import published_config
from lmkit.comparison.facts import published_of_runs
from lmkit.errors.user_error import UserError, require_flag, require_threads
from lmkit.presentation.figures import save
from lmkit.presentation.style import house_style
from lmkit.presentation.tables import DASH, key_values
from lmkit.presentation.terminal import to_terminal
from lmkit.pretrained.hf_source import OPTIONS, PretrainedSource
from lmkit.runs.analysis_files import analysis_file
from lmkit.runs.folder import RunFolder
from lmkit.runs.selection import select_runs

LISTED = 12  # of a list's values, on the terminal
OF_RUNS = ("run", "data_root", "changed_code", "split", "checkpoint", "compared_with", "published")


def run_analysis(name: str) -> None:
    """Runs the analysis of that name as a command."""

    @entry_point(f"analyses/{name}")
    def main(config: DictConfig) -> None:
        options = plain_config(config)
        runs, threads = options.pop("run"), options.pop("threads")
        how = {key: options.pop(key) for key in ("data_root", "changed_code")} | {
            "threads": threads
        }
        require_flag("changed_code", how["changed_code"])
        if threads is not None:
            require_threads(threads)
        pretrained = {key: options.pop(key) for key in OPTIONS} if "hf" in options else {}
        has_models = pretrained.get("hf") is not None
        if pretrained:
            _require_one_source(runs, has_models=has_models)
        if not has_models:
            selected = select_runs("run", runs)  # before torch is imported, which takes seconds
        analysis = create(options, name)
        if isinstance(analysis, base.RecordAnalysis):
            if has_models:
                outcomes = measure_models(analysis, PretrainedSource(**pretrained), threads)
            else:
                taken = [each.folder for each in selected.runs]
                outcomes = measure_subjects(analysis, taken, **how)
                outcomes.left_out.update(selected.left_out)
            show_records(analysis, outcomes, "model" if has_models else "run")
            return
        if not isinstance(analysis, Analysis):
            raise UserError(f"{options['_target_']} is not derived from Analysis")
        if has_models:
            source = PretrainedSource(**pretrained)
            measured, folders = measure_pretrained(analysis, source, threads)
            show(analysis, measured, "model")
            draw(analysis, measured, folders, source.out)
            return
        analysis.published_of_run = published_of_runs(selected.runs, published_config)
        folders = [each.folder for each in selected.runs]
        measured = measure_runs(analysis, folders, **how)
        show(analysis, Measured(measured.contents, measured.left_out | selected.left_out))
        is_folder = isinstance(runs, str) and Path(runs).is_dir()
        of_all = Path(runs) if is_folder else folders[0].path.parent
        draw(analysis, measured, folders, of_all)

    main()


def _require_one_source(runs: object, *, has_models: bool) -> None:
    """Raises UserError unless runs or models are given, with no option of the other kind."""
    if runs is None and not has_models:
        raise UserError("run is not set: give it as run=RUNS, or pretrained models as hf=MODEL")
    typed = [each.partition("=")[0].lstrip("+") for each in HydraConfig.get().overrides.task]
    foreign = [option for option in (OF_RUNS if has_models else OPTIONS) if option in typed]
    if foreign:
        source = "hf" if has_models else "run"
        raise UserError(f"{foreign[0]} does not go with {source}=; --help says which options do")


def show_records(analysis: base.RecordAnalysis, outcomes: Outcomes, kind: str) -> None:
    """Prints a table of each record, and draws it. Raises: UserError when nothing was measured."""
    if not outcomes.measured:
        ((name, reason), *others) = outcomes.left_out.items()
        more = f" (and {len(others)} more)" if others else ""
        raise UserError(f"no {kind} could be measured: {name}: {reason}{more}")
    for name, reason in outcomes.left_out.items():
        print(f"left out: {name}: {reason}")
    console = Console()
    for folder, stem, measured in outcomes.measured:
        rows = record_rows(measured.record)
        console.print(to_terminal(key_values(measured.label, rows)))
        for line in analysis.lines(measured.record):
            print(line)
        if analysis.caption:
            path = analysis_file(folder, stem).with_suffix(".svg")
            save(drawn(analysis, [measured]), path)
            print(f"written: {path}")


def drawn(analysis: base.RecordAnalysis, measured: Sequence[base.StoredRecord]) -> Figure:
    """The analysis's figure, in the house's style."""
    with house_style():
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.subplots()
        analysis.draw(axes, measured)
        axes.set_title(", ".join(each.label for each in measured), fontsize="medium")
    return figure


def record_rows(record: base.Record) -> list[tuple[str, str]]:
    """The fields of a record, by their headings, as the terminal shows them."""
    names, fields = record.columns(), record.model_dump().items()
    return [(names.get(name, name.replace("_", " ")), _text(value)) for name, value in fields]


def _text(value: object) -> str:
    if isinstance(value, list):
        shown = ", ".join(map(_text, value[:LISTED]))
        return f"{shown}, … ({len(value):,} in all)" if len(value) > LISTED else shown
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return DASH if value is None else str(value)


def show(analysis: Analysis, measured: Measured, kind: str = "run") -> None:
    """Prints tables and notes. Raises: UserError when no run, or model, could be measured."""
    if not measured.contents:
        ((name, reason), *others) = measured.left_out.items()
        more = f" (and {len(others)} more)" if others else ""
        raise UserError(f"no {kind} could be measured: {name}: {reason}{more}")
    for name, reason in measured.left_out.items():
        print(f"left out: {name}: {reason}")
    console = Console()
    for table in analysis.tables(measured.contents):
        console.print(to_terminal(table))
    for note in analysis.notes(measured.contents):
        print(note)


def draw(
    analysis: Analysis, measured: Measured, folders: Sequence[RunFolder], of_all: Path
) -> None:
    """Draws the runs that were measured.

    Args:
        folders: of these runs, possibly among others.
        of_all: the folder of figures over several runs.
    """
    contents = measured.contents
    runs = [
        MeasuredRun(run, contents[run.path.name]) for run in folders if run.path.name in contents
    ]
    for path, figure in analysis.figures(runs, of_all).items():
        save(figure, path)
        print(f"written: {path}")
