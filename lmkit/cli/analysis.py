"""Any analysis as a command: `lmkit rank run=RUNS` measures finished runs and shows the outcome.

Each file in conf/analyses/, or in the same folder of the user's own configs, names an analysis.
"""

from omegaconf import DictConfig
from rich.console import Console

from lmkit.analyses.base import Analysis, Record
from lmkit.analyses.measuring import Outcomes, measure_models, measure_runs
from lmkit.cli.command_line import CONFIGS
from lmkit.cli.entry import entry_point, plain_config, typed_options
from lmkit.errors.user_error import UserError, first_reason, require_flag, require_threads
from lmkit.experiment.make import make
from lmkit.presentation.figures import figure, house_style, legend_below, save
from lmkit.presentation.tables import DASH, key_values
from lmkit.pretrained.source import OPTIONS, PretrainedSource
from lmkit.runs.selection import select_runs
from lmkit.sweeps.axes import option_of

LISTED = 12  # of a list's values, on the terminal
OF_RUNS = ("run", "data_root", "changed_code", "split", "checkpoint", "compared_with", "published")


def run_analysis(name: str) -> None:

    @entry_point(f"analyses/{name}")
    def main(config: DictConfig) -> None:
        options = plain_config(config)
        runs = options.pop("run")
        how = {key: options.pop(key) for key in ("data_root", "changed_code", "threads")}
        require_flag("changed_code", how["changed_code"])
        if how["threads"] is not None:
            require_threads(how["threads"])
        pretrained = {key: options.pop(key) for key in OPTIONS} if "hf" in options else {}
        has_models = pretrained.get("hf") is not None
        if pretrained:
            _require_one_source(runs, has_models=has_models)
        if not has_models:
            selected = select_runs("run", runs)  # before torch is imported, which takes seconds
        analysis = make(options, "", Analysis)
        if not type(analysis).__module__.startswith("lmkit."):
            _require_own_name(analysis)
        if has_models:
            outcomes = measure_models(analysis, PretrainedSource(**pretrained), how["threads"])
        else:
            outcomes = measure_runs(analysis, [each.folder for each in selected.runs], **how)
            outcomes.left_out.update(selected.left_out)
        show(analysis, outcomes, "model" if has_models else "run")

    main()


def _require_own_name(analysis: Analysis) -> None:
    """Raises UserError for a user's analysis whose name is that of something else."""
    from lmkit.results.frame import SECTIONS  # brings pandas

    refused = f"{type(analysis).__name__}.name must be another"
    if (CONFIGS / "analyses" / f"{analysis.name}.yaml").exists():
        raise UserError(f"{refused}: lmkit's own analysis is called {analysis.name}")
    if analysis.name in (*SECTIONS, "data", "cost", "code"):
        raise UserError(f"{refused}: columns of the table of runs begin with {analysis.name}, too")


def _require_one_source(runs: object, *, has_models: bool) -> None:
    """Raises UserError unless runs or models are given, with no option of the other kind."""
    if runs is None and not has_models:
        raise UserError("run is not set: give it as run=RUNS, or pretrained models as hf=MODEL")
    typed = list(map(option_of, typed_options()))
    foreign = [option for option in (OF_RUNS if has_models else OPTIONS) if option in typed]
    if foreign:
        source = "hf" if has_models else "run"
        raise UserError(f"{foreign[0]} does not go with {source}=; --help says which options do")


def show(analysis: Analysis, outcomes: Outcomes, kind: str) -> None:
    """Prints a table of each record, and draws it. Raises: UserError when nothing was measured."""
    if not outcomes.measured:
        raise UserError(f"no {kind} could be measured: {first_reason(outcomes.left_out)}")
    for name, reason in outcomes.left_out.items():
        print(f"left out: {name}: {reason}")
    console = Console()
    for file, measured in outcomes.measured:
        rows = record_rows(measured.record)
        console.print(key_values(measured.label, rows))
        for line in analysis.lines(measured.record):
            print(line)
        if analysis.caption and file.exists():  # else the run was trained further meanwhile
            path = file.with_suffix(".svg")
            with house_style():
                drawn, axes = figure((7, 4.5))
                analysis.draw(axes, [measured])
                legend_below(drawn)
                axes.set_title(measured.label, fontsize="medium")
            save(drawn, path)
            print(f"written: {path}")


def record_rows(record: Record) -> list[tuple[str, str]]:
    """The fields of a record, by their headings, as the terminal shows them."""
    names, fields = record.columns(), type(record).model_fields
    return [
        (names.get(name, name.replace("_", " ")), _text(value))
        for name, value in record.model_dump().items()
        if fields[name].repr  # the others are in the analysis's lines
    ]


def _text(value: object) -> str:
    if isinstance(value, list):
        shown = ", ".join(map(_text, value[:LISTED]))
        return f"{shown}, … ({len(value):,} in all)" if len(value) > LISTED else shown
    if isinstance(value, dict):
        # long lists, such as a histogram's, are in the file
        long = {name for name, each in value.items() if isinstance(each, list) and each[LISTED:]}
        return "; ".join(
            f"{name}: {f'{len(each):,} values' if name in long else _text(each)}"
            for name, each in value.items()
        )
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return DASH if value is None else str(value)
