"""Tables and figures over many runs, beside the published values: `lmkit report`."""

from __future__ import annotations

import glob
from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console

from lmkit import analyses, report
from lmkit.cli.entry import entry_point, plain_config
from lmkit.cli.finetune import published_config
from lmkit.errors.user_error import UserError, require_flag, require_folder, require_names
from lmkit.presentation.tables import counted
from lmkit.runs.finished import LeftOut, changed_since
from lmkit.runs.selection import Selection, select_runs


@entry_point("report")
def main(config: DictConfig) -> None:
    """Writes the page of the selected runs, and prints what is left out."""
    plain = plain_config(config)
    require_flag("strict", plain["strict"])
    require_folder("out", plain["out"])
    window = report.rank.perplexity_window(plain["window"])
    keys = _names("sections", plain["sections"], "sections of the page")
    studies = _names("synthetic", plain["synthetic"], "folders of studies")
    console = Console()
    with console.status(f"reading {plain['runs']}"):
        selected = Selection([], {})
        if plain["runs"] is not None:
            selected = select_runs("runs", plain["runs"], plain["runs_dir"], with_models=True)
        available = analyses.finding.find_analyses()
    unread = [LeftOut(name, reason) for name, reason in selected.left_out.items()]
    left_out = [*unread, *available.left_out]
    if studies is None:
        studies = _studies_beside(selected)
    with console.status("drawing"):
        written = report.contents.make_report(
            selected.runs,
            analyses=available.classes,
            experiments=published_config,
            baseline=plain["baseline"],
            window=window,
            out=Path(plain["out"]),
            left_out=left_out,
            models=selected.models,
            studies_in=studies,
            keys=keys,
            title=plain["title"],
            about=plain["about"],
        )
    changed = changed_since(selected.runs)
    if changed:
        print(changed)
    for each in written.left_out:
        print(f"left out: {each.name}: {each.reason}")
    counts = [counted(len(selected.runs), "run")] if selected.runs or not selected.models else []
    if selected.models:
        counts.append(counted(len(selected.models), "pretrained model"))
    print(f"{', '.join(counts)}: {written.page}")
    if plain["strict"] and written.left_out:
        count = "1 was" if len(written.left_out) == 1 else f"{len(written.left_out):,} were"
        raise UserError(f"strict=true: {count} left out of the report")


def _names(option: str, value: object, kind: str) -> list[str] | None:
    """The texts of an option that may be null, or an empty list."""
    if value is None:
        return None
    return [] if value == [] else require_names(option, value, kind)


def _studies_beside(selected: Selection) -> list[str]:
    """Patterns that match studies in the folders of the runs and the models."""
    folders = [*(run.folder for run in selected.runs), *selected.models]
    parents = dict.fromkeys(folder.path.parent.resolve() for folder in folders)
    return [f"{glob.escape(str(parent))}/synthetic/*" for parent in parents]
